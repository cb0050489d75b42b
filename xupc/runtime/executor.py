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
from typing import TYPE_CHECKING, Any

from ..backends.native.native_core import core
from ..comm.plan_messages import NetContext
from ..errors import XupcError
from ..health.mismatch_recovery import Resync, Waitable

if TYPE_CHECKING:
    from .job import Job

__all__ = [
    "CALL_PYTHON",
    "DONE",
    "HOT_NS",
    "MISMATCH",
    "PENDING",
    "SLICE_NS",
    "Engine",
    "WaitState",
]

DONE, PENDING, CALL_PYTHON, MISMATCH = range(4)
HOT_NS = 2_000_000
AWAKE_NS = 200_000
POLL_NS = 100_000
LONGEST_POLL_NS = 1_000_000
POLL_PART = 64  # an interval is this part of the time since something moved, within these two
SLICE_NS = 50_000_000
NODE_SLICE_NS = 10_000_000
STALL_NS = 500_000_000


class Engine:
    """Runs instances to their end, and is the one place that waits."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.network = job.network
        self.several_nodes = job.tree.node_count > 1 or not job.native
        # teams whose threads may read my memory one-sided until their next barrier
        self.exposed: set[Any] = set()
        self._tell_core()
        # held by the Python thread that waits or advances calls: the program's or `Progress`
        self.lock = threading.RLock()
        self.moves = 0  # how often `poll` found that something had moved

    @property
    def at_work(self) -> bool:
        """True if the calling Python thread waits or advances a call, further up its stack."""
        lock: Any = self.lock
        return bool(lock._is_owned())

    def expose(self, team: Any) -> None:
        """A team's threads may read my memory one-sided from now on."""
        self.exposed.add(team)
        self._tell_core()

    def cover(self, team: Any) -> None:
        """They will not any more."""
        self.exposed.discard(team)
        self._tell_core()

    def _tell_core(self) -> None:
        if core is not None:
            core.expose(bool(self.exposed))

    # -- a call ------------------------------------------------------------------------
    def drive(self, instance: Any, status: int | None = None) -> None:
        """Finish a call that has begun; raises what went wrong."""
        with self.lock:
            if instance.net is not None:
                instance.net.start(instance.op)
            self._prepare(instance)
            self._finish(instance, instance.run(0) if status is None else status)

    def begin(self, instance: Any) -> None:
        """Begin a call; other threads may be notified later."""
        instance.begin()
        self.job.control.posted()
        if instance.net is not None:
            instance.net.start(instance.op)
        self._prepare(instance)

    def poll(self, instance: Any) -> int:
        """Go on with a call that has begun, without waiting; DONE when nothing is open."""
        net: NetContext | None = instance.net
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
            raise self.job.guard.mpi_failed(e, WaitState(self.job, instance)) from e
        return status if self.ended(instance, status) else PENDING

    @staticmethod
    def ended(instance: Any, status: int) -> bool:
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
            self.reach_end(condition.instance, condition.instance.run(0), look=False)
            return
        self.wait_for(
            condition.done, condition.what, threads=condition.threads, place=condition.place,
            agreement=condition.agreement,
        )  # fmt: skip

    def finish(self, instance: Any, status: int | None = None) -> None:
        """Finish a call whose MPI steps may have begun; raises what went wrong."""
        with self.lock:
            self._finish(instance, instance.run(0) if status is None else status)

    def _prepare(self, instance: Any) -> None:
        self.job.control.ensure(instance.call, instance.record.title)
        net: NetContext | None = instance.net
        if net is not None and instance.plan.one_sided:
            self.expose(instance.owner)
            self.job.sync_windows()
            net.unsettled = net.to_settle(instance.plan)

    def _finish(self, instance: Any, status: int) -> None:
        try:
            if self.reach_end(instance, status) == MISMATCH:
                Resync(instance).finish()
        except self.network.mpi.Exception as e:
            instance.withdraw()
            raise self.job.guard.mpi_failed(e, WaitState(self.job, instance)) from e
        except BaseException as e:
            self.interrupted(instance, e)
            raise
        self.end(instance)

    def end(self, instance: Any) -> None:
        """One that has ended well."""
        instance.end()
        if instance.owner.size == 1:
            instance.owner.raise_failure()
        if instance.owner in self.exposed:
            self.job.sync_windows()
            if instance.plan.sync[1] == "all":
                self.cover(instance.owner)

    def expect_reads(self, team: Any) -> None:
        """Others may read my memory one-sided until the team's next barrier: poll for them."""
        if self.job.tree.node_count > 1:
            self.expose(team)
            self.job.sync_windows()

    def interrupted(self, instance: Any, error: BaseException) -> None:
        """Something came out of a call: if that is not over, nothing goes on.

        Where calls differ it is over. Else it is a KeyboardInterrupt, what a handler of some other
        signal raised, or that the job is lost.
        """
        if instance.active:
            instance.withdraw()
            self.job.guard.interrupted(instance.record.call, error)

    def reach_end(self, instance: Any, status: int, *, look: bool = True) -> int:
        """Wait until the call is done or found to differ: DONE or MISMATCH.

        `look`: after a while, look for signs from other nodes that their calls differ.
        """
        net: NetContext | None = instance.net
        if net is not None and not self.several_nodes:  # what is computed here takes no waiting
            while status == CALL_PYTHON and net.go_on(instance):
                status = instance.run(0)
        if self.ended(instance, status):
            return status
        wait = WaitState(self.job, instance)
        while not self.ended(instance, status):
            moved = net is not None and instance.moved
            if status == CALL_PYTHON:
                assert net is not None
                moved |= net.go_on(instance)
            moved |= self.network.progress()
            if self.job.pending and self.job.progress():
                moved = True
            if moved:
                wait.moved()
                status = instance.run(0)
                continue
            pause = wait.pause(net)
            if wait.look and look and instance.owner.differences.seen(instance, wait):
                status = MISMATCH
            else:
                status = instance.run(pause)
        wait.over()
        return status

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
        waiting = WaitState(self.job, None, what, threads, agreement)
        waiting.place = place
        with self.lock, self.guarded(waiting) as wait:
            if agreement:
                wait.publish(what)
            while not done():
                moved = self.network.progress()
                if self.job.pending:
                    moved |= self.job.progress()
                if not moved:
                    wait.pause(None)
            wait.over()

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


class WaitState:
    """One wait: how long so far, how to pass the time, when to look round."""

    def __init__(
        self,
        job: Job,
        instance: Any,
        what: str = "",
        threads: Sequence[int] = (),
        agreement: int = 0,
    ) -> None:
        self.job = job
        self.instance = instance
        self.what = what
        self.threads = threads
        self.agreement = agreement
        self.place: tuple[int, int] | None = None
        if instance is not None:
            self.place = instance.owner.number, instance.op
        self.warned = False
        self.published = False
        self.since = time.monotonic_ns()
        self.hot_until = self.since + HOT_NS
        self.next_watch = self.since + SLICE_NS
        self.look = False
        self.moved_at = self.since
        self.told = False

    @property
    def name(self) -> str:
        """The text form of the call or condition of this wait."""
        return self.instance.record.call if self.instance is not None else self.what

    def publish(self, text: str) -> None:
        """Publish as text what this thread waits for, to the threads of the machine."""
        self.published = True
        op, team = (i.op, i.owner.number) if (i := self.instance) is not None else (0, 0)
        self.job.control.wait_begins(text, self.since, op, team)

    def over(self) -> None:
        """End the wait, after its condition is met."""
        if self.published:
            self.job.control.wait_ends()

    @property
    def stalled(self) -> bool:
        """True if the wait has made no progress for `STALL_NS`."""
        return time.monotonic_ns() - self.moved_at > STALL_NS

    def moved(self) -> None:
        """Record progress, and poll at short intervals again."""
        self.moved_at = time.monotonic_ns()
        self.hot_until = self.moved_at + HOT_NS

    @property
    def _other_teams_pending(self) -> bool:
        """True if other teams have posted calls, which this wait must advance."""
        owner = self.instance.owner if self.instance is not None else None
        return any(team is not owner for team in self.job.pending)

    def pause(self, net: NetContext | None) -> int:
        """Pass a little time here or return how long the core may sleep."""
        job, now = self.job, time.monotonic_ns()
        if job.network.worked:
            self.hot_until = max(self.hot_until, now + AWAKE_NS)
        self.look = now >= self.next_watch and job.engine.several_nodes
        if now >= self.next_watch:
            job.guard.look(self)
            self.next_watch = now + SLICE_NS
        others = self._other_teams_pending
        if not job.engine.several_nodes and self.instance is not None and not others:
            return SLICE_NS
        busy = (
            self.instance is None
            or (net is not None and (net.open or net.exchanging or self.instance.open))
            or not job.native
            or others
        )
        if not busy and not job.engine.exposed:
            return NODE_SLICE_NS
        if now < self.hot_until or job.engine.exposed:
            os.sched_yield()
            return 0
        interval = min(LONGEST_POLL_NS, (now - self.moved_at) // POLL_PART)
        time.sleep(max(POLL_NS, interval) * 1e-9)
        return 0
