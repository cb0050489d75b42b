"""Before the guards stand, and after they have gone: MPI's blocking calls, in which nobody looks.

A thread of Python's does, on behalf of a `Deadline`: it sees how long the call has taken and, once
the threads of a machine have proved to share memory, who has died (`InitDeathWatch`). It says so
and ends the job.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..backends.native.native_core import core
from ..comm.mpi import ABORT, abort_all, drop_files, place_in_mpi, start_mpi
from ..errors import XupcError
from ..pgas.segment import Segment, hold_lock, lock_holder

if TYPE_CHECKING:
    from ..runtime.executor import WaitState
    from .failure_tree import FailureTree

__all__ = ["Deadline", "InitDeathWatch", "Unguarded"]

TICK = 0.25  # seconds between two looks
UNWATCHED = 60.0  # for a stage of init in which a death may not be seen, whatever the timeout
OURS_FIRST = 0.3  # from the end of a wait of ours, which says more, to that of MPI's
CORE_LAST = 0.4  # and from there to that of one in which MPI keeps the interpreter
MPI_TELLS = 1.0  # MPI fails: how long to look for the death behind it
OTHERS_WORDS = 0.8  # for others' words, and for the launcher to pass them on: it ends with the job


class Unguarded:
    """What stands in for the guard until the job has got far enough to be watched."""

    def look(self, waiting: WaitState) -> None:
        """There is nothing to see yet."""

    def interrupted(self, what: str, error: BaseException) -> None:
        """Nothing can be called yet."""

    def mpi_failed(
        self, error: Exception, waiting: WaitState, what: str = "MPI failed"
    ) -> XupcError:
        """The error to raise for one of MPI's."""
        return XupcError(f"init: {what} in {waiting.name}: {error}")

    def mpi_refused(self, error: Exception, waiting: WaitState) -> XupcError:
        """The same, for one that all threads get."""
        return self.mpi_failed(error, waiting)

    def end_job(self, status: int, why: str, *, ours: bool) -> None:
        """End the whole job, if there are others: they may wait in init, or would in MPI's end.

        Where MPI has not begun here they wait in its start, and only there they can be told.
        """
        if place_in_mpi()[1] > 1:
            time.sleep(OTHERS_WORDS)
            drop_files()
        with contextlib.suppress(ImportError, XupcError):
            start_mpi()
            abort_all(status)


class InitDeathWatch:
    """Who of a machine has died in init, from its proof of shared memory until its guards stand.

    Each thread holds the lock on a byte of the proof's segment. One that leaves by an error that
    all raise says so first: that is no death.

    Parameters
    ----------
    segment : Segment
        Of at least `bytes_for` so many threads as made the proof; mine until `close`.
    index : int
        Mine among them. To be made before any of them asks for `deaths`.

    Attributes
    ----------
    names : sequence of str
        Those to look for, in words, by index; "" for one that is not of this machine.
    """

    _LEFT = 64

    def __init__(self, segment: Segment, index: int) -> None:
        self.segment = segment
        self.index = index
        self.names: Sequence[str] = ()
        hold_lock(segment.fd, index)

    @classmethod
    def bytes_for(cls, threads: int) -> int:
        """Size of a segment for so many."""
        return (cls._LEFT + threads + 4095) // 4096 * 4096

    def deaths(self) -> list[str]:
        """Who has died, in words."""
        return [
            f"{name} died in init"
            for i, name in enumerate(self.names)
            if name and i != self.index and not self.segment.array[self._LEFT + i]
            and lock_holder(self.segment.fd, i) is None
        ]  # fmt: skip

    def close(self) -> None:
        """I am through init, or leave it by an error; my end is told by others, or no death."""
        self.segment.array[self._LEFT + self.index] = 1
        self.segment.close_fd()


class Deadline:
    """Watches over blocking calls of MPI.

    Where threads start and end together they have no wait of ours: if one of them stops there, the
    others end when they have been in one `stage` for longer than the timeout; if one dies there,
    as soon as the `lookout` sees it. A thread of Python's does that, so that what was printed is
    not lost, and has MPI end the one that stopped, whom nobody on its machine might end; where MPI
    keeps the interpreter, the core ends the process.
    """

    def __init__(self, timeout: float | None, call: str, who: str) -> None:
        self.timeout = timeout
        self.call = call
        self.who = who
        self._stage = ""
        self._since = time.monotonic()
        self._limit: float | None = None
        self._lookout: InitDeathWatch | None = None
        self._lifeline: FailureTree | None = None
        self._looks = False
        self._lock = threading.Lock()
        self._over = threading.Event()

    def stage(self, name: str, *, unwatched: bool = False) -> None:
        """What is next, in words; `unwatched`: a death in it might not be seen."""
        limit = UNWATCHED if self.timeout is None and unwatched else self.timeout
        self._limit = None  # of the last stage
        self._stage, self._since = name, time.monotonic()
        self._limit = limit
        if core is None:
            return
        if limit is None:
            core.call_off()
        else:
            core.end_in(limit + OURS_FIRST + CORE_LAST, self._words(limit).encode())

    def look_out(self, lookout: InitDeathWatch) -> None:
        """From now on have it looked at; it is closed when all this is over."""
        with self._lock:
            self._lookout, self._looks = lookout, True

    def hear(self, lifeline: FailureTree | None) -> None:
        """From now on deaths on other machines are heard of, too."""
        with self._lock:
            self._lifeline = lifeline

    def hand_over(self) -> None:
        """Others look from now on, and nobody here on return."""
        with self._lock:
            self._looks = False

    def __enter__(self) -> Deadline:
        _Watcher.watch(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._looks and kind is not None and _is_of_mpi(kind):
            time.sleep(MPI_TELLS)  # a death behind it is told meanwhile, which ends the job
        self._over.set()
        if kind is not None and self._looks and self._lifeline is not None:
            self._lifeline.farewell()
        self.hand_over()
        if self._lookout is not None:
            self._lookout.close()
        if core is not None:
            core.call_off()

    def _words(self, waited: float) -> str:
        return (
            f"xupc: HangError: {self.call}: {self.who} has waited {waited:.1f} s for other threads "
            f"in {self._stage}\n"
        )

    def watch(self) -> None:
        """Look until all this is over, or something is wrong; the watcher's business."""
        while not self._over.wait(self._tick()):
            with contextlib.suppress(Exception):  # whatever becomes of it, time must be looked at
                if words := self._wrong():
                    break
        else:
            return
        with contextlib.suppress(Exception):  # nobody may be there to read it
            sys.stderr.write(words)
            sys.stderr.flush()
            sys.stdout.flush()
        if core is not None:
            core.end_in(OTHERS_WORDS + ABORT, b"")
        time.sleep(OTHERS_WORDS)
        drop_files()
        with contextlib.suppress(BaseException):
            abort_all(1)
        os._exit(1)

    def _tick(self) -> float:
        limit = self._limit
        if limit is None:
            return TICK
        left = self._since + limit + OURS_FIRST - time.monotonic()
        return min(TICK, max(left, 0.001))

    def _wrong(self) -> str:
        """What is wrong, as a line to print, "" if nothing is."""
        limit, waited = self._limit, time.monotonic() - self._since
        if limit is not None and waited > limit + OURS_FIRST:
            return self._words(waited)
        deaths = "; ".join(self._deaths())
        return f"xupc: {self.who}: DeadThreadError: {deaths}\n" if deaths else ""

    def _deaths(self) -> list[str]:
        with self._lock:
            if self._lookout is None or not self._looks:
                return []
            if self._lifeline is None:
                return self._lookout.deaths()
            self._lifeline.turn(0)
            return self._lookout.deaths() + [text for _, text in self._lifeline.news]


class _Watcher:
    """The one Python thread that looks for all deadlines, one after the other.

    It is started with the first of them and stays: when the interpreter ends it starts no thread
    any more (Python 3.12), and finalize has deadlines, too.
    """

    _thread: threading.Thread | None = None
    _deadlines: SimpleQueue[Deadline] = SimpleQueue()

    @classmethod
    def watch(cls, deadline: Deadline) -> None:
        """Have it looked at from now on."""
        if cls._thread is None or not cls._thread.is_alive():  # as in a forked child
            thread = threading.Thread(target=cls._run, name="xupc-deadline", daemon=True)
            try:
                thread.start()
            except RuntimeError as e:
                text = f"{deadline.call}: Python starts no thread here, and xupc needs some: {e}"
                raise XupcError(text) from e
            cls._thread = thread
        cls._deadlines.put(deadline)

    @classmethod
    def _run(cls) -> None:
        while True:
            cls._deadlines.get().watch()


def _is_of_mpi(kind: type[BaseException]) -> bool:
    """Whether this comes of an error of MPI's, as it is or as `Unguarded` says it."""
    return kind is XupcError or kind.__module__.startswith("mpi4py")
