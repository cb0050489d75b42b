"""Translate the steps of a plan to the rows that the native core runs.

`rows` has the kinds of rows. Most steps become one row. Steps that only Python can run become
PYTHON rows. A barrier of a team that spans nodes becomes these rows: arrive; on the node root
gather, exchange between node roots, and release; on other threads await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Never, Protocol, cast

from ...plan.plan import Plan
from ...plan.steps import (
    OP_SCRATCH,
    Barrier,
    BlockRef,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FoldOperand,
    FusedBarrier,
    Get,
    NetSignal,
    NetWait,
    Ranks,
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
from ...records import record
from ...topology.tree import Tree
from ..protocol import Message, Piece, StepMessages
from . import rows

__all__ = ["LARGE", "Lowered", "MessageSource", "lower"]

LARGE = 65536
"""A plan that copies at least so many bytes runs without the GIL."""

Place = Callable[[int, int], int]
"""``(rank, offset) -> address`` on this node."""
Rows = list[bytes]


class MessageSource(Protocol):
    """Find the messages of steps; `xupc.comm.message_layout.MessageLayout` does."""

    def describe(self, step: Send | Recv | NetSignal | NetWait) -> StepMessages | None:
        """Return the messages of a step; None if Python must post them."""

    def pieces(self, steps: Iterable[Send | Recv]) -> list[Piece]:
        """Return the pieces of memory that the messages of a root exchange carry."""


@record
class Lowered:
    """A plan in the form of the native core.

    Attributes
    ----------
    lanes
        The rows of each lane.
    python_steps
        The steps that Python runs, or describes again, by their numbers in rows.
    messages
        The messages of all steps that the core sends or receives.
    led_sends, led_recvs
        The pieces of memory that the exchange of a led plan carries.
    large
        Whether the plan copies so much that it runs without the GIL.
    functions
        How many of the Python steps are folds and scans by a function of whole arrays, each
        followed by rows that the core runs instead if it can.
    written
        Bytes that copies write to the arrays of this node, if the plans of its other threads
        write as many as this one.
    """

    plan: Plan
    lanes: tuple[Rows, Rows]
    python_steps: tuple[Step, ...]
    messages: list[Message]
    led_sends: list[Piece]
    led_recvs: list[Piece]
    large: bool
    functions: int
    written: int


class Lowering:
    """The rows of one plan's lanes."""

    def __init__(
        self, plan: Plan, tree: Tree, place: Place | None, source: MessageSource | None
    ) -> None:
        self.tree = tree
        self.place = place
        self.source = source
        self.me = plan.rank
        self.node_root = tree.root_of(plan.rank)
        self.one_node = tree.node_count == 1
        self.kernel = plan.kernel
        self.private = plan.private
        self.python: list[Step] = []
        self.messages: list[Message] = []
        self.led_sends: list[Piece] = []
        self.led_recvs: list[Piece] = []
        self.functions = 0
        self.copied = 0

    # -- lanes -----------------------------------------------------------------------
    def lane(self, steps: Iterable[Step]) -> Rows:
        """Return all rows of a lane."""
        return [row for step in steps for row in _LOWER[type(step)](self, cast("Never", step))]

    def between_barriers(self, steps: tuple[Step, ...]) -> Rows:
        """Return all rows of a node lane whose last barrier joins only this node.

        The first barrier compared all calls. A thread that reads data of other nodes checks
        there that it has arrived: see `RemoteCompletions`.
        """
        *body, last = steps
        assert isinstance(last, Barrier)
        begin = [*self.lane(body), rows.ARRIVE()]
        if self.me != self.node_root:
            return [*begin, rows.AWAIT(led=1)]
        return [*begin, rows.GATHER(), rows.RELEASE(led=1)]

    def led(self, steps: tuple[Step, ...]) -> Rows:
        """Return all rows of a led plan.

        Its two barriers become one: threads arrive and are released when their node root has
        moved the data, which travels with the fingerprints between node roots. All threads can
        have steps of their own before and after it. A thread that reads data of other nodes
        checks there what the last barrier promises: see `RemoteCompletions`.
        """
        barriers = [i for i, step in enumerate(steps) if isinstance(step, Barrier)]
        first, last = barriers  # node roots move the data between them
        prologue, body, epilogue = steps[:first], steps[first + 1 : last], steps[last + 1 :]
        begin, end = self.lane(prologue), self.lane(epilogue)
        if self.me != self.node_root:
            assert not body
            return [*begin, rows.ARRIVE(), rows.AWAIT(led=1), *end]
        own, others = (Copy, Swap, Fold, Scan), (Send, Recv, WaitTicket)
        assert all(isinstance(step, own + others) for step in body)
        cut = max((i for i, step in enumerate(body) if isinstance(step, Send)), default=0)
        before = self.lane(step for step in body[:cut] if isinstance(step, own))
        after = self.lane(step for step in body[cut:] if isinstance(step, own))
        if self.source is not None:
            self.led_sends = self.source.pieces(s for s in body if isinstance(s, Send))
            self.led_recvs = self.source.pieces(s for s in body if isinstance(s, Recv))
        return [
            *begin, rows.ARRIVE(), rows.GATHER(), *before, self.exchange(1, len(before)),
            rows.CHECK(), *after, rows.RELEASE(led=1), *end,
        ]  # fmt: skip

    # -- blocks ----------------------------------------------------------------------
    def block(self, part: BlockRef) -> tuple[int, ...]:
        """Return a block as rows have it."""
        assert not self.private or part.operand >= OP_SCRATCH or part.thread == self.me, part
        return part.offset, part.operand, self.tree.place(part.thread)

    def blocks(self, part: BlockRef, count: int) -> tuple[int, ...]:
        """Return a row of blocks on this node as rows have it."""
        place, step = self.threads(part.thread, count, part.thread_step)
        offset, operand, _ = self.block(part)
        return offset, operand, place, part.offset_step, step

    def threads(self, first: int, count: int, step: int) -> tuple[int, int]:
        """Return the place of a rank on this node, and the step between places of several."""
        place = self.tree.place(first)
        if count == 1 or step == 0:
            return place, 0
        apart = self.tree.place(first + step) - place
        last = first + (count - 1) * step
        assert self.tree.place(last) == place + (count - 1) * apart, (first, count, step)
        return place, apart

    def member(self, ranks: Ranks) -> int:
        """Return the local index of the first of ranks that follow each other on this node."""
        first = self.tree.local_index(ranks.first)
        last = ranks.first + (ranks.count - 1) * ranks.step
        assert self.tree.local_index(last) == first + ranks.count - 1, ranks
        return first

    # -- each kind of step -----------------------------------------------------------
    def copy(self, step: Copy) -> Rows:
        self.copied += step.nbytes * step.count
        if self.place is None:
            dst, src = self.blocks(step.dst, step.count), self.blocks(step.src, step.count)
        else:
            assert step.count == 1
            dst, src = (self.anywhere(part, self.place) for part in (step.dst, step.src))
        return [rows.COPY(count=step.count, nbytes=step.nbytes, dst=dst, src=src)]

    def anywhere(self, part: BlockRef, place: Place) -> tuple[int, ...]:
        """Return a block inside the heap, whose address is known already."""
        return place(part.thread, part.offset), part.operand, 0, 0, 0

    def swap(self, step: Swap) -> Rows:
        self.copied += step.nbytes * step.count
        a, b = self.blocks(step.a, step.count), self.blocks(step.b, step.count)
        return [rows.SWAP(count=step.count, nbytes=step.nbytes, a=a, b=b)]

    def expose(self, step: Expose) -> Rows:
        mine, block = self.tree.place(self.me), self.block(step.part)
        return [rows.EXPOSE(thread=mine, nbytes=step.nbytes, src=block)]

    def direct_get(self, step: DirectGet) -> Rows:
        return self.direct(rows.DIRECT_GET, step, step.dst, step.of)

    def direct_put(self, step: DirectPut) -> Rows:
        return self.direct(rows.DIRECT_PUT, step, step.src, step.to)

    def direct(
        self, kind: rows.Kind, step: DirectGet | DirectPut, part: BlockRef, ranks: Ranks
    ) -> Rows:
        self.copied += step.nbytes * ranks.count
        thread, thread_step = self.threads(ranks.first, ranks.count, ranks.step)
        return [
            kind(
                count=ranks.count, nbytes=step.nbytes, mine=self.blocks(part, ranks.count),
                offset=step.offset, thread=thread, thread_step=thread_step,
            )
        ]  # fmt: skip

    def copy_back(self, step: CopyBack) -> Rows:
        dst, mine = self.blocks(step.part, step.count), self.tree.place(self.me)
        return [
            rows.COPY_BACK(
                count=step.count, nbytes=step.nbytes, dst=dst, offset=step.offset, thread=mine
            )
        ]

    def signal(self, step: Signal) -> Rows:
        return [rows.SIGNAL(channel=step.channel, value=step.value)]

    def wait(self, step: Wait) -> Rows:
        first = self.member(step.of)
        return [
            rows.WAIT(channel=step.channel, first=first, count=step.of.count, value=step.value)
        ]

    def wait_ticket(self, step: WaitTicket) -> Rows:
        return [rows.WAIT_TICKET(ticket=step.ticket)]

    def set_ticket(self, step: SetTicket) -> Rows:
        return [rows.SET_TICKET(ticket=step.ticket)]

    def barrier(self, step: Barrier) -> Rows:
        if self.one_node:
            return [rows.BARRIER()]
        if self.me != self.node_root:
            return [rows.ARRIVE(), rows.AWAIT(led=0)]
        return [rows.ARRIVE(), rows.GATHER(), self.exchange(0, 0), rows.RELEASE(led=0)]

    def exchange(self, led: int, before: int) -> bytes:
        """Return the row of an exchange between node roots."""
        sends, recvs = len(self.led_sends), len(self.led_recvs)
        number = self.number(Barrier())
        return rows.EXCHANGE(step=number, led=led, before=before, sends=sends, recvs=recvs)

    def fused(self, step: FusedBarrier) -> Rows:
        body = self.lane(step.body)
        by = -1 if step.by is None else self.tree.local_index(step.by)
        return [
            rows.FUSE(executor=by, body=len(body)), *body, rows.FUSE_END(), rows.AWAIT(led=0)
        ]  # fmt: skip

    # -- reductions ------------------------------------------------------------------
    def reduction(self, step: Fold | Scan) -> Rows:
        """Return the rows of a Fold or Scan: with a function of the user's Python may run it."""
        if self.kernel.code is None and not self.kernel.whole:
            return self.to_python(step)
        done = self.fold(step) if isinstance(step, Fold) else self.scan(step)
        if not self.kernel.whole:
            return done
        self.functions += 1
        return [rows.FUNCTION(step=self.number(step), rows=len(done)), *done]

    def fold(self, step: Fold) -> Rows:
        """Return a row for the result of a Fold, and one for each leaf."""
        blocks = sum(leaf.times for leaf in step.leaves)
        self.copied += blocks * step.nelems * step.rows * int(self.kernel.dtype.itemsize)
        head = rows.FOLD(
            operands=len(step.leaves), copies=step.copies, rows=step.rows, nelems=step.nelems,
            row_step=step.dst_step, dst=self.blocks(step.dst, step.copies),
        )  # fmt: skip
        return [head, *(self.leaf(leaf) for leaf in step.leaves)]

    def leaf(self, leaf: FoldOperand) -> bytes:
        return rows.FOLD_OPERAND(
            joins=leaf.joins, times=leaf.times, src=self.block(leaf.part),
            offset_step=leaf.part.offset_step, row_step=leaf.step,
        )  # fmt: skip

    def scan(self, step: Scan) -> Rows:
        """Return a row for a Scan, and one for its carry."""
        self.copied += step.nelems * step.rows * int(self.kernel.dtype.itemsize)
        head = rows.SCAN(
            rows=step.rows, reverse=step.reverse, carry=step.carry is not None,
            nelems=step.nelems, dst=self.block(step.dst), src=self.block(step.src),
            dst_step=step.dst_step, src_step=step.src_step,
        )  # fmt: skip
        if step.carry is None:
            return [head]
        return [head, self.leaf(FoldOperand(step.carry, 1, 0, step.carry_step))]

    # -- steps outside of the node -----------------------------------------------------
    def number(self, step: Step) -> int:
        """Return the number of a step that Python may have to run."""
        self.python.append(step)
        return len(self.python) - 1

    def to_python(self, step: Step) -> Rows:
        return [rows.PYTHON(step=self.number(step))]

    def message(self, step: Send | Recv | NetSignal | NetWait) -> Rows:
        """Return the row of messages; Python posts those that the core cannot."""
        found = None if self.source is None else self.source.describe(step)
        if found is None:
            return self.to_python(step)
        kind = rows.SEND if isinstance(step, Send | NetSignal) else rows.RECV
        first = len(self.messages)
        self.messages += found.each
        return [
            kind(
                step=self.number(step), first=first, count=len(found.each), ticket=step.ticket,
                tag=found.tag, types=found.types,
            )
        ]  # fmt: skip


_LOWER: Final[Mapping[type[Step], Callable[[Lowering, Never], Rows]]] = by_kind(
    "lowering",
    {
        Copy: Lowering.copy,
        Swap: Lowering.swap,
        Expose: Lowering.expose,
        DirectGet: Lowering.direct_get,
        DirectPut: Lowering.direct_put,
        CopyBack: Lowering.copy_back,
        Signal: Lowering.signal,
        Wait: Lowering.wait,
        NetSignal: Lowering.message,
        NetWait: Lowering.message,
        Send: Lowering.message,
        Recv: Lowering.message,
        Get: Lowering.to_python,
        WaitTicket: Lowering.wait_ticket,
        SetTicket: Lowering.set_ticket,
        Barrier: Lowering.barrier,
        FusedBarrier: Lowering.fused,
        Fold: Lowering.reduction,
        Scan: Lowering.reduction,
    },
)


def _written(plan: Plan, mates: int) -> int:
    """Return `Lowered.written`; one thread runs a fused step for all of them."""

    def by(steps: Iterable[Step]) -> int:
        copies = (
            step for step in steps if isinstance(step, Copy) and step.dst.operand < OP_SCRATCH
        )
        return sum(copy.nbytes * copy.count for copy in copies)

    steps = [step for lane in plan.lanes for step in lane]
    fused = sum(by(step.body) for step in steps if isinstance(step, FusedBarrier))
    return fused + mates * by(steps)


def lower(
    plan: Plan, tree: Tree, place: Place | None = None, source: MessageSource | None = None
) -> Lowered:
    """Make a plan ready for the native core.

    `place` finds the addresses of operands that are the whole heap, `source` the messages that
    the core sends itself.
    """
    lowering = Lowering(plan, tree, place, source)
    lanes = _lanes(lowering, plan)
    written = _written(plan, tree.node_size(tree.node_of(plan.rank)))
    return Lowered(
        plan, lanes, tuple(lowering.python), lowering.messages, lowering.led_sends,
        lowering.led_recvs, lowering.copied >= LARGE, lowering.functions, written,
    )  # fmt: skip


def _lanes(lowering: Lowering, plan: Plan) -> tuple[Rows, Rows]:
    node, net = plan.lanes
    if plan.led:
        assert not net
        return lowering.led(node), []
    if (
        not lowering.one_node
        and plan.sync == ("all", "all")
        and len(node) > 1  # one step alone is a barrier
        and not plan.one_sided
        and (plan.kernel is None or plan.kernel.func is None)  # a function may raise
    ):
        return lowering.between_barriers(node), lowering.lane(net)
    return lowering.lane(node), lowering.lane(net)
