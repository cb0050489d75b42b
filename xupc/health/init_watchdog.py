"""Watchdog for the blocking MPI calls of init and finalize, while no failure detector runs.

A Python thread watches each `Deadline`: how long the call has taken and, as soon as the threads of
a machine have proved to share memory, which threads have died (`InitDeathWatch`). It prints the
error and ends the job.
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
from ..backends.own_threads import DEADLINE, ReentrantEvent
from ..backends.running_time import RunningTime
from ..backends.wait import WaitState
from ..comm.mpi import ABORT, abort_all, drop_files, start_mpi
from ..comm.place import place_in_mpi
from ..errors import XupcError, death_text
from ..pgas.segment import Segment, hold_lock, lock_holder

if TYPE_CHECKING:
    from .failure_tree import FailureTree

__all__ = ["Deadline", "InitDeathWatch", "Unguarded"]

TICK = 0.25  # seconds between two checks
UNWATCHED = 60.0  # seconds for a stage of init that detects no deaths, without a timeout
OURS_FIRST = 0.3  # seconds after the timeout: waits of xupc give a better report
CORE_LAST = 0.4  # seconds after that: the core ends a call of MPI that holds the interpreter
AFTER_MPI_ERROR = 1.0  # seconds to look for a death after an error of MPI
OTHERS_WORDS = 0.8  # seconds for other threads to print, and for the launcher to forward that


class Unguarded:
    """The failure detector of a job in init: it detects nothing."""

    def look(self, waiting: WaitState) -> None:
        """Do nothing."""

    def interrupted(self, what: str, error: BaseException) -> None:
        """Do nothing: no call is possible yet."""

    def mpi_failed(
        self, error: Exception, waiting: WaitState, what: str = "MPI failed"
    ) -> XupcError:
        """Return the error to raise for an error of MPI."""
        return XupcError(f"init: {what} in {waiting.name}: {error}")

    def mpi_refused(self, error: Exception, waiting: WaitState) -> XupcError:
        """Return the error to raise for an MPI error on all threads."""
        return self.mpi_failed(error, waiting)

    def end_job(self, status: int, why: str, *, ours: bool) -> None:
        """End the job if it has other threads: they may wait in init or in MPI_Finalize.

        If MPI has not started here, the others wait in its start, so this thread starts it, too.
        """
        if place_in_mpi()[1] > 1:
            time.sleep(OTHERS_WORDS)
            drop_files()
        with contextlib.suppress(ImportError, XupcError):
            start_mpi()
            abort_all(status)


class InitDeathWatch:
    """Detect deaths on this machine in init, from the proof of shared memory to the detectors.

    Each thread holds the lock on a byte of the proof's segment. A thread that leaves init by an
    error that all threads raise calls `close` first, so this is no death.

    Parameters
    ----------
    segment : Segment
        The segment of the proof, of at least `bytes_for` bytes; used until `close`.
    index : int
        The index of this thread in it. All threads make their object before one calls `deaths`.

    Attributes
    ----------
    names : sequence of str
        The names of the threads to watch, by index; "" for threads of other machines.
    """

    _LEFT = 64

    def __init__(self, segment: Segment, index: int) -> None:
        self.segment = segment
        self.index = index
        self.names: Sequence[str] = ()
        hold_lock(segment.fd, index)

    @classmethod
    def bytes_for(cls, threads: int) -> int:
        """Return the size of a segment for so many threads."""
        return (cls._LEFT + threads + 4095) // 4096 * 4096

    def settle(self) -> None:
        """Note that all threads have mapped the segment."""
        self.segment.settle()

    def deaths(self) -> list[str]:
        """Describe the threads that have died."""
        return [
            death_text(name, "in init")
            for i, name in enumerate(self.names)
            if name and i != self.index and not self.segment.array[self._LEFT + i]
            and lock_holder(self.segment.fd, i) is None
        ]  # fmt: skip

    def close(self) -> None:
        """Note that this thread leaves init: from here on its end is no death for this object."""
        self.segment.array[self._LEFT + self.index] = 1
        self.segment.close_fd()


class Deadline:
    """A limit for blocking calls of MPI.

    Threads start and end together inside MPI, not in a wait of xupc. If a thread stops there, the
    others end after the timeout of one `stage`; if it dies, as soon as the `InitDeathWatch`
    detects that. A Python thread ends the process, so that its output is not lost, and calls
    MPI_Abort, which also ends a stopped thread on another machine. While MPI holds the
    interpreter, the core ends the process.
    """

    def __init__(self, timeout: float | None, call: str, who: str) -> None:
        self.timeout = timeout
        self.call = call
        self.who = who
        self._stage = ""
        self._time = RunningTime()
        self._limit: float | None = None
        self._lookout: InitDeathWatch | None = None
        self._lifeline: FailureTree | None = None
        self._looks = False
        self._lock = threading.Lock()  # held for what the program cannot call again
        self._over = ReentrantEvent()

    def stage(self, name: str, *, unwatched: bool = False) -> None:
        """Begin a stage; `unwatched`: a death in it may not be detected."""
        limit = UNWATCHED if self.timeout is None and unwatched else self.timeout
        self._limit = None  # no limit while the stage changes
        self._stage, self._time = name, RunningTime()
        self._limit = limit
        if core is None:
            return
        if limit is None:
            core.call_off()
        else:
            core.end_in(limit + OURS_FIRST + CORE_LAST, self._words(limit).encode())

    def look_out(self, lookout: InitDeathWatch) -> None:
        """Watch for deaths from now on; close the `lookout` at the end."""
        with self._lock:
            self._lookout, self._looks = lookout, True

    def watch_with(self, lifeline: FailureTree | None) -> None:
        """Watch for deaths on other machines, too."""
        with self._lock:
            self._lifeline = lifeline

    def hand_over(self) -> None:
        """Stop the watch for deaths: on return the failure detector does it alone."""
        with self._lock:
            self._looks = False

    def __enter__(self) -> Deadline:
        _Watcher.watch(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._looks and kind is not None and _is_of_mpi(kind):
            time.sleep(AFTER_MPI_ERROR)  # if a death caused it, the watcher ends the job meanwhile
        self._over.set()
        if kind is not None and self._looks and self._lifeline is not None:
            self._lifeline.farewell()
        self.hand_over()
        with self._lock:  # the watcher keeps this object until it wakes up, but no memory
            lookout, self._lookout, self._lifeline = self._lookout, None, None
        if lookout is not None:
            lookout.close()
        if core is not None:
            core.call_off()

    def _words(self, waited: float) -> str:
        return (
            f"xupc: HangError: {self.call}: {self.who} has waited {waited:.1f} s for other threads "
            f"in {self._stage}\n"
        )

    def watch(self) -> None:
        """Check until the end of the calls or a failure; the watcher thread runs this."""
        while not self._over.wait(self._tick()):
            with contextlib.suppress(Exception):  # its errors must not stop the check of the time
                if words := self._wrong():
                    break
        else:
            return
        with contextlib.suppress(Exception):  # stderr may be closed
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
        left = limit + OURS_FIRST - self._time.look()
        return min(TICK, max(left, 0.001))

    def _wrong(self) -> str:
        """Return the failure as a line to print, "" if there is none."""
        limit, waited = self._limit, self._time.look()
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
    """The Python thread that watches all deadlines, one after the other.

    It starts with the first deadline and stays, because an interpreter that is shutting down
    starts no threads (Python 3.12), and finalize has deadlines, too.
    """

    _thread: threading.Thread | None = None
    _deadlines: SimpleQueue[Deadline] = SimpleQueue()

    @classmethod
    def watch(cls, deadline: Deadline) -> None:
        """Watch a deadline from now on."""
        if cls._thread is None or not cls._thread.is_alive():  # as in a forked child
            thread = threading.Thread(target=cls._run, name=DEADLINE, daemon=True)
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
    """Return whether it is an error of MPI, or what `Unguarded` makes of one."""
    return kind is XupcError or kind.__module__.startswith("mpi4py")
