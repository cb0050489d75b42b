"""all_reduce_mpi on a circulant graph of the nodes: the rounds of a broadcast, backwards.

Where a broadcast sends a chunk from node v to node w, the reduction sends w's value of the piece to
v, which combines it with its own. In a broadcast a node receives each chunk once, before it sends
it. So here a node sends its value of each piece once, after it has combined what it receives::

    round     0   1   2   3   4        N = 5, pieces 0 to 2, the result on node 0
    node 1    0   1   2
    node 2    1   2           0        the piece that a node sends
    node 3    2       0   1
    node 4    2   0   1

n pieces take n - 1 + log2 N rounds, a chain n + N - 2. Values are combined in the order of their
arrival, so these variants are for operands in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ..flags import MULTICORE
from ..plan.circulant import Hop, Round, keeps_rounds, rounds, skips
from ..plan.patterns import rotate
from ..plan.recorder import DST, NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef
from .conditions import CallFacts, by_name
from .private_staging import LINE
from .reduce_pipeline import ReducePipeline
from .reduce_spec import Piece, Reduction, tree_of
from .registry import algorithm

__all__ = ["RoundsToOne", "all_nodes_have_operands"]

LANDINGS = 3
"""Arriving values that a node root has places for."""


def all_nodes_have_operands(call: CallFacts) -> bool:
    """Several nodes that all have operands, element by element in any order."""
    r: Reduction = call.arguments[0]
    if call.one_node or not r.element_wise or r.ordered or r.exact or r.itemsize > LINE:
        return False
    fewest = min(blocks for _, _, blocks in r.ranges(0, r.each))
    threads = (r.layout.first + np.arange(r.positions(fewest))) % call.size
    return bool(np.unique(call.tree.node_index[threads]).size == call.tree.node_count)


@algorithm(
    "reduce_mpi", MULTICORE, "circulant",
    "Pieces come from log2 N nodes in turn, in the fewest rounds for any number N of nodes.",
    applies=all_nodes_have_operands, preferred=by_name,
)  # fmt: skip
def to_one(t: Recorder, r: Reduction) -> None:
    """Send pieces against the direction of a broadcast from the receiver's node."""
    RoundsToOne(t, r).record()


def places_needed(p: int) -> int:
    """Return how many values a node has at most between its first use of one and its sending.

    It counts them in the order of their first uses. `tests/unit/test_circulant.py` finds at most
    ``1 + log2 p`` of them if values are combined at once; the rest is a reserve.
    """
    return 2 * (len(skips(p)) - 1) + LANDINGS


def first_uses(steps: Iterable[Round]) -> list[int]:
    """Return the pieces in the order in which a node sends or combines them first."""
    hops = (hop for step in steps for hop in (step.recv, step.send) if hop is not None)
    return list(dict.fromkeys(hop.chunk for hop in hops))


class RoundsToOne:
    """Record a reduction to one node in the rounds of a broadcast from it, backwards.

    The threads of a node fold its pieces into their staging buffers, in the order of their first
    uses. The node source combines what arrives into these places. A place is used again when its
    value has been sent. One send is open at a time, and it waits for messages of earlier rounds, as
    in `broadcast_circulant.NodeMessages`. The receive of each round is open before its send: so
    windows cannot lock.
    """

    def __init__(self, t: Recorder, r: Reduction) -> None:
        assert r.to is not None
        self.t, self.r, self.to = t, r, r.to
        self.nodes, self.home = t.tree.node_count, t.tree.node_of(r.to)
        self.node_source = t.acting_root(t.my_node, r.to)
        self.width = self._width()
        self.pieces = r.pieces(0, r.each, self.width)
        v = rotate(t.my_node, self.home, self.nodes)
        self.steps = list(rounds(v, self.nodes, len(self.pieces)))[::-1]
        order = first_uses(self.steps)
        self.number = {chunk: i for i, chunk in enumerate(order)}
        self.making = ReducePipeline(t, r, [self.pieces[c] for c in order], self.node_source)
        self.used = t.channel()

    def _width(self) -> int:
        """Return the bytes of the largest piece."""
        t, r = self.t, self.r
        room = t.tuning["staging_bytes"] // (self._depth(1) + LANDINGS)
        half = max(r.nbytes // 2, t.tuning["pipeline_min"])
        return t.unit(r.nbytes, min(half, room))

    def _depth(self, makers: int) -> int:
        """Return how many places each of so many threads needs, one of them to fold ahead."""
        return -(-places_needed(self.nodes) // makers) + 2

    @cached_property
    def depth(self) -> int:
        """Return the places of each thread of my node that folds pieces."""
        return self._depth(len(self.making.mates))

    @cached_property
    def notices(self) -> int:
        """Return the notices to my node's threads: of turns whose places are used again, and one.

        After the last one no thread reads a staging buffer any more.
        """
        turns = self.making.turn(self.making.there - 1) + 1
        return max(0, turns - self.depth) + 1

    def record(self) -> None:
        """Record the steps of every thread."""
        t, making = self.t, self.making
        t.ready(NODE, NODE, node_only=True)
        if t.me == self.node_source:
            with t.net():
                _Messages(self).record()
        mine = list(making.mine())
        for i, piece in mine:
            if (before := making.turn(i) - self.depth) >= 0:  # its place must be free
                t.wait(self.used, self.node_source, before + 1)
            making.make(i, piece, self.place(i))
        if mine:
            t.wait(self.used, self.node_source, self.notices)
        t.done(NODE, NODE, node_only=True)

    def place(self, i: int) -> BlockRef:
        """Return the place of my node's value number `i`."""
        at = self.making.turn(i) % self.depth * self.width
        return Operand(STAGING).on(self.making.maker(i), at)


class _Messages:
    """Record the messages and folds of a node source, and the notices to its threads."""

    def __init__(self, way: RoundsToOne) -> None:
        self.way, self.t, self.making = way, way.t, way.making
        self.incoming = [step.send for step in way.steps if step.send is not None]
        self.tickets: list[int] = []
        self.combined = 0
        self.last = {hop.chunk: i for i, hop in enumerate(self.incoming)}
        self.sent: tuple[int, int] | None = None  # the open send, and the number of its value
        self.made: set[int] = set()
        self.used: set[int] = set()
        self.prefix = 0  # values of which none is in use any more, in the order of first uses

    def record(self) -> None:
        """Record all rounds."""
        passed, ahead = 0, LANDINGS - 1 if keeps_rounds(self.way.nodes) else 0
        for step in self.way.steps:
            self._combine(passed - ahead)
            self._post(self.combined + LANDINGS)
            if step.recv is not None:
                self._send(step.recv)
            passed += step.send is not None
        self._combine(passed)
        self._sent()

    def _root(self, v: int) -> int:
        """Return the thread that sends and receives for the node at a position."""
        way = self.way
        return self.t.acting_root((way.home + v) % way.nodes, way.to)

    def _piece(self, chunk: int) -> tuple[int, Piece, int]:
        """Return the number of a piece, the piece itself and its bytes."""
        piece = self.way.pieces[chunk]
        return self.way.number[chunk], piece, (piece[1] - piece[0]) * self.way.r.itemsize

    def _landing(self, k: int) -> BlockRef:
        """Return the place of an arriving value, behind my own pieces."""
        return Operand(STAGING).on(self.t.me, (self.way.depth + k % LANDINGS) * self.way.width)

    def _post(self, count: int) -> None:
        """Open receives until there are so many."""
        for k in range(len(self.tickets), min(count, len(self.incoming))):
            hop = self.incoming[k]
            nbytes = self._piece(hop.chunk)[2]
            of = self._root(hop.peer)
            self.tickets.append(self.t.recv(of, self._landing(k), nbytes, bounded=False))

    def _make(self, i: int) -> None:
        """Wait, before the first use of a value, until my node's threads have folded it."""
        if i not in self.made:
            self.made.add(i)
            self.making.wait(i)

    def _send(self, hop: Hop) -> None:
        """Send my node's value of a piece, when all that came is combined with it."""
        i, _, nbytes = self._piece(hop.chunk)
        self._combine(self.last.get(hop.chunk, -1) + 1)
        self._sent()
        self._make(i)
        self.sent = self.t.send(self._root(hop.peer), self.way.place(i), nbytes), i

    def _sent(self) -> None:
        """Wait for the open send; its place may be used again."""
        if self.sent is not None:
            ticket, i = self.sent
            self.t.need(ticket)
            self.sent = None
            self._free(i)

    def _combine(self, count: int) -> None:
        """Combine arriving values with those of my node until there are so many."""
        for k in range(self.combined, count):
            chunk = self.incoming[k].chunk
            i, (begin, end, _), _ = self._piece(chunk)
            self.t.need(self.tickets[k])
            self._make(i)
            final = self.t.me == self.way.to and self.last[chunk] == k
            here, into = self.way.place(i), DST.on(self.t.me, begin * self.way.r.itemsize)
            self.t.fold(into if final else here, tree_of([here, self._landing(k)]), end - begin)
            if final:
                self._free(i)
        self.combined = max(self.combined, count)

    def _free(self, i: int) -> None:
        """Notify my node's threads of the turns whose places are all free, and of the end."""
        way, making = self.way, self.making
        self.used.add(i)
        while self.prefix in self.used:
            turn, self.prefix = making.turn(self.prefix), self.prefix + 1
            if self.prefix == making.there:
                self.t.signal(way.used, making.makers, way.notices)
            elif making.turn(self.prefix) > turn and turn + 1 < way.notices:
                self.t.signal(way.used, making.makers, turn + 1)
