"""The steps of a prefix or suffix reduction on a thread's blocks.

Each block is folded to its value. What lies before a block is joined from such values. Along the
block the results then continue from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pgas.layout import Block
from ..plan.patterns import mirrored, prefix_joins
from ..plan.recorder import DST, Operand, Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, BlockRef, FoldOperand
from .scan_spec import ScanSpec

__all__ = [
    "along", "in_order", "joined", "lowest_block", "results", "run_of", "turned", "values_of_rows",
]  # fmt: skip


# --- values ---------------------------------------------------------------------------------------
def run_of(r: ScanSpec, position: int) -> FoldOperand:
    """Return a position's block of the first row as a leaf."""
    line, size = r.line, r.itemsize
    block = line.at(position, 0)
    assert block is not None
    part = BlockRef(r.operand.index, line.thread(position), block.place * size, 0, size)
    return FoldOperand(part, block.nelems)


def lowest_block(r: ScanSpec, position: int, row: int, rows: int) -> Block:
    """Return the block of a position that is at the lowest address in some rows."""
    block = r.line.at(position, row + rows - 1 if r.backward else row)
    assert block is not None
    return block


def values_of_rows(
    t: Recorder, r: ScanSpec, to: BlockRef, position: int, row: int, rows: int
) -> None:
    """Fold the block of a position in each of some rows, to adjacent places."""
    size, block = r.itemsize, lowest_block(r, position, row, rows)
    here = r.operand.on(r.line.thread(position), block.place * size)
    if block.nelems == 1:
        t.fold(to, [FoldOperand(here)], rows)
        return
    run = FoldOperand(here._replace(offset_step=size), block.nelems, 0, r.line.layout.block * size)
    t.fold(to, [run], rows=rows, dst_step=size)


# --- the order ------------------------------------------------------------------------------------
def turned(r: ScanSpec, leaves: Sequence[FoldOperand]) -> list[FoldOperand]:
    """Return a tree of values in the order of the line as one in the order of the elements."""
    if not r.backward:
        return [*leaves]
    joins = mirrored([leaf.joins for leaf in leaves])
    return [leaf._replace(joins=n) for leaf, n in zip(reversed(leaves), joins, strict=True)]


def joined(r: ScanSpec, a: BlockRef, b: BlockRef) -> list[FoldOperand]:
    """Return the value of two that follow each other along the line."""
    return turned(r, [FoldOperand(a), FoldOperand(b, joins=1)])


def in_order(r: ScanSpec, leaves: Sequence[FoldOperand]) -> list[FoldOperand]:
    """Return values of the first positions, joined as the sweeps join them."""
    joins = prefix_joins(len(leaves))
    return turned(r, [leaf._replace(joins=n) for leaf, n in zip(leaves, joins, strict=True)])


# --- results --------------------------------------------------------------------------------------
def along(t: Recorder, r: ScanSpec, position: int, before: list[FoldOperand]) -> None:
    """Record the results of a position's only block, which continue the values before it."""
    carry = None
    if before:
        carry = Operand(OP_SCRATCH).on(r.line.thread(position), OP_SCRATCH_BYTES // 2)
        t.fold(carry, before)
    results(t, r, position, carry)


def results(
    t: Recorder, r: ScanSpec, position: int, before: BlockRef | None, row: int = 0, rows: int = 1
) -> None:
    """Record the results of a position's blocks in some rows.

    `before`: the values before the blocks, at adjacent places; None for the first block, which is
    one row.
    """
    thread, size = r.line.thread(position), r.itemsize
    block, step = lowest_block(r, position, row, rows), r.line.layout.block * size
    there, here = (x.on(thread, block.place * size) for x in (DST, r.operand))
    if r.exclusive:
        _shifted(t, r, there, here, block.nelems, before, rows, step)
    elif block.nelems > 1:
        t.scan(
            there, here, block.nelems, before, rows=rows, dst_step=step, src_step=step,
            carry_step=size, reverse=r.backward,
        )  # fmt: skip
    elif before is not None:
        t.fold(there, joined(r, before, here), rows)
    else:
        t.scan(there, here, 1)


def _shifted(
    t: Recorder, r: ScanSpec, there: BlockRef, here: BlockRef, nelems: int,
    before: BlockRef | None, rows: int = 1, step: int = 0,
) -> None:  # fmt: skip
    """Record the exclusive results of a block in each of some rows, `step` bytes apart.

    `before`: the values before the blocks; None for the first block, which is one row. There the
    first element is written last, since it may also be the first operand.
    """
    size = r.itemsize
    first, rest = there, there + size
    if r.backward:
        first, rest, here = there + (nelems - 1) * size, there, here + size
    if nelems > 1:
        t.scan(
            rest, here, nelems - 1, before, rows=rows, dst_step=step, src_step=step,
            carry_step=size, reverse=r.backward,
        )  # fmt: skip
    if before is None:
        if r.identity:
            t.fold(first, [])
    elif rows == 1:  # a scan, not a copy: it makes NaN the one that all results have
        t.scan(first, before, 1)
    elif nelems == 1:
        t.copy(first, before, rows * size)
    else:
        row, values = first._replace(offset_step=step), before._replace(offset_step=size)
        t.copy(row, values, size, rows)
