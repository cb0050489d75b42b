"""The messages and one-sided reads of an instance, and the barriers between node roots.

The core sends and receives messages itself (mpi_messages.h), as `message_layout` described them
when the plan was lowered. This module does what the core does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_char
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..health.mismatch_recovery import CONFLICT, EXCHANGE
from ..plan.patterns import dissemination
from ..plan.plan import Plan
from ..plan.steps import (
    Barrier,
    BlockRef,
    Fold,
    Get,
    NetSignal,
    NetWait,
    Ranks,
    Recv,
    Scan,
    Send,
    Step,
)
from ..reduction.reduce_steps import Action, actions, room
from ..runtime.operand_binding import BoundOperand, ScratchOperand
from .message_layout import MessageLayout, other_ends
from .mpi import BARRIER, DATA, SIGNAL, TeamComm, tag_of

if TYPE_CHECKING:
    from ..runtime.job import Job
    from .remote_completion import RemoteCompletion

__all__ = ["NetBarrier", "NetContext", "rounds_among"]

BURST = 50  # tests of a barrier in a row
SERIES = 4  # messages posted between two calls of MPI's progress: XM_SERIES
VIEWS = 512  # views of operands that an instance keeps: several per line of op_scratch (64)
KEPT_ROOM = 1 << 18  # bytes: a Fold whose actions need more memory makes them again each time
KEPT = 4096  # messages of an instance whose buffer descriptions are kept

Rounds = list[tuple[list[int], list[int]]]
"""The rounds of an exchange: the ranks to send to, and those to receive from."""


class NetContext(MessageLayout):
    """The MPI side of one instance: the operations that it has posted, and those still open."""

    def __init__(self, job: Job, team: Any, bounds: Sequence[BoundOperand]) -> None:
        super().__init__(job.network, team, bounds)
        self.job = job
        self.team = team
        self.link: TeamComm = team.link
        self.bounds = bounds
        self.open = 0
        self.unsettled: list[
            RemoteCompletion
        ] = []  # must be complete before a one-sided read
        self.barrier: NetBarrier | None = None
        self.wire: Any = team.wire  # the message engine of the core
        self.posted: dict[int, Step] = {}
        self._bases: list[int] = []
        self._messages: dict[int, list[tuple[int, Any]]] = {}
        self._kept = self._types_freed = 0
        self.views: dict[tuple[BlockRef, int, int], Any] = {}
        self._actions: dict[tuple[int, ...], list[Action]] = {}

    def start(self, operation: int) -> None:
        """Begin a new run of the instance."""
        for bound in self.bounds:
            if isinstance(bound, ScratchOperand):
                bound.turn(operation)
        bases = [bound.address for bound in self.bounds]
        if bases != self._bases:
            self._bases = bases
            self._forget_messages()
        self.open = 0
        self.barrier = None
        self.posted.clear()

    # -- steps -----------------------------------------------------------------------
    def messages(self, step: Send | Recv) -> list[tuple[int, Any]]:
        """Return the (peer, buffer description) of each message."""
        network = self.network
        if self._types_freed != network.types_freed:  # perhaps one that is kept here
            self._types_freed = network.types_freed
            self._forget_messages()
        found = self._messages.get(step.ticket)
        if found is None:
            grids, ends = self.grids(step.blocks), self.far(other_ends(step))
            found = [(rank, network.spec(grids, i * step.peer_step)) for i, rank in ends]
            if self._kept < KEPT and self._types_freed == network.types_freed:
                self._messages[step.ticket] = found
                self._kept += len(found)
        return found

    def _forget_messages(self) -> None:
        self._messages.clear()
        self._kept = 0

    def post(self, step: Step, instance: Any) -> None:
        """Start an MPI step; its ticket is set when all its messages are complete."""
        team = self.team
        requests: list[Any] = []
        keep: list[Any] = []
        match step:
            case Send() | Recv():
                tag = team.call_tag(instance, DATA)
                start = self.link.send if isinstance(step, Send) else self.link.recv
                requests += [start(rank, tag, memory) for rank, memory in self.messages(step)]
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
                    tag = team.call_tag(instance, SIGNAL + step.channel)
                    requests.append(self.link.send_bytes(rank, tag, b""))
            case NetWait():
                for _, rank in self.far(step.of):
                    buffer = bytearray(1)
                    keep.append(buffer)
                    tag = team.call_tag(instance, SIGNAL + step.channel)
                    requests.append(self.link.recv_into(rank, tag, buffer))
            case _:
                raise TypeError(f"not an MPI step: {step!r}")
        self._track(requests, step, instance, keep)

    def to_settle(self, plan: Plan) -> list[RemoteCompletion]:
        """Return what must be complete before a plan without a barrier reads.

        See `TeamState.unsettled`.
        """
        if plan.sync[0] != "no":
            return []
        gets = (step for step in plan.steps if isinstance(step, Get))
        ranks = {rank for step in gets for _, rank in self.far(_sources(step))}
        return [s for rank in sorted(ranks) for s in self.job.unsettled(self.team.threads[rank])]

    def _settled(self) -> bool:
        self.unsettled = [s for s in self.unsettled if not s.poll()]
        return not self.unsettled

    def _get(
        self, part: BlockRef, rank: int, address: int, nbytes: int, count: int = 1, stride: int = 0,
        far_stride: int = 0,
    ) -> Any:
        bound = self.bounds[part.operand]
        thread = self.team.threads[rank]
        remote, displacement = bound.heap.displacement(thread, bound.offset + part.offset)
        return remote.start(thread, displacement, address, nbytes, count, stride, far_stride)

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

        receives = isinstance(step, Recv | NetWait)
        for request in requests:
            self.link.track(request, finished, receives=receives)

    @property
    def exchanging(self) -> bool:
        """Return whether the exchange between node roots is in progress."""
        if self.wire is not None:
            return bool(self.wire.exchanging)
        return self.barrier is not None

    def awaited(self, instance: Any) -> set[int]:
        """Return the threads of other nodes whose message or reply has not arrived."""
        found: set[int] = set()
        exchange = self.wire if self.wire is not None else self.barrier
        if exchange is not None:
            found.update(self.team.threads[rank] for rank in exchange.missing)
        found.update(settling.thread for settling in self.unsettled)
        if instance.open:
            found.update(self.team.threads[rank] for rank in instance.peers)
        for step in self.posted.values():
            if isinstance(step, Get):
                ranks = _sources(step)
            elif isinstance(step, Send | NetSignal | Recv | NetWait):
                ranks = other_ends(step)
            else:
                continue
            found.update(self.team.threads[rank] for _, rank in self.far(ranks))
        found.update(self.team.threads[rank] for _, rank in getattr(instance, "pending", ()))
        return found

    def go_on(self, instance: Any) -> bool:
        """Run the steps at which lanes wait for Python; return True if a lane has advanced."""
        moved = False
        for lane in (1, 0):
            step = instance.python_step(lane)
            while step is not None:
                if isinstance(step, Barrier):
                    if self.wire is not None:
                        self.wire.take(instance.team, self.link.early)
                        moved = True
                        break
                    if not self._exchange(instance):
                        break
                elif isinstance(step, Fold | Scan):
                    self.compute(step, instance, instance.computed(lane))
                elif self.wire is not None and self.renew(step, lane, instance):
                    moved = True
                    break
                elif isinstance(step, Get) and not self._settled():
                    break
                else:
                    self.post(step, instance)
                    if self.open % SERIES == 0:
                        self.network.progress()  # for the messages that were posted before
                instance.advance(lane)
                moved = True
                step = instance.python_step(lane)
        return moved

    def compute(self, step: Fold | Scan, instance: Any, computed: bool = False) -> None:
        """Reduce with numpy or the user's function, or report errors of what the core `computed`.

        If that raises, the call continues, because other threads wait for its messages.
        """
        kernel = instance.plan.kernel
        try:
            acts: Iterable[Action]
            if computed:
                acts = (instance.report,)
            else:
                acts = self._actions.get((id(step), *self._bases)) or self._acts(step, kernel)
            if kernel.func is None:
                _do(acts)
            else:
                self.job.calling_out.run(partial(_do, acts))
        except Exception as e:
            self.team.function_failed(e, instance.record.name)

    def _acts(self, step: Fold | Scan, kernel: Any) -> Iterable[Action]:
        """Return the actions of a step, and keep them unless they need much memory."""
        size = kernel.dtype.itemsize

        def view(part: BlockRef, nelems: int) -> Any:
            key = part, nelems, self.bounds[part.operand].address
            found = self.views.get(key)
            if found is None:
                memory = (c_char * (nelems * size)).from_address(self.address(part))
                if len(self.views) == VIEWS:
                    self.views.clear()
                found = self.views[key] = np.frombuffer(memory, kernel.dtype)
            return found

        if room(step, size) > KEPT_ROOM:
            return actions(step, kernel, view)
        if len(self._actions) == VIEWS:
            self._actions.clear()
        kept = self._actions[id(step), *self._bases] = list(actions(step, kernel, view))
        return kept

    def _exchange(self, instance: Any) -> bool:
        """Run the barrier between nodes in Python; return True when its result is known."""
        if self.barrier is None:
            rounds, room = self.team.exchange_rounds
            tag = tag_of(instance.team.epoch, BARRIER)
            self.barrier = NetBarrier(self.link, rounds, room, tag, instance.team.node_result)
        if not self.barrier.poll():
            return False
        instance.team.set_verdict(self.barrier.differs)
        if not self.barrier.differs:
            instance.team.verified = instance.op
        self.barrier = None
        return True

    def renew(self, step: Step, lane: int, instance: Any) -> bool:
        """Describe messages again if MPI has freed their type; return False if it has not."""
        if not instance.outdated(lane):
            return False
        assert isinstance(step, Send | Recv)
        found = self.describe(step)
        assert found is not None
        instance.renew(lane, found)
        return True


def _do(acts: Iterable[Action]) -> None:
    for act in acts:
        act()


def _sources(step: Get) -> Ranks:
    """Return the ranks that a Get reads from."""
    if not step.src.thread_step:
        return Ranks(step.src.thread)
    return Ranks(step.src.thread, step.count, step.src.thread_step)


def rounds_among(
    group: Sequence[int], me: int, tuning: Mapping[str, int]
) -> tuple[Rounds, int]:
    """Return the rounds of an exchange in a group, and the bytes of its longest message.

    Few threads exchange all to all, more by dissemination. `me`: the position in the group.
    """
    n = len(group)
    if n > tuning["few_nodes_max"]:
        return [([group[to]], [group[of]]) for to, of in dissemination(me, n)], EXCHANGE.size
    others = [group[(me + k) % n] for k in range(1, n)]
    # room for the longest message of any call, so that a mismatch can be detected
    room = EXCHANGE.size + max(tuning["root_exchange_max"], tuning["root_exchange_max_one_block"])
    return [(others, others)] if others else [], room


class NetBarrier:
    """The exchange of a barrier between nodes, in Python.

    Its messages hold the minimum and maximum of the fingerprints, a value, and flags: 32 bytes.
    """

    def __init__(
        self,
        link: TeamComm,
        rounds: Rounds,
        room: int,
        tag: int,
        result: tuple[int, int, int, int],
    ) -> None:
        self.link = link
        self.rounds = rounds
        self.room = room
        self.tag = tag
        self.low, self.high, self.value, self.flags = result
        self.round = -1
        self.waiting: dict[int, tuple[Any, bytearray]] = {}
        self.requests: list[Any] = []
        self._next_round()

    @property
    def differs(self) -> bool:
        """Return whether the calls of the threads differ."""
        return self.low != self.high or bool(self.flags & CONFLICT)

    @property
    def missing(self) -> list[int]:
        """Return the ranks whose message has not arrived."""
        return sorted(r for r, (request, _) in self.waiting.items() if not request.Test())

    def _next_round(self) -> None:
        self.round += 1
        if self.round >= len(self.rounds):
            return
        to, of = self.rounds[self.round]
        for rank in of:
            early = self.link.early.pop((rank, self.tag), None)
            if early is not None:
                self._take(early)
                continue
            buffer = self.link.room(rank, self.room)
            self.waiting[rank] = self.link.recv_into(rank, self.tag, buffer), buffer
            self.requests.append(self.waiting[rank][0])
        head = EXCHANGE.pack(self.low, self.high, self.value, self.flags)
        self.requests += [self.link.send_bytes(rank, self.tag, head) for rank in to]

    def poll(self) -> bool:
        """Test for a while; return True when all rounds are complete.

        This thread has nothing else to do meanwhile. So a burst of tests with only `sched_yield`
        between them is fastest.
        """
        for _ in range(BURST):
            if self.link.network.all_done(self.requests):
                self.requests.clear()
                for _request, buffer in self.waiting.values():
                    self._take(buffer)
                self.waiting.clear()
                self._next_round()
                if self.round >= len(self.rounds):
                    return True
            else:
                os.sched_yield()
        return False

    def _take(self, data: bytes | bytearray) -> None:
        low, high, value, flags = EXCHANGE.unpack_from(data)
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.flags |= flags
        if value and self.value and value != self.value:
            self.flags |= CONFLICT
        self.value = self.value or value
