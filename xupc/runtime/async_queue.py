"""Run asynchronous calls in the background, and during the waits of the program.

Each team has a queue of such calls. It begins them one after the other, in the order in which the
program posted them. So all threads make the same calls in the same order. Barriers, scratch and
operation numbers are the same as for blocking calls. Queues of different teams progress
independently of each other. A blocking call first completes its own team's queue. Every wait makes
progress on the queues of all teams.

Messages between nodes make no progress while the program computes. So a daemon thread (`Progress`)
polls every 0.5 ms, or every 1 ms if nothing moves, provided that MPI permits calls from several
threads. The same thread serves one-sided accesses of other nodes' threads, for a while after any
thread of the job has made one.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ..backends.own_threads import PROGRESS, ReentrantEvent
from ..backends.wait import DONE, MISMATCH, SLICE_NS, Waitable, WaitState
from ..comm.mpi import MpiContext
from ..errors import XupcError
from ..health.call_record import CallRecord
from ..health.failure_detector import FailureDetector
from ..health.init_watchdog import Unguarded
from ..health.mismatch_recovery import MismatchDetector, Resync
from ..pgas.allocation import Allocation
from .call_hooks import HookedCall, hooks
from .callers import Callers
from .executor import Engine, RunningCall

__all__ = ["AsyncCall", "Progress"]

EVERY = 5e-4  # seconds between two polls
STARTS = 1.0  # the most seconds that `stop` waits for another Python thread to start the daemon


class QueueServices(Protocol):
    """The part of the job that posted calls use."""

    network: MpiContext
    guard: FailureDetector | Unguarded
    broken: BaseException | None
    unfinished: set[AsyncCall]

    @property
    def engine(self) -> Engine:
        """Executor of the job."""

    @property
    def callers(self) -> Callers:
        """Calls of the Python threads of this process."""

    @property
    def pending(self) -> Sequence[object]:
        """Teams with posted calls that are not complete."""

    def check(self) -> None:
        """Raise if the job is over or broken."""

    def check_outside(self, call: str) -> None:
        """Raise if a function that a collective calls makes this call."""

    def progress(self, *, wait: bool = False) -> bool:
        """Advance the posted calls of all teams; return True if one completed."""


class QueueTeam(Protocol):
    """The part of a team that its posted calls use."""

    differences: MismatchDetector

    @property
    def job(self) -> QueueServices:
        """Job of the team."""

    def ahead(self) -> RunningCall | None:
        """Return the barrier that must precede the next call, after many without one."""

    def post(self, pending: AsyncCall) -> None:
        """Put a call into the queue, and start it if the queue was empty."""

    def drain(self, last: AsyncCall | None = None) -> None:
        """Wait until the queue is empty, or the call `last` has completed."""


class AsyncCall:
    """A call in its team's queue.

    Parameters
    ----------
    instances : iterable
        The parts of the call, to be run in order; each is made when it is requested.
    record : Record
        The text form of the call.
    allocations : sequence
        The memory that it uses.

    Attributes
    ----------
    done
        True if the call has ended.
    error
        The exception to raise in the thread that waits, or None.
    abandoned
        True if the program has dropped the handle, so that no thread waits for the call.
    """

    def __init__(
        self,
        team: QueueTeam,
        instances: Iterable[RunningCall | Waitable],
        record: CallRecord,
        allocations: Sequence[Allocation] = (),
    ) -> None:
        self.team = team
        self.record = record
        self.allocations = allocations
        self.done = False
        self.error: BaseException | None = None
        self._instances: Iterator[RunningCall | Waitable] = iter(instances)
        self._instance: RunningCall | Waitable | None = None
        self._hooked: HookedCall | None = None  # the instance, for hooks
        self._found: int | None = None  # MISMATCH, if it was seen on arrival
        self._waiting: WaitState | None = None  # for the instance, while `advance` polls it
        self._resync: Resync | None = None  # of the instance, since a difference was seen
        self.abandoned = False
        # its function sees what was set where it was posted, such as numpy.errstate
        self._context = contextvars.copy_context()
        self._busy = False  # a caller advances it now, maybe inside a wait

    @property
    def call(self) -> str:
        """The text form of the call."""
        return self.record.call

    def arrive(self) -> None:
        """Begin the call, without a check that other threads enter it."""
        instance = self._begin()
        if isinstance(instance, Waitable):
            raise TypeError(f"{self.call}: expected a call that arrives, got a condition")
        if instance is not None and instance.poll() == MISMATCH:
            self._found = MISMATCH

    def advance(self) -> bool:
        """Advance the call as far as possible without waiting; return True when it has ended."""
        if self._busy:
            return False
        return self._context.run(self._advance)

    def _advance(self) -> bool:
        self._busy = True
        try:
            while (instance := self._begin()) is not None:
                if not self._step(instance):
                    return False
                self._instance = None
        except BaseException as e:
            self._wrong(e)
        finally:
            self._busy = False
        return True

    def _step(self, instance: RunningCall | Waitable) -> bool:
        """Advance the instance without waiting; return True when it has completed."""
        engine = self.team.job.engine
        if isinstance(instance, Waitable):
            return engine.met(instance)
        if self._resync is None:
            status, self._found = self._found or engine.poll(instance), None
            if status == DONE:
                engine.end(instance)
                self._end_hooks(None)
                return True
            if status != MISMATCH and not self._is_mismatch_reported(instance):
                return False
            self._resync = Resync(instance)
        self._resync.poll()
        return False

    def _is_mismatch_reported(self, instance: RunningCall) -> bool:
        """Check from time to time if other threads report that they run a different call."""
        if not self.team.job.engine.several_nodes:
            return False
        waiting = self._waiting = self._waiting or WaitState(instance)
        now = time.monotonic_ns()
        if now < waiting.next_watch:
            return False
        waiting.next_watch = now + SLICE_NS
        return self.team.differences.seen(instance, waiting)

    def finish(self) -> None:
        """Wait until the call has ended."""
        with self.team.job.engine.lock:
            self._context.run(self._finish)

    def _finish(self) -> None:
        engine = self.team.job.engine
        try:
            self._busy = True
            while (instance := self._begin()) is not None:
                if self._resync is not None:
                    self._resync.finish()
                if isinstance(instance, Waitable):
                    engine.wait_until(instance)
                else:
                    found, self._found = self._found, None
                    instance.claim()
                    engine.finish(instance, found)
                    self._end_hooks(None)
                self._instance = None
        except BaseException as e:
            self._wrong(e)
        finally:
            self._busy = False

    def abandon(self) -> None:
        """Mark the call as one that no thread waits for; it keeps its memory until it ends."""
        self.abandoned = True
        if self.done:
            self.team.job.unfinished.discard(self)

    def withdraw(self) -> None:
        """Cancel the call: after this no thread may access this thread's arrays."""
        if self._instance is not None and not isinstance(self._instance, Waitable):
            self._instance.withdraw()

    def _begin(self) -> RunningCall | Waitable | None:
        """Return the instance in progress; begin the next one if there is none.

        None means that all have ended.
        """
        if self._instance is None and not self.done:
            job = self.team.job
            following = self.team.ahead() or next(self._instances, None)
            if following is None:
                self._over(None)
            elif not isinstance(following, Waitable):
                self._hooked = hooks.begin(following)
                job.engine.begin(following)
            self._instance, self._waiting = following, None
        return self._instance

    def _wrong(self, error: BaseException) -> None:
        """Keep an exception for the thread that waits; raise an interrupt at once."""
        job, instance = self.team.job, self._instance
        with contextlib.suppress(Exception):  # the first error counts
            self._end_hooks(error)
        if isinstance(error, job.network.mpi.Exception):
            error = job.guard.mpi_failed(error, WaitState(None, self.call))
        half = instance is not None and (isinstance(instance, Waitable) or instance.active)
        own = isinstance(error, XupcError) or (isinstance(error, Exception) and not half)
        if not own:
            job.guard.interrupted(self.call, error)
            raise error
        self._over(error)

    def _end_hooks(self, error: BaseException | None) -> None:
        call, self._hooked = self._hooked, None
        hooks.end(call, error)

    def _over(self, error: BaseException | None) -> None:
        self.done, self.error = True, error
        self._instance = self._resync = None
        if self.abandoned:
            self.team.job.unfinished.discard(self)


class Progress:
    """The daemon thread that makes progress while the program computes.

    `wake` starts it when there is work for the first time, from any Python thread of this process.
    No function waits for a lock: finalizers and signal handlers that call `wake` may interrupt
    each of them.
    """

    def __init__(self, job: QueueServices) -> None:
        self.job = job
        self._until = 0.0  # one-sided accesses are served
        self._stop = False
        self._wake = ReentrantEvent()
        self._may_start = [True]  # the one that takes the item starts the thread
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start the daemon thread, or wake it up, since there is work."""
        if self._may_start and self._take_start():
            self._start()
        self._wake.set()

    def _take_start(self) -> bool:
        """Return True to one caller alone."""
        with contextlib.suppress(IndexError):
            return self._may_start.pop()
        return False

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=PROGRESS, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends: calls go on in waits alone
            self._thread = None

    def serve(self, until: float) -> None:
        """Serve one-sided accesses until the time `until`."""
        if until > self._until:
            self._until = until
            self.wake()

    def stop(self) -> None:
        """Stop the daemon thread for good, and wait until it has ended."""
        self._stop = True
        self._wake.set()
        if self._take_start():
            return
        deadline = time.monotonic() + STARTS
        while self._thread is not None and self._thread.ident is None:
            if time.monotonic() > deadline:  # it ends as soon as it runs
                return
            time.sleep(EVERY)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        job = self.job
        while not self._stop and job.broken is None:
            if not job.pending and time.monotonic() > self._until:
                self._wake.wait()
                self._wake.clear()
                continue
            ended, pause = False, EVERY
            if job.pending:
                before = job.engine.moves
                try:
                    ended = job.progress()
                except BaseException as e:  # SystemExit of a user's function, in whose call I am
                    job.guard.interrupted("a posted call", e)
                    return
                if job.engine.moves == before:  # a slow transfer: a poll costs more than it gains
                    pause = 2 * EVERY
            else:
                with contextlib.suppress(Exception):  # a thread that waits gets the same error
                    job.network.enter()
            if ended:
                os.sched_yield()
            else:
                time.sleep(pause)
