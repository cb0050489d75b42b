"""The parts of a reduction: the operands of each thread, and the order of combination."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ..pgas.layout import Layout
from ..plan.patterns import tree_joins
from ..plan.recorder import SRC, Recorder
from ..plan.steps import BlockRef, FoldOperand
from ..records import record

__all__ = ["Piece", "Reduction", "Task", "joined", "tree_of"]

Piece = tuple[int, int, int]
"""Results ``begin .. end``, each over so many blocks."""


@record
class Task:
    """A part of the results, or of the rows that they are computed from.

    Elements ``begin .. begin + nelems`` of the result; rows ``row .. row + rows`` of blocks,
    of which the first `positions` threads have one (all rows: None).
    """

    begin: int
    nelems: int
    positions: int
    row: int | None = None
    rows: int = 1


@record
class Reduction:
    """The arguments of a reduction.

    Attributes
    ----------
    layout
        The layout of src.
    each
        Elements of the result: 1, or those of a block.
    itemsize
        Bytes of an element.
    to
        The thread of dst; None if dst is on all threads.
    ordered
        True if the operands keep their order.
    exact
        True if the order of operations is the same on every placement of the threads.
    column
        The first element of each block that is reduced; `each` of them are (a stripe has a part).
    """

    layout: Layout
    each: int
    itemsize: int
    to: int | None
    ordered: bool
    exact: bool
    element_wise: bool
    column: int = 0

    @cached_property
    def by_row(self) -> bool:
        """True if rows must be folded one after the other."""
        return self.ordered and self.layout.rows > 1

    @property
    def nbytes(self) -> int:
        """The bytes of the result."""
        return self.each * self.itemsize

    @property
    def block_bytes(self) -> int:
        """The bytes of a block (element-wise reduction) or of a thread's share (otherwise)."""
        return self.nbytes if self.element_wise else self.layout.share * self.itemsize

    @property
    def most(self) -> int:
        """The most bytes that a task can have."""
        return self.nbytes if self.element_wise else max(1, self.layout.rows) * self.itemsize

    @cached_property
    def short(self) -> int:
        """Elements of the last block, from the first column on."""
        blocks = self.layout.blocks
        if not self.element_wise:
            return 1
        return self.layout.nelems - (blocks - 1) * self.layout.block - self.column

    # -- the leaves ------------------------------------------------------------------
    def ranges(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``(begin, end, blocks)``: ranges of results over the same number of blocks."""
        cut = min(max(self.short, begin), end)
        if begin < cut:
            yield begin, cut, self.layout.blocks
        if cut < end:
            yield cut, end, self.layout.blocks - 1

    def leaf(self, position: int, begin: int, blocks: int) -> FoldOperand:
        """Return the operands of a position for the results from `begin` on."""
        layout, size = self.layout, self.itemsize
        thread, run = layout.thread(position), layout.run(position)
        if not self.element_wise:
            return FoldOperand(BlockRef(SRC.index, thread, run.place * size, 0, size), run.nelems)
        count = -(-(blocks - position) // layout.threads)
        part = BlockRef(SRC.index, thread, (run.place + begin) * size, 0, layout.block * size)
        return FoldOperand(part, count)

    def positions(self, blocks: int) -> int:
        """Return the number of threads that have at least one of `blocks` blocks."""
        return min(blocks, self.layout.threads) if self.element_wise else self.layout.positions

    def tree(self, begin: int, blocks: int) -> list[FoldOperand]:
        """Return the leaves of all positions for the results from `begin` on."""
        n = self.positions(blocks)
        joins = tree_joins(n)
        return [self.leaf(p, begin, blocks)._replace(joins=joins[p]) for p in range(n)]

    def row_tree(self, row: int, begin: int) -> list[FoldOperand]:
        """Return the leaves of one row; each continues in the next row."""
        layout, size = self.layout, self.itemsize
        leaves = []
        for p in range(layout.threads):
            block = layout.at(p, row)
            if block is None or (self.element_wise and block.nelems <= begin):
                break
            part = BlockRef(SRC.index, layout.thread(p), (block.place + begin) * size, 0, size)
            count = 1 if self.element_wise else block.nelems
            leaves.append(FoldOperand(part, count, 0, layout.block * size))
        joins = tree_joins(len(leaves))
        return [leaf._replace(joins=j) for leaf, j in zip(leaves, joins, strict=True)]

    # -- the tasks ----------------------------------------------------------------------
    def tasks(self, most: int) -> list[Task]:
        """Return what goes through a tree of threads, of at most so many bytes each."""
        step = max(1, most // self.itemsize)
        if self.by_row:
            return list(self._row_tasks(step))
        out = []
        for begin, end, blocks in self.ranges(0, self.each):
            for b in range(begin, end, step):
                n = min(step, end - b)
                out.append(Task(b, n, self.positions(blocks)))
        return out

    def _row_tasks(self, step: int) -> Iterator[Task]:
        layout = self.layout
        if self.element_wise:
            for row in range(layout.rows):
                count = min(layout.threads, layout.blocks - row * layout.threads)
                for begin, end, blocks in self.ranges(0, self.each):
                    n = count - (row == layout.rows - 1 and blocks < layout.blocks)
                    for b in range(begin, end, step):
                        if n:
                            yield Task(b, min(step, end - b), n, row)
            return
        last = layout.rows - 1
        yield Task(0, 1, layout.threads, 0)
        for row in range(1, last, step):
            yield Task(0, 1, layout.threads, row, min(step, last - row))
        yield Task(0, 1, layout.blocks - last * layout.threads, last)

    def own(self, t: Recorder, task: Task, position: int, at: BlockRef) -> list[FoldOperand]:
        """Return a position's part of a task; `at`: where values of rows may be put first."""
        if task.row is None:
            blocks = self.layout.blocks - (self.element_wise and task.begin >= self.short)
            return [self.leaf(position, task.begin, blocks)]
        block = self.layout.at(position, task.row)
        assert block is not None
        size = self.itemsize
        part = BlockRef(SRC.index, t.me, (block.place + task.begin) * size)
        if self.element_wise or block.nelems == 1:
            return [FoldOperand(part)]  # rows of single elements lie side by side
        step = self.layout.block * size
        line = FoldOperand(part._replace(offset_step=size), block.nelems, 0, step)
        t.fold(at, [line], 1, rows=task.rows, dst_step=size)
        return [FoldOperand(at)]

    def pieces(self, begin: int, end: int, most: int) -> list[Piece]:
        """Return some of the results in pieces of at most `most` bytes."""
        step = max(1, most // self.itemsize)
        return [
            (b, min(b + step, e), blocks)
            for first, e, blocks in self.ranges(begin, end)
            for b in range(first, e, step)
        ]


def joined(leaves: list[FoldOperand]) -> list[FoldOperand]:
    """Return the same value, joined with what lies before it."""
    *rest, last = leaves
    return [*rest, last._replace(joins=last.joins + 1)]


def tree_of(parts: list[BlockRef]) -> list[FoldOperand]:
    """Return values as operands of a fold, joined in the written order."""
    return [FoldOperand(p, 1, n) for p, n in zip(parts, tree_joins(len(parts)), strict=True)]
