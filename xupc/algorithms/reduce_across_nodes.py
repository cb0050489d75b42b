"""MULTICORE reductions across nodes: who joins what, and what crosses.

Each function is a whole algorithm, recorded on every thread, except `lead`, which is the
node roots' alone. `reduce.multicore` chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..plan.patterns import chain, grouped, tree_for, tree_joins
from ..plan.recorder import NODE, Operand, Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, STAGING, BlockRef, FoldOperand, Ranks
from .reduce_spec import DST, Piece, Reduction, tree_of
from .tree_pipeline import trade_values, traded_values

__all__ = [
    "fits",
    "in_order",
    "in_parts",
    "join_in_order",
    "lead",
    "parts_pay",
    "table",
    "to_all",
    "to_one",
]


# --- who has what ---------------------------------------------------------------------------
def positions_of(t: Recorder, r: Reduction, node: int, blocks: int) -> list[int]:
    """A node's positions that have one of so many blocks, in order."""
    n = r.positions(blocks)
    threads = (int(thread) for thread in t.tree.members(node))
    found = (r.layout.position(thread) for thread in threads)
    return sorted(p for p in found if p is not None and p < n)


def order_of(t: Recorder, r: Reduction, blocks: int) -> list[int]:
    """Nodes that have any of so many blocks, by their first positions."""
    first = {node: positions_of(t, r, node, blocks) for node in range(t.tree.node_count)}
    return sorted((node for node in first if first[node]), key=lambda node: first[node][0])


def leaves_of(t: Recorder, r: Reduction, begin: int, blocks: int) -> list[FoldOperand]:
    """The tree of my node's blocks for the results from `begin` on."""
    positions = positions_of(t, r, t.my_node, blocks)
    joins = tree_joins(len(positions))
    return [
        r.leaf(p, begin, blocks)._replace(joins=n) for p, n in zip(positions, joins, strict=True)
    ]


def in_order(t: Recorder, r: Reduction) -> bool:
    """Whether joining nodes' values gives the one written order."""
    blocks = r.layout.blocks
    return join_in_order([positions_of(t, r, node, blocks) for node in order_of(t, r, blocks)])


def join_in_order(nodes: Sequence[Sequence[int]]) -> bool:
    """Whether nodes with these positions, themselves in order, join to the one written order.

    They do if they have equally many neighbouring positions, a power of two of them.
    """
    size = len(nodes[0])
    return (
        all(p[-1] - p[0] == len(p) - 1 for p in nodes)
        and all(len(p) == size for p in nodes[:-1])
        and (len(nodes) == 1 or (len(nodes[-1]) <= size and size & (size - 1) == 0))
    )


def fits(t: Recorder, r: Reduction) -> bool:
    """Whether a result of each node fits a staging buffer."""
    return t.tree.node_count * r.nbytes <= t.tuning["staging_bytes"]


def in_parts(t: Recorder, nbytes: int) -> bool:
    """Whether a result for one goes faster in parts, each joined by a node, than down a chain.

    That is n (N-1)/N bytes twice, in all links at once, against n and N-2 units of the chain
    besides, half of `pipeline_min` and more; and two messages one after the other against N-1.
    """
    n = t.tree.node_count
    return 2 < n <= t.tuning["few_nodes_max"] and nbytes <= n * t.tuning["pipeline_min"] // 2


def parts_pay(t: Recorder, nbytes: int) -> bool:
    """Whether many nodes that finish a part each are faster than a tree, all to all.

    Each part takes a message to and from every node, while a tree takes all of the result
    2 log2 N times over the links of its top: so the parts must not be short, nor many.
    """
    n, tuning = t.tree.node_count, t.tuning
    part = nbytes // n
    room = tuning["staging_bytes"] // (ReduceScatterAllgather.DEPTH * n)
    long = part >= tuning["pipeline_min"] // tuning["few_nodes_max"] > 0 and room >= 64
    return long and 2 * n * -(-part // room) <= tuning["max_messages"]


def targets(t: Recorder, r: Reduction) -> list[int]:
    """The nodes that need the result."""
    return list(range(t.tree.node_count)) if r.to is None else [t.tree.node_of(r.to)]


def _fold_to_node(
    t: Recorder, r: Reduction, begin: int, leaves: list[FoldOperand], nelems: int
) -> None:
    """Results wherever they belong on my node; a node root's work."""
    offset = begin * r.itemsize
    if r.to is not None:
        t.fold(DST.on(r.to, offset), leaves, nelems)
        return
    first, *rest = t.node_ranks()
    t.fold(DST.across(first, offset), leaves, nelems, first.count)
    for run in rest:
        source = DST.on(first.first, offset)
        t.copy(DST.across(run, offset), source, nelems * r.itemsize, run.count)


# --- short ones -----------------------------------------------------------------------------
def table(t: Recorder, r: Reduction) -> None:
    """One value: node roots tell each other each thread's, and join them all.

    All values are joined in one order, whoever is on which node; one message's latency.
    """
    layout, size = r.layout, r.itemsize
    blocks = layout.blocks
    nodes = targets(t, r)
    threads = [layout.thread(p) for p in range(layout.positions)]
    near = [(p, thread) for p, thread in enumerate(threads) if t.on_my_node(thread)]

    def trade() -> list[FoldOperand]:
        t.need(*trade_values(t, threads, size, nodes))
        return tree_of(traded_values(t, threads, size))

    nbytes = max(layout.nelems * size // t.tree.node_count, layout.positions * size)
    if t.root_exchange(nbytes, one_block=True):
        if t.me == t.node_root:
            for p, thread in near:
                t.fold(Operand(OP_SCRATCH).on(thread), [r.leaf(p, 0, blocks)])
            leaves = trade()
            if t.my_node in nodes:
                _fold_to_node(t, r, 0, leaves, 1)
        return
    arrived, there = t.channel(), t.channel()
    total = Operand(OP_SCRATCH).on(t.node_root, OP_SCRATCH_BYTES // 2)
    position = layout.position(t.me)
    if position is not None:
        t.fold(Operand(OP_SCRATCH).on(t.me), [r.leaf(position, 0, blocks)])
        t.signal(arrived, (Ranks(t.node_root),))
    if t.me == t.node_root:
        t.wait(arrived, [Ranks(thread) for _, thread in near])
        leaves = trade()
        if t.my_node in nodes:
            t.fold(total, leaves)
            t.signal(there, t.node_ranks() if r.to is None else (Ranks(r.to),))
    if r.to in (None, t.me):
        t.wait(there, t.node_root)
        t.copy(DST.on(t.me), total, size)


def lead(t: Recorder, r: Reduction) -> None:
    """A node root's work when it does everything for its node: one value of each node."""
    nodes = targets(t, r)
    ranges = [(piece, order_of(t, r, piece[2])) for piece in r.ranges(0, r.each)]

    def place(node: int, begin: int = 0) -> BlockRef:
        return Operand(STAGING).on(t.me, (node * r.each + begin) * r.itemsize)

    def length(node: int) -> int:
        """Bytes of a node's value: less if its threads have no part of the last block row."""
        return max((end for (_, end, _), order in ranges if node in order), default=0) * r.itemsize

    for (begin, end, blocks), order in ranges:
        if t.my_node in order:
            t.fold(place(t.my_node, begin), leaves_of(t, r, begin, blocks), end - begin)
    tickets = []
    if t.my_node in nodes:
        for node in range(t.tree.node_count):
            if node != t.my_node and length(node):
                root = t.tree.node_root(node)
                tickets.append(t.recv(root, place(node), length(node), bounded=False))
    if length(t.my_node):
        for node in nodes:
            if node != t.my_node:
                t.send(t.tree.node_root(node), place(t.my_node), length(t.my_node))
    t.need(*tickets)
    if t.my_node in nodes:
        for (begin, end, _), order in ranges:
            leaves = tree_of([place(node, begin) for node in order])
            _fold_to_node(t, r, begin, leaves, end - begin)


# --- long ones -------------------------------------------------------------------------------
def _makers(t: Recorder, r: Reduction, node_source: int) -> list[int]:
    """Who of my node folds its blocks: as many as it is worth to wake, or the node source alone."""
    mates = [node_source, *(thread for run in t.node_ranks_but(node_source) for thread in run)]
    return mates[: _worth_waking(t, r, len(mates))]


def _worth_waking(t: Recorder, r: Reduction, mates: int) -> int:
    return min(mates, max(1, mates * r.nbytes // t.tuning["fold_wakeup_min"]))


class ReducePipeline:
    """A node's threads fold its blocks piece by piece, in turn, for a node source to use.

    Parameters
    ----------
    pieces
        In the order in which they are made.
    node_source
        Who uses them.
    """

    def __init__(self, t: Recorder, r: Reduction, pieces: list[Piece], node_source: int) -> None:
        self.t, self.r, self.pieces, self.node_source = t, r, pieces, node_source
        self.mates = _makers(t, r, node_source)
        self.channel = t.channel()
        has = {blocks: bool(positions_of(t, r, t.my_node, blocks)) for _, _, blocks in pieces}
        numbers = iter(range(len(pieces)))
        # the number of each piece among those that there are; None: my node has nothing
        self.number = [next(numbers) if has[blocks] else None for _, _, blocks in pieces]
        self.there = len(pieces) - self.number.count(None)
        self.makers = [Ranks(thread) for thread in self.mates[: self.there]]  # who make any

    def maker(self, i: int) -> int:
        """Who makes the i-th."""
        return self.mates[i % len(self.mates)]

    def turn(self, i: int) -> int:
        """Which of its maker's pieces the i-th is."""
        return i // len(self.mates)

    def mine(self) -> Iterator[tuple[int, Piece]]:
        """My pieces and their numbers."""
        for i, piece in zip(self.number, self.pieces, strict=True):
            if i is not None and self.maker(i) == self.t.me:
                yield i, piece

    def make(self, i: int, piece: Piece, place: BlockRef) -> None:
        """Fold my node's blocks and say so."""
        begin, end, blocks = piece
        self.t.fold(place, leaves_of(self.t, self.r, begin, blocks), end - begin)
        self.t.signal(self.channel, (Ranks(self.node_source),), self.turn(i) + 1)

    def wait(self, i: int) -> None:
        """Until the i-th is there."""
        self.t.wait(self.channel, self.maker(i), self.turn(i) + 1)


def to_all(t: Recorder, r: Reduction) -> None:
    """Each node finishes a part of the result for all.

    ::

        parts     A   B   C        node 0 sends its values of B to node 1, of C to node 2,
                                   takes values of A, joins them, sends the result to both

    Twice (N-1)/N of the result cross each link each way. A node's values and the results are
    in its node root's dst; its threads copy them from there.
    """
    ReduceScatterAllgather(t, r).record()


class ReduceScatterAllgather:
    """The pieces of each node's part, and what a node root does with them round by round.

    Piece j of part k is ``(k, j)``; parts are numbered by the nodes that finish them.
    """

    DEPTH = 3  # rounds whose values may be under way
    _AHEAD = 2  # rounds from a piece's values to its join

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.t, self.r = t, r
        n = self.n = t.tree.node_count
        me = self.me = t.my_node
        self.node_source = self._root(me)
        self.wanting = targets(t, r)
        grain = max(1, 64 // r.itemsize)
        grains = -(-r.each // grain)
        ends = [min(r.each, grains * k // n * grain) for k in range(n + 1)]
        self.width = self._width(max(b - a for a, b in pairwise(ends)) * r.itemsize)
        self.parts = [r.pieces(ends[k], ends[k + 1], self.width) for k in range(n)]
        self.rounds = max(map(len, self.parts))
        self.others = [(me + k) % n for k in range(1, n)]
        order = [(k, j) for j in range(self.rounds) for k in (*self.others, me)]
        self.order = [(k, j) for k, j in order if j < len(self.parts[k])]
        pieces = [self.parts[k][j] for k, j in self.order]
        self.making = ReducePipeline(t, r, pieces, self.node_source)
        self.made = dict(zip(self.order, self.making.number, strict=True))
        self.having = {blocks: order_of(t, r, blocks) for _, _, blocks in pieces}
        self.final = t.channel()

    def record(self) -> None:
        """On every thread."""
        t = self.t
        t.ready(NODE, NODE, node_only=True)
        if t.me == self.node_source:
            with t.net():
                self._between_nodes()
        self._make()
        self._take()
        t.done(NODE, NODE, node_only=True)

    def _width(self, part: int) -> int:
        """Bytes of the largest piece of a part of so many."""
        t = self.t
        return t.unit(part, t.tuning["staging_bytes"] // (self.DEPTH * self.n))

    def _make(self) -> None:
        """My share of my node's values."""
        for i, piece in self.making.mine():
            self.making.make(i, piece, self._made(i, piece[0]))

    def _take(self) -> None:
        """What is mine of the results."""
        t = self.t
        if t.me != self.node_source:
            for i, told in enumerate(self._told_together()):
                t.wait(self.final, self.node_source, i + 1)
                for k, j in told:
                    source = self._result(k, j)
                    t.copy(source._replace(thread=t.me), source, self._nbytes(k, j))

    def _told_together(self) -> list[list[tuple[int, int]]]:
        """The results of which a node's threads are told at once: it wakes them."""
        come, least = self._as_they_come(), self.t.tuning["notify_bytes"]
        return grouped(come, lambda piece: self._nbytes(*piece), least)

    def _as_they_come(self) -> Iterator[tuple[int, int]]:
        """All pieces in the order in which results are there on my node."""
        for j in range(self.rounds):
            for k in (self.me, *self.others):
                if j < len(self.parts[k]):
                    yield k, j

    def _nbytes(self, k: int, j: int) -> int:
        begin, end, _ = self.parts[k][j]
        return (end - begin) * self.r.itemsize

    def _made(self, i: int, begin: int) -> BlockRef:
        """Where my node's own value is: the i-th that there is, of results from `begin` on."""
        return DST.on(self.node_source, begin * self.r.itemsize)

    def _value(self, k: int, j: int) -> BlockRef:
        """Where my node's own value of a piece is."""
        i = self.made[k, j]
        assert i is not None
        return self._made(i, self.parts[k][j][0])

    def _result(self, k: int, j: int) -> BlockRef:
        """Where a result is put on my node."""
        return DST.on(self.node_source, self.parts[k][j][0] * self.r.itemsize)

    def _landing(self, k: int, j: int) -> BlockRef:
        """Where node k's value of piece j of my part arrives."""
        return Operand(STAGING).on(self.t.me, (j % self.DEPTH * self.n + k) * self.width)

    def _root(self, node: int) -> int:
        return self.t.tree.node_root(node)

    def _between_nodes(self) -> None:
        """A node root's messages and joins, a few rounds of them under way.

        Between two nodes values of one round and results of an earlier one follow each
        other, at both ends.
        """
        self._coming: dict[tuple[int, int], int] = {}
        self._going: dict[tuple[int, int], int] = {}
        self._results: dict[tuple[int, int], int] = {}
        self._sent: dict[int, int] = {}
        self._last = {told[-1]: i + 1 for i, told in enumerate(self._told_together())}
        for j in range(self.rounds + self._AHEAD + 1):
            if j < self.rounds:
                self._values(j)
            if 0 <= j - self._AHEAD < self.rounds:
                self._join(j - self._AHEAD)
                self._used(j - self._AHEAD)
            if j > self._AHEAD:
                self._tell(j - self._AHEAD - 1)

    def _values(self, j: int) -> None:
        """My node's values out, the others' of my part in."""
        t, me = self.t, self.me
        if j < len(self.parts[me]):
            for k in self.others:
                if k in self.having[self.parts[me][j][2]]:
                    place, nbytes = self._landing(k, j), self._nbytes(me, j)
                    self._coming[k, j] = t.recv(self._root(k), place, nbytes, bounded=False)
        for k in self.others:
            i = self.made.get((k, j))
            if i is not None:
                self.making.wait(i)
                ticket = t.send(self._root(k), self._value(k, j), self._nbytes(k, j))
                self._going[k, j] = ticket

    def _join(self, j: int) -> None:
        """My part's piece from all values, and out to all who want it."""
        t, me = self.t, self.me
        for k in self.others:  # before any result is sent, or all would wait for each other
            if j < len(self.parts[k]):
                if (k, j) in self._going:
                    t.need(self._going[k, j])
                if me in self.wanting:
                    place, nbytes = self._result(k, j), self._nbytes(k, j)
                    self._results[k, j] = t.recv(self._root(k), place, nbytes, bounded=False)
        if j >= len(self.parts[me]):
            return
        here, nbytes = self._result(me, j), self._nbytes(me, j)
        begin, end, blocks = self.parts[me][j]
        for k in self.others:
            if (k, j) in self._coming:
                t.need(self._coming[k, j])
        i = self.made[me, j]
        if i is not None:
            self.making.wait(i)
        self._free(j)
        parts = [self._value(k, j) if k == me else self._landing(k, j) for k in self.having[blocks]]
        if parts != [here]:
            t.fold(here, tree_of(parts), end - begin)
        for k in self.others:
            if k in self.wanting:
                self._sent[j] = t.send(self._root(k), here, nbytes)

    def _free(self, j: int) -> None:
        """Until the result of a round may be put in its place."""

    def _used(self, j: int) -> None:
        """My node's values of a round have been sent and joined."""

    def _tell(self, j: int) -> None:
        """My node's threads of the results of a round."""
        t = self.t
        for k in (self.me, *self.others):
            if j < len(self.parts[k]):
                if k != self.me:
                    t.need(self._results[k, j])
                if word := self._last.get((k, j)):
                    t.signal(self.final, t.node_ranks_but(t.me), word)


class ReduceScatterGather(ReduceScatterAllgather):
    """The results go to one node; whatever is under way elsewhere is in staging buffers, in turn.

    A maker's: what it made. The node source's besides: what comes for its part, and their results.
    """

    @staticmethod
    def pays(t: Recorder, r: Reduction) -> bool:
        """Whether results so long go to one in parts."""
        return r.nbytes >= t.tuning["pipeline_min"] and in_parts(t, r.nbytes)

    def _width(self, part: int) -> int:
        t = self.t
        room = t.tuning["staging_bytes"] // (self.kept + self.DEPTH * (self.n + 1)) // 64 * 64
        whole = -(-part // 64) * 64
        return whole if whole <= room else t.unit(part, room)

    @cached_property
    def kept(self) -> int:
        """How many pieces a maker has at most in the rounds whose values may be under way.

        Of any node: pieces are as long as there is room for, and as long everywhere.
        """
        fewest = _worth_waking(self.t, self.r, int(self.t.tree.node_sizes.min()))
        return -(-self.DEPTH * self.n // fewest)

    @property
    def _words(self) -> int:
        """How often makers are told: of rounds that make room for another one, and the last."""
        return max(0, self.rounds - self.DEPTH) + 1

    def _make(self) -> None:
        for i, piece in self.making.mine():
            round_ = self._round[i]
            if round_ >= self.DEPTH:  # where this one goes
                self.t.wait(self.final, self.node_source, round_ - self.DEPTH + 1)
            self.making.make(i, piece, self._made(i, piece[0]))

    @cached_property
    def _round(self) -> dict[int, int]:
        """The number of a piece that there is -> its round."""
        return {i: j for (_, j), i in self.made.items() if i is not None}

    def _made(self, i: int, begin: int) -> BlockRef:
        making = self.making
        return Operand(STAGING).on(making.maker(i), making.turn(i) % self.kept * self.width)

    def _landing(self, k: int, j: int) -> BlockRef:
        return self._behind(j % self.DEPTH * (self.n + 1) + k)

    def _result(self, k: int, j: int) -> BlockRef:
        if self.me in self.wanting:
            return super()._result(k, j)
        return self._behind(j % self.DEPTH * (self.n + 1) + self.n)

    def _behind(self, slot: int) -> BlockRef:
        """A place of the node source's staging buffer behind all that it makes."""
        return Operand(STAGING).on(self.node_source, (self.kept + slot) * self.width)

    def _root(self, node: int) -> int:
        assert self.r.to is not None
        return self.t.acting_root(node, self.r.to)

    def _free(self, j: int) -> None:
        if (before := self._sent.get(j - self.DEPTH)) is not None:
            self.t.need(before)

    def _used(self, j: int) -> None:
        if j + self.DEPTH < self.rounds or j == self.rounds - 1:
            self.t.signal(self.final, self.making.makers, min(j + 1, self._words))

    def _tell(self, j: int) -> None:
        """Results are where they are wanted."""
        self.t.need(*(ticket for (_, round_), ticket in self._results.items() if round_ == j))

    def _take(self) -> None:
        if any(True for _ in self.making.mine()):  # nobody reads my staging buffer any more
            self.t.wait(self.final, self.node_source, self._words)


def to_one(t: Recorder, r: Reduction) -> None:
    """Down a `pipeline` to dst's node, each joining what comes with its own: n bytes a link.

    That is a chain of nodes if these are few for so many pieces. Short results come from a
    few nodes all at once, those that make only a few pieces of a chain in parts, each joined
    by another node; so do those whose nodes have an order, which is not a chain's. A node's
    threads fold its pieces into their staging buffers; of a pipeline's, two of them ahead.
    """
    if r.exact or ReduceScatterGather.pays(t, r):
        ReduceScatterGather(t, r).record()
    else:
        PipelinedReduce(t, r).record()


class PipelinedReduce:
    """Pieces on their way to one node: a pipeline or a star, the target's node at its top."""

    _DEPTH = 2  # pieces that may be under way on a link

    def __init__(self, t: Recorder, r: Reduction) -> None:
        assert r.to is not None
        self.t, self.r, self.to = t, r, r.to
        n = self.n = t.tree.node_count
        self.home = t.tree.node_of(r.to)
        # a single piece would have one link after the other
        half = max(r.nbytes // 2, t.tuning["pipeline_min"])

        def unit(children: int) -> int:
            """The size of pieces of which a node source keeps so many, its own and its results."""
            places = self._DEPTH * (2 + children)
            return t.unit(r.nbytes, min(half, t.tuning["staging_bytes"] // places))

        self.shape = tree_for(n, r.nbytes, unit(1), t.tuning)
        self.parent, self.children = self.shape((t.my_node - self.home) % n, n)
        width = self.width = unit(len(self.shape(0, n)[1]))  # 0 has the most
        self.pieces = r.pieces(0, r.each, width)
        self.node_source = t.acting_root(t.my_node, r.to)
        self.making = ReducePipeline(t, r, self.pieces, self.node_source)
        self.used = t.channel()
        # How often my node's makers are told that pieces are used, which wakes them: after each
        # turn of which somebody waits to make another one there, and at the end.
        turns = self.making.turn(self.making.there - 1) + 1
        self.words = max(0, turns - self._DEPTH) + 1

    @cached_property
    def _brings(self) -> dict[int, np.ndarray]:
        """blocks -> of each place in the tree, whether anything comes from there."""
        out = {}
        for blocks in {blocks for _, _, blocks in self.pieces}:
            threads = self.r.layout.first + np.arange(self.r.positions(blocks))
            nodes = self.t.tree.node_index[threads % self.t.size]
            have = np.zeros(self.n, bool)
            have[(nodes - self.home) % self.n] = True
            if self.shape is chain:
                have = np.logical_or.accumulate(have[::-1])[::-1]
            elif not have.all():
                for v in range(self.n - 1, 0, -1):  # a child's place is behind its parent's
                    have[self.shape(v, self.n)[0]] |= have[v]
            out[blocks] = have
        return out

    def record(self) -> None:
        """On every thread."""
        t, making = self.t, self.making
        t.ready(NODE, NODE, node_only=True)
        if t.me == self.node_source:
            with t.net():
                self._link()
        mine = list(making.mine())
        for i, piece in mine:
            if (before := making.turn(i) - self._DEPTH) >= 0:  # where this one goes
                t.wait(self.used, self.node_source, before + 1)
            making.make(i, piece, self._made(i))
        if mine:  # nobody reads my staging buffer any more; all words have been heard
            t.wait(self.used, self.node_source, self.words)
        t.done(NODE, NODE, node_only=True)

    def _tell(self, i: int) -> None:
        """The i-th piece of my node's own is used."""
        making, turn = self.making, self.making.turn(i)
        if i + 1 == making.there:
            self.t.signal(self.used, making.makers, self.words)
        elif making.turn(i + 1) > turn and turn + 1 < self.words:
            self.t.signal(self.used, making.makers, turn + 1)

    def _made(self, i: int) -> BlockRef:
        """Where the i-th piece of my node's own is."""
        at = self.making.turn(i) % self._DEPTH * self.width
        return Operand(STAGING).on(self.making.maker(i), at)

    def _slot(self, k: int, q: int) -> BlockRef:
        """The k-th pair of places of my staging buffer behind the one for pieces that I make."""
        return Operand(STAGING).on(
            self.t.me, (self._DEPTH * (1 + k) + q % self._DEPTH) * self.width
        )

    def _root(self, v: int) -> int:
        """Who speaks for the node at a place in the tree."""
        return self.t.acting_root((self.home + v) % self.n, self.to)

    def _link(self) -> None:
        """A node source's messages and joins."""
        t, size = self.t, self.r.itemsize
        coming: dict[tuple[int, int], int] = {}
        sends: list[int] = []

        def post(q: int) -> None:
            begin, end, blocks = self.pieces[q]
            for k, child in enumerate(self.children):
                if self._brings[blocks][child]:
                    landing, nbytes = self._slot(1 + k, q), (end - begin) * size
                    coming[k, q] = t.recv(self._root(child), landing, nbytes, bounded=False)

        post(0)
        for q, (begin, end, _) in enumerate(self.pieces):
            if q + 1 < len(self.pieces):
                post(q + 1)
            parts = []
            i = self.making.number[q]
            if i is not None:
                self.making.wait(i)
                parts.append(self._made(i))
            for k in range(len(self.children)):
                if (k, q) in coming:
                    t.need(coming[k, q])
                    parts.append(self._slot(1 + k, q))
            if parts and self.parent is None:
                t.fold(DST.on(t.me, begin * size), tree_of(parts), end - begin)
            elif parts:
                if len(sends) >= self._DEPTH:
                    t.need(sends[-self._DEPTH])
                out = self._slot(0, len(sends))
                t.fold(out, tree_of(parts), end - begin)
                assert self.parent is not None
                sends.append(t.send(self._root(self.parent), out, (end - begin) * size))
            if i is not None:
                self._tell(i)
