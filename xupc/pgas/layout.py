"""Where the elements of a blocked array lie: the arithmetic of reductions.

`nelems` elements from a pointer with a phase on, in blocks of `blocksize` dealt round
the threads (UPC Language 6.4.4, 7.7). The threads count from the one where the array
begins: position 0 is that thread, position 1 the next one. Block b lies at position
``b % threads``, in row ``b // threads``.

A thread's part of all this is one run of its memory. Local places are elements, counted
from the pointer's own address.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..records import record

__all__ = ["Block", "Layout", "Piece", "moves"]


class Block(NamedTuple):
    """A block of a position: where it begins in that thread's memory, and how long it is."""

    place: int
    nelems: int


class Piece(NamedTuple):
    """`times` runs of `nelems`, from `src` in one thread's memory to `dst` in another's."""

    src: int
    dst: int
    nelems: int
    times: int
    src_step: int
    dst_step: int


@record
class Layout:
    """The distribution of elements from a pointer on.

    Attributes
    ----------
    threads
        Number of threads of the team.
    first, phase
        Thread and phase of the pointer.
    blocksize
        Elements per block; 0 if all elements are on the first thread.
    nelems
        Number of elements, at least 1.
    """

    threads: int
    first: int
    phase: int
    blocksize: int
    nelems: int

    @cached_property
    def block(self) -> int:
        """The block size; for an indefinite one, a size that holds all elements in one block."""
        return self.blocksize or self.phase + self.nelems

    @cached_property
    def blocks(self) -> int:
        """The number of blocks."""
        return (self.phase + self.nelems - 1) // self.block + 1

    @cached_property
    def positions(self) -> int:
        """The number of threads that have elements."""
        return min(self.blocks, self.threads)

    @cached_property
    def rows(self) -> int:
        """The number of blocks on the first thread; 1 if all blocks are on one thread."""
        return 1 if self.positions == 1 else -(-self.blocks // self.threads)

    @property
    def share(self) -> int:
        """The number of elements per thread, rounded up."""
        return -(-self.nelems // self.threads)

    def thread(self, position: int) -> int:
        """Return the thread at a position."""
        return (self.first + position) % self.threads

    def position(self, thread: int) -> int | None:
        """Return the position of a thread; None if it has no element."""
        position = (thread - self.first) % self.threads
        return position if position < self.positions else None

    def at(self, position: int, row: int) -> Block | None:
        """Return a position's block in a row; None if there is none."""
        if self.positions == 1:
            return self.run(0) if position == 0 and row == 0 else None
        b = row * self.threads + position
        return self.block_at(b) if b < self.blocks else None

    def block_at(self, b: int) -> Block:
        """Return the block with a given number."""
        begin = max(b * self.block, self.phase)
        end = min((b + 1) * self.block, self.phase + self.nelems)
        # a thread before the first one has its first block where the next row begins
        place = (self.first + b) // self.threads * self.block + begin % self.block - self.phase
        return Block(place, end - begin)

    def run(self, position: int) -> Block:
        """Return all of a position's elements: they follow each other in its memory."""
        last = (self.blocks - 1 - position) // self.threads  # its last row
        b = last * self.threads + position
        begin = max(position * self.block, self.phase)
        place = (self.first + position) // self.threads * self.block
        place += begin % self.block - self.phase
        end = min((b + 1) * self.block, self.phase + self.nelems)
        to = (self.first + b) // self.threads * self.block + (end - 1) % self.block + 1 - self.phase
        return Block(place, to - place)

    def furthest(self) -> dict[int, tuple[int, int]]:
        """Return thread -> (first, end) of its elements, for threads that decide about ranges."""
        ends = {0, self.positions - 1, (self.blocks - 1) % self.threads}
        ends |= {self.threads - self.first - 1, self.threads - self.first}
        runs = {p: self.run(p) for p in ends if 0 <= p < self.positions}
        return {self.thread(p): (r.place, r.place + r.nelems) for p, r in runs.items()}


def moves(src: Layout, dst: Layout, thread: int) -> dict[tuple[int, int], list[Piece]]:
    """Return the pieces that pairs of threads exchange when one layout is turned into another.

    ``{(from, to): pieces}``, in the elements' order, runs at constant distances in one. Both
    threads of a pair find the same pieces.
    """
    out: dict[tuple[int, int], list[Piece]] = {}
    for mine, other in ((src, dst), (dst, src)):
        begin, size = _cut(mine, other, thread)
        if not len(begin):
            continue
        from_, a = _places(src, begin)
        to, b = _places(dst, begin)
        pair = from_ * src.threads + to
        order = np.argsort(pair, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
            key = int(from_[chosen[0]]), int(to[chosen[0]])
            if key not in out:
                out[key] = _runs(a[chosen], b[chosen], size[chosen])
    return out


def _cut(mine: Layout, other: Layout, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (first elements, sizes) of a thread's blocks, cut where the other's blocks end."""
    position = mine.position(thread)
    if position is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if mine.positions == 1:
        blocks = np.zeros(1, np.int64)
        begin, end = blocks, np.array([mine.nelems], np.int64)
    else:
        blocks = np.arange(position, mine.blocks, mine.threads, dtype=np.int64)
        begin = np.maximum(blocks * mine.block - mine.phase, 0)
        end = np.minimum((blocks + 1) * mine.block - mine.phase, mine.nelems)
    first, last = ((i + other.phase) // other.block for i in (begin, end - 1))
    parts = last - first + 1
    which = np.repeat(np.arange(len(begin)), parts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
    cut = (first[which] + number) * other.block - other.phase
    starts = np.maximum(cut, begin[which])
    return starts, np.minimum(cut + other.block, end[which]) - starts


def _places(layout: Layout, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (thread, place) of elements."""
    q = layout.phase + i
    u = layout.first + q // layout.block
    if layout.positions == 1:
        return np.full_like(i, layout.first), i
    place = u // layout.threads * layout.block + q % layout.block - layout.phase
    return u % layout.threads, place


def _runs(a: np.ndarray, b: np.ndarray, size: np.ndarray) -> list[Piece]:
    """Return pieces that continue each other at constant steps, in one."""
    out: list[Piece] = []
    i, n = 0, len(a)
    da, db = np.diff(a), np.diff(b)
    same = np.flatnonzero((np.diff(da) != 0) | (np.diff(db) != 0)) + 1
    other = np.flatnonzero(np.diff(size) != 0)
    while i < n:
        j = i + 1
        if j < n and size[j] == size[i]:
            stop = same[np.searchsorted(same, i + 1)] if same.size and same[-1] > i else n - 1
            end = other[np.searchsorted(other, i)] if other.size and other[-1] >= i else n - 1
            j = int(min(stop, end)) + 1
        step = (int(da[i]), int(db[i])) if j - i > 1 else (0, 0)
        out.append(Piece(int(a[i]), int(b[i]), int(size[i]), j - i, *step))
        i = j
    return out
