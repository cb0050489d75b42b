"""MULTICORE reductions across nodes in parts: each node finishes one part of the result.

`ReduceScatterAllgather` sends the parts to all nodes, `ReduceScatterGather` to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

from ..plan.patterns import grouped
from ..plan.placement import Facts
from ..plan.recorder import DST, NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef
from .reduce_pipeline import ReducePipeline, worth_waking
from .reduce_positions import order_of, targets
from .reduce_spec import Reduction, tree_of

__all__ = [
    "DEPTH", "ReduceScatterAllgather", "ReduceScatterGather", "in_parts", "parts_fit", "parts_pay",
]  # fmt: skip

DEPTH = 3
"""The number of rounds whose values may be in transit at a time."""


def in_parts(t: Facts, nbytes: int) -> bool:
    """Return whether a result for one node is faster in parts, one per node, than by a chain.

    Parts send n (N-1)/N bytes twice, on all links at once, with two messages in sequence. A chain
    sends n bytes and N-2 units, of half of `pipeline_min` or more, with N-1 messages in sequence.
    """
    n = t.tree.node_count
    return 2 < n <= t.tuning["few_nodes_max"] and nbytes <= n * t.tuning["pipeline_min"] // 2


def parts_fit(t: Facts) -> bool:
    """Return whether the pieces of all nodes in transit fit a staging buffer."""
    return bool(t.tuning["staging_bytes"] // (DEPTH * t.tree.node_count) >= t.line)


def parts_pay(t: Facts, nbytes: int) -> bool:
    """Return whether parts, one per node, are faster than a tree for a result on many nodes.

    Each part needs a message to and from every node. A tree sends the whole result 2 log2 N times
    over the links of its top. So the parts must be neither short nor many.
    """
    n, tuning = t.tree.node_count, t.tuning
    part = nbytes // n
    room = tuning["staging_bytes"] // (DEPTH * n)
    long = part >= tuning["pipeline_min"] // max(1, tuning["few_nodes_max"]) > 0 and room >= 64
    return long and 2 * n * -(-part // room) <= tuning["max_messages"]


class ReduceScatterAllgather:
    """Record a reduction in which each node finishes a part of the result for all nodes.

    ::

        parts     A   B   C        node 0 sends its values of B to node 1, of C to node 2,
                                   receives values of A, combines them, sends the result to both

    Twice (N-1)/N of the result cross each link in each direction. A node's values and the results
    are in its node root's dst; its threads copy them from there. Piece j of part k is ``(k, j)``;
    parts are numbered by the nodes that finish them.
    """

    _AHEAD = 2  # rounds from a piece's values to their combination

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
        """Record the steps of every thread."""
        t = self.t
        t.ready(NODE, NODE, node_only=True)
        if t.me == self.node_source:
            with t.net():
                self._between_nodes()
        self._make()
        self._take()
        t.done(NODE, NODE, node_only=True)

    def _width(self, part: int) -> int:
        """Return the bytes of the largest piece of a part of so many bytes."""
        t = self.t
        return t.unit(part, t.tuning["staging_bytes"] // (DEPTH * self.n))

    def _make(self) -> None:
        """Fold my share of my node's values."""
        for i, piece in self.making.mine():
            self.making.make(i, piece, self._made(i, piece[0]))

    def _take(self) -> None:
        """Copy the results from the node source as they become complete."""
        t = self.t
        if t.me != self.node_source:
            for i, notice in enumerate(self._notices()):
                t.turn(i + 1)
                t.wait(self.final, self.node_source, i + 1)
                for k, j in notice:
                    source = self._result(k, j)
                    t.copy(source._replace(thread=t.me), source, self._nbytes(k, j))

    def _notices(self) -> list[list[tuple[int, int]]]:
        """Return the results in groups: the node root notifies its threads after each group.

        A notice wakes threads, so it must be worth that.
        """
        come, least = self._as_they_come(), self.t.tuning["notify_bytes"]
        return grouped(come, lambda piece: self._nbytes(*piece), least)

    def _as_they_come(self) -> Iterator[tuple[int, int]]:
        """Yield all pieces in the order in which their results are complete on my node."""
        for j in range(self.rounds):
            for k in (self.me, *self.others):
                if j < len(self.parts[k]):
                    yield k, j

    def _nbytes(self, k: int, j: int) -> int:
        begin, end, _ = self.parts[k][j]
        return (end - begin) * self.r.itemsize

    def _made(self, i: int, begin: int) -> BlockRef:
        """Return the place of my node's i-th own value, of results from `begin` on."""
        return DST.on(self.node_source, begin * self.r.itemsize)

    def _value(self, k: int, j: int) -> BlockRef:
        """Return the place of my node's own value of a piece."""
        i = self.made[k, j]
        assert i is not None
        return self._made(i, self.parts[k][j][0])

    def _result(self, k: int, j: int) -> BlockRef:
        """Return the place of a result on my node."""
        return DST.on(self.node_source, self.parts[k][j][0] * self.r.itemsize)

    def _landing(self, k: int, j: int) -> BlockRef:
        """Return the place at which node k's value of piece j of my part arrives."""
        return Operand(STAGING).on(self.t.me, (j % DEPTH * self.n + k) * self.width)

    def _root(self, node: int) -> int:
        return self.t.tree.node_root(node)

    def _between_nodes(self) -> None:
        """Record a node root's messages and folds, with a few rounds in transit.

        Between two nodes the values of one round and the results of an earlier one alternate, in
        the same order at both ends.
        """
        self._coming: dict[tuple[int, int], int] = {}
        self._going: dict[tuple[int, int], int] = {}
        self._results: dict[tuple[int, int], int] = {}
        self._sent: dict[int, int] = {}
        self._last = {notice[-1]: i + 1 for i, notice in enumerate(self._notices())}
        for j in range(self.rounds + self._AHEAD + 1):
            if j < self.rounds:
                self._values(j)
            if 0 <= j - self._AHEAD < self.rounds:
                self._join(j - self._AHEAD)
                self._used(j - self._AHEAD)
            if j > self._AHEAD:
                self._tell(j - self._AHEAD - 1)

    def _values(self, j: int) -> None:
        """Send my node's values, receive the others' values of my part."""
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
        """Combine all values of my part's piece and send the result to all nodes that need it."""
        t, me = self.t, self.me
        for k in self.others:  # before any result is sent: otherwise all wait for each other
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
        """Wait until the place for the result of a round is free."""

    def _used(self, j: int) -> None:
        """Signal that my node's values of a round have been sent and combined."""

    def _tell(self, j: int) -> None:
        """Notify my node's threads of the results of a round."""
        t = self.t
        for k in (self.me, *self.others):
            if j < len(self.parts[k]):
                if k != self.me:
                    t.need(self._results[k, j])
                if notice := self._last.get((k, j)):
                    t.signal(self.final, t.node_ranks_but(t.me), notice)


class ReduceScatterGather(ReduceScatterAllgather):
    """Record a reduction in parts whose results go to one node.

    On other nodes all values are in staging buffers, whose places are reused. A thread's buffer
    holds the pieces that it folds. The node source's also holds the arriving values of its part
    and their results.
    """

    @staticmethod
    def pays(t: Facts, r: Reduction) -> bool:
        """Return whether results of this length are faster in parts."""
        return r.nbytes >= t.tuning["pipeline_min"] and in_parts(t, r.nbytes)

    def _width(self, part: int) -> int:
        t = self.t
        room = t.tuning["staging_bytes"] // (self.kept + DEPTH * (self.n + 1)) // 64 * 64
        whole = -(-part // 64) * 64
        return whole if whole <= room else t.unit(part, room)

    @cached_property
    def kept(self) -> int:
        """Return the most pieces that a thread has folded in the rounds that are in transit.

        It is the most on any node, since pieces are equally long everywhere.
        """
        fewest = worth_waking(self.t, self.r, int(self.t.tree.node_sizes.min()))
        return -(-DEPTH * self.n // fewest)

    @property
    def _notice_count(self) -> int:
        """Return how many rounds end with a notice: all whose places are reused, and the last."""
        return max(0, self.rounds - DEPTH) + 1

    def _make(self) -> None:
        for i, piece in self.making.mine():
            round_ = self._round[i]
            if round_ >= DEPTH:  # its place must be free
                self.t.wait(self.final, self.node_source, round_ - DEPTH + 1)
            self.making.make(i, piece, self._made(i, piece[0]))

    @cached_property
    def _round(self) -> dict[int, int]:
        """Return the round of each piece that my node has, by its number."""
        return {i: j for (_, j), i in self.made.items() if i is not None}

    def _made(self, i: int, begin: int) -> BlockRef:
        making = self.making
        return Operand(STAGING).on(making.maker(i), making.turn(i) % self.kept * self.width)

    def _landing(self, k: int, j: int) -> BlockRef:
        return self._behind(j % DEPTH * (self.n + 1) + k)

    def _result(self, k: int, j: int) -> BlockRef:
        if self.me in self.wanting:
            return super()._result(k, j)
        return self._behind(j % DEPTH * (self.n + 1) + self.n)

    def _behind(self, slot: int) -> BlockRef:
        """Return a place of the node source's staging buffer behind its own pieces."""
        return Operand(STAGING).on(self.node_source, (self.kept + slot) * self.width)

    def _root(self, node: int) -> int:
        assert self.r.to is not None
        return self.t.acting_root(node, self.r.to)

    def _free(self, j: int) -> None:
        if (before := self._sent.get(j - DEPTH)) is not None:
            self.t.need(before)

    def _used(self, j: int) -> None:
        if j + DEPTH < self.rounds or j == self.rounds - 1:
            self.t.signal(self.final, self.making.makers, min(j + 1, self._notice_count))

    def _tell(self, j: int) -> None:
        """Wait for the results of a round, on the node that needs them."""
        self.t.need(*(ticket for (_, round_), ticket in self._results.items() if round_ == j))

    def _take(self) -> None:
        if any(True for _ in self.making.mine()):  # until no thread reads my staging buffer
            self.t.wait(self.final, self.node_source, self._notice_count)
