"""all_prefix_reduce and all_suffix_reduce by the levels below a node.

On the way up the root of each domain joins the values of its threads. On the way down it gets what
lies before them from the root of the domain around, and each thread continues from there. So one
value leaves a domain and one enters it, for each row of blocks, if its threads follow each other
on aligned positions (`scan_brackets`). With two L3 domains of two threads::

    up      0: a+b     2: c+d       the roots of the domains join the values of their threads
    down    2: a+b                  what lies before a domain enters it
    along   0: a   1: a+b   2: (a+b)+c   3: (a+b)+(c+d)

Rows follow each other: the node root keeps what lies before the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, STAGING, BlockRef, FoldOperand
from ..records import record
from .conditions import CallFacts, by_name
from .level_flow import Flow, Reading
from .prefix_reduce import dealt
from .private_staging import LINE, Places
from .registry import algorithm
from .scan_blocks import results, turned, values_of_rows
from .scan_brackets import BEFORE, Domain, ScanTree, Span, scan_tree
from .scan_spec import ScanSpec

_SUMMARY = (
    "Values are joined inside each cache domain and socket first; what lies before one enters it."
)


# --- what each thread keeps -----------------------------------------------------------------------
@record
class _Areas:
    """The areas of a thread's scratch, each for a value of each row of a batch.

    The first ones have the thread's own values, those before them, and what lies before the next
    batch. Then come, for each level of which the thread may be a root: what its domain joins for
    others, what it gets from outside, what its root copies from the domains inside, and what it
    joins for these.
    """

    firsts: tuple[tuple[int, int, int, int], ...]
    count: int

    @staticmethod
    def of(trees: tuple[ScanTree, ...]) -> _Areas:
        """Return areas that are enough for the values of some trees with the same levels."""
        firsts: list[tuple[int, int, int, int]] = []
        at = 3
        for level in zip(*(tree.levels for tree in trees), strict=True):
            domains = [domain for some in level for domain in some.values()]
            last = len(firsts) + 1 == len(trees[0].levels)
            sizes = [
                max((len(kind(x)) for x in domains), default=0)
                for kind in (_used, _needs, *(() if last else (_copied, _given)))
            ]
            firsts.append((at, at + sizes[0], at + sum(sizes[:2]), at + sum(sizes[:3])))
            at += sum(sizes)
        return _Areas(tuple(firsts), at)


_Kind = Callable[[Domain], list[tuple[int, Span]]]


def _used(domain: Domain) -> list[tuple[int, Span]]:
    return [(domain.root, span) for span in domain.used]


def _needs(domain: Domain) -> list[tuple[int, Span]]:
    return [(domain.root, span) for span in domain.needs]


def _copied(domain: Domain) -> list[tuple[int, Span]]:
    """Return what the root copies from the roots of the domains inside."""
    return [(x, span) for x, some in domain.below.items() if x != domain.root for span in some]


def _given(domain: Domain) -> list[tuple[int, Span]]:
    """Return what the root joins for the roots of the domains inside."""
    return [(x, span) for x, some in domain.gives.items() if x != domain.root for span in some]


OWN, BEHIND, CARRY = range(3)
USED, NEEDS, COPIED, GIVEN = range(4)
_KINDS: tuple[_Kind, ...] = (_used, _needs, _copied, _given)


def _rows_of(
    t: Recorder, pairs: Sequence[tuple[BlockRef, BlockRef]]
) -> Iterator[list[tuple[BlockRef, BlockRef]]]:
    """Yield adjacent places, and places of equally distant threads, as rows."""
    run_of = {rank: run for run in t.node_ranks() for rank in run}
    row: list[tuple[BlockRef, BlockRef]] = []
    for pair in pairs:
        source = pair[1]
        if row and not (
            source.offset == row[-1][1].offset
            and run_of[source.thread] == run_of[row[-1][1].thread]
            and len({b.thread - a.thread for (_, a), (_, b) in pairwise([*row[-2:], pair])}) == 1
        ):
            yield row
            row = []
        row.append(pair)
    if row:
        yield row


# --- batches of rows ------------------------------------------------------------------------------
def _tree(t: Facts, r: ScanSpec, count: int, *, carried: bool, more: bool) -> ScanTree:
    """Return the domains of the node for rows of `count` blocks.

    `carried`: there are rows before them; `more`: there are rows behind them.
    """
    line = r.line
    places = [(int(x) - line.first) * line.way % t.size for x in t.tree.members(0)]
    positions = tuple(p if p < count else None for p in places)
    used = ((0, count),) if more else ()
    return scan_tree(t.tree.levels(0), positions, count, used, carried=carried)


def _trees(t: Facts, r: ScanSpec) -> tuple[ScanTree, ...]:
    """Return the domains for the first row, for rows in the middle, and for the last one."""
    x = r.line.layout
    more = x.rows > 1
    found = [_tree(t, r, x.positions, carried=False, more=more)]
    if x.rows > 2:
        found.append(_tree(t, r, x.threads, carried=True, more=True))
    if more:
        last = x.blocks - (x.rows - 1) * x.threads
        found.append(_tree(t, r, last, carried=True, more=False))
    return tuple(found)


def _places(t: Facts, r: ScanSpec, areas: _Areas) -> tuple[Places, int]:
    """Return places for batches, and the bytes of an area; only one batch can be in op_scratch."""
    short = areas.count * r.itemsize
    if r.line.layout.rows == 1 and short <= min(t.tuning["eager_max"], OP_SCRATCH_BYTES // 2):
        return Places(OP_SCRATCH, short), r.itemsize
    width = t.tuning["staging_bytes"] // (2 * areas.count) // LINE * LINE
    return Places(STAGING, areas.count * width, 2), width


class _LevelScan:
    """Record the batches of rows of one thread."""

    def __init__(self, t: Recorder, r: ScanSpec) -> None:
        self.t, self.r = t, r
        trees = _trees(t, r)
        self.areas = _Areas.of(trees)
        self.places, self.width = _places(t, r, self.areas)
        self.ranks = t.tree.members(t.my_node).tolist()
        self.me = t.tree.local_index(t.me)
        self.batches = list(r.line.batches(max(1, self.width // r.itemsize - 1)))
        between = [trees[1]] * (len(self.batches) - 2) if len(trees) > 2 else []
        self.trees = [trees[0], *between, *trees[1:][-1:]]
        readings = self._readings(trees)
        depth = 0 if self.places.short else self.places.depth
        self.flow = Flow(t, readings, len(self.batches), depth)

    def _readings(self, trees: tuple[ScanTree, ...]) -> Iterator[Reading]:
        """Yield the reads of all batches as those of each."""
        found = sorted(set().union(*(tree.reads for tree in trees)))
        for (phase, written), some in groupby(found, lambda x: x[:2]):
            pairs = np.zeros((len(self.ranks),) * 2, bool)
            for _, _, reader, source in some:
                pairs[reader, source] = True
            yield Reading(phase, written, pairs)

    # -- places -------------------------------------------------------------------------------
    def _area(self, thread: int, u: int, area: int) -> BlockRef:
        return self.places.on(self.ranks[thread], u, area * self.width)

    def _kept(self, u: int, level: int, domain: Domain, kind: int, span: Span, of: int) -> BlockRef:
        """Return where the root of a domain keeps a span; `of`: of which one inside, or for it."""
        if kind == NEEDS and not level:
            return self._before_rows(u)
        number = _KINDS[kind](domain).index((of, span))
        return self._area(domain.root, u, self.areas.firsts[level][kind] + number)

    def _source(self, u: int, level: int, domain: Domain, span: Span) -> BlockRef:
        """Return where the root of a domain, or a thread in a narrowest one, finds a span."""
        owner = domain.owner(span)
        if owner is None:
            return self._kept(u, level, domain, NEEDS, span, domain.root)
        if level + 1 == self.trees[u].depth:
            return self._area(owner, u, OWN)
        if owner != domain.root:
            return self._kept(u, level, domain, COPIED, span, owner)
        inside = self.trees[u].levels[level + 1][owner]
        return self._kept(u, level + 1, inside, USED, span, owner)

    def _joined(self, u: int, level: int, domain: Domain, span: Span) -> list[FoldOperand]:
        leaves = [
            FoldOperand(self._source(u, level, domain, part), joins=joins)
            for part, joins in domain.parts(span)
        ]
        return turned(self.r, leaves)

    # -- the phases ---------------------------------------------------------------------------
    def record(self) -> None:
        """Record all batches."""
        for u, (row, rows, _) in enumerate(self.batches):
            self._stage(u, row, rows)
            for level in reversed(range(self.trees[u].depth)):
                self._up(u, level, rows)
            for level in range(self.trees[u].depth):
                self._down(u, level, rows)
            self._along(u, row, rows)
        self.flow.finish()

    @contextmanager
    def _phase(self, u: int, phase: int) -> Iterator[None]:
        self.flow.begin(u, phase)
        yield
        self.flow.end(u, phase)

    def _stage(self, u: int, row: int, rows: int) -> None:
        """Make my own values, if a thread reads them."""
        found = self.trees[u].before(self.me)
        with self._phase(u, 0):
            if found and found[0].below[self.me]:
                position = self.trees[u].positions[self.me]
                assert position is not None
                own = self._area(self.me, u, OWN)
                values_of_rows(self.t, self.r, own, position, row, rows)

    def _up(self, u: int, level: int, rows: int) -> None:
        """Copy what the domains inside have joined, and join what others need of mine."""
        tree = self.trees[u]
        domain = tree.levels[level].get(self.me)
        with self._phase(u, tree.depth - level):
            if domain is None:
                return
            if level + 1 < tree.depth:
                self._copy_up(u, level, domain, rows)
            for span in domain.used:
                place = self._kept(u, level, domain, USED, span, self.me)
                self.t.fold(place, self._joined(u, level, domain, span), rows)

    def _copy_up(self, u: int, level: int, domain: Domain, rows: int) -> None:
        """Copy what the domains inside have joined: equally distant ones in one step."""
        nbytes, pairs = rows * self.r.itemsize, []
        for owner, span in _copied(domain):
            inside = self.trees[u].levels[level + 1][owner]
            to = self._kept(u, level, domain, COPIED, span, owner)
            pairs.append((to, self._kept(u, level + 1, inside, USED, span, owner)))
        for run in _rows_of(self.t, pairs):
            (to, source), *more = run
            if more:
                step = more[0][1].thread - source.thread
                to, source = to._replace(offset_step=self.width), source._replace(thread_step=step)
            self.t.copy(to, source, nbytes, len(run))

    def _down(self, u: int, level: int, rows: int) -> None:
        """Get what lies before my domain, and join what the domains inside get."""
        tree = self.trees[u]
        domain = tree.levels[level].get(self.me)
        with self._phase(u, tree.depth + 1 + level):
            if domain is None:
                return
            if not level:
                self._carry(u, domain, rows)
            elif domain.above != self.me:
                around = tree.levels[level - 1][domain.above]
                for span in domain.needs:
                    self.t.copy(
                        self._kept(u, level, domain, NEEDS, span, self.me),
                        self._kept(u, level - 1, around, GIVEN, span, self.me),
                        rows * self.r.itemsize,
                    )  # fmt: skip
            if level + 1 < tree.depth:
                self._give(u, level, domain, rows)

    def _give(self, u: int, level: int, domain: Domain, rows: int) -> None:
        """Join what the domains inside get; that of mine goes to its place at once."""
        for root, spans in domain.gives.items():
            for span in spans:
                if root == self.me:
                    inside = self.trees[u].levels[level + 1][root]
                    place = self._kept(u, level + 1, inside, NEEDS, span, root)
                else:
                    place = self._kept(u, level, domain, GIVEN, span, root)
                self.t.fold(place, self._joined(u, level, domain, span), rows)

    def _along(self, u: int, row: int, rows: int) -> None:
        """Join what lies before me, and make the results of my blocks."""
        tree = self.trees[u]
        found, position = tree.before(self.me), tree.positions[self.me]
        with self._phase(u, 2 * tree.depth + 1):
            if found is None or position is None:
                return
            domain, parts = found
            before: BlockRef | None = None
            if len(parts) == 1:
                before = self._source(u, tree.depth - 1, domain, parts[0][0])
            elif parts:
                before = self._area(self.me, u, BEHIND)
                leaves = self._joined(u, tree.depth - 1, domain, (BEFORE, position))
                self.t.fold(before, leaves, rows)
            results(self.t, self.r, position, before, row, rows)

    # -- rows -----------------------------------------------------------------------------------
    def _line(self, u: int) -> BlockRef:
        """Return the place for what lies before each row, and one more: the next batch's."""
        return self._area(0, u, self.areas.firsts[0][NEEDS])

    def _before_rows(self, u: int) -> BlockRef:
        return self._line(u) + (self.r.itemsize if self.r.backward else 0)

    def _carry(self, u: int, domain: Domain, rows: int) -> None:
        """Join what lies before each row of a batch, and before the next batch."""
        t, size, back = self.t, self.r.itemsize, self.r.backward
        line, carry = self._line(u), self._area(self.me, u, CARRY)
        begin, on = (line + rows * size, line) if back else (line, line + size)
        if u:
            t.fold(begin, [FoldOperand(self._area(self.me, u - 1, CARRY))])
        if not domain.used:
            return
        totals = self._kept(u, 0, domain, USED, domain.used[0], self.me)
        if not u:
            t.fold(carry, [FoldOperand(totals)])
            return
        t.scan(on, totals, rows, begin, reverse=back)
        t.fold(carry, [FoldOperand(line if back else line + rows * size)])


# --- the variants ---------------------------------------------------------------------------------
def _has_room(call: CallFacts) -> bool:
    """One node, and room for the values of all domains."""
    r: ScanSpec = call.arguments[0]
    if not call.one_node:
        return False
    _, width = _places(call, r, _Areas.of(_trees(call, r)))
    return width >= (2 if r.line.layout.rows > 1 else 1) * r.itemsize


def by_levels(t: Recorder, r: ScanSpec) -> None:
    """Join values up the domains; what lies before each comes down; results continue from there."""
    with dealt(t, r, push=True):
        _LevelScan(t, r).record()


for _form in (
    "prefix_reduce", "suffix_reduce", "exclusive_prefix_reduce", "exclusive_suffix_reduce",
):  # fmt: skip
    algorithm(
        _form, MULTICORE, "levels", _SUMMARY, applies=_has_room, preferred=by_name
    )(by_levels)  # fmt: skip
