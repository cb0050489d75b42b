"""Move private memory through scratch: the parts of the algorithms of arrays of values.

dst and src of such a call are private. There are two ways to copy a block inside a node:

* Direct: a thread copies a long block from or to another thread's private memory
  (`TransferSpec.reach`, `TransferSpec.deposit`). No thread returns before all have their blocks.
* Staged: a thread accesses only its own private memory. It copies a short block for other threads
  into its op_scratch, a longer one unit by unit into its staging buffer. Others copy from there.

An op_scratch belongs to one operation, so no thread checks if it is in use. Successive calls use
the same staging buffer. A thread may write to another thread's staging buffer only after that
thread has entered the call. A thread returns only when no peer reads its staging buffer::

    thread 0   in(0)  |  in(1)   |  in(2)   |            |: all threads have arrived here
    thread 1          |  out(0)  |  out(1)  |  out(2)

One half is filled while the other one is emptied. Between two of these bars a thread first
empties one half, then fills the other one, so one bar for each unit is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..plan.patterns import chunks, pieces
from ..plan.placement import Facts
from ..plan.recorder import ALL, Operand, Recorder, Who
from ..plan.steps import OP_SCRATCH, STAGING, BlockRef, Blocks, Ranks
from ..records import record

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = [
    "LINE", "TransferSpec", "Places", "Unit", "cut", "deposits", "places_of", "reaches", "runs_of",
    "units_of", "within",
]  # fmt: skip

LINE = 64


@record
class Places:
    """Places for units on each thread: in the op_scratch, or taken in turn in the staging buffer.

    Attributes
    ----------
    operand
        op_scratch or staging buffer.
    width
        Bytes of a place.
    depth
        How many there are; unit u has place ``u % depth``.
    start
        Where the first one begins.
    """

    operand: int
    width: int
    depth: int = 1
    start: int = 0

    @property
    def short(self) -> bool:
        """Whether they are in the op_scratch, hence of this call alone."""
        return self.operand == OP_SCRATCH

    def on(self, thread: int, unit: int, offset: int = 0) -> BlockRef:
        """Return a unit's place on one thread."""
        return BlockRef(self.operand, thread, self.start + unit % self.depth * self.width + offset)

    def across(self, ranks: Ranks, unit: int, offset: int = 0) -> BlockRef:
        """Return the same place on each of some threads."""
        return self.on(ranks.first, unit, offset)._replace(thread_step=ranks.step)


def places_of(t: Facts, nbytes: int) -> Places:
    """Return places for units of at most `nbytes`: one in the op_scratch if that is enough.

    Else two of them in the staging buffer, as wide as ``staging_chunk`` of the tuning table says.
    """
    if nbytes <= t.tuning["eager_max"]:
        return Places(OP_SCRATCH, t.tuning["eager_max"])
    most = min(t.tuning["staging_chunk"], t.tuning["staging_bytes"] // 2)
    return Places(STAGING, max(LINE, most // LINE * LINE), 2)


def runs_of(t: Recorder, but: int = -1) -> list[tuple[int, Ranks]]:
    """Return my node's threads in runs, each with the position of its first in the node.

    `but`: a thread that is left out.
    """
    out, at = [], 0
    for run in t.node_ranks():
        for part in run.without(but):
            out.append((at + (part.first - run.first) // max(1, run.step), part))
        at += run.count
    return out


def reaches(
    tree: Tree, tuning: Mapping[str, int], nbytes: int, from_all: bool = False,
    to_all: bool = False, same: bool = False,
) -> bool:  # fmt: skip
    """Return True if threads of one node read blocks directly from each other's private memory.

    Staging is faster for short blocks. This is most so where several threads read the `same` block,
    which is staged once for all of them, or where each thread reads a block of every other one.
    """
    size = "direct_min"
    if tree.size > 2 and to_all and (same or from_all):
        size = "direct_min_shared_source" if same else "direct_min_alltoall"
    elif tree.size == 2 and from_all and to_all:
        size = "direct_min_pair"
    return tree.node_count == 1 and tuning["direct_min"] > 0 and nbytes >= tuning[size]


def deposits(tree: Tree, tuning: Mapping[str, int], nbytes: int) -> bool:
    """Return True if threads of one node write `nbytes` directly to each other's memory.

    Reading is faster for fewer bytes: they must enter the reader's cache in any case.
    """
    return (
        tree.node_count == 1 and tuning["direct_min"] > 0 and nbytes >= tuning["direct_put_min"] > 0
    )


@record
class TransferSpec:
    """The source and the target of each block, and its place in private memory.

    Attributes
    ----------
    source, target
        A thread, or ALL.
    nbytes
        Bytes of a block.
    by_target
        True if src has a block for each target in turn; else it has one for all targets.
    by_source
        True if dst has a place for each source in turn.
    dst, src
        The operands; src's block begins `shift` bytes on.
    """

    source: Who
    target: Who
    nbytes: int
    by_target: bool
    by_source: bool
    dst: Operand
    src: Operand
    shift: int = 0

    def gives(self, thread: int) -> bool:
        """Return True if a thread has a block for others."""
        return self.source in (ALL, thread)

    def takes(self, thread: int) -> bool:
        """Return True if a thread receives blocks."""
        return self.target in (ALL, thread)

    def reaches(self, t: Recorder) -> bool:
        """Return True if threads read blocks directly from private memory."""
        from_all, to_all = self.source == ALL, self.target == ALL
        return reaches(t.tree, t.tuning, self.nbytes, from_all, to_all, not self.by_target)

    def deposits(self, t: Recorder) -> bool:
        """Return True if threads write blocks directly to private memory.

        If one thread moves all blocks, the sum of their bytes decides.
        """
        others = 1 if self.source == self.target == ALL else t.size - 1
        return deposits(t.tree, t.tuning, self.nbytes * others)

    def ranks(self, t: Recorder, who: Who) -> Ranks:
        """Return the source or the target as ranks."""
        return Ranks(who) if isinstance(who, int) else Ranks(0, t.size)

    def near(self, t: Recorder, who: Who, but: int = -1) -> list[tuple[int, Ranks]]:
        """Return the ranks of the source or the target on my node, in the form of `runs_of`."""
        if isinstance(who, int):
            if who == but or not t.on_my_node(who):
                return []
            return [(t.tree.local_index(who), Ranks(who))]
        return runs_of(t, but=but)

    def of(self, t: Recorder, to: Ranks, offset: int = 0) -> BlockRef:
        """Return the row of my blocks for some threads, from byte `offset` of each block on."""
        each = self.nbytes if self.by_target else 0
        return self.src.row(t.me, self.shift + to.first * each + offset, to.step * each)

    def to(self, t: Recorder, of: Ranks, offset: int = 0) -> BlockRef:
        """Return the row in my dst for the blocks of some threads."""
        each = self.nbytes if self.by_source else 0
        return self.dst.row(t.me, of.first * each + offset, of.step * each)

    def own(self, t: Recorder) -> None:
        """Copy my block for myself."""
        if self.gives(t.me) and self.takes(t.me):
            target, source = (x(t, Ranks(t.me)).block(0) for x in (self.to, self.of))
            if target != source:
                t.copy(target, source, self.nbytes)

    def offer(self, t: Recorder) -> None:
        """Expose my src, so that targets can read their blocks directly."""
        count = t.size if self.by_target else 1
        t.offer(self.of(t, Ranks(0 if self.by_target else t.me)), self.nbytes * count)

    def lend(self, t: Recorder) -> None:
        """Expose my dst, so that sources can write their blocks directly."""
        count = t.size if self.by_source else 1
        t.offer(self.to(t, Ranks(0 if self.by_source else t.me)), self.nbytes * count)

    def reach(self, t: Recorder, end: int) -> None:
        """Read the blocks of others from their exposed memory, each up to byte `end`."""
        at = t.me * self.nbytes if self.by_target else 0
        for _, run in self.near(t, self.source, but=t.me):
            t.reach(self.to(t, run), run, at, end)

    def deposit(self, t: Recorder, begin: int) -> None:
        """Write my blocks to others' exposed memory, each from byte `begin` on."""
        at = t.me * self.nbytes if self.by_source else 0
        for _, run in self.near(t, self.target, but=t.me):
            t.deposit(self.of(t, run, begin), run, at + begin, self.nbytes - begin)

    def reclaim(self, t: Recorder, begin: int) -> None:
        """Copy the blocks that others have written to my exposed memory to their places."""
        for _, run in self.near(t, self.source, but=t.me):
            t.reclaim(self.to(t, run, begin), self.nbytes - begin, run.count)

    # -- between nodes -------------------------------------------------------------------
    def blocks_for(self, t: Recorder, node: int, unit: Unit) -> list[Blocks]:
        """Return the blocks in my private src for a node's threads at some positions."""
        first, count, offset, size = unit
        out = []
        for run in within(t, node, first, count):
            out.append(Blocks(self.of(t, run, offset), size, run.count))
        return out

    def blocks_from(self, t: Recorder, node: int, offset: int, size: int) -> list[Blocks]:
        """Return the places in my private dst for the blocks of a node's threads."""
        return [Blocks(self.to(t, run, offset), size, run.count) for run in t.node_ranks(node)]


def within(t: Recorder, node: int, first: int, count: int) -> Iterator[Ranks]:
    """Yield a node's threads at positions ``first .. first + count``."""
    at = 0
    for run in t.node_ranks(node):
        begin, end = max(first - at, 0), min(first + count - at, run.count)
        if begin < end:
            yield run.cut(begin, end - begin)
        at += run.count


Unit = tuple[int, int, int, int]
"""Some of a row of blocks: (first block, blocks, offset in each, bytes of each)."""


def units_of(count: int, nbytes: int, width: int) -> list[Unit]:
    """Return a row of blocks in units of at most `width` bytes: a part of each of them if possible.

    What fits `width` is one unit: it may be a place that is never waited for.
    """
    if count * nbytes <= width:
        return [(0, count, 0, nbytes)]
    if 1 < count <= width // LINE:
        each = width // count // LINE * LINE
        return [(0, count, offset, size) for offset, size in chunks(nbytes, each)]
    return list(pieces(count, nbytes, width))


def cut(nbytes: int, width: int, itemsize: int = 1) -> list[tuple[int, int]]:
    """Return (offset, size) of units of at most `width` bytes, of whole elements."""
    return chunks(nbytes, max(itemsize, width // itemsize * itemsize))
