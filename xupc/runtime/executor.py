"""The executor: run plans with real threads, memory and messages.

A call is an *instance*: a lowered plan bound to addresses (`bounds`). The native core runs its
node-local steps and its messages. `net` runs the remaining steps. This module advances instances,
waits, and detects failures. There is one wait, `Engine.reach_end` (`wait_for` for conditions that
are no call). It is the only place that handles the errors of a wait.

After some milliseconds in the core, a waiting thread spends its time as follows:

* A node-local call in a job of one node waits in the core (spin or yield, then futex). The core
  makes MPI progress meanwhile (mpi_progress.h).
* With messages or one-sided accesses in progress, or without the core, the thread tests MPI. It
  yields (`sched_yield`) for the first 2 ms. Then it tests every 100 us, and from 6.4 ms on at
  intervals of 1/64 of the wait so far, at most 1 ms. While MPI has work, it tests all the time.
  While one-sided accesses may be in progress, it never tests less often, since their target must
  poll.
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

POLL_NS = 100_000
LONGEST_POLL_NS = 1_000_000
POLL_PART = 64  # an interval is this part of the time since something moved, within these two
NODE_SLICE_NS = 10_000_000


class CallingTeam(RecoveringTeam, Protocol):
    """The part of a team that the executor uses."""

    def raise_failure(self) -> None:
        """Raise the error of a user's function on this thread, if there is one, and forget it."""


class RunningCall(RecordedCall, Protocol):
    """An instance that the executor runs."""

    @property
    def owner(self) -> CallingTeam:
        """Its team."""

    @property
    def net(self) -> NetContext | None:
        """Its messages, and what the core does not do."""


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
        # teams whose threads may read my memory one-sided until their next barrier
        self.exposed: set[object] = set()
        self._tell_core()
        # held by the Python thread that waits or advances calls: the program's or `Progress`
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
        """A team's threads may read my memory one-sided from now on."""
        self.exposed.add(team)
        self._tell_core()

    def cover(self, team: object) -> None:
        """They will not any more."""
        self.exposed.discard(team)
        self._tell_core()

    def _tell_core(self) -> None:
        if core is not None:
            core.expose(bool(self.exposed))

    # -- a call ------------------------------------------------------------------------
    def drive(self, instance: RunningCall, status: int | None = None) -> None:
        """Finish a call that has begun; raises what went wrong."""
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
        """Begin a call; other threads may be notified later."""
        instance.begin()
        instance.post()
        self.job.control.posted()
        if instance.net is not None:
            instance.net.start(instance.op)
        self._prepare(instance)

    def poll(self, instance: Instance) -> int:
        """Go on with a call that has begun, without waiting; DONE when nothing is open."""
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
        """Until it is."""
        if condition.instance is not None:
            call = cast("RunningCall", condition.instance)  # its team is one
            self.reach_end(call, call.run(0), look=False)
            return
        self.wait_for(
            condition.done, condition.what, threads=condition.threads, place=condition.place,
            agreement=condition.agreement,
        )  # fmt: skip

    def finish(self, instance: RunningCall, status: int | None = None) -> None:
        """Finish a call whose MPI steps may have begun; raises what went wrong."""
        with self.lock:
            self._finish(instance, instance.run(0) if status is None else status)

    def _prepare(self, instance: RunningCall) -> None:
        self.job.control.ensure(instance.call, instance.record.title)
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
        """One that has ended well."""
        instance.end()
        if instance.owner.size == 1:
            instance.owner.raise_failure()
        if instance.owner in self.exposed:
            self.job.sync_windows()
            if instance.plan.sync[1] == "all":
                self.cover(instance.owner)

    def expect_reads(self, team: object) -> None:
        """Others may read my memory one-sided until the team's next barrier: poll for them."""
        if self.spans_nodes:
            self.expose(team)
            self.job.sync_windows()

    def interrupted(self, instance: RunningCall, error: BaseException) -> None:
        """Something came out of a call: if that is not over, nothing goes on.

        Where calls differ it is over. Else it is a KeyboardInterrupt, what a handler of some other
        signal raised, or that the job is lost.
        """
        instance.fail()
        if instance.active:
            instance.withdraw()
            self.job.guard.interrupted(instance.record.call, error)

    def reach_end(self, instance: RunningCall, status: int, *, look: bool = True) -> int:
        """Wait until the call is done or found to differ: DONE or MISMATCH.

        `look`: after a while, look for signs from other nodes that their calls differ.
        """
        net = instance.net
        if net is not None and not self.several_nodes:  # what is computed here takes no waiting
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
        """Advance MPI and posted calls, unless another Python thread does; True if one moved."""
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
        """Wait for something that is no instance: a request, an agreement.

        `what`, in words, and the `threads` it comes from or the number of the
        `agreement` serve reports. `place`: the team and operation in which it is, so that
        threads that wait for each other are found.
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
        """Around MPI calls outside of `drive`: the same errors as there."""
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
        """Pass a little time here, or return how long the core may sleep, in ns."""
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
