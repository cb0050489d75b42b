"""The arguments of a prefix or suffix reduction, and the order of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ..pgas.layout import Block, Layout
from ..plan.recorder import DST, SRC, Operand
from ..plan.steps import BlockRef
from ..records import record

__all__ = ["Line", "ScanSpec"]


@record
class ScanSpec:
    """A prefix or suffix reduction's arguments.

    Attributes
    ----------
    src, dst
        The layouts of the two arrays.
    itemsize
        Bytes of an element.
    backward
        True for a suffix reduction.
    in_place
        True if dst is src itself.
    exclusive
        True if an element's result is without the element itself.
    identity
        True if the first element of an exclusive scan gets the identity of the operation, False if
        it stays as it was.
    """

    src: Layout
    dst: Layout
    itemsize: int
    backward: bool
    in_place: bool = False
    exclusive: bool = False
    identity: bool = True

    @property
    def block_bytes(self) -> int:
        """The bytes of a thread's share."""
        return self.src.share * self.itemsize

    @property
    def moved(self) -> bool:
        """True if dst's elements have another layout than src's."""
        return self.src != self.dst and (
            self.src.positions > 1 or self.dst.positions > 1 or self.src.first != self.dst.first
        )

    @property
    def keeps(self) -> bool:
        """True if dst's first element stays as it was although an element of src goes there."""
        return self.moved and self.exclusive and not self.identity

    @property
    def start(self) -> BlockRef:
        """The first element of dst: the last one of a suffix reduction."""
        block = self.line.at(0, 0)
        assert block is not None
        place = block.place + (block.nelems - 1 if self.backward else 0)
        return DST.on(self.line.thread(0), place * self.itemsize)

    @cached_property
    def line(self) -> Line:
        """The order in which blocks follow each other."""
        return Line(self.dst if self.moved else self.src, self.backward)

    @property
    def operand(self) -> Operand:
        """The operand that the reduction reads."""
        return DST if self.moved or self.in_place else SRC


@record
class Line:
    """Blocks in the order of a sweep; positions and rows count from where it begins."""

    layout: Layout
    backward: bool

    @property
    def way(self) -> int:
        """The step from a thread to the next one along the line: 1 or -1."""
        return -1 if self.backward else 1

    @cached_property
    def first(self) -> int:
        """The thread at the start of the line."""
        x = self.layout
        if x.positions == 1:
            return x.first
        return x.thread((x.blocks - 1) % x.threads) if self.backward else x.first

    def at(self, position: int, row: int) -> Block | None:
        """Return the block at a position and row, or None."""
        x = self.layout
        if x.positions == 1:
            return x.run(0) if position == row == 0 else None
        b = row * x.threads + position
        if b >= x.blocks:
            return None
        return x.block_at(x.blocks - 1 - b if self.backward else b)

    def thread(self, position: int) -> int:
        """Return the thread at a position."""
        return (self.first + self.way * position) % self.layout.threads

    def batches(self, most: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``(row, rows, positions)``: full rows up to `most` at a time, the ends alone."""
        x = self.layout
        yield 0, 1, x.positions
        last = x.rows - 1
        for row in range(1, last, most):
            yield row, min(most, last - row), x.threads
        if last:
            yield last, 1, x.blocks - last * x.threads
