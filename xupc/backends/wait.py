"""The results of running a plan, and the state of one wait.

A leaf: the interpreter, messages, failure detection and the executor share these definitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ..records import record
from .protocol import Instance
from .running_time import RunningTime

__all__ = [
    "AWAKE_NS",
    "CALL_PYTHON",
    "DONE",
    "HOT_NS",
    "MISMATCH",
    "PENDING",
    "SLICE_NS",
    "Executor",
    "WaitState",
    "Waitable",
]

DONE, PENDING, CALL_PYTHON, MISMATCH = range(4)  # results of `Instance.run`, as in shm_protocol.h
HOT_NS = 2_000_000
AWAKE_NS = 200_000
SLICE_NS = 50_000_000
STALL_NS = 500_000_000


@record
class Waitable:
    """A condition to poll or to wait for.

    Attributes
    ----------
    done
        Return whether it is met.
    what, threads, place, agreement
        For reports, as in `Engine.wait_for`.
    instance
        Instead of `done`: a call that must complete.
    """

    done: Callable[[], bool] = bool
    what: str = ""
    threads: Sequence[int] = ()
    place: tuple[int, int] | None = None
    agreement: int = 0
    instance: Instance | None = None


class WaitState:
    """One wait: what for, how long so far, and what has been reported of it.

    Attributes
    ----------
    instance
        The call that waits; None for a condition that is no call.
    what, threads, agreement
        Without a call: the condition as text, the threads that it waits for, and the number of
        the agreement, for reports.
    place
        The team and operation of the wait, so that threads that wait for each other are found.
    warned, published
        True after a warning of a long wait, and after its publication to the threads of the
        machine.
    asked
        The ranks that were sent a question about the call.
    look
        True if it is time to look for calls on other nodes that differ.
    time
        How long this wait has taken so far.
    """

    def __init__(
        self,
        instance: Instance | None,
        what: str = "",
        threads: Sequence[int] = (),
        agreement: int = 0,
    ) -> None:
        self.instance = instance
        self.what = what
        self.threads = threads
        self.agreement = agreement
        self.place: tuple[int, int] | None = None
        if instance is not None:
            self.place = instance.owner.number, instance.op
        self.warned = False
        self.published = False
        self.time = RunningTime()
        began = self.time.since
        self.hot_until = began + HOT_NS
        self.next_watch = began + SLICE_NS
        self.look = False
        self.moved_at = began
        self.asked: set[int] = set()

    @property
    def name(self) -> str:
        """The text form of the call or condition of this wait."""
        instance = self.instance
        return self.what if instance is None else instance.owner.titled(instance.record.call)

    @property
    def stalled(self) -> bool:
        """True if the wait has made no progress for `STALL_NS`."""
        return time.monotonic_ns() - self.moved_at > STALL_NS

    def moved(self) -> None:
        """Record progress, and poll at short intervals again."""
        self.moved_at = time.monotonic_ns()
        self.hot_until = self.moved_at + HOT_NS


class Executor(Protocol):
    """The part of the executor that waits for conditions; `runtime/executor.py` implements it."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while calls make progress."""

    def wait_for(
        self,
        done: Callable[[], bool],
        what: str,
        *,
        threads: Sequence[int] = (),
        agreement: int = 0,
    ) -> None:
        """Wait until ``done()`` holds; `what`, `threads` and `agreement` are for reports."""

    def guarded(self, wait: WaitState) -> AbstractContextManager[WaitState]:
        """Translate the errors of MPI calls."""
