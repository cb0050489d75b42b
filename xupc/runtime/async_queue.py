"""Calls that were posted: carried out behind the program's back, or when it waits.

Each team has a queue of them. They are begun one after the other, in the order in which
they were posted, so all threads make the same calls in the same order, and barriers,
scratch and operation numbers are what they are for blocking calls. Queues of different
teams go on independently of each other. A blocking call first lets its own team's queue
come to its end; any wait moves the queues of all teams on.

With messages between nodes under way nothing would move while the program computes: a
daemon thread (`Progress`) then looks every half millisecond, or every other half if nothing
moves, if MPI lets several threads call it. The same thread serves one-sided accesses of other
nodes' threads, for a while after any thread of the job has made one.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import XupcError
from ..health.mismatch_recovery import Resync, Waitable
from .executor import DONE, MISMATCH, SLICE_NS, WaitState

if TYPE_CHECKING:
    from ..health.call_record import CallRecord
    from .job import Job
    from .team_state import TeamState

__all__ = ["AsyncCall", "Progress"]

EVERY = 5e-4  # seconds between two looks


class AsyncCall:
    """A call in its team's queue.

    Parameters
    ----------
    instances : iterable
        What it consists of, one to be run after the other; made as they are asked for.
    record : Record
        The call in words.
    allocations : sequence
        The memory that it uses.

    Attributes
    ----------
    done
        Whether it is over.
    error
        What went wrong, for whoever waits.
    abandoned
        Whether nobody will.
    """

    def __init__(
        self,
        team: TeamState,
        instances: Iterable[Any],
        record: CallRecord,
        allocations: Sequence[Any] = (),
    ) -> None:
        self.team = team
        self.record = record
        self.allocations = allocations
        self.done = False
        self.error: BaseException | None = None
        self._instances: Iterator[Any] = iter(instances)
        self._instance: Any = None
        self._found: int | None = None  # MISMATCH, if it was seen on arrival
        self._waiting: WaitState | None = None  # for the instance, while it is only asked after
        self._resync: Resync | None = None  # of the instance, since a difference was seen
        self.abandoned = False
        # its function sees what was set where it was posted, such as numpy.errstate
        self._context = contextvars.copy_context()
        self._busy = False  # somebody is moving it on, maybe waiting for something

    @property
    def call(self) -> str:
        """It in words."""
        return self.record.call

    def arrive(self) -> None:
        """Begin it, and do not look whether others come."""
        if self._begin() and self._instance.poll() == MISMATCH:
            self._found = MISMATCH

    def advance(self) -> bool:
        """As far as it goes without waiting; True when it is over."""
        if self._busy:
            return False
        return self._context.run(self._advance)

    def _advance(self) -> bool:
        self._busy = True
        try:
            while self._begin():
                if not self._step():
                    return False
                self._instance = None
        except BaseException as e:
            self._wrong(e)
        finally:
            self._busy = False
        return True

    def _step(self) -> bool:
        """Move the instance on without waiting; True when it has ended well."""
        engine, instance = self.team.job.engine, self._instance
        if self._resync is None:
            if isinstance(instance, Waitable):
                return engine.met(instance)
            status, self._found = self._found or engine.poll(instance), None
            if status == DONE:
                engine.end(instance)
                return True
            if status != MISMATCH and not self._hears():
                return False
            self._resync = Resync(instance)
        self._resync.poll()
        return False

    def _hears(self) -> bool:
        """Look now and then whether others tell that their calls are not this one."""
        if not self.team.job.engine.several_nodes:
            return False
        waiting = self._waiting = self._waiting or WaitState(self.team.job, self._instance)
        now = time.monotonic_ns()
        if now < waiting.next_watch:
            return False
        waiting.next_watch = now + SLICE_NS
        return bool(self.team.differences.seen(self._instance, waiting))

    def finish(self) -> None:
        """Wait until it is over."""
        with self.team.job.engine.lock:
            self._context.run(self._finish)

    def _finish(self) -> None:
        engine = self.team.job.engine
        try:
            self._busy = True
            while self._begin():
                if self._resync is not None:
                    self._resync.finish()
                if isinstance(self._instance, Waitable):
                    engine.wait_until(self._instance)
                else:
                    found, self._found = self._found, None
                    engine.finish(self._instance, found)
                self._instance = None
        except BaseException as e:
            self._wrong(e)
        finally:
            self._busy = False

    def abandon(self) -> None:
        """Nobody will wait for it; what it uses it uses until it is over."""
        self.abandoned = True
        if self.done:
            self.team.job.unfinished.discard(self)

    def withdraw(self) -> None:
        """It will not be finished: nobody may touch this thread's arrays any more."""
        if self._instance is not None and not isinstance(self._instance, Waitable):
            self._instance.withdraw()

    def _begin(self) -> bool:
        """Whether an instance is under way; the next one is begun if none is."""
        if self._instance is None and not self.done:
            job = self.team.job
            following = self.team.ahead() or next(self._instances, None)
            if following is None:
                self._over(None)
            elif not isinstance(following, Waitable):
                job.engine.begin(following)
            self._instance, self._waiting = following, None
        return not self.done

    def _wrong(self, error: BaseException) -> None:
        """Something was raised: keep it for whoever waits; an interrupt goes on."""
        job, instance = self.team.job, self._instance
        if isinstance(error, job.network.mpi.Exception):
            error = job.guard.mpi_failed(error, WaitState(job, None, self.call))
        half = instance is not None and (isinstance(instance, Waitable) or instance.active)
        own = isinstance(error, XupcError) or (isinstance(error, Exception) and not half)
        if not own:
            job.guard.interrupted(self.call, error)
            raise error
        self._over(error)

    def _over(self, error: BaseException | None) -> None:
        self.done, self.error = True, error
        self._instance = self._resync = None
        if self.abandoned:
            self.team.job.unfinished.discard(self)


class Progress:
    """The daemon thread that moves things on while the program computes.

    It is started when there is something to do for the first time, by whichever thread of
    this process knows of it.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._until = 0.0  # one-sided accesses are served
        self._stop = False
        self._wake = threading.Event()
        self._lock = threading.Lock()  # held to start or stop the thread
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to do."""
        with self._lock:
            if self._thread is None and not self._stop:
                self._start()
        self._wake.set()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="xupc-progress", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends: calls go on in waits alone
            self._stop = True
            return
        self._thread = thread

    def serve(self, until: float) -> None:
        """Serve one-sided accesses until then."""
        if until > self._until:
            self._until = until
            self.wake()

    def stop(self) -> None:
        """Blocking: no more, whoever asks for it."""
        with self._lock:
            self._stop = True
        self._wake.set()
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
                if job.engine.moves == before:  # bytes take long: looks cost more than they gain
                    pause = 2 * EVERY
            else:
                with contextlib.suppress(Exception):  # whoever waits will see it, too
                    job.network.enter()
            if ended:
                os.sched_yield()
            else:
                time.sleep(pause)
