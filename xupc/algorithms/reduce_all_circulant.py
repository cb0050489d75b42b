"""all_reduce_mpi_all on a circulant graph of the nodes: each node finishes a part of the result.

First come the rounds of `gather_all_circulant`, backwards: where a node would receive chunks of
some parts, it sends its values of them, and its partner combines these with its own. Then each node
has the result of its part, and the rounds of gather_all bring all parts to all nodes::

    round     0       1     2     3     4     5
    node 0    1 2     3     4     4     3     1 2      N = 5: the parts whose values a node sends,
    node 1    2 3     4     0     0     4     2 3      then those whose results it receives

That is 2 log2 N messages in sequence if parts are not cut. A link carries 2 (N-1)/N of the result.
Parts are cut in n chunks where a message would not fit the staging buffer. Values are combined in
the order of their arrival, so this is for operands in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from ..flags import MULTICORE
from ..plan.circulant import message, round_count, skip_of
from ..plan.placement import Facts
from ..plan.recorder import DST, NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef, Blocks
from .conditions import CallFacts, by_name
from .reduce_circulant import all_nodes_have_operands
from .reduce_pipeline import ReducePipeline
from .reduce_spec import Reduction, tree_of
from .registry import algorithm

__all__ = ["RoundsToAll"]

LANDINGS = 2
"""Arriving messages that a node root has places for."""

Span = tuple[int, int]
"""Elements ``begin .. end`` of the result."""


def _fits(call: CallFacts) -> bool:
    """Several nodes, all with operands, element by element in any order; room for two rounds."""
    return all_nodes_have_operands(call) and _chunk_count(call, call.arguments[0]) > 0


@algorithm(
    "reduce_mpi_all", MULTICORE, "circulant",
    "Each node finishes a part of the result; values and results take log2 N rounds each.",
    applies=_fits, preferred=by_name,
)  # fmt: skip
def to_all(t: Recorder, r: Reduction) -> None:
    """Reduce the parts in the rounds of gather_all, backwards; then gather them."""
    RoundsToAll(t, r).record()


def _grain(r: Reduction) -> int:
    """Return the elements of a cache line: parts begin at these."""
    return max(1, 64 // r.itemsize)


def _chunk_count(t: Facts, r: Reduction) -> int:
    """Return into how many chunks each part is cut; 0 if no number of them fits.

    A message then has about `alltoall_chunk` bytes, or the rounds would be more than
    `max_messages` for all nodes.
    """
    nodes, most = t.tree.node_count, t.tuning["max_messages"] // t.tree.node_count
    n = max(1, min(most, r.nbytes // t.tuning["alltoall_chunk"]))
    while not _message_fits(t, r, n):
        n *= 2
        if n > most or n * nodes > 2 * r.each:
            return 0
    return n


def _message_fits(t: Facts, r: Reduction, n: int) -> bool:
    """Return whether the largest messages of two rounds fit the staging buffer."""
    nodes, grain = t.tree.node_count, _grain(r)
    chunk = -(-r.each // (grain * nodes * n)) * grain * r.itemsize
    in_message = nodes - 1 if n > 1 else nodes // 2
    return LANDINGS * in_message * chunk <= t.tuning["staging_bytes"]


class RoundsToAll:
    """Record both halves. A node's values and results are in the dst of its node root.

    In each round a node root waits for messages of earlier rounds, and for its own receive of this
    one, which is open before it sends: so windows cannot lock.
    """

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.t, self.r = t, r
        self.nodes, self.n = t.tree.node_count, _chunk_count(t, r)
        self.count = round_count(self.nodes, self.n)
        uses = [span for i in self.backwards for span in (*self.sent(i), *self.combined(i))]
        spans = dict.fromkeys(uses)
        pieces = [(span, piece) for span in spans for piece in r.pieces(*span, r.nbytes)]
        self.making = ReducePipeline(t, r, [piece for _, piece in pieces], t.node_root)
        self.numbers: dict[Span, list[int]] = {span: [] for span in spans}
        for i, (span, _) in enumerate(pieces):
            self.numbers[span].append(i)
        self.arrived = t.channel()

    @property
    def backwards(self) -> Iterator[int]:
        """Yield the rounds of the first half."""
        return reversed(range(self.count))

    def span(self, node: int, chunk: int) -> Span:
        """Return the elements of a chunk of a node's part."""
        r, grain, g = self.r, _grain(self.r), node * self.n + chunk
        grains, cuts = -(-r.each // grain), self.nodes * self.n
        begin, end = (min(r.each, grains * k // cuts * grain) for k in (g, g + 1))
        return begin, end

    def received_by(self, node: int, i: int) -> list[Span]:
        """Return what a node receives in a round of gather_all, without empty chunks."""
        if i >= self.count:
            return []
        hops = message(i, node, self.nodes, self.n)
        spans = (self.span(hop.peer, hop.chunk) for hop in hops)
        return [(begin, end) for begin, end in spans if begin < end]

    def sent(self, i: int) -> list[Span]:
        """Return what my node sends in a round of the first half."""
        return self.received_by(self.t.my_node, i)

    def combined(self, i: int) -> list[Span]:
        """Return what my node combines in a round of the first half."""
        return self.received_by(self.partner(i), i)

    def partner(self, i: int) -> int:
        """Return the node to which mine sends in a round of gather_all."""
        return (self.t.my_node + skip_of(i, self.nodes, self.n)) % self.nodes

    def other(self, i: int) -> int:
        """Return the node from which mine receives in a round of gather_all."""
        return (self.t.my_node - skip_of(i, self.nodes, self.n)) % self.nodes

    @cached_property
    def words(self) -> list[list[Span]]:
        """Return what becomes complete on my node, in the order of the signals."""
        own = [self.span(self.t.my_node, chunk) for chunk in range(self.n)]
        rounds = (self.received_by(self.t.my_node, i) for i in range(self.count))
        words = ([(b, e) for b, e in own if b < e], *rounds)
        return [joined(word) for word in words if word]

    def place(self, begin: int, thread: int | None = None) -> BlockRef:
        """Return the place of results from an element on, on my node root or on a thread."""
        on = self.t.node_root if thread is None else thread
        return DST.on(on, begin * self.r.itemsize)

    def nbytes(self, spans: Iterable[Span]) -> int:
        """Return the bytes of some elements."""
        return sum(end - begin for begin, end in spans) * self.r.itemsize

    def record(self) -> None:
        """Record the steps of every thread."""
        t, making = self.t, self.making
        t.ready(NODE, NODE, node_only=True)
        if t.me == t.node_root:
            with t.net():
                _Halves(self).record()
        for i, piece in making.mine():
            making.make(i, piece, self.place(piece[0]))
        if t.me != t.node_root:
            self._pull()
        t.done(NODE, NODE, node_only=True)

    def _pull(self) -> None:
        """Copy results from the node root as they become complete."""
        t = self.t
        for word, spans in enumerate(self.words, 1):
            t.turn(word)
            t.wait(self.arrived, t.node_root, word)
            for begin, end in spans:
                t.copy(self.place(begin, t.me), self.place(begin), self.nbytes([(begin, end)]))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans with neighbours joined.

    >>> joined([(8, 10), (0, 3), (3, 5)])
    [(8, 10), (0, 5)]
    """
    found: list[Span] = []
    for begin, end in spans:
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


class _Halves:
    """Record the messages and folds of a node root."""

    def __init__(self, way: RoundsToAll) -> None:
        self.way, self.t = way, way.t
        self.pending: tuple[int, ...] = ()  # the open send
        self.made: set[Span] = set()
        self.word = 0

    def record(self) -> None:
        """Record the first half, then the second one."""
        self._reduce()
        self.t.need(*self.pending)
        self.pending = ()
        if any(begin < end for begin, end in self._own()):
            self._notify()
        self._gather()

    def _own(self) -> list[Span]:
        way = self.way
        return [way.span(self.t.my_node, chunk) for chunk in range(way.n)]

    def _notify(self) -> None:
        """Signal my node's threads that more of the result is complete."""
        self.word += 1
        self.t.signal(self.way.arrived, self.t.node_ranks_but(self.t.me), self.word)

    def _reduce(self) -> None:
        """Send values of others' parts, and combine what arrives with mine."""
        way, after = self.way, self._open(self.way.count - 1)
        for i in way.backwards:
            self._send(way.other(i), way.sent(i))
            ticket, after = after, self._open(i - 1)
            self.t.need(*ticket)
            self._combine(i)

    def _landing(self, i: int) -> BlockRef:
        """Return the place at which the values of a round arrive."""
        half = self.t.tuning["staging_bytes"] // LANDINGS // 64 * 64
        return Operand(STAGING).on(self.t.me, i % LANDINGS * half)

    def _open(self, i: int) -> tuple[int, ...]:
        """Post the receive of a round of the first half; return its ticket, if anything comes."""
        way, coming = self.way, self.way.combined(i) if i >= 0 else []
        if not coming:
            return ()
        of = self.t.tree.node_root(way.partner(i))
        return (self.t.recv(of, self._landing(i), way.nbytes(coming), bounded=False),)

    def _make(self, spans: Iterable[Span]) -> None:
        """Wait until my node's values are folded."""
        making = self.way.making
        for span in spans:
            if span not in self.made:
                self.made.add(span)
                for i in self.way.numbers[span]:
                    making.wait(i)

    def _send(self, node: int, spans: list[Span], *, values: bool = True) -> None:
        """Send values or results when the message before has left."""
        t, way = self.t, self.way
        t.need(*self.pending)
        self.pending = ()
        if values:
            self._make(spans)
        if spans:
            rows = [Blocks(way.place(b), way.nbytes([(b, e)])) for b, e in joined(spans)]
            self.pending = (t.send_blocks(t.tree.node_root(node), rows),)

    def _combine(self, i: int) -> None:
        """Combine the values that arrived in a round with those of my node."""
        way, spans = self.way, self.way.combined(i)
        self._make(spans)
        landing = self._landing(i)
        for begin, end in joined(spans):
            here = way.place(begin)
            self.t.fold(here, tree_of([here, landing]), end - begin)
            landing += way.nbytes([(begin, end)])

    def _gather(self) -> None:
        """Send my node's part to all nodes, and receive theirs."""
        t, way = self.t, self.way
        received: tuple[int, ...] = ()
        for i in range(way.count + 1):
            before, received = received, self._receive(i)
            t.need(*before)
            if before:
                self._notify()
            self._send(way.partner(i), way.received_by(way.partner(i), i), values=False)

    def _receive(self, i: int) -> tuple[int, ...]:
        """Post the receive of a round of the second half."""
        t, way, spans = self.t, self.way, self.way.received_by(self.t.my_node, i)
        if not spans:
            return ()
        rows = [Blocks(way.place(b), way.nbytes([(b, e)])) for b, e in joined(spans)]
        return (t.recv_blocks(t.tree.node_root(way.other(i)), rows, bounded=False),)
