"""Private memory through scratch: what the algorithms of arrays of values are made of.

dst and src of such a call are private. Inside a node long blocks are copied straight from or to
another thread's (`TransferSpec.reach`, `TransferSpec.deposit`), and nobody leaves before all have
theirs. Otherwise a thread touches its own alone. What others are to have it copies into its
op_scratch (if it is short) or, in units, into its staging buffer; others copy it from there. A
op_scratch is the operation's own, so nobody asks whether it is in use. A staging buffer is used by
one call after the other: a thread may write to another one's only when that has entered, and nobody
leaves while his own may still be read::

    thread 0   in(0)  |  in(1)   |  in(2)   |            |: all have come here
    thread 1          |  out(0)  |  out(1)  |  out(2)

One half is filled while the other one is emptied. Between two of these bars a thread first
empties, then fills, so one bar for each unit is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..plan.patterns import chunks, pieces
from ..plan.recorder import ALL, Operand, Recorder, Who
from ..plan.steps import OP_SCRATCH, STAGING, BlockRef, Blocks, Ranks

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = [
    "LINE", "TransferSpec", "Places", "Unit", "cut", "deposits", "places_of", "reaches", "runs_of",
    "units_of", "within",
]  # fmt: skip

LINE = 64


@dataclass(frozen=True)
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
        """A unit's place on one thread."""
        return BlockRef(self.operand, thread, self.start + unit % self.depth * self.width + offset)

    def across(self, ranks: Ranks, unit: int, offset: int = 0) -> BlockRef:
        """The same place on each of some threads."""
        return self.on(ranks.first, unit, offset)._replace(thread_step=ranks.step)


def places_of(t: Recorder, nbytes: int) -> Places:
    """Places for units of at most `nbytes`: one in the op_scratch if that is enough.

    Else two of them in the staging buffer, as wide as ``staging_chunk`` of the tuning table says.
    """
    if nbytes <= t.tuning["eager_max"]:
        return Places(OP_SCRATCH, t.tuning["eager_max"])
    most = min(t.tuning["staging_chunk"], t.tuning["staging_bytes"] // 2)
    return Places(STAGING, max(LINE, most // LINE * LINE), 2)


def runs_of(t: Recorder, but: int = -1) -> list[tuple[int, Ranks]]:
    """My node's threads in runs, each with the position of its first in the node.

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
    """Whether threads of one node take blocks straight from each other's private memory.

    Short ones are better staged, above all where several threads take the `same` block, since
    that is done once for all of them, or where each thread takes one of every other.
    """
    size = "direct_min"
    if tree.size > 2 and to_all and (same or from_all):
        size = "direct_min_shared_source" if same else "direct_min_alltoall"
    elif tree.size == 2 and from_all and to_all:
        size = "direct_min_pair"
    return tree.node_count == 1 and tuning["direct_min"] > 0 and nbytes >= tuning[size]


def deposits(tree: Tree, tuning: Mapping[str, int], nbytes: int) -> bool:
    """Whether threads of one node that move so many bytes write straight to each other's memory.

    Less is better read: it has to come into the cache of its taker in any case.
    """
    return (
        tree.node_count == 1 and tuning["direct_min"] > 0 and nbytes >= tuning["direct_put_min"] > 0
    )


@dataclass(frozen=True)
class TransferSpec:
    """Whose block goes to whom, and where it lies in private memory.

    Attributes
    ----------
    source, target
        A thread, or ALL.
    nbytes
        Of a block.
    by_target
        src has a block for each target in turn; else one for all of them.
    by_source
        dst has a place for each source in turn.
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
        """Whether a thread has a block for others."""
        return self.source in (ALL, thread)

    def takes(self, thread: int) -> bool:
        """Whether blocks come to a thread."""
        return self.target in (ALL, thread)

    def reaches(self, t: Recorder) -> bool:
        """Whether blocks are taken where they lie."""
        from_all, to_all = self.source == ALL, self.target == ALL
        return reaches(t.tree, t.tuning, self.nbytes, from_all, to_all, not self.by_target)

    def deposits(self, t: Recorder) -> bool:
        """Whether blocks are written where they belong; if one thread moves all, by all it does."""
        others = 1 if self.source == self.target == ALL else t.size - 1
        return deposits(t.tree, t.tuning, self.nbytes * others)

    def ranks(self, t: Recorder, who: Who) -> Ranks:
        """The source or the target as ranks."""
        return Ranks(who) if isinstance(who, int) else Ranks(0, t.size)

    def near(self, t: Recorder, who: Who, but: int = -1) -> list[tuple[int, Ranks]]:
        """Those of the source or the target on my node, as `runs_of`."""
        if isinstance(who, int):
            if who == but or not t.on_my_node(who):
                return []
            return [(t.tree.local_index(who), Ranks(who))]
        return runs_of(t, but=but)

    def of(self, t: Recorder, to: Ranks, offset: int = 0) -> BlockRef:
        """My blocks for some threads: a row, `offset` bytes into each."""
        each = self.nbytes if self.by_target else 0
        return self.src.row(t.me, self.shift + to.first * each + offset, to.step * each)

    def to(self, t: Recorder, of: Ranks, offset: int = 0) -> BlockRef:
        """Where the blocks of some threads belong: a row."""
        each = self.nbytes if self.by_source else 0
        return self.dst.row(t.me, of.first * each + offset, of.step * each)

    def own(self, t: Recorder) -> None:
        """What I have for myself."""
        if self.gives(t.me) and self.takes(t.me):
            target, source = (x(t, Ranks(t.me)).block(0) for x in (self.to, self.of))
            if target != source:
                t.copy(target, source, self.nbytes)

    def offer(self, t: Recorder) -> None:
        """Let all who take reach for my blocks where they are."""
        count = t.size if self.by_target else 1
        t.offer(self.of(t, Ranks(0 if self.by_target else t.me)), self.nbytes * count)

    def lend(self, t: Recorder) -> None:
        """Let all who give deposit their blocks where they belong."""
        count = t.size if self.by_source else 1
        t.offer(self.to(t, Ranks(0 if self.by_source else t.me)), self.nbytes * count)

    def reach(self, t: Recorder, end: int) -> None:
        """Take the blocks of others from their offers, each as far as `end`."""
        at = t.me * self.nbytes if self.by_target else 0
        for _, run in self.near(t, self.source, but=t.me):
            t.reach(self.to(t, run), run, at, end)

    def deposit(self, t: Recorder, begin: int) -> None:
        """Put my blocks into others' offers, each from `begin` on."""
        at = t.me * self.nbytes if self.by_source else 0
        for _, run in self.near(t, self.target, but=t.me):
            t.deposit(self.of(t, run, begin), run, at + begin, self.nbytes - begin)

    def reclaim(self, t: Recorder, begin: int) -> None:
        """Have what others deposited."""
        for _, run in self.near(t, self.source, but=t.me):
            t.reclaim(self.to(t, run, begin), self.nbytes - begin, run.count)

    # -- between nodes -------------------------------------------------------------------
    def blocks_for(self, t: Recorder, node: int, unit: Unit) -> list[Blocks]:
        """In my private src, what a node's threads at some positions get."""
        first, count, offset, size = unit
        out = []
        for run in within(t, node, first, count):
            out.append(Blocks(self.of(t, run, offset), size, run.count))
        return out

    def blocks_from(self, t: Recorder, node: int, offset: int, size: int) -> list[Blocks]:
        """In my private dst, what comes from a node's threads."""
        return [Blocks(self.to(t, run, offset), size, run.count) for run in t.node_ranks(node)]


def within(t: Recorder, node: int, first: int, count: int) -> Iterator[Ranks]:
    """A node's threads at positions ``first .. first + count``."""
    at = 0
    for run in t.node_ranks(node):
        begin, end = max(first - at, 0), min(first + count - at, run.count)
        if begin < end:
            yield run.cut(begin, end - begin)
        at += run.count


Unit = tuple[int, int, int, int]
"""Some of a row of blocks: (first block, blocks, offset in each, bytes of each)."""


def units_of(count: int, nbytes: int, width: int) -> list[Unit]:
    """A row of blocks in units of at most `width` bytes: a part of each of them if possible.

    What fits `width` is one unit: it may be a place that is never waited for.
    """
    if count * nbytes <= width:
        return [(0, count, 0, nbytes)]
    if 1 < count <= width // LINE:
        each = width // count // LINE * LINE
        return [(0, count, offset, size) for offset, size in chunks(nbytes, each)]
    return list(pieces(count, nbytes, width))


def cut(nbytes: int, width: int, itemsize: int = 1) -> list[tuple[int, int]]:
    """(offset, size) of units of at most `width` bytes, of whole elements."""
    return chunks(nbytes, max(itemsize, width // itemsize * itemsize))
