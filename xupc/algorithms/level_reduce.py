"""Reductions by the levels below a node: slices are folded inside each domain first, then across.

A unit is cut into one slice per thread: thread i has the result of slice i first. In each domain
one thread, the *entry* of the slice, combines the partial results of the entries of the domains
inside. In the domains of thread i that is thread i. The results then enter all domains in the other
direction. With two levels::

    2 L3 domains of 2 threads, slices 0 1 2 3

    up      0: slices 0 1     1: 2 3        thread 0 combines the operands of threads 0 and 1 ...
            2: slices 2 0     3: 3 1        of threads 2 and 3
            0: slice 0   1: 1   2: 2   3: 3     the partial results of the two domains
    down    0: 2   1: 3   2: 0   3: 1           copied from the other domain
            all slices from the threads of the own domain

For a unit of n bytes, (D - 1) n bytes cross the borders of D domains on the way up and as many on
the way down, which is the least. `brackets` computes which partial results a domain combines, so
that the written order of operands is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import OP_SCRATCH, STAGING, BlockRef, FoldOperand
from ..records import record
from ..topology.levels import NodeLevels, flat_levels
from .brackets import Brackets, brackets
from .domains import Threads, block_entries, same_source
from .level_flow import Descent, Flow, Reading
from .private_staging import LINE, Places

__all__ = ["SUMMARY", "SlicedFold", "Slicing", "even_slices", "places_for"]

SUMMARY = "Slices are folded inside each cache domain and socket first, then across."


@record
class Slicing:
    """How a node's threads divide the slices, and what they keep of them in their scratch.

    An *area* of the scratch has a place for each byte of a unit. A thread has one for its own
    operand if that is staged, and on each level as many as a domain can have partial results.

    Attributes
    ----------
    positions
        The position of each thread's operand in the written order; None if it has none.
    in_order
        True if the written order of operands is kept.
    staged
        True if threads copy their own operands into their scratch, for the others to read.
    """

    levels: NodeLevels
    positions: tuple[int | None, ...]
    in_order: bool
    staged: bool

    @property
    def brackets(self) -> Brackets:
        """The partial results of each domain."""
        return brackets(self.levels, self.positions, in_order=self.in_order)

    @property
    def entries(self) -> tuple[Threads, ...]:
        """The entry of each slice in each domain, by level."""
        return block_entries(self.levels)

    @property
    def depth(self) -> int:
        """The number of levels, with the node as one; single threads do not count."""
        return len(self.levels.levels)

    @property
    def areas(self) -> int:
        """The number of areas of a thread's scratch."""
        return sum(self.brackets.most[: self.depth]) + self.staged

    def fits(self, t: Facts, nbytes: int) -> bool:
        """Return True if the staging buffer has room for two units, with areas of `nbytes`."""
        return 2 * self.areas * nbytes <= t.tuning["staging_bytes"]

    def within(self, areas: int) -> Slicing:
        """Return the same without its narrowest levels, as far as needed for at most `areas`."""
        for depth in range(self.depth, 1, -1):
            levels = NodeLevels(self.levels.levels[:depth])
            some = Slicing(levels, self.positions, self.in_order, self.staged)
            if some.areas <= areas:
                return some
        return Slicing(flat_levels(self.levels.size), self.positions, self.in_order, self.staged)

    def area(self, level: int, piece: int) -> int:
        """Return the number of the area of a domain's partial result; the node's is the last."""
        first = int(self.staged) if level < self.depth else 0
        return first + sum(self.brackets.most[level + 1 : self.depth]) + piece


def places_for(t: Facts, areas: int, nbytes: int, start: int = 0) -> tuple[Places, int]:
    """Return places for units with so many areas each, and the bytes of an area.

    A short unit is in the operation scratch, from byte `start` on. Others have two places in turn
    in the staging buffer.
    """
    short = -(-nbytes // LINE) * LINE
    if start + areas * short <= t.tuning["eager_max"]:
        return Places(OP_SCRATCH, areas * short, start=start), short
    width = max(t.line, t.tuning["staging_bytes"] // (2 * areas) // LINE * LINE)
    return Places(STAGING, areas * width, 2), width


def even_slices(nbytes: int, itemsize: int, threads: int) -> list[int]:
    """Return where each slice of a unit begins, and the end of the last one, in bytes.

    Slices are whole cache lines, of almost equal length. A single line is thread 0's, which is the
    node root: across nodes its result is needed there.
    """
    n, grain = nbytes // itemsize, max(1, LINE // itemsize)
    lines = -(-n // grain)
    return [min(n, -(-lines * i // threads) * grain) * itemsize for i in range(threads + 1)]


class SlicedFold:
    """Record the units of a reduction on one node; each phase of a unit has a method.

    Parameters
    ----------
    places, width
        Where each thread keeps its areas, and the bytes of one.
    slices
        For each unit where its slices begin, and its end, in bytes.
    own
        ``own(thread, unit, begin)`` returns the operand of a thread (numbered inside the node) in a
        unit, from a byte on. Without staging it is called for other threads, too. None: all of this
        thread's operand is in its scratch.
    to
        The thread that gets the result, numbered inside the node; None: all; -1: none, since the
        results stay where `final` puts them.
    final
        ``final(unit, begin)`` returns where the results of a unit go, from a byte on; None: to the
        last area.
    blocks
        For each unit the bytes of a slice, if an operand has each slice in another row
        (`FoldOperand.step`); None: the slices of an operand are adjacent.
    reuses
        True if this object orders the reuse of places in the staging buffer, after `places.depth`
        units; False: the caller does so.
    """

    def __init__(
        self, t: Recorder, slicing: Slicing, places: Places, width: int,
        slices: Sequence[Sequence[int]], itemsize: int,
        own: Callable[[int, int, int], FoldOperand] | None, to: int | None,
        blocks: Sequence[int] | None = None, *, reuses: bool = True,
        final: Callable[[int, int], BlockRef] | None = None,
    ) -> None:  # fmt: skip
        self.t, self.slicing, self.places, self.width = t, slicing, places, width
        self.slices, self.itemsize, self.own, self.to = slices, itemsize, own, to
        self.blocks, self.final = blocks, final
        self.me = t.tree.local_index(t.me)
        self.ranks = t.tree.members(t.my_node).tolist()
        self.used = [
            i for i in range(len(self.ranks)) if any(ends[i] < ends[i + 1] for ends in slices)
        ]
        self.top = slicing.depth
        self.descent = Descent(slicing.entries, self.used, self.me, self.top)
        self._runs = [list(self._mine(level)) for level in range(self.top)]
        depth = places.depth if reuses and not places.short else 0
        self.flow = Flow(t, self._readings(), len(slices), depth)

    # -- reads between threads ----------------------------------------------------------------
    def _readings(self) -> Iterator[Reading]:
        """Yield all reads: phase 0 stages, then one per level up, then one per level down."""
        entries, used, top = self.slicing.entries, self.used, self.top
        for level in range(top):
            if level + 1 < top or self.slicing.staged:
                below = self.slicing.brackets.parts[level + 1]
                rows = sorted(below)  # the roots of domains with an operand
                pairs = np.zeros((len(self.ranks),) * 2, bool)
                outer, inner = (x[np.ix_(rows, used)] for x in entries[level : level + 2])
                pairs[outer.ravel(), inner.ravel()] = True
                yield Reading(top - level, top - level - 1, pairs)
        if self.to is None:
            yield from self.descent.readings()
        elif self.to >= 0:
            pairs = np.zeros((len(self.ranks),) * 2, bool)
            pairs[self.to, entries[0][self.to, used]] = True
            yield Reading(top + 1, top, pairs)

    def _mine(self, level: int) -> Iterator[tuple[int, int, dict[int, int]]]:
        """Yield the slices that this thread folds on a level: first, last, entries.

        The last is a dictionary from the root of each domain below to the entry of the slices
        there.
        """
        outer, inner = self.slicing.entries[level : level + 2]
        roots = sorted({root for parts in self._parts(level) for root, _, _ in parts})

        def sources(i: int) -> tuple[int, ...] | None:
            return tuple(inner[roots, i].tolist()) if outer[self.me, i] == self.me else None

        for first, last, found in same_source(self.used, sources):
            yield first, last, dict(zip(roots, found, strict=True))

    def _parts(self, level: int) -> Sequence[Sequence[tuple[int, int, int]]]:
        """Return the partial results of this thread's domain on a level."""
        root = self.slicing.levels.levels[level].root_of[self.me]
        return self.slicing.brackets.parts[level].get(root, ())

    # -- places -------------------------------------------------------------------------------
    def _area(self, thread: int, unit: int, level: int, piece: int = 0) -> BlockRef:
        offset = self.slicing.area(level, piece) * self.width
        return self.places.on(self.ranks[thread], unit, offset)

    def result(self, thread: int, unit: int) -> BlockRef:
        """Return where a thread keeps its slices of the result."""
        return self._area(thread, unit, 0)

    def _operand(self, thread: int, unit: int, level: int, piece: int, begin: int) -> FoldOperand:
        others = self.slicing.staged and thread != self.me
        if level < self.top or others or self.own is None:
            return FoldOperand(self._area(thread, unit, level, piece) + begin)
        return self.own(thread, unit, begin)

    # -- the phases ---------------------------------------------------------------------------
    def stage(self, unit: int, put: Callable[[BlockRef, int, int], None]) -> None:
        """Copy the bytes of this thread's operand that others read into its scratch.

        ``put(place, begin, end)`` copies these bytes of the unit to `place`.
        """
        if not self.slicing.staged:
            return
        self.flow.begin(unit, 0)
        ends, begin = self.slices[unit], 0
        kept = [] if self.own is None else self._runs[-1]
        for first, last, _ in [*kept, (len(self.ranks), 0, {})]:
            if begin < ends[first]:
                put(self._area(self.me, unit, self.top) + begin, begin, ends[first])
            begin = ends[min(last + 1, len(self.ranks))]
        self.flow.end(unit, 0)

    def up(self, unit: int) -> None:
        """Fold this thread's slices, level by level; those of the node are results."""
        ends = self.slices[unit]
        for level in range(self.top - 1, -1, -1):
            self.flow.begin(unit, self.top - level)
            for first, last, entry in self._runs[level]:
                if ends[first] < ends[last + 1]:
                    self._fold(unit, level, ends[first], ends[last + 1], entry)
            self.flow.end(unit, self.top - level)

    def _fold(self, unit: int, level: int, begin: int, end: int, entry: dict[int, int]) -> None:
        """Fold bytes of a unit to the partial results of this thread's domain, from those below."""
        in_rows = self.blocks is not None and level + 1 == self.top
        width = self.blocks[unit] if self.blocks is not None and in_rows else end - begin
        for piece, parts in enumerate(self._parts(level)):
            leaves = [
                self._operand(entry[root], unit, level + 1, its, begin)._replace(joins=n)
                for root, its, n in parts
            ]
            place = self._area(self.me, unit, level, piece) + begin
            if self.final is not None and not level:
                place = self.final(unit, begin)
            self.t.fold(
                place, leaves, width // self.itemsize, rows=(end - begin) // width,
                dst_step=width if in_rows else 0,
            )  # fmt: skip

    def down(self, unit: int, take: Callable[[BlockRef, int, int], None]) -> None:
        """Bring the results into this thread's domains, and to the program's memory.

        ``take(place, begin, end)`` copies these bytes of the unit there from `place`.
        """
        t, phase = self.t, self.top + 1
        if self.to is not None:
            self.flow.begin(unit, phase)
            if self.to == self.me:
                for place, begin, end in self.gathered(unit):
                    take(place, begin, end)
            self.flow.end(unit, phase)
            return
        self.descent.record(t, self.flow, unit, self.slices[unit], self._result_in(unit), take)

    def _result_in(self, unit: int) -> Callable[[int], BlockRef]:
        return lambda thread: self.result(thread, unit)

    def gathered(self, unit: int) -> Iterator[tuple[BlockRef, int, int]]:
        """Yield the place of each run of the result's bytes: place, begin, end."""
        entry = self.slicing.entries[0][self.me]
        for source, begin, end in self.descent.runs(self.slices[unit], entry):
            yield self.result(source, unit) + begin, begin, end

    def finish(self) -> None:
        """Wait until no thread reads this thread's scratch any more."""
        self.flow.finish()
