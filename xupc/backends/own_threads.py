"""The daemon threads of xupc in a process of the program, and how they are woken up.

Python's collector runs in any thread that makes objects, and there calls finalizers of the program:
in these threads, too. So such a thread never waits for a lock that a thread of the program may
hold, and finalizers there may make no calls that wait.
"""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue

__all__ = [
    "DEADLINE", "GUARD", "PROGRESS", "ReentrantEvent", "is_own", "main_alone", "own_thread",
]  # fmt: skip

PROGRESS = "xupc-progress"  # advances posted calls
GUARD = "xupc-guard"  # detects failures
DEADLINE = "xupc-deadline"  # watches init and finalize
_NAMES = frozenset((PROGRESS, GUARD, DEADLINE))


def own_thread() -> str:
    """Return the name of the calling Python thread if it is one of xupc's; "" if it is not."""
    thread = threading.current_thread()
    return thread.name if is_own(thread) else ""


def is_own(thread: threading.Thread) -> bool:
    """Return whether a Python thread is one of xupc's."""
    return thread.name in _NAMES


def main_alone() -> bool:
    """Return whether the program has no Python thread but the main one."""
    others = (t for t in threading.enumerate() if t is not threading.main_thread())
    return all(is_own(t) for t in others)


class ReentrantEvent:
    """An event that one Python thread waits for, and all code may set.

    `threading.Event` holds a lock in lines of Python. A finalizer or signal handler that runs
    between them, and sets the event, would wait for its own thread. This one holds none.
    """

    def __init__(self) -> None:
        self._set = False
        self._signals: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return True from `set` to `clear`."""
        return self._set

    def set(self) -> None:
        """Set the event, which wakes the waiting thread up, now or at its next wait."""
        self._set = True
        if self._signals.empty():
            self._signals.put(None)

    def clear(self) -> None:
        """Let the next wait wait. It may still return at once, if `set` runs at the same time."""
        self._set = False
        while not self._signals.empty():
            self._signals.get()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, or so many seconds; return whether it is set."""
        if not self._set:
            with contextlib.suppress(Empty):
                self._signals.get(timeout=timeout)
        return self._set
