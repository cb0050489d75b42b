"""The messages and one-sided reads of an instance.

The core sends and receives messages itself (mpi_messages.h). This module describes them to the
core at their first run, and does what the core does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ctypes import c_char
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..backends.operand_binding import BoundOperand, ScratchOperand
from ..backends.protocol import Instance, MessageEngine, Owner
from ..plan.plan import Plan
from ..plan.steps import (
    Barrier,
    BlockRef,
    Blocks,
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
from ..reduction.kernel_base import Kernel
from ..reduction.reduce_steps import Action, actions, room
from .datatypes import Grid
from .mpi import MpiContext
from .net_barrier import NetBarrier, Rounds
from .tags import BARRIER, DATA, SIGNAL, tag_of
from .team_comm import TeamComm

if TYPE_CHECKING:
    from .mpi_types import BufferSpec, Request
    from .remote_completion import RemoteCompletion

__all__ = ["NetContext"]

SERIES = 4  # messages posted between two calls of MPI's progress: XM_SERIES
VIEWS = 512  # views of operands that an instance keeps: several per line of op_scratch (64)
KEPT_ROOM = 1 << 18  # bytes: a Fold whose actions need more memory makes them again each time
MOST_COUNT = 0x7FFFFFFF  # elements of a message that the core posts: a C int
MpiStep = Send | Recv | Get | NetSignal | NetWait
KEPT = 4096  # messages of an instance whose buffer descriptions are kept


class UserFunctions(Protocol):
    """The scope of the user's functions that collectives call."""

    def run(self, act: Callable[[], None]) -> None:
        """Run an action that calls a user's function."""


class MessageServices(Protocol):
    """The part of the job that the messages of a call use."""

    @property
    def network(self) -> MpiContext:
        """MPI of this process."""

    @property
    def calling_out(self) -> UserFunctions:
        """Scope of the user's functions that collectives call."""

    def unsettled(self, thread: int) -> list[RemoteCompletion]:
        """Return what must be complete before a thread's memory is read."""


class MessageTeam(Owner, Protocol):
    """The part of a team that the messages of its calls use."""

    link: TeamComm
    wire: MessageEngine | None
    exchange_rounds: tuple[Rounds, int]

    @property
    def places(self) -> dict[int, int]:
        """Index of the parts of this node's threads in the node's memory, by rank."""

    def call_tag(self, instance: Instance, kind: int) -> int:
        """Return the tag of a call's data and signals."""

    def function_failed(self, error: Exception, call: str) -> None:
        """Note an error of a user's function."""


class PythonCore(Protocol):
    """The counters of a team in the Python engine."""

    epoch: int
    verified: int

    @property
    def node_result(self) -> tuple[int, int, int, int]:
        """Return this thread's own (min, max, value, conflict)."""

    def set_verdict(self, verdict: bool) -> None:
        """Set the result of the barrier in progress."""


class NetContext:
    """The MPI side of one instance: the operations that it has posted, and those still open."""

    def __init__(
        self, job: MessageServices, team: MessageTeam, bounds: Sequence[BoundOperand]
    ) -> None:
        self.job = job
        self.network = job.network
        self.team = team
        self.link = team.link
        self.tree = team.rank_tree
        self.bounds = bounds
        self.open = 0
        self.unsettled: list[
            RemoteCompletion
        ] = []  # must be complete before a one-sided read
        self.barrier: NetBarrier | None = None
        self.wire = team.wire  # the message engine of the core
        self.posted: dict[int, MpiStep] = {}
        self._bases: list[int] = []
        self._messages: dict[int, list[tuple[int, BufferSpec]]] = {}
        self._kept = self._types_freed = 0
        self.views: dict[tuple[BlockRef, int, int], NDArray[Any]] = {}
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

    # -- addresses -------------------------------------------------------------------
    def address(self, part: BlockRef) -> int:
        """Return the address of a block on this node."""
        bound = self.bounds[part.operand]
        if bound.place is not None:
            return bound.place(part.thread, part.offset)
        place = self.team.places[part.thread]
        return int(bound.address + bound.stride * place + part.offset)

    def row(self, part: BlockRef, count: int) -> tuple[int, int]:
        """Return the address of a row on this node, and the bytes from block to block."""
        stride = part.offset_step
        if part.thread_step and count > 1:
            stride += self._apart(part, part.thread_step)
        return self.address(part), stride

    def _apart(self, part: BlockRef, threads: int) -> int:
        """Return the bytes from a thread's memory to that of the thread `threads` ranks higher."""
        places, stride = self.team.places, self.bounds[part.operand].stride
        return int(stride * (places[part.thread + threads] - places[part.thread]))

    def grids(self, blocks: Sequence[Blocks]) -> list[Grid]:
        """Return the grids of a message's blocks on this node."""
        out = []
        for part, nbytes, columns, rows, (threads, row_stride) in blocks:
            address, stride = self.row(part, columns)
            if threads and rows > 1:
                row_stride += self._apart(part, threads)
            out.append(Grid.of(address, nbytes, columns, stride, rows, row_stride))
        return out

    # -- steps -----------------------------------------------------------------------
    def far(self, ranks: Ranks) -> list[tuple[int, int]]:
        """Return the (position, rank) of each rank on another node."""
        tree, node = self.tree, self.team.node_number
        if ranks.count == 1:
            return [] if tree.node_of(ranks.first) == node else [(0, ranks.first)]
        index = tree.node_index
        return [(i, r) for i, r in enumerate(ranks) if index[r] != node]

    def messages(self, step: Send | Recv) -> list[tuple[int, BufferSpec]]:
        """Return the (peer, buffer description) of each message."""
        network = self.network
        if self._types_freed != network.types_freed:  # perhaps one that is kept here
            self._types_freed = network.types_freed
            self._forget_messages()
        found = self._messages.get(step.ticket)
        if found is None:
            grids, ends = self.grids(step.blocks), self.far(_other_ends(step))
            found = [(rank, network.spec(grids, i * step.peer_step)) for i, rank in ends]
            if self._kept < KEPT and self._types_freed == network.types_freed:
                self._messages[step.ticket] = found
                self._kept += len(found)
        return found

    def _forget_messages(self) -> None:
        self._messages.clear()
        self._kept = 0

    def post(self, step: Step, instance: Instance) -> None:
        """Start an MPI step; its ticket is set when all its messages are complete."""
        team = self.team
        requests: list[Request] = []
        keep: list[bytearray] = []
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
    ) -> Request:
        bound = self.bounds[part.operand]
        thread = self.team.threads[rank]
        remote, displacement = bound.heap.displacement(thread, bound.offset + part.offset)
        request: Request = remote.start(
            thread, displacement, address, nbytes, count, stride, far_stride
        )
        return request

    def _track(
        self, requests: list[Request], step: MpiStep, instance: Instance, keep: list[bytearray]
    ) -> None:
        ticket = step.ticket
        if not requests:
            instance.set_ticket(ticket)
            return
        left = [len(requests)]
        self.open += 1
        self.posted[ticket] = step

        def finished(_keep: list[bytearray] = keep) -> None:
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

    def awaited(self, instance: Instance) -> set[int]:
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
                ranks = _other_ends(step)
            else:
                continue
            found.update(self.team.threads[rank] for _, rank in self.far(ranks))
        found.update(self.team.threads[rank] for _, rank in getattr(instance, "pending", ()))
        return found

    def go_on(self, instance: Instance) -> bool:
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
                elif (
                    self.wire is not None
                    and isinstance(step, Send | Recv | NetSignal | NetWait)
                    and self.learn(step, lane, instance)
                ):
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

    def compute(self, step: Fold | Scan, instance: Instance, computed: bool = False) -> None:
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

    def _acts(self, step: Fold | Scan, kernel: Kernel) -> Iterable[Action]:
        """Return the actions of a step, and keep them unless they need much memory."""
        size = kernel.dtype.itemsize

        def view(part: BlockRef, nelems: int) -> NDArray[Any]:
            key = part, nelems, self.bounds[part.operand].address
            found = self.views.get(key)
            if found is None:
                memory: Any = (c_char * (nelems * size)).from_address(self.address(part))
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

    def _exchange(self, instance: Instance) -> bool:
        """Run the barrier between nodes in Python; return True when its result is known."""
        core = cast("PythonCore", instance.team)
        if self.barrier is None:
            rounds, room = self.team.exchange_rounds
            tag = tag_of(core.epoch, BARRIER)
            self.barrier = NetBarrier(self.link, rounds, room, tag, core.node_result)
        if not self.barrier.poll():
            return False
        core.set_verdict(self.barrier.differs)
        if not self.barrier.differs:
            core.verified = instance.op
        self.barrier = None
        return True

    def pieces(self, steps: Sequence[Send | Recv]) -> list[tuple[int, int, int, int]]:
        """Return the pieces of messages, in order.

        Each is (peer, operand, offset from the operand's address, bytes).
        """
        found = []
        for step in steps:
            peers = self.far(_other_ends(step))
            for blocks in step.blocks:
                operand = blocks.part.operand
                places = [p for grid in self.grids([blocks]) for p in grid.each()]
                for i, rank in peers:
                    shift = i * step.peer_step - self.bounds[operand].address
                    found += [(rank, operand, at + shift, n) for at, n in places]
        return found

    def learn(self, step: Send | Recv | NetSignal | NetWait, lane: int, instance: Instance) -> bool:
        """Describe the messages of a step to the core; return False if Python must post them."""
        network, typed = self.network, False
        ends = self.far(_other_ends(step))
        if isinstance(step, NetSignal | NetWait):
            kind = SIGNAL + step.channel
            byte = network.handle_of(network.mpi.BYTE)
            n = int(isinstance(step, NetWait))
            messages = [(rank, -1, 0, n, byte) for _, rank in ends]
        else:
            operands = {blocks.part.operand for blocks in step.blocks}
            if len(operands) > 1:  # another call may bind them to other addresses
                return False
            kind, operand = DATA, operands.pop()
            address, _, n, datatype = network.shape(self.grids(step.blocks))
            if n > MOST_COUNT:
                return False
            typed = datatype is not network.mpi.BYTE
            handle = network.handle_of(datatype)
            at = address - self.bounds[operand].address
            messages = [(rank, operand, at + i * step.peer_step, n, handle) for i, rank in ends]
        sends = isinstance(step, Send | NetSignal)
        instance.learn(lane, sends, step.ticket, kind, messages, typed)
        return True


def _do(acts: Iterable[Action]) -> None:
    for act in acts:
        act()


def _other_ends(step: Send | NetSignal | Recv | NetWait) -> Ranks:
    """Return the ranks that a step sends to, or receives from."""
    return step.to if isinstance(step, Send | NetSignal) else step.of


def _sources(step: Get) -> Ranks:
    """Return the ranks that a Get reads from."""
    if not step.src.thread_step:
        return Ranks(step.src.thread)
    return Ranks(step.src.thread, step.count, step.src.thread_step)
