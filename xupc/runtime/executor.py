"""The executor: run plans with real threads, memory and messages.

A call is an *instance*: a lowered plan bound to addresses (`xupc.backends.operand_binding`). The
native core runs its node-local steps and its messages. Python runs the other steps, by
`instance.net` (`xupc.comm.plan_messages.NetContext`). This module advances instances, waits, and
has the failure detector look during a wait. All waits of a call are in `Engine.reach_end`, those
for any other condition in `Engine.wait_for`. Only these two handle the errors of a wait.

After some milliseconds in the core, a waiting thread spends its time as follows:

* A node-local call in a job of one node waits in the core (spin or yield, then futex). The core
  makes MPI progress meanwhile (mpi_progress.h).
* With messages in progress, with posted calls on other teams, or without the core, the thread
  polls MPI. For 2 ms after the call's last progress it only yields (`sched_yield`) between polls.
  Then it polls every 100 us, and from 6.4 ms on at intervals of 1/64 of the time since the last
  progress, at most 1 ms. While MPI itself has work, it only yields again.
* While other threads may read its memory one-sided, it only yields between two polls, however long
  the wait: the target of such a read must poll MPI.
* Otherwise, in a job of several nodes, the thread waits in the core for 10 ms at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

from ..backends.native.native_core import core
from ..backends.protocol import Instance
from ..backends.wait import (
    AWAKE_NS,
    CALL_PYTHON,
    DONE,
    MISMATCH,
    PENDING,
    SLICE_NS,
    Waitable,
    WaitState,
)
from ..comm.mpi import MpiContext
from ..comm.plan_messages import NetContext
from ..errors import XupcError
from ..health.control_segment import Control
from ..health.failure_detector import FailureDetector
from ..health.init_watchdog import Unguarded
from ..health.mismatch_recovery import RecordedCall, RecoveringTeam, Resync
from ..topology.job_info import JobInfo

__all__ = ["CallingTeam", "Engine", "RunningCall"]

POLL_NS = 100_000  # shortest interval between two polls of MPI
LONGEST_POLL_NS = 1_000_000
POLL_PART = 64  # the interval is 1/64 of the time since the last progress, within these limits
NODE_SLICE_NS = 10_000_000  # of a wait in the core, between two looks at MPI


class CallingTeam(RecoveringTeam, Protocol):
    """The part of a team that the executor uses."""

    def raise_failure(self) -> None:
        """Raise the error of a user's function on this thread, if there is one, and forget it."""


class RunningCall(RecordedCall, Protocol):
    """An instance that the executor runs."""

    @property
    def owner(self) -> CallingTeam:
        """The team of the call."""

    @property
    def net(self) -> NetContext | None:
        """The call's messages, and its steps that Python runs; None if there are none."""


class EngineServices(Protocol):
    """The part of the job that the executor uses."""

    info: JobInfo
    network: MpiContext
    control: Control
    guard: FailureDetector | Unguarded

    @property
    def pending(self) -> Sequence[object]:
        """Teams with posted calls that are not complete."""

    def progress(self) -> bool:
        """Advance the posted calls of all teams; return True if one completed."""

    def sync_windows(self) -> None:
        """Order loads and stores of this thread with one-sided accesses to its memory."""


class Engine:
    """Runs instances to their end, and is the one place that waits."""

    def __init__(self, job: EngineServices) -> None:
        self.job = job
        self.network = job.network
        self.native = job.info.native
        self.spans_nodes = job.info.spans_nodes
        self.several_nodes = self.spans_nodes or not self.native
        # the teams whose threads may read this thread's memory one-sided until their next barrier
        self.exposed: set[object] = set()
        self._note_exposed()
        # held by the Python thread that waits or advances calls: one of the program, or the
        # helper thread of `async_queue.Progress`
        self.lock = threading.RLock()
        # whether Python threads may wait at once, each in a call of a team of its own
        self.apart = False
        self.moves = 0  # how often `poll` found that something had moved

    @property
    def at_work(self) -> bool:
        """True if the calling Python thread waits or advances a call, further up its stack."""
        lock: Any = self.lock
        if lock._is_owned():
            return True
        me = threading.get_ident()
        return self.apart and any(by == me for _, by in core.running())

    def expose(self, team: object) -> None:
        """Note that a team's threads may read this thread's memory one-sided from now on."""
        self.exposed.add(team)
        self._note_exposed()

    def cover(self, team: object) -> None:
        """Note that a team's threads do not read this thread's memory one-sided any more."""
        self.exposed.discard(team)
        self._note_exposed()

    def _note_exposed(self) -> None:
        if core is not None:
            core.expose(bool(self.exposed))

    # -- a call ------------------------------------------------------------------------
    def drive(self, instance: RunningCall, status: int | None = None) -> None:
        """Run a call that has begun to its end; raise the error that ends it.

        `status`: the result of its last `run`; None: it has not run yet.
        """
        if self.apart and instance.net is None:
            self._prepare(instance)
            self._finish(instance, instance.run(0) if status is None else status)
            return
        with self.lock:
            if instance.net is not None:
                instance.net.start(instance.op)
            self._prepare(instance)
            self._finish(instance, instance.run(0) if status is None else status)

    def begin(self, instance: RunningCall) -> None:
        """Begin a posted call; `poll` or `finish` goes on with it."""
        instance.begin()
        instance.post()
        self.job.control.posted()
        if instance.net is not None:
            instance.net.start(instance.op)
        self._prepare(instance)

    def poll(self, instance: Instance) -> int:
        """Advance a call that has begun, without waiting; return DONE, MISMATCH or PENDING.

        DONE: all its steps and messages are complete.
        """
        net = instance.net
        try:
            status, moved = instance.run(0), True
            while moved and status != MISMATCH:
                moved = status == CALL_PYTHON and net is not None and net.go_on(instance)
                moved |= self.several_nodes and self.network.progress()
                if moved:
                    self.moves += 1
                    status = instance.run(0)
            if net is not None and instance.moved:
                self.moves += 1
        except self.network.mpi.Exception as e:
            raise self.job.guard.mpi_failed(e, WaitState(instance)) from e
        return status if self.ended(instance, status) else PENDING

    @staticmethod
    def ended(instance: Instance, status: int) -> bool:
        """Return True after a mismatch, or if the instance is done and has no open message."""
        if status != DONE:
            return status == MISMATCH
        return instance.net is None or not (instance.net.open or instance.open)

    def met(self, condition: Waitable) -> bool:
        """Return True if a condition is met, without a wait."""
        if condition.instance is not None:
            return self.poll(condition.instance) != PENDING
        self.network.progress()
        return condition.done()

    def wait_until(self, condition: Waitable) -> None:
        """Wait until a condition is met, or its call is done or found to differ."""
        if condition.instance is not None:
            call = cast("RunningCall", condition.instance)  # its team is one
            self.reach_end(call, call.run(0), look=False)
            return
        self.wait_for(
            condition.done, condition.what, threads=condition.threads, place=condition.place,
            agreement=condition.agreement,
        )  # fmt: skip

    def finish(self, instance: RunningCall, status: int | None = None) -> None:
        """Finish a call that `begin` has begun; raise the error that ends it."""
        with self.lock:
            self._finish(instance, instance.run(0) if status is None else status)

    def _prepare(self, instance: RunningCall) -> None:
        self.job.control.ensure(instance.call, instance.owner.titled(instance.record.title))
        net = instance.net
        if net is not None and instance.plan.one_sided:
            self.expose(instance.owner)
            self.job.sync_windows()
            net.awaits = net.completions_before(instance.plan)

    def _finish(self, instance: RunningCall, status: int) -> None:
        try:
            if self.reach_end(instance, status) == MISMATCH:
                Resync(instance).finish()
        except self.network.mpi.Exception as e:
            instance.withdraw()
            raise self.job.guard.mpi_failed(e, WaitState(instance)) from e
        except BaseException as e:
            self.interrupted(instance, e)
            raise
        self.end(instance)

    def end(self, instance: RunningCall) -> None:
        """End a call that is complete and met no error."""
        instance.end()
        if instance.owner.size == 1:
            instance.owner.raise_failure()
        if instance.owner in self.exposed:
            self.job.sync_windows()
            if instance.plan.sync[1] == "all":
                self.cover(instance.owner)

    def expect_reads(self, team: object) -> None:
        """Poll MPI while other threads may read this thread's memory, until the next barrier."""
        if self.spans_nodes:
            self.expose(team)
            self.job.sync_windows()

    def interrupted(self, instance: RunningCall, error: BaseException) -> None:
        """Handle an exception that leaves a call: break the job if the call is not over.

        After a mismatch the call is over, and xupc stays usable. A call that is not over was left
        by a KeyboardInterrupt, by an exception of another signal handler, or since the job is
        broken.
        """
        instance.fail()
        if instance.active:
            instance.withdraw()
            self.job.guard.interrupted(instance.record.call, error)

    def reach_end(self, instance: RunningCall, status: int, *, look: bool = True) -> int:
        """Wait until the call is done or found to differ; return DONE or MISMATCH.

        `status`: the result of its last `run`. `look`: after a while, look for messages of other
        nodes which show that their calls differ.
        """
        net = instance.net
        if net is not None and not self.several_nodes:  # steps in Python on one node never wait
            while status == CALL_PYTHON and net.go_on(instance):
                status = instance.run(0)
        if self.ended(instance, status):
            return status
        wait = WaitState(instance)
        while not self.ended(instance, status):
            moved = net is not None and instance.moved
            if status == CALL_PYTHON:
                assert net is not None
                moved |= net.go_on(instance)
            moved |= self._progress()
            if not self.native:
                instance.note_wait(waits=not moved)
            if moved:
                wait.moved()
                status = instance.run(0)
                continue
            pause = self._pause(wait, net)
            if wait.look and look and instance.owner.differences.seen(instance, wait):
                status = MISMATCH
            else:
                status = instance.run(pause)
        if not self.native:
            instance.note_wait(waits=False)
        if wait.published:
            self.job.control.wait_ends()
        return status

    def _progress(self) -> bool:
        """Advance MPI and posted calls, unless another Python thread does.

        Return True if anything moved.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            moved = self.network.progress()
            return bool(self.job.pending and self.job.progress()) or moved
        finally:
            self.lock.release()

    def wait_for(
        self,
        done: Callable[[], bool],
        what: str,
        *,
        threads: Sequence[int] = (),
        agreement: int = 0,
        place: tuple[int, int] | None = None,
    ) -> None:
        """Wait until ``done()`` is true: for what is no call, such as a request or an agreement.

        Parameters
        ----------
        what
            The condition in words, for reports.
        threads
            The threads that it waits for, for reports.
        agreement
            The number of the agreement, for reports; 0: it is none.
        place
            The team and operation of the wait, so that threads that wait for each other are found.
        """
        waiting = WaitState(None, what, threads, agreement)
        waiting.place = place
        with self.lock, self.guarded(waiting) as wait:
            if agreement:
                self.job.control.publish_wait(wait, what)
            while not done():
                moved = self.network.progress()
                if self.job.pending:
                    moved |= self.job.progress()
                if not moved:
                    self._pause(wait, None)
            if wait.published:
                self.job.control.wait_ends()

    @contextlib.contextmanager
    def guarded(self, wait: WaitState) -> Iterator[WaitState]:
        """Translate the errors of MPI calls outside of `drive` as `drive` does."""
        try:
            yield wait
        except self.network.mpi.Exception as e:
            raise self.job.guard.mpi_failed(e, wait) from e
        except XupcError:
            raise
        except BaseException as e:
            self.job.guard.interrupted(wait.name, e)
            raise

    def _pause(self, wait: WaitState, net: NetContext | None) -> int:
        """Yield or sleep here and return 0, or return the ns for which the core may wait."""
        now = time.monotonic_ns()
        if self.network.worked:
            wait.hot_until = max(wait.hot_until, now + AWAKE_NS)
        wait.look = now >= wait.next_watch and self.several_nodes
        if now >= wait.next_watch:
            self.job.guard.look(wait)
            wait.next_watch = now + SLICE_NS
        others = self._other_teams_pending(wait)
        if not self.several_nodes and wait.instance is not None and not others:
            return SLICE_NS
        busy = (
            wait.instance is None
            or (net is not None and (net.open or net.exchanging or wait.instance.open))
            or not self.native
            or others
        )
        if not busy and not self.exposed:
            return NODE_SLICE_NS
        if now < wait.hot_until or self.exposed:
            os.sched_yield()
            return 0
        interval = min(LONGEST_POLL_NS, (now - wait.moved_at) // POLL_PART)
        time.sleep(max(POLL_NS, interval) * 1e-9)
        return 0

    def _other_teams_pending(self, wait: WaitState) -> bool:
        """Return True if other teams have posted calls, which this wait must advance."""
        owner = wait.instance.owner if wait.instance is not None else None
        return any(team is not owner for team in self.job.pending)
