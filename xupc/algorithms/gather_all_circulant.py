"""all_gather_all on a circulant graph of the nodes: each node broadcasts its blocks, all at once.

The blocks of each node are cut into n chunks. All nodes use the schedule of one broadcast, each as
its root: in the broadcast from node j, node v is at position v - j. So in each round a node sends
one message and receives one, with at most one chunk of each node. They need n - 1 + log2 N rounds:
log2 N messages in sequence for short blocks. Also where nodes have different numbers of threads, a
link carries nearly the fewest bytes::

    round     0      1      2
    node 0    4      3      1 2        N = 5, n = 1: the nodes whose blocks a node receives
    node 1    0      4      2 3
"""

from __future__ import annotations

from collections.abc import Iterator

from ..flags import MULTICORE
from ..plan.circulant import message, round_count, skip_of
from ..plan.patterns import filled
from ..plan.placement import MOST_BYTES, Facts
from ..plan.recorder import NODE, Operand, Recorder
from ..plan.steps import BlockRef, Blocks, Ranks
from .conditions import CallFacts, by_name
from .gather_all import InPlace, in_place
from .registry import algorithm
from .scatter import blocks_for

_SUMMARY = "Each node broadcasts its blocks in n chunks, all in the same n - 1 + log2 N rounds."

Piece = tuple[Ranks, int, int, int, int]
"""A run of threads, the first of its blocks, how many, the offset in each, the bytes of each."""


def _fits_a_message(call: CallFacts) -> bool:
    """Several nodes, at most 1 GiB of all threads' blocks."""
    return not call.one_node and call.nbytes * call.size <= MOST_BYTES


@algorithm(
    "gather_all", MULTICORE, "circulant", _SUMMARY, applies=_fits_a_message, preferred=by_name
)
def circulant(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Exchange messages between node roots; the threads of a node copy each round's chunks."""
    arrived = t.channel()
    t.ready(NODE, NODE, node_only=True)
    rounds = _Rounds(t, dst, src, nbytes)
    if t.me == t.node_root:
        with t.net():
            rounds.record(arrived)
    for run in t.node_ranks_but(t.me if isinstance(src, InPlace) else None):
        t.copy(blocks_for(dst, t.me, run, nbytes), src.across(run), nbytes, run.count)
    if t.me != t.node_root:
        rounds.pull(arrived)
    t.done(NODE, NODE, node_only=True)


algorithm(
    "gather_all_in_place", MULTICORE, "circulant", _SUMMARY, applies=_fits_a_message,
    preferred=by_name,
)(in_place(circulant))  # fmt: skip


def _chunk_count(t: Facts, nbytes: int) -> int:
    """Return into how many chunks the blocks of each node are cut.

    A round then has about `alltoall_chunk` bytes, and the plan at most `max_messages` chunks.
    """
    nodes, whole = t.tree.node_count, t.largest_node * nbytes
    wanted = whole * (nodes - 1) // t.tuning["alltoall_chunk"]
    return max(1, min(wanted, whole, t.tuning["max_messages"] // nodes))


class _Rounds:
    """Record the rounds of my node: what its root sends and receives, and what the others copy.

    In round i a node root posts its receive, waits for the messages of round i - 1, and sends. It
    never waits for its own round or a later one, so bounded windows cannot deadlock.
    """

    def __init__(self, t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
        self.t, self.dst, self.src, self.nbytes = t, dst, src, nbytes
        self.nodes, self.chunks = t.tree.node_count, _chunk_count(t, nbytes)
        self.count = round_count(self.nodes, self.chunks)
        self._cut: dict[int, list[list[Piece]]] = {}

    def record(self, arrived: int) -> None:
        """Record the messages of a node root, and a signal for each round that brings any chunk."""
        t, sent, received, words = self.t, tuple[int, ...](), tuple[int, ...](), 0
        for i in range(self.count + 1):
            before, received = received, self._receive(i)
            t.need(*before, *sent)
            if before:
                words += 1
                t.signal(arrived, t.node_ranks(), words)
            sent = self._send(i)

    def pull(self, arrived: int) -> None:
        """Copy each round's chunks from the node root."""
        t, rounds = self.t, map(self._landing, range(self.count))
        for word, coming in enumerate(filter(None, rounds), 1):
            t.turn(word)
            t.wait(arrived, t.node_root, word)
            for part, size, count, *_ in coming:
                t.copy(part, part._replace(thread=t.node_root), size, count)

    def _receive(self, i: int) -> tuple[int, ...]:
        """Post the receive of a round; return its ticket, if anything comes."""
        coming = self._landing(i)
        if not coming:
            return ()
        return (self.t.recv_blocks(self._root(-self._skip(i)), coming, bounded=False),)

    def _send(self, i: int) -> tuple[int, ...]:
        """Send the message of a round; return its ticket, if it has any chunk."""
        skip = self._skip(i)
        going = [self._here(*piece) for piece in self._pieces(i, self.t.my_node + skip)]
        return (self.t.send_blocks(self._root(skip), going),) if going else ()

    def _skip(self, i: int) -> int:
        return skip_of(i, self.nodes, self.chunks)

    def _root(self, distance: int) -> int:
        return self.t.tree.node_root((self.t.my_node + distance) % self.nodes)

    def _pieces(self, i: int, receiver: int) -> Iterator[tuple[int, Piece]]:
        """Yield what a node receives in round i: the nodes of origin and their pieces."""
        rounds = message(i, receiver, self.nodes, self.chunks) if i < self.count else ()
        for node, number in rounds:
            for piece in self._chunk(node, number):
                yield node, piece

    def _chunk(self, node: int, number: int) -> list[Piece]:
        """Return a chunk of a node's blocks; empty if the node has so few bytes."""
        if node not in self._cut:
            most = -(-self.t.tree.node_size(node) * self.nbytes // self.chunks)
            rows = [(run, run.count) for run in self.t.node_ranks(node)]
            self._cut[node] = list(filled(rows, self.nbytes, most))
        cut = self._cut[node]
        return cut[number] if number < len(cut) else []

    def _landing(self, i: int) -> list[Blocks]:
        """Return the places in my own dst of what my node receives in round i."""
        return [self._there(piece) for _, piece in self._pieces(i, self.t.my_node)]

    def _there(self, piece: Piece) -> Blocks:
        """Return the place of a piece in my own dst."""
        run, first, count, offset, size = piece
        step, rank = run.step * self.nbytes, run.first + first * run.step
        at = BlockRef(self.dst.index, self.t.me, rank * self.nbytes + offset, 0, step)
        return Blocks(at, size, count)

    def _here(self, node: int, piece: Piece) -> Blocks:
        """Return where a node root has a piece: my node's own blocks are on their threads."""
        if node != self.t.my_node:
            return self._there(piece)
        run, first, count, offset, size = piece
        return Blocks(self.src.across(run.cut(first, count), offset), size, count)
