"""The Python engine: it runs the same plans without the native core, step by step.

It is the readable reference, and the fallback where nothing can be compiled. Copies are loads and
stores as in the native core. Python has no atomics, so signals are empty MPI messages, and
barriers exchange fingerprints between all threads. It is not made for speed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, Protocol, cast

from ...comm.plan_messages import NetContext
from ...comm.tags import SIGNAL
from ...plan.plan import Plan
from ...plan.steps import (
    SLOTS,
    Barrier,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FusedBarrier,
    Get,
    NetSignal,
    NetWait,
    Recv,
    Scan,
    Send,
    SetTicket,
    Signal,
    Step,
    Swap,
    Wait,
    WaitTicket,
    by_kind,
)
from ..operand_binding import BoundOperand
from ..protocol import Record
from ..wait import CALL_PYTHON, DONE, MISMATCH, PENDING
from .observed import CallRecorder, ControlLines, ObservedCall

if TYPE_CHECKING:
    from ...comm.mpi_types import Request
    from .. import protocol

__all__ = ["CachedArrays", "CachedCall", "CachedPlan", "Instance", "Program", "Team", "mix"]

_MASK = (1 << 64) - 1


def mix(a: int, b: int) -> int:
    """Return the fingerprint `a` after the call `b`, as the native core computes it."""
    a ^= (b + 0x9E3779B97F4A7C15 + (a << 6) + (a >> 2)) & _MASK
    a = (a * 0xFF51AFD7ED558CCD) & _MASK
    return a ^ (a >> 32)


class Team:
    """Counters and fingerprint of a team on this thread."""

    recorder: CallRecorder | None = None
    unread = None  # in this engine no thread reads private memory of another
    in_flight = False  # it has no calls in the background that are no posted ones

    def __init__(self, control: ControlLines, number: int) -> None:
        self.verified = 0  # the last operation known to be equal on all threads
        self.control = control
        self.number = number
        self.op = 0
        self.epoch = 0
        self.fp = 0
        self.value = 0
        self.unsynced = 0
        self.verdict = False
        self.blocked = False
        self.since = 0
        self.history = [0] * SLOTS
        self.forget()
        self.debt = 0  # led calls end with a barrier in this engine
        self.poison = 0

    def settle(self) -> None:
        """Do nothing: there are no calls in the background."""

    @property
    def node_result(self) -> tuple[int, int, int, int]:
        """Return this thread's own (min, max, value, conflict): nodes gather nothing here."""
        fp = self.fp ^ self.poison
        return fp, fp, self.value, 0

    def spoil(self, poison: int) -> None:
        """Make the fingerprint of this thread differ from all others, from the next barrier on."""
        self.poison = poison

    def wrote(self) -> None:
        """Note a write to another node's memory; only led calls of the core need it."""

    def set_verdict(self, verdict: bool) -> None:
        """Set the result of the barrier in progress."""
        self.verdict = verdict

    def set_value(self, value: int) -> None:
        """Set the value that the next barrier carries; 0 matches any."""
        self.value = value

    def mix(self, signature: int) -> None:
        """Mix something into the running fingerprint without a call."""
        self.fp = mix(self.fp, signature)

    def fp_after(self, op: int) -> int:
        """Return the running fingerprint after one of the last operations; 0 if not known."""
        known = self.since < op <= self.op < op + SLOTS
        return self.history[op % SLOTS] if known else 0

    def record_of(self, op: int) -> Record | None:
        """Return the record of one of the last operations; None if not known."""
        return self.records[op % SLOTS] if self.fp_after(op) else None

    def forget(self) -> None:
        """Keep no record of any call."""
        self.records: list[Record | None] = [None] * SLOTS

    def give_up(self) -> None:
        """Do nothing: only barriers notice a mismatch in this engine."""

    def release_early(self) -> None:
        """Do nothing: only the messages of a barrier announce a mismatch in this engine."""

    def restart(self, op: int, epoch: int) -> None:
        """Continue after a mismatch from an operation number that all threads agree on."""
        self.op, self.epoch = op, epoch
        self.since = op
        self.fp = mix(0, op)  # so that no tag equals an earlier one
        self.value = self.unsynced = self.poison = 0
        self.verdict = False


class Program:
    """A plan with its fused steps taken apart."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lanes = tuple(
            [part for step in lane for part in self._expand(step)] for lane in plan.lanes
        )

    def _expand(self, step: Step) -> list[Step]:
        if not isinstance(step, FusedBarrier):
            return [step]
        executor = 0 if step.by is None else step.by
        body = list(step.body) if self.plan.rank == executor else []
        return [Barrier(), *body, Barrier()]


class CallScope(Protocol):
    """The part of the job that refuses calls inside others."""

    def executing(self, instance: Instance) -> AbstractContextManager[None]:
        """Note an instance that this engine executes."""


class Driver(Protocol):
    """The part of the executor that runs calls of this engine."""

    def drive(self, instance: Instance) -> None:
        """Finish a call that has begun."""

    def interrupted(self, instance: Instance, error: BaseException) -> None:
        """Break the job if a call has not ended."""


class CallServices(Protocol):
    """The part of the job that calls of this engine use."""

    @property
    def callers(self) -> CallScope:
        """Calls of the Python threads of this process."""

    @property
    def engine(self) -> Driver:
        """Executor of the job."""


class CallTeam(Protocol):
    """The part of a team that calls of this engine use."""

    size: int
    rank: int

    @property
    def job(self) -> CallServices:
        """Job of the team."""

    def call_tag(self, instance: Instance, kind: int) -> int:
        """Return the tag of a call's data and signals."""


class Instance(ObservedCall):
    """A program bound to operands; the same interface as the native core's.

    Attributes
    ----------
    net
        Its messages.
    owner
        Its team.
    """

    net: NetContext
    owner: CallTeam

    def __init__(
        self,
        team: Team,
        program: Program,
        bounds: list[BoundOperand],
        signature: int,
        call: int,
        record: Record,
    ) -> None:
        self.team = team
        self.program = program
        self.plan = program.plan
        self.bounds = bounds
        self.hash = signature
        self.call = call
        self.record = record
        self.active = False
        self.released = False  # the result of the barrier has arrived: a mismatch
        self.op = 0
        self.fp = 0

    def begin(self) -> None:
        """Start a call."""
        team = self.team
        team.op += 1
        team.fp = mix(team.fp, self.hash)
        team.unsynced += self.owner.size > 1
        self.op, self.fp = team.op, team.fp
        team.history[team.op % SLOTS] = team.fp
        team.records[team.op % SLOTS] = self.record
        self.pc = [0, 0]
        self.tickets: set[int] = set()
        self.arrived = self.released = False
        self.signals: dict[tuple[int, int], int] = {}
        self.stands: dict[int, int] = {}  # this thread's channels: one lane can wait for the other
        self.pending: dict[tuple[int, int], Request] = {}
        self.active = True
        status = team.control.status[team.control.index]
        status["op"], status["call"], status["team"] = self.op, self.call, team.number
        self.noted = team.control.begin_call(self.op, self.call, team.number)
        self.begin_row(team.recorder)

    def withdraw(self) -> None:
        """Do nothing: no other thread accesses private arrays in this engine."""

    def end(self) -> None:
        """End the call; drop its open receives if it was given up."""
        for request in self.pending.values():
            request.Cancel()
            request.Free()
        self.active = False
        self.team.control.status[self.team.control.index]["done"] = self.op
        self.team.control.end_call(self.noted)
        self.end_row()

    def rebind(self, dst: int, src: int) -> None:
        """Set the addresses of private operands for the next call."""
        self.bounds[0].address, self.bounds[1].address = dst, src

    def execute(self) -> None:
        """Run the whole call."""
        if self.hooked():
            return
        job = self.owner.job
        with job.callers.executing(self):
            try:
                self.begin()
                job.engine.drive(self)
            except BaseException as e:
                job.engine.interrupted(self, e)
                raise

    def poll(self) -> int:
        """Run as far as possible without waiting."""
        return self.run(0)

    def run(self, sleep_ns: int) -> int:
        """Run both lanes as far as possible; never sleep."""
        if self.team.verdict:
            self.team.verdict = False
            return MISMATCH
        moved = True
        while moved:
            moved = False
            for lane in (1, 0):
                while (run := self._local(lane)) is not None and run():
                    self.pc[lane] += 1
                    moved = True
        if any(self.python_step(lane) is not None for lane in (0, 1)):
            return CALL_PYTHON
        if self._step(0) is None and self._step(1) is None:
            return DONE
        return PENDING

    def _step(self, lane: int) -> Step | None:
        steps = self.program.lanes[lane]
        return steps[self.pc[lane]] if self.pc[lane] < len(steps) else None

    def python_step(self, lane: int) -> Step | None:
        """Return the MPI step that a lane is at, or None."""
        step = self._step(lane)
        if self.team.verdict:  # a mismatch: the call ends at this barrier
            return None
        if step is None or _RUN[type(step)] is not None:
            return None
        if isinstance(step, Barrier) and not self.arrived:
            self.arrived = True
            self.team.epoch += 1
        return step

    @property
    def at_barrier(self) -> bool:
        """Return whether this thread has arrived at the team's current barrier in this call."""
        return self.arrived

    open = 0  # messages of the core in flight: none
    moved = False

    def suspect(self) -> bool:
        """Return False: this engine has no shared memory to check."""
        return False

    def awaited(self) -> list[int]:
        """Return nothing: no shared memory shows the members that the call waits for."""
        return []

    def advance(self, lane: int) -> None:
        """Move a lane past its MPI step."""
        if isinstance(self._step(lane), Barrier):
            # after a mismatch the call ends here
            self.arrived = self.released = self.team.verdict
            self.team.unsynced = 0
            self.team.value = 0
        self.pc[lane] += 1

    def set_ticket(self, ticket: int) -> None:
        """Set a ticket."""
        self.tickets.add(ticket)

    def _local(self, lane: int) -> Callable[[], bool] | None:
        """Return what runs the step that a lane is at; None if it is not one of this module's."""
        step = self._step(lane)
        run = None if step is None else _RUN[type(step)]
        return None if run is None else partial(run, self, cast("Never", step))

    # -- steps; they return True when they are done ------------------------------------
    def _copy(self, step: Copy) -> bool:
        dst, dst_step = self.net.row(step.dst, step.count)
        src, src_step = self.net.row(step.src, step.count)
        for i in range(step.count):
            ctypes.memmove(dst + i * dst_step, src + i * src_step, step.nbytes)
        return True

    def _swap(self, step: Swap) -> bool:
        a, a_step = self.net.row(step.a, step.count)
        b, b_step = self.net.row(step.b, step.count)
        for i in range(step.count):
            kept = ctypes.string_at(a + i * a_step, step.nbytes)
            ctypes.memmove(a + i * a_step, b + i * b_step, step.nbytes)
            ctypes.memmove(b + i * b_step, kept, step.nbytes)
        return True

    def _compute(self, step: Fold | Scan) -> bool:
        self.net.compute(step, cast("protocol.Instance", self))  # the parts it needs
        return True

    def _wait_ticket(self, step: WaitTicket) -> bool:
        return step.ticket in self.tickets

    def _set_ticket(self, step: SetTicket) -> bool:
        self.tickets.add(step.ticket)
        return True

    def _signal(self, step: Signal) -> bool:
        link, owner = self.net.link, self.owner
        tag = owner.call_tag(self, SIGNAL + step.channel)
        self.stands[step.channel] = step.value
        for rank in step.to:
            if rank != owner.rank:
                link.track(link.send_bytes(rank, tag, b""), lambda: None)
        return True

    def _wait(self, step: Wait) -> bool:
        here = True
        for rank in step.of:
            if rank == self.owner.rank:
                here &= self.stands.get(step.channel, 0) >= step.value
            elif not self._has_signalled(step.channel, rank, step.value):
                here = False
        return here

    def _has_signalled(self, channel: int, rank: int, value: int) -> bool:
        key = (channel, rank)
        link, owner = self.net.link, self.owner
        while self.signals.get(key, 0) < value:
            if key not in self.pending:
                tag = owner.call_tag(self, SIGNAL + channel)
                self.pending[key] = link.recv_into(rank, tag, bytearray(1))
            if not self.pending[key].Test():
                return False
            del self.pending[key]
            self.signals[key] = self.signals.get(key, 0) + 1
        return True


_RUN: Final[Mapping[type[Step], Callable[[Instance, Never], bool] | None]] = by_kind(
    "interpreter",
    {
        Copy: Instance._copy,
        Swap: Instance._swap,
        Fold: Instance._compute,
        Scan: Instance._compute,
        Signal: Instance._signal,
        Wait: Instance._wait,
        WaitTicket: Instance._wait_ticket,
        SetTicket: Instance._set_ticket,
        # `NetContext` runs these
        Barrier: None,
        Send: None,
        Recv: None,
        Get: None,
        NetSignal: None,
        NetWait: None,
        # `Program` takes fused barriers apart
        FusedBarrier: None,
        # no plan of this engine has these: its threads do not access memory of each other
        Expose: None,
        DirectGet: None,
        DirectPut: None,
        CopyBack: None,
    },
)
"""What runs each kind of step; None if it is not run in this module."""


class CachedCall:
    """The same interface as the native call cache, without the cache."""

    phased = False

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.slow(args, kwargs)

    def slow(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Prepare a call; the collectives override this."""
        raise NotImplementedError

    def remember(
        self, args: tuple[object, ...], instance: object, kwargs: dict[str, object] | None = None
    ) -> None:
        """Do nothing: this engine caches no calls."""

    def remember_family(self, *args: object) -> None:
        """Do nothing: this engine caches no calls."""

    def forget(self) -> None:
        """Do nothing: this engine caches no calls."""


class CachedArrays(CachedCall):
    """The same interface as the native cache of calls on private arrays, without the cache."""

    def note_of(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Do nothing: this engine caches no calls."""

    def remember(self, *args: object) -> None:
        """Do nothing: this engine caches no calls."""


class CachedPlan:
    """The same interface as the native bound plan."""

    def bind(self, instance: object) -> None:
        """Do nothing: this engine keeps no calls."""

    def __call__(self) -> Any:
        return self.slow()

    def slow(self) -> Any:
        """Prepare a call; the plans override this."""
        raise NotImplementedError
