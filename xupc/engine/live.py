"""The live engine: real threads, real memory, real messages.

A call is an *instance*: a lowered plan bound to addresses. The native core runs its
node-local steps; this module posts the MPI steps, waits, and watches. There is one
wait, `Engine.drive`; everything that can go wrong in a wait is handled there and
nowhere else.

How a waiting thread spends its time:

* pure node-local call in a one-node job: in the core (spin or yield, then futex);
* messages or one-sided accesses under way: test MPI, give the core away
  (`sched_yield`) for the first 2 ms (0.3 ms with more threads than cores), then every
  100 us; while one-sided accesses may be under way never less than that, since their
  target must poll;
* otherwise in a job of several nodes: in the core, MPI looked at every 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_char, memmove, string_at
from typing import TYPE_CHECKING, Any

import numpy as np

from ..patterns import dissemination
from ..plan.steps import (
    SLOT_BYTES,
    Barrier,
    Blocks,
    Fold,
    Get,
    NetSignal,
    NetWait,
    Part,
    Plan,
    Ranks,
    Recv,
    Scan,
    Send,
    Step,
)
from .folding import carry_out
from .mpi import AGAIN, BARRIER, DATA, SIGNAL, Grid, Network
from .native import Exchange

if TYPE_CHECKING:
    from .job import Job

__all__ = [
    "CALL_PYTHON",
    "DONE",
    "MISMATCH",
    "PENDING",
    "SLOTS",
    "Bound",
    "Engine",
    "NetContext",
    "SlotBound",
]

DONE, PENDING, CALL_PYTHON, MISMATCH = range(4)
SLOTS = 64  # operations that have lines of their own
HOT_NS = 2_000_000
HOT_SHARED_NS = 300_000
POLL_NS = 100_000
SLICE_NS = 50_000_000
NODE_SLICE_NS = 10_000_000
STALL_NS = 500_000_000
BURST = 50
_EXCHANGE = struct.Struct("<QQQQ")
_CONFLICT, _WROTE = 1, 2


class Bound:
    """An operand bound to memory: what plans need to find its bytes."""

    __slots__ = ("address", "displacement", "offset", "place", "remote", "stride")

    place: Callable[[int, int], int] | None
    """``(rank, offset) -> address``, where an offset alone says where memory is: `Anywhere`."""

    def __init__(self, heap: Any, offset: int) -> None:
        self.place = None
        self.offset = offset
        self.address, self.stride = heap.bind(offset)
        self.remote = heap.segment_of(offset).remote

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants."""
        return self.address, self.stride


class SlotBound(Bound):
    """Every thread's lines of scratch, of which each operation has its own."""

    __slots__ = ("_lines",)

    def __init__(self, heap: Any, offset: int) -> None:
        super().__init__(heap, offset)
        self._lines = self.address, self.offset

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants: it finds the operation's line itself."""
        return self._lines[0], self.stride

    def turn(self, operation: int) -> None:
        """Stand for this operation's line."""
        at = operation % SLOTS * SLOT_BYTES
        self.address, self.offset = self._lines[0] + at, self._lines[1] + at


class NetContext:
    """The MPI side of one instance: what it has posted and what is still open."""

    def __init__(self, job: Job, team: Any, bounds: Sequence[Bound]) -> None:
        self.job = job
        self.network: Network = job.network
        self.team = team
        self.bounds = bounds
        self.open = 0
        self.barrier: NetBarrier | None = None
        self.again = False
        self.posted: dict[int, Step] = {}

    def start(self, operation: int) -> None:
        """A new run of the instance."""
        for bound in self.bounds:
            if isinstance(bound, SlotBound):
                bound.turn(operation)
        self.open = 0
        self.barrier = None
        self.again = False
        self.posted.clear()

    # -- addresses -------------------------------------------------------------------
    def address(self, part: Part) -> int:
        """Of a block on my node."""
        bound = self.bounds[part.operand]
        if bound.place is not None:
            return bound.place(part.thread, part.offset)
        local: int = self.team.tree.local_index(part.thread)
        address: int = bound.address + bound.stride * local + part.offset
        return address

    def row(self, part: Part, count: int) -> tuple[int, int]:
        """(address, bytes from block to block) of a row on my node."""
        stride = part.offset_step
        if part.thread_step and count > 1:
            stride += self.bounds[part.operand].stride
        return self.address(part), stride

    def grids(self, blocks: Sequence[Blocks]) -> list[Grid]:
        """Where the blocks of a message lie on my node."""
        out = []
        for part, nbytes, columns, rows, (threads, row_stride) in blocks:
            address, stride = self.row(part, columns)
            if threads and rows > 1:
                row_stride += self.bounds[part.operand].stride
            out.append(Grid.of(address, nbytes, columns, stride, rows, row_stride))
        return out

    # -- steps -----------------------------------------------------------------------
    def far(self, ranks: Ranks) -> list[tuple[int, int]]:
        """(position, rank) of those not on my node."""
        tree, node = self.team.tree, self.team.node_number
        if ranks.count == 1:
            return [] if tree.node_of(ranks.first) == node else [(0, ranks.first)]
        index = tree.node_index
        return [(i, r) for i, r in enumerate(ranks) if index[r] != node]

    def post(self, step: Step, instance: Any) -> None:
        """Start an MPI step; its ticket is set when all its messages are done."""
        team = self.team
        requests: list[Any] = []
        keep: list[Any] = []
        match step:
            case Send():
                grids, tag = self.grids(step.blocks), team.call_tag(instance, DATA)
                for i, rank in self.far(step.to):
                    shift = i * step.peer_step
                    requests.append(self.network.send(team.thread(rank), tag, grids, shift))
            case Recv():
                grids, tag = self.grids(step.blocks), team.call_tag(instance, DATA)
                for i, rank in self.far(step.of):
                    shift = i * step.peer_step
                    requests.append(self.network.recv(team.thread(rank), tag, grids, shift))
            case Get():
                address, stride = self.row(step.dst, step.count)
                if step.src.thread_step or step.count == 1:
                    ranks = Ranks(step.src.thread, step.count, step.src.thread_step)
                    for i, rank in self.far(ranks):
                        part = step.src.block(i)
                        requests.append(self._get(part, rank, address + i * stride, step.nbytes))
                elif self.far(Ranks(step.src.thread)):
                    requests.append(
                        self._get(
                            step.src, step.src.thread, address, step.nbytes, step.count, stride,
                            step.src.offset_step,
                        )
                    )
            case NetSignal():
                for _, rank in self.far(step.to):
                    requests.append(
                        self.network.send_bytes(
                            team.thread(rank), team.call_tag(instance, SIGNAL + step.channel), b""
                        )
                    )
            case NetWait():
                for _, rank in self.far(step.of):
                    buffer = bytearray(1)
                    keep.append(buffer)
                    tag = team.call_tag(instance, SIGNAL + step.channel)
                    requests.append(self.network.recv_into(team.thread(rank), tag, buffer))
            case _:
                raise TypeError(f"not an MPI step: {step!r}")
        self._track(requests, step, instance, keep)

    def settle(self, plan: Plan) -> None:
        """Before a call without a barrier reads: see `Team.settle`."""
        for step in plan.steps:
            if isinstance(step, Get):
                for _, rank in self.far(_sources(step)):
                    self.team.settle(self.team.thread(rank))

    def _get(
        self, part: Part, rank: int, address: int, nbytes: int, count: int = 1, stride: int = 0,
        far_stride: int = 0,
    ) -> Any:
        bound = self.bounds[part.operand]
        thread = self.team.thread(rank)
        remote, displacement = self.job.heap.displacement(thread, bound.offset + part.offset)
        return remote.window.get(
            thread, displacement, address, nbytes, count, stride, far_stride
        )

    def _track(self, requests: list[Any], step: Any, instance: Any, keep: list[Any]) -> None:
        ticket = step.ticket
        if not requests:
            instance.set_ticket(ticket)
            return
        left = [len(requests)]
        self.open += 1
        self.posted[ticket] = step

        def finished(_keep: list[Any] = keep) -> None:
            left[0] -= 1
            if not left[0]:
                self.open -= 1
                self.posted.pop(ticket, None)
                instance.set_ticket(ticket)

        for request in requests:
            self.network.track(request, finished)

    def awaited(self, instance: Any) -> set[int]:
        """Threads off my node whose message or answer is still to come."""
        found = set(self.barrier.missing) if self.barrier is not None else set()
        for step in self.posted.values():
            if isinstance(step, Get):
                ranks = _sources(step)
            elif isinstance(step, Recv | NetWait):
                ranks = step.of
            elif isinstance(step, Send | NetSignal):
                ranks = step.to
            else:
                continue
            found.update(self.team.thread(rank) for _, rank in self.far(ranks))
        found.update(self.team.thread(rank) for _, rank in getattr(instance, "pending", ()))
        return found

    def go_on(self, instance: Any) -> bool:
        """Carry out the MPI steps at which lanes stand; True if a lane moved."""
        moved = False
        for lane in (1, 0):
            step = instance.python_step(lane)
            while step is not None:
                if isinstance(step, Barrier):
                    if not self._exchange(instance, step):
                        break
                elif isinstance(step, Fold | Scan):
                    self.compute(step, instance)
                else:
                    self.post(step, instance)
                    if self.open > 1:
                        self.network.progress()  # what was posted before wants to move
                instance.advance(lane)
                moved = True
                step = instance.python_step(lane)
        return moved

    def compute(self, step: Fold | Scan, instance: Any) -> None:
        """Reduce with numpy, or with the user's function.

        If that raises, the call goes on all the same: others wait for what is to come.
        """
        kernel = instance.plan.kernel
        size = kernel.dtype.itemsize

        def view(part: Part, nelems: int) -> Any:
            memory = (c_char * (nelems * size)).from_address(self.address(part))
            return np.frombuffer(memory, kernel.dtype)

        try:
            carry_out(step, kernel, view)
        except Exception as e:
            self.team.function_failed(e, instance.record.name)

    def _exchange(self, instance: Any, step: Barrier) -> bool:
        """The barrier between nodes; True when the verdict is there.

        A led call's data comes with it. It was read when my node had arrived; if anybody
        has written to another node's memory before he came, it is read and sent again.
        """
        if self.barrier is None:
            kind = AGAIN if self.again else BARRIER
            self.barrier = self._barrier(instance, step, kind)
        if not self.barrier.poll():
            return False
        if isinstance(step, Exchange) and not self.barrier.differs:
            if self.barrier.wrote and not self.again:
                self.again = True
                self.barrier = None
                instance.back(step.before)
                return False if step.before else self._exchange(instance, step)
            self._deliver(step, self.barrier)
        instance.team.set_verdict(self.barrier.differs)
        if not self.barrier.differs:
            self.team.verified = instance.op
        self.barrier = None
        return True

    def _barrier(self, instance: Any, step: Barrier, kind: int) -> NetBarrier:
        team, core = self.team, instance.team
        data = self._collect(step.sends) if isinstance(step, Exchange) else {}
        return NetBarrier(
            self.network, team.exchange_group, team.exchange_index, team.tag(core.epoch, kind),
            core.node_result, team.tuning, data,
        )

    def _collect(self, sends: Sequence[Send]) -> dict[int, bytes]:
        """The bytes of each thread's messages, one after the other."""
        data: dict[int, bytes] = {}
        for step in sends:
            grids = self.grids(step.blocks)
            for i, rank in self.far(step.to):
                shift = i * step.peer_step
                row = [string_at(at + shift, n) for grid in grids for at, n in grid.each()]
                thread = self.team.thread(rank)
                data[thread] = data.get(thread, b"") + b"".join(row)
        return data

    def _deliver(self, exchange: Exchange, barrier: NetBarrier) -> None:
        """The other end of `_collect`."""
        taken: dict[int, int] = {}
        for step in exchange.recvs:
            grids = self.grids(step.blocks)
            for i, rank in self.far(step.of):
                thread = self.team.thread(rank)
                for address, n in (place for grid in grids for place in grid.each()):
                    at = taken.get(thread, 0)
                    taken[thread] = at + n
                    memmove(address + i * step.peer_step, barrier.block(thread, at, n), n)


def _sources(step: Get) -> Ranks:
    """Whom a Get reads from."""
    if not step.src.thread_step:
        return Ranks(step.src.thread)
    return Ranks(step.src.thread, step.count, step.src.thread_step)


class NetBarrier:
    """All node roots to all (few nodes), or dissemination in log2 rounds.

    Carries (min, max) of the fingerprints, the barrier's value and flags in 32 bytes, and
    between few nodes what else each is to get.
    """

    def __init__(
        self,
        network: Network,
        group: Sequence[int],
        me: int,
        tag: int,
        result: tuple[int, int, int, int],
        tuning: Mapping[str, int],
        data: Mapping[int, bytes],
    ) -> None:
        self.network = network
        self.tag = tag
        self.low, self.high, self.value, self.flags = result
        self.data = data
        self.received: dict[int, bytes | bytearray] = {}
        self.room = _EXCHANGE.size
        n = len(group)
        if n <= tuning["flat"]:
            self.room += tuning["lead"]  # also if another call sends it: to see the difference
            others = [group[(me + k) % n] for k in range(1, n)]
            self.rounds = [(others, others)] if others else []
        else:
            self.rounds = [([group[to]], [group[of]]) for to, of in dissemination(me, n)]
        self.round = -1
        self.waiting: dict[int, tuple[Any, bytearray]] = {}
        self.requests: list[Any] = []
        self._next_round()

    @property
    def differs(self) -> bool:
        """The verdict."""
        return self.low != self.high or bool(self.flags & _CONFLICT)

    @property
    def wrote(self) -> bool:
        """Whether any thread had written to another node's memory before it arrived."""
        return bool(self.flags & _WROTE)

    @property
    def missing(self) -> list[int]:
        """Threads whose message has not come."""
        return sorted(r for r, (request, _) in self.waiting.items() if not request.Test())

    def _next_round(self) -> None:
        self.round += 1
        if self.round >= len(self.rounds):
            return
        to, of = self.rounds[self.round]
        for rank in of:
            early = self.network.early.pop((rank, self.tag), None)
            if early is not None:
                self._take(rank, early)
                continue
            buffer = self.network.room(rank, self.room)
            self.waiting[rank] = self.network.recv_into(rank, self.tag, buffer), buffer
            self.requests.append(self.waiting[rank][0])
        head = _EXCHANGE.pack(self.low, self.high, self.value, self.flags)
        for rank in to:
            data = head + self.data[rank] if rank in self.data else head
            self.requests.append(self.network.send_bytes(rank, self.tag, data))

    def poll(self) -> bool:
        """Test for a while; True when all rounds are done.

        Nothing else can go on in this thread meanwhile, so a burst of tests with
        nothing but `sched_yield` between them is the fastest way through.
        """
        for _ in range(BURST):
            if self.network.all_done(self.requests):
                self.requests.clear()
                for rank, (_request, buffer) in self.waiting.items():
                    self._take(rank, buffer)
                self.waiting.clear()
                self._next_round()
                if self.round >= len(self.rounds):
                    return True
            else:
                os.sched_yield()
        return False

    def block(self, rank: int, offset: int, nbytes: int) -> bytes:
        """A piece of what came besides, valid until the next barrier begins."""
        start = _EXCHANGE.size + offset
        return bytes(self.received[rank][start : start + nbytes])

    def _take(self, rank: int, data: bytes | bytearray) -> None:
        self.received[rank] = data
        low, high, value, flags = _EXCHANGE.unpack_from(data)
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.flags |= flags
        if value and self.value and value != self.value:
            self.flags |= _CONFLICT
        self.value = self.value or value


def differs(data: bytes, mine: int | None) -> bool:
    """Whether a barrier message shows that calls differ: among the senders, or from mine."""
    low, high, _, flags = _EXCHANGE.unpack_from(data)
    return bool(low != high or flags & _CONFLICT or mine not in (None, low))


class Engine:
    """Runs instances to their end, and is the one place that waits."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.network = job.network
        self.several_nodes = job.tree.node_count > 1 or not job.native
        self.one_sided_until_barrier = False

    # -- a call ------------------------------------------------------------------------
    def drive(self, instance: Any, status: int | None = None) -> None:
        """Finish a call that has begun; raises what went wrong."""
        net: NetContext | None = instance.net
        if net is not None:
            net.start(instance.op)
        self.resume(instance, instance.run(0) if status is None else status)

    def resume(self, instance: Any, status: int) -> None:
        """Finish a call whose MPI steps may have begun."""
        self.job.control.ensure(instance.call, instance.record.title)
        net: NetContext | None = instance.net
        if net is not None and instance.plan.one_sided:
            self.one_sided_until_barrier = True
            self.job.sync_windows()
            if instance.plan.sync[0] == "no" and instance.team.debt:
                net.settle(instance.plan)
        try:
            if self.reach_end(instance, status) == MISMATCH:
                self.job.mismatch(instance)
        except KeyboardInterrupt:
            self.interrupted(instance)
            raise
        except self.network.mpi.Exception as e:
            raise self.job.guard.mpi_failed(e, Waiting(self.job, instance)) from e
        instance.end()
        if instance.owner.size == 1:
            instance.owner.raise_failure()
        if self.one_sided_until_barrier:
            self.job.sync_windows()
            self.one_sided_until_barrier = instance.plan.sync[1] != "all"

    def expect_reads(self) -> None:
        """Others may read my memory one-sided until the next barrier: poll for them."""
        if self.job.tree.node_count > 1:
            self.one_sided_until_barrier = True
            self.job.sync_windows()

    def interrupted(self, instance: Any) -> None:
        """A KeyboardInterrupt came out of a call: if it is not over, nothing goes on."""
        if instance.active:
            self.job.guard.interrupted(instance.record.call)

    def reach_end(self, instance: Any, status: int, *, look: bool = True) -> int:
        """Wait until the call is done or found to differ: DONE or MISMATCH.

        `look`: after a while, look for signs from other nodes that their calls differ.
        """
        net: NetContext | None = instance.net
        wait = Waiting(self.job, instance)
        while True:
            if status == MISMATCH or (status == DONE and (net is None or not net.open)):
                wait.over()
                return status
            moved = False
            if status == CALL_PYTHON:
                assert net is not None
                moved = net.go_on(instance)
            if self.several_nodes and self.network.progress():
                moved = True
            if moved:
                wait.moved()
                status = instance.run(0)
                continue
            pause = wait.pause(net)
            if wait.look and look and instance.owner.others_differ(instance, wait):
                wait.over()
                return MISMATCH
            status = instance.run(pause)

    def wait_for(
        self,
        done: Callable[[], bool],
        what: str,
        *,
        threads: Sequence[int] = (),
        agreement: int = 0,
    ) -> None:
        """Wait for something that is no instance: a request, an agreement.

        `what`, in words, and the `threads` it comes from or the number of the
        `agreement` serve reports.
        """
        with self.guarded(Waiting(self.job, None, what, threads, agreement)) as wait:
            if agreement:
                wait.publish(what)
            while not done():
                if not self.network.progress():
                    wait.pause(None)
            wait.over()

    @contextlib.contextmanager
    def guarded(self, wait: Waiting) -> Iterator[Waiting]:
        """Around MPI calls outside of `drive`: the same errors as there."""
        try:
            yield wait
        except KeyboardInterrupt:
            self.job.guard.interrupted(wait.name)
            raise
        except self.network.mpi.Exception as e:
            raise self.job.guard.mpi_failed(e, wait) from e


class Waiting:
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
        self.warned = False
        self.published = False
        self.since = time.monotonic_ns()
        # More threads than cores: those who have something to do may wait for the pollers'
        # share of the cores to be used up, which takes milliseconds.
        self.hot = HOT_SHARED_NS if job.oversubscribed else HOT_NS
        self.hot_until = self.since + self.hot
        self.next_watch = self.since + SLICE_NS
        self.look = False
        self.moved_at = self.since
        self.told = False

    @property
    def name(self) -> str:
        """What is waited for or in, in words."""
        return self.instance.record.call if self.instance is not None else self.what

    def publish(self, text: str) -> None:
        """Tell the machine's threads what I wait for, in words."""
        self.published = True
        self.job.control.wait_begins(text)

    def over(self) -> None:
        """It has come."""
        if self.published:
            self.job.control.wait_ends()

    @property
    def stalled(self) -> bool:
        """Whether nothing has happened for a long time by a computer's clock."""
        return time.monotonic_ns() - self.moved_at > STALL_NS

    def moved(self) -> None:
        """Something happened: poll eagerly again."""
        self.moved_at = time.monotonic_ns()
        self.hot_until = self.moved_at + self.hot

    def pause(self, net: NetContext | None) -> int:
        """Pass a little time here or return how long the core may sleep."""
        job, now = self.job, time.monotonic_ns()
        self.look = now >= self.next_watch and job.engine.several_nodes
        if now >= self.next_watch:
            job.guard.look(self)
            self.next_watch = now + SLICE_NS
        if not job.engine.several_nodes and self.instance is not None:
            return SLICE_NS
        busy = (
            self.instance is None
            or (net is not None and (net.open or net.barrier is not None))
            or not job.native
        )
        if not busy and not job.engine.one_sided_until_barrier:
            return NODE_SLICE_NS
        if now < self.hot_until or job.engine.one_sided_until_barrier:
            os.sched_yield()
            return 0
        if busy:
            time.sleep(POLL_NS * 1e-9)
            return 0
        return POLL_NS


def barrier_plan(rank: int, size: int, name: str = "barrier") -> Plan:
    """A plan that is one barrier."""
    steps: tuple[Step, ...] = (Barrier(),) if size > 1 else ()
    return Plan(name, name, rank, size, (steps, ()), 0, ("all", "all"))
