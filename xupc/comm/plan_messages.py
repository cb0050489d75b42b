"""The messages and one-sided reads of an instance.

The core sends and receives messages itself (mpi_messages.h), as `message_layout` described them
when the plan was lowered. This module does what the core does not.
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
from .message_layout import MessageLayout, other_ends
from .mpi import MpiContext
from .net_barrier import NetBarrier, Rounds
from .remote_completion import RemoteCompletion, RemoteCompletions, incomplete
from .tags import BARRIER, DATA, SIGNAL, tag_of
from .team_comm import TeamComm

if TYPE_CHECKING:
    from .mpi_types import BufferSpec, Request

__all__ = ["NetContext"]

SERIES = 4  # messages posted between two calls of MPI's progress: XM_SERIES
VIEWS = 512  # views of operands that an instance keeps: several per line of op_scratch (64)
KEPT_ROOM = 1 << 18  # bytes: a Fold whose actions need more memory makes them again each time
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

    @property
    def completions(self) -> RemoteCompletions:
        """Return what reads of other nodes' memory must wait for."""


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


class NetContext(MessageLayout):
    """The MPI side of one instance: the operations that it has posted, and those still open."""

    def __init__(
        self, job: MessageServices, team: MessageTeam, bounds: Sequence[BoundOperand]
    ) -> None:
        super().__init__(job.network, team, bounds)
        self.job = job
        self.team = team
        self.link = team.link
        self.bounds = bounds
        self.open = 0
        self.awaits: list[RemoteCompletion] = []  # before a one-sided read
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

    # -- steps -----------------------------------------------------------------------
    def messages(self, step: Send | Recv) -> list[tuple[int, BufferSpec]]:
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

    def completions_before(self, plan: Plan) -> list[RemoteCompletion]:
        """Return what must be complete before a plan without a barrier reads."""
        if plan.sync[0] != "no":
            return []
        gets = (step for step in plan.steps if isinstance(step, Get))
        ranks = {rank for step in gets for _, rank in self.far(_sources(step))}
        pending, threads = self.job.completions.pending, self.team.threads
        return [found for rank in sorted(ranks) for found in pending(threads[rank])]

    def _readable(self) -> bool:
        self.awaits = incomplete(self.awaits)
        return not self.awaits

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
        found.update(completion.thread for completion in self.awaits)
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
                elif self.wire is not None and self.renew(step, lane, instance):
                    moved = True
                    break
                elif isinstance(step, Get) and not self._readable():
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

    def renew(self, step: Step, lane: int, instance: Instance) -> bool:
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
