"""Translate the steps of a plan to the rows that the native core runs.

Steps that need MPI become PYTHON rows. The executor runs them the first time, later the core
itself. A barrier of a team that spans nodes becomes these rows: arrive; on the node root gather,
exchange between node roots, and release; on other threads await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
)
from ...records import record
from ...topology.tree import Tree

__all__ = ["LARGE", "Exchange", "Lowered", "lower"]

(COPY, SIGNAL, WAIT, BARRIER, ARRIVE, GATHER, RELEASE, AWAIT, FUSE, FUSE_END, NEED, POST,
 CHECK, PYTHON, FOLD, SCAN, LEAF, SWAP, OFFER, REACH, DEPOSIT, RECLAIM, FUNCTION) = range(23)
OTHER, MEETS, MAILS = range(3)  # Python-side steps by what the core may do itself: mpi_messages.h
LARGE = 65536
"""A plan that copies at least so many bytes runs without the GIL."""

Place = Callable[[int, int], int]
"""``(rank, offset) -> address`` on this node."""
Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def _row(
    kind: int,
    *,
    count: int = 0,
    dst: int = 0,
    src: int = 0,
    dst_local: int = 0,
    src_local: int = 0,
    dst_lstep: int = 0,
    src_lstep: int = 0,
    dst_off: int = 0,
    src_off: int = 0,
    dst_ostep: int = 0,
    src_ostep: int = 0,
    nbytes: int = 0,
) -> Row:
    return (
        kind, count, dst, src, dst_local, src_local, dst_lstep, src_lstep,
        dst_off, src_off, dst_ostep, src_ostep, nbytes,
    )


@record
class Exchange(Barrier):
    """The barrier of a led plan: its messages also carry the data."""

    sends: tuple[Send, ...]
    recvs: tuple[Recv, ...]
    before: int = 0
    """The rows before it that make the data; they run again if the data is sent again."""


@record
class Lowered:
    """A plan in the form of the native core.

    Attributes
    ----------
    lanes
        The rows of each lane.
    python_steps
        The steps of PYTHON rows, by their numbers.
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
    lanes: tuple[list[Row], list[Row]]
    python_steps: tuple[Step, ...]
    large: bool
    functions: int
    written: int


class Lowering:
    """The rows of one plan's lanes."""

    def __init__(self, plan: Plan, tree: Tree, place: Place | None) -> None:
        self.tree = tree
        self.place = place
        self.me = plan.rank
        self.node_root = tree.root_of(plan.rank)
        self.one_node = tree.node_count == 1
        self.kernel = plan.kernel
        self.private = plan.private
        self.python: list[Step] = []
        self.functions = 0
        self.copied = 0

    def lane(self, steps: tuple[Step, ...]) -> list[Row]:
        """Return all rows of a lane."""
        return [row for step in steps for row in self.step(step)]

    def between_barriers(self, steps: tuple[Step, ...]) -> list[Row]:
        """Return all rows of a node lane whose last barrier joins only this node.

        The first barrier compared all calls. A thread that reads data of other nodes checks
        there that it has arrived: see `RemoteCompletions`.
        """
        *body, last = steps
        assert isinstance(last, Barrier)
        rows = [*self.lane(tuple(body)), _row(ARRIVE)]
        if self.me != self.node_root:
            return [*rows, _row(AWAIT, count=1)]
        return [*rows, _row(GATHER), _row(RELEASE, count=1)]

    def step(self, step: Step) -> list[Row]:
        """Return the rows of one step."""
        match step:
            case Copy():
                return [self.copy(step)]
            case Swap():
                self.copied += step.nbytes * step.count
                return [self.row(SWAP, step.a, step.b, step.nbytes, step.count)]
            case Expose():
                at, slot = step.part, BlockRef(OP_SCRATCH, self.me)
                return [self.row(OFFER, slot, at, step.nbytes, 1)]
            case DirectGet():
                of, count = step.of, step.of.count
                self.copied += step.nbytes * count
                slots = BlockRef(OP_SCRATCH, of.first, step.offset, of.step)
                return [self.row(REACH, step.dst, slots, step.nbytes, count)]
            case DirectPut():
                to, count = step.to, step.to.count
                self.copied += step.nbytes * count
                slots = BlockRef(OP_SCRATCH, to.first, step.offset, to.step)
                return [self.row(DEPOSIT, slots, step.src, step.nbytes, count)]
            case CopyBack():
                mine = BlockRef(OP_SCRATCH, self.me, step.offset, 0, step.part.offset_step)
                return [self.row(RECLAIM, step.part, mine, step.nbytes, step.count)]
            case Signal():
                return [_row(SIGNAL, dst=step.channel, nbytes=step.value)]
            case Wait():
                first, lstep = self.members(step.of)
                return [
                    _row(
                        WAIT, dst=step.channel, src_local=first, src_lstep=lstep,
                        count=step.of.count, nbytes=step.value,
                    )
                ]
            case Barrier():
                return self.barrier()
            case FusedBarrier():
                return self.fused(step)
            case Fold() | Scan() if self.kernel.whole:
                return self.by_function(step)
            case Fold() | Scan() if self.kernel.code is None:
                return [self.to_python(step)]
            case Fold():
                return self.fold(step)
            case Scan():
                return self.scan(step)
            case WaitTicket():
                return [_row(NEED, dst=step.ticket)]
            case SetTicket():
                return [_row(POST, dst=step.ticket)]
            case Send() | Recv() | Get() | NetSignal() | NetWait():
                return [self.to_python(step)]
        raise TypeError(f"no lowering for {step!r}")

    def led(self, steps: tuple[Step, ...]) -> list[Row]:
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
            return [*begin, _row(ARRIVE), _row(AWAIT, count=1), *end]
        sends = tuple(step for step in body if isinstance(step, Send))
        recvs = tuple(step for step in body if isinstance(step, Recv))
        assert all(
            isinstance(s, Send | Recv | Copy | Swap | Fold | Scan | WaitTicket) for s in body
        )
        cut = max((i for i, step in enumerate(body) if isinstance(step, Send)), default=0)
        own = (Copy, Swap, Fold, Scan)
        before = [row for s in body[:cut] if isinstance(s, own) for row in self.step(s)]
        after = [row for s in body[cut:] if isinstance(s, own) for row in self.step(s)]
        exchange = self.to_python(Exchange(sends, recvs, len(before)))
        return [
            *begin, _row(ARRIVE), _row(GATHER), *before, exchange, _row(CHECK), *after,
            _row(RELEASE, count=1), *end,
        ]  # fmt: skip

    def to_python(self, step: Step) -> Row:
        self.python.append(step)
        kind = OTHER
        if isinstance(step, Barrier):
            kind = MEETS
        elif isinstance(step, Send | Recv | NetSignal | NetWait):
            kind = MAILS
        return _row(PYTHON, dst=len(self.python) - 1, src=kind)

    def members(self, ranks: Ranks) -> tuple[int, int]:
        """Return the local index of the first rank and the step, for evenly spaced ranks here."""
        first = self.tree.local_index(ranks.first)
        if ranks.count > 1:
            last = ranks.first + (ranks.count - 1) * ranks.step
            assert self.tree.local_index(last) == first + ranks.count - 1, ranks
        return first, 1

    def part(self, part: BlockRef, count: int) -> tuple[int, int]:
        """Return the place of a row of blocks on this node, and the step between places."""
        assert not self.private or part.operand >= OP_SCRATCH or part.thread == self.me, part
        place = self.tree.place(part.thread)
        if count == 1 or part.thread_step == 0:
            return place, 0
        step = self.tree.place(part.thread + part.thread_step) - place
        last = part.thread + (count - 1) * part.thread_step
        assert self.tree.place(last) == place + (count - 1) * step, part
        return place, step

    def copy(self, step: Copy) -> Row:
        self.copied += step.nbytes * step.count
        if self.place is not None:
            return self.copy_anywhere(step, self.place)
        return self.row(COPY, step.dst, step.src, step.nbytes, step.count)

    def row(self, kind: int, dst: BlockRef, src: BlockRef, nbytes: int, count: int) -> Row:
        """Return the core's row for two rows of blocks."""
        dst_local, dst_lstep = self.part(dst, count)
        src_local, src_lstep = self.part(src, count)
        return _row(
            kind,
            count=count,
            dst=dst.operand,
            src=src.operand,
            dst_local=dst_local,
            src_local=src_local,
            dst_lstep=dst_lstep,
            src_lstep=src_lstep,
            dst_off=dst.offset,
            src_off=src.offset,
            dst_ostep=dst.offset_step,
            src_ostep=src.offset_step,
            nbytes=nbytes,
        )

    def copy_anywhere(self, step: Copy, place: Place) -> Row:
        """Return the row of a copy inside the heap, whose addresses are already known."""
        assert step.count == 1
        (dst, src), nbytes = (step.dst, step.src), step.nbytes
        to, of = place(dst.thread, dst.offset), place(src.thread, src.offset)
        return _row(
            COPY, count=1, dst=dst.operand, src=src.operand, dst_off=to, src_off=of, nbytes=nbytes
        )

    def by_function(self, step: Fold | Scan) -> list[Row]:
        """Return a row for Python, and the rows with which the core can replace it."""
        rows = self.fold(step) if isinstance(step, Fold) else self.scan(step)
        self.python.append(step)
        self.functions += 1
        return [_row(FUNCTION, dst=len(self.python) - 1, count=len(rows)), *rows]

    def fold(self, step: Fold) -> list[Row]:
        """Return a row for the result of a Fold, and one for each leaf."""
        local, lstep = self.part(step.dst, step.copies)
        blocks = sum(leaf.times for leaf in step.leaves)
        self.copied += blocks * step.nelems * step.rows * int(self.kernel.dtype.itemsize)
        head = _row(
            FOLD, count=len(step.leaves), dst=step.dst.operand, dst_local=local,
            dst_lstep=lstep, dst_off=step.dst.offset, dst_ostep=step.dst.offset_step,
            nbytes=step.nelems, src_local=step.copies, src_lstep=step.rows, src_off=step.dst_step,
        )  # fmt: skip
        return [head, *(self.leaf(leaf) for leaf in step.leaves)]

    def leaf(self, leaf: FoldOperand) -> Row:
        return _row(
            LEAF, src=leaf.part.operand, src_local=self.tree.place(leaf.part.thread),
            src_off=leaf.part.offset, src_ostep=leaf.part.offset_step, nbytes=leaf.times,
            dst_local=leaf.joins, dst_off=leaf.step,
        )  # fmt: skip

    def scan(self, step: Scan) -> list[Row]:
        """Return a row for a Scan, and one for its carry."""
        self.copied += step.nelems * step.rows * int(self.kernel.dtype.itemsize)
        head = _row(
            SCAN, count=step.rows, nbytes=step.nelems,
            dst=step.dst.operand, dst_local=self.tree.place(step.dst.thread),
            dst_off=step.dst.offset, dst_ostep=step.dst_step, dst_lstep=step.reverse,
            src=step.src.operand, src_local=self.tree.place(step.src.thread),
            src_off=step.src.offset, src_ostep=step.src_step, src_lstep=step.carry is not None,
        )  # fmt: skip
        if step.carry is None:
            return [head]
        return [head, self.leaf(FoldOperand(step.carry, 1, 0, step.carry_step))]

    def barrier(self) -> list[Row]:
        if self.one_node:
            return [_row(BARRIER)]
        if self.me != self.node_root:
            return [_row(ARRIVE), _row(AWAIT)]
        return [_row(ARRIVE), _row(GATHER), self.to_python(Barrier()), _row(RELEASE)]

    def fused(self, step: FusedBarrier) -> list[Row]:
        body = [row for part in step.body for row in self.step(part)]
        by = -1 if step.by is None else self.tree.local_index(step.by)
        return [_row(FUSE, dst_local=by, count=len(body)), *body, _row(FUSE_END), _row(AWAIT)]


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


def lower(plan: Plan, tree: Tree, place: Place | None = None) -> Lowered:
    """Make a plan ready for the native core.

    `place` finds the addresses of operands that are the whole heap.
    """
    lowering = Lowering(plan, tree, place)
    node, net = plan.lanes
    if plan.led:
        assert not net
        lanes: tuple[list[Row], list[Row]] = lowering.led(node), []
    elif (
        tree.node_count > 1
        and plan.sync == ("all", "all")
        and len(node) > 1  # one step alone is a barrier
        and not plan.one_sided
        and (plan.kernel is None or plan.kernel.func is None)  # a function may raise
    ):
        lanes = lowering.between_barriers(node), lowering.lane(net)
    else:
        lanes = lowering.lane(node), lowering.lane(net)
    written = _written(plan, tree.node_size(tree.node_of(plan.rank)))
    large = lowering.copied >= LARGE
    return Lowered(plan, lanes, tuple(lowering.python), large, lowering.functions, written)
