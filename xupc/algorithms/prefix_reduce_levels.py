"""all_prefix_reduce and all_suffix_reduce by the levels below a node, and by groups of nodes.

On the way up the root of each domain joins the values of its threads. On the way down it gets what
lies before them from the root of the domain around, and each thread continues from there. So one
value leaves a domain and one enters it, for each row of blocks, if its threads follow each other
on aligned positions (`scan_brackets`). With two L3 domains of two threads::

    up      0: a+b     2: c+d       the roots of the domains join the values of their threads
    down    2: a+b                  what lies before a domain enters it
    along   0: a   1: a+b   2: (a+b)+c   3: (a+b)+(c+d)

On several nodes the widest domains are groups of nodes (`scan_nodes`). In each group the roots of
the nodes, or of the groups inside, send each other what they have joined, in one message each. What
lies before a group goes from its root to these. Each joins itself what lies before its own nodes.

Rows follow each other: each node root keeps what lies before the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, STAGING, BlockRef, Blocks, FoldOperand
from ..records import record
from ..topology.levels import NodeLevels
from .conditions import CallFacts, by_name
from .level_flow import Flow, Reading
from .prefix_reduce import dealt
from .private_staging import LINE, Places
from .registry import algorithm
from .scan_blocks import results, turned, values_of_rows
from .scan_brackets import BEFORE, COPIED, GIVEN, NEEDS, USED, Domain, Span, Spans
from .scan_nodes import Line, NodeGroups, group_size, line_of, run_lengths
from .scan_spec import ScanSpec
from .scan_tree import Positions, ScanTree, scan_tree

_SUMMARY = (
    "Values are joined inside each cache domain, socket and node first; what lies before one "
    "enters it."
)
_TIMES = 8
"""On several nodes: the areas that a node with levels may have, over those of one without."""
_MOST_RUNS = 128, 1 << 14, 1 << 11
"""The most runs of consecutive threads on the nodes of a group, on average, and on all nodes.

Each is looked at to make a plan. A group with more also needs thousands of values. The last number
is that of runs with another length than the run before: groups of such runs are not alike, and each
takes half a millisecond.
"""


# --- what each thread keeps -----------------------------------------------------------------------
@record
class _Areas:
    """The areas of a thread's scratch, each for a value of each row of a batch.

    The first ones have the thread's own values, those before them, and what lies before the next
    batch. Then come, for each level of which the thread may be a root, those of `USED`, `NEEDS`,
    `COPIED` and `GIVEN`.
    """

    firsts: tuple[tuple[int, int, int, int], ...]
    count: int

    @staticmethod
    def of(trees: tuple[ScanTree, ...]) -> _Areas:
        """Return areas that are enough for the values of some trees with the same levels."""
        firsts: list[tuple[int, int, int, int]] = []
        at = _FIRST
        for level in zip(*(tree.levels for tree in trees), strict=True):
            domains = [domain for some in level for domain in some.values()]
            last = len(firsts) + 1 == len(trees[0].levels)
            sizes = [
                max((len(x.kept[kind]) for x in domains), default=0)
                for kind in (USED, NEEDS, *(() if last else (COPIED, GIVEN)))
            ]
            firsts.append((at, at + sizes[0], at + sum(sizes[:2]), at + sum(sizes[:3])))
            at += sum(sizes)
        return _Areas(tuple(firsts), at)


OWN, BEHIND, CARRY, _FIRST = range(4)


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
def _kinds_of_rows(r: ScanSpec) -> Iterator[tuple[int, bool, bool]]:
    """Yield for the first row, for those in the middle, and for the last one, where they are.

    They are: the blocks of the row; whether there are rows before it; whether there are more.
    """
    x = r.line.layout
    more = x.rows > 1
    yield x.positions, False, more
    if x.rows > 2:
        yield x.threads, True, True
    if more:
        yield x.blocks - (x.rows - 1) * x.threads, True, False


def _groups(t: Facts, r: ScanSpec) -> Iterator[NodeGroups]:
    """Yield the groups of several nodes for each kind of rows."""
    runs, most = _line(t, r).runs, t.tuning["few_nodes_max"]
    for count, carried, more in _kinds_of_rows(r):
        yield NodeGroups(runs, count, most, carried, more)


def _line(t: Facts, r: ScanSpec) -> Line:
    return line_of(t.tree, r.line.first, r.line.way)


def _positions(t: Facts, r: ScanSpec, node: int, count: int) -> Positions:
    """Return the position of each thread of a node in a row of so many blocks."""
    places = (t.tree.members(node).astype(int) - r.line.first) * r.line.way % t.size
    return tuple(p if p < count else None for p in places.tolist())


def _trees(t: Facts, r: ScanSpec, node: int) -> tuple[tuple[ScanTree, ...], _Areas]:
    """Return the domains of a node, for each kind of rows, and their areas.

    On several nodes a node whose levels need too many areas leaves out its narrowest ones.
    """
    kinds = list(_kinds_of_rows(r))
    groups: list[NodeGroups | None] = [None] * len(kinds) if t.one_node else [*_groups(t, r)]
    place = 0 if t.one_node else _line(t, r).nodes.index(node)
    levels, most = t.tree.levels(node).levels, _most_areas(t, r)
    depth = len(levels)
    while True:
        some = NodeLevels(levels[:depth])
        trees = tuple(
            scan_tree(
                some, _positions(t, r, node, count), wide, place, count, carried=carried, more=more
            )
            for wide, (count, carried, more) in zip(groups, kinds, strict=True)
        )
        areas = _Areas.of(trees)
        if depth == 1 or not most or areas.count <= most:
            return trees, areas
        depth -= 1


def _most_areas(t: Facts, r: ScanSpec) -> int:
    """Return how many areas a thread may have on any of several nodes; 0 on one node.

    A thread has the levels of its own node alone, but batches are the same on all nodes. So this
    depends on the positions of all nodes. It is more than a node without levels needs, whose areas
    are `_FIRST` and at most those of each kind of rows.
    """
    if t.one_node:
        return 0
    narrow, wide = zip(*(groups.most_values for groups in _groups(t, r)), strict=True)
    return _FIRST + _TIMES * int(max(narrow)) + int(sum(wide))


def _places(t: Facts, r: ScanSpec, areas: int) -> tuple[Places, int]:
    """Return places for batches, and the bytes of an area; only one batch can be in op_scratch."""
    short = areas * r.itemsize
    if r.line.layout.rows == 1 and short <= min(t.tuning["eager_max"], OP_SCRATCH_BYTES // 2):
        return Places(OP_SCRATCH, short), r.itemsize
    width = _width(t, _most_areas(t, r) or areas)
    return Places(STAGING, areas * width, 2), width


def _width(t: Facts, areas: int) -> int:
    """Return the bytes of an area if two batches with so many share the staging buffer."""
    return t.tuning["staging_bytes"] // (2 * areas) // LINE * LINE


class _LevelScan:
    """Record the batches of rows of one thread."""

    def __init__(self, t: Recorder, r: ScanSpec) -> None:
        self.t, self.r = t, r
        trees, self.areas = _trees(t, r, t.my_node)
        self.places, self.width = _places(t, r, self.areas.count)
        self.ranks = t.tree.members(t.my_node).tolist()
        self.me = t.tree.local_index(t.me)
        self.batches = list(r.line.batches(max(1, self.width // r.itemsize - 1)))
        between = [trees[1]] * (len(self.batches) - 2) if len(trees) > 2 else []
        self.trees = [trees[0], *between, *trees[1:][-1:]]
        readings = self._readings(trees)
        depth = 0 if self.places.short else self.places.depth
        self.flow = Flow(t, readings, len(self.batches), depth)
        self.nodes = () if t.one_node else _line(t, r).nodes
        self.groups = len(trees[0].groups)
        self.sent: dict[int, list[int]] = {}

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
        area = self.areas.firsts[level][kind] + domain.kept[kind][of, span]
        return self._area(domain.root, u, area)

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
            if level < self.groups:
                self._exchange(u, level, domain, rows)
            elif level + 1 < tree.depth:
                self._copy_up(u, level, domain, rows)
            if level and level == self.groups:  # the places that messages may be sent from
                self.t.need(*self.sent.pop(u - self.places.depth, ()))
            for span in domain.used:
                place = self._kept(u, level, domain, USED, span, self.me)
                self.t.fold(place, self._joined(u, level, domain, span), rows)

    def _exchange(self, u: int, level: int, group: Domain, rows: int) -> None:
        """Send what my domain has joined to the roots that need it, and receive theirs."""
        tree = self.trees[u]
        member, mine = tree.groups[level], tree.levels[level + 1][self.me]
        assert member is not None
        coming = [
            self._receive(u, level, group, COPIED, ~of, spans, of, rows)
            for of, spans in group.below.items() if of != self.me
        ]  # fmt: skip
        for to, spans in member.sends.items():
            self._send(u, level + 1, mine, USED, to, spans, rows)
        self.t.need(*coming)

    def _hand_down(self, u: int, level: int, group: Domain, rows: int) -> None:
        """Get what lies before my group from its root, or send it if I am that."""
        member = self.trees[u].groups[level]
        assert member is not None
        if member.root >= 0 and group.needs:
            needed = self._receive(u, level, group, NEEDS, member.root, group.needs, self.me, rows)
            self.t.need(needed)
        for to, spans in member.hands_down.items():
            self._send(u, level, group, NEEDS, to, spans, rows)

    def _send(
        self, u: int, level: int, domain: Domain, kind: int, to: int, spans: Spans, rows: int
    ) -> None:
        """Send some of my values to the root of a node, which has a place in the line."""
        blocks = self._blocks(u, level, domain, kind, spans, self.me, rows)
        root = self.t.tree.node_root(self.nodes[to])
        self.sent.setdefault(u, []).append(self.t.send_blocks(root, blocks))

    def _receive(
        self, u: int, level: int, domain: Domain, kind: int, source: int, spans: Spans, of: int,
        rows: int,
    ) -> int:  # fmt: skip
        """Receive values from the root of a node; return the ticket."""
        blocks = self._blocks(u, level, domain, kind, spans, of, rows)
        root = self.t.tree.node_root(self.nodes[source])
        return self.t.recv_blocks(root, blocks, bounded=False)

    def _blocks(
        self, u: int, level: int, domain: Domain, kind: int, spans: Spans, of: int, rows: int
    ) -> list[Blocks]:
        nbytes = rows * self.r.itemsize
        places = (self._kept(u, level, domain, kind, span, of) for span in spans)
        return [Blocks(place, nbytes) for place in places]

    def _copy_up(self, u: int, level: int, domain: Domain, rows: int) -> None:
        """Copy what the domains inside have joined: equally distant ones in one step."""
        nbytes, pairs = rows * self.r.itemsize, []
        for owner, span in domain.kept[COPIED]:
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
            elif level < self.groups:
                self._hand_down(u, level, domain, rows)
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
    """Room for the values of all domains; several nodes: few runs of consecutive threads."""
    r: ScanSpec = call.arguments[0]
    least = (2 if r.line.layout.rows > 1 else 1) * r.itemsize
    if call.one_node:
        return _places(call, r, _trees(call, r, 0)[1].count)[1] >= least
    return _has_few_runs(call) and _width(call, _most_areas(call, r)) >= least


def _has_few_runs(call: CallFacts) -> bool:
    nodes, lengths = call.tree.node_count, run_lengths(call.tree)
    of_a_group, in_all, unlike = _MOST_RUNS
    return (
        lengths.size <= in_all
        and lengths.size * group_size(nodes, call.tuning) <= of_a_group * nodes
        and int(np.count_nonzero(np.diff(lengths))) <= unlike
    )


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
