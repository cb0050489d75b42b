"""all_broadcast in the fewest rounds: chunks travel on a circulant graph of the nodes.

Each node sends and receives at most one chunk per round, with another partner in each of log2 N
rounds (`plan/circulant.py`). n chunks take n - 1 + log2 N rounds on any number N of nodes, where a
chain takes n + N - 2. Chunks arrive in another order on each node; the plans of its threads follow
that order::

    round     0   1   2   3   4        N = 5, chunks 0 to 2, root on node 0
    node 1            2   1   0
    node 2    0           2   1        the chunk that a node receives
    node 3        1   0       2
    node 4            1   0   2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..flags import MULTICORE
from ..plan.circulant import Hop, keeps_rounds, rounds
from ..plan.patterns import chunks, rotate
from ..plan.recorder import NODE, Operand, Recorder
from ..plan.steps import BlockRef
from .conditions import by_name, on_several_nodes
from .registry import algorithm

__all__ = ["Crossing", "NodeMessages", "batched"]

Part = tuple[int, int]
"""A chunk: its offset and its bytes."""


@algorithm(
    "broadcast", MULTICORE, "circulant",
    "Chunks go to log2 N nodes in turn, in the fewest rounds for any number N of nodes.",
    applies=on_several_nodes, preferred=by_name,
)  # fmt: skip
def circulant(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Exchange chunks between node roots; each node copies them as they arrive."""
    node_source, arrived = t.acting_root(t.my_node, root), t.channel()
    parts = chunks(nbytes, t.chunk(nbytes))
    crossing, per_word = Crossing(t, root, parts), t.notify_interval(parts[0][1]) // parts[0][1]

    def signal(i: int) -> None:
        """Signal each word, some chunks together, when its last chunk has arrived."""
        if not t.on_my_node(root) and ((i + 1) % per_word == 0 or i + 1 == len(parts)):
            t.signal(arrived, t.node_ranks(), i // per_word + 1)

    if t.on_my_node(root):
        t.ready(root, NODE, node_only=True)
    if t.me == node_source:
        source = src.on(root) if t.on_my_node(root) else dst.on(t.me)
        NodeMessages(t, crossing, dst, source, signal).record()
    if t.on_my_node(root):
        if not (in_place and t.me == root):
            for offset, size in parts:
                t.copy(dst.on(t.me, offset), src.on(root, offset), size)
    elif t.me != node_source:
        for word, some in enumerate(batched(crossing.order, per_word), 1):
            t.turn(word)
            t.wait(arrived, node_source, word)
            for offset, size in (parts[chunk] for chunk in some):
                t.copy(dst.on(t.me, offset), dst.on(node_source, offset), size)
    t.done(NODE, node_source, node_only=True)


def batched(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the numbers of an order in groups of `size`; the last one may be shorter."""
    return (order[first : first + size] for first in range(0, len(order), size))


class Crossing:
    """The chunks of a block that cross between nodes, as my node sees them.

    Attributes
    ----------
    parts
        All chunks.
    rounds
        What my node does in each round.
    incoming
        Its receives, in the order of the rounds; none on the root's node.
    order
        The chunks in the order in which my node has them.
    """

    def __init__(self, t: Recorder, root: int, parts: list[Part]) -> None:
        self.parts = parts
        nodes, first = t.tree.node_count, t.tree.node_of(root)
        self.rounds = list(rounds(rotate(t.my_node, first, nodes), nodes, len(parts)))
        self.incoming = [step.recv for step in self.rounds if step.recv is not None]
        self.order = [hop.chunk for hop in self.incoming] or list(range(len(parts)))
        self.t, self.root, self.first = t, root, first

    def end(self, hop: Hop) -> tuple[int, int, int]:
        """Return the thread at the other end of a message, its offset and its bytes."""
        node = (hop.peer + self.first) % self.t.tree.node_count
        return self.t.acting_root(node, self.root), *self.parts[hop.chunk]


class NodeMessages:
    """Record the messages of a node's acting root.

    One send is open at a time. A node that sends ahead of its round would occupy its receiver when
    the message of an earlier round is due there, and all later rounds would be late. A node may be
    ahead, too, because it has nothing to receive in some rounds. So a send also waits for all
    messages of earlier rounds, unless the number of nodes is a power of two: there nodes keep to
    their rounds by themselves, and the latency of some messages is hidden. A send waits for
    messages of earlier rounds only, and the receive of each round is open before its send: so
    windows cannot lock.

    Parameters
    ----------
    dst, source
        Where chunks arrive, and from where they are sent.
    arrived
        Called, in the net lane, when the chunk at a place of `Crossing.order` can be read.
    """

    def __init__(
        self, t: Recorder, crossing: Crossing, dst: Operand, source: BlockRef,
        arrived: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.t = t
        self.crossing = crossing
        self.dst = dst
        self.source = source
        self.arrived = arrived
        self.place = {chunk: i for i, chunk in enumerate(crossing.order)}
        self.tickets: list[int] = []
        self.sent: list[int] = []
        self.taken = 0

    def record(self) -> None:
        """Record all rounds."""
        t, passed, ahead = self.t, 0, keeps_rounds(self.t.tree.node_count)
        with t.net():
            for step in self.crossing.rounds:
                self._post(passed + t.tuning["window"])
                if step.send is not None:
                    self._send(step.send, 0 if ahead else passed)
                passed += step.recv is not None
            self._take(len(self.place))

    def _send(self, hop: Hop, passed: int) -> None:
        """Send a chunk that has arrived; the root sends each before its node reads it.

        `passed`: the number of messages for which it waits in any case.
        """
        t, here = self.t, self.place[hop.chunk] + 1
        to, offset, size = self.crossing.end(hop)
        if self.crossing.incoming:
            self._take(max(here, passed))
        t.need(*self.sent)
        self.sent = [t.send(to, self.source + offset, size)]
        self._take(here)

    def _post(self, count: int) -> None:
        """Open receives until there are so many."""
        for hop in self.crossing.incoming[len(self.tickets) : count]:
            of, offset, size = self.crossing.end(hop)
            ticket = self.t.recv(of, self.dst.on(self.t.me, offset), size, bounded=False)
            self.tickets.append(ticket)

    def _take(self, count: int) -> None:
        """Wait for so many chunks in all, in the order of the rounds."""
        for i in range(self.taken, count):
            if self.crossing.incoming:
                self.t.need(self.tickets[i])
            self.arrived(i)
        self.taken = max(self.taken, count)
