"""reduce_scatter on a circulant graph of the nodes: log2 N messages in sequence.

Node roots reduce the blocks of their nodes, as in `values_reduce_scatter.ByNodes`. Then they
exchange the partial results in the rounds of `gather_all_circulant`, with one chunk per node and
backwards: where a node would receive the blocks of some nodes, it sends its partial results for
them, and its partner combines these with its own. (N-1)/N of the data of one thread leave a node.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..flags import MULTICORE
from ..plan.circulant import message, round_count, skip_of
from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, Blocks
from .conditions import CallFacts, by_name
from .reduce_scatter import SharedByNodes
from .reduce_spec import tree_of
from .registry import algorithm
from .values_reduce_scatter import ByNodes, ReduceScatter, by_nodes

_SUMMARY = "As `nodes`, but node roots exchange and combine partial results in log2 N rounds."

Run = tuple[int, int]
"""Neighbouring nodes: the first one, and the one behind the last."""


def _in_any_order(call: CallFacts) -> bool:
    """Several nodes, operands in any order, and room for a unit."""
    r: ReduceScatter = call.arguments[0]
    return by_nodes(call) and not r.exact


@algorithm(
    "reduce_scatter", MULTICORE, "circulant", _SUMMARY, applies=_in_any_order, preferred=by_name
)
def shared(t: Recorder, r: ReduceScatter) -> None:
    """Reduce the blocks of each node on its node root."""
    _SharedInRounds(t, r).record()


@algorithm(
    "allav_reduce_scatter", MULTICORE, "circulant", _SUMMARY, applies=_in_any_order,
    preferred=by_name,
)  # fmt: skip
def private(t: Recorder, r: ReduceScatter) -> None:
    """Reduce the staged blocks of each node on its node root."""
    _InRounds(t, r).record()


class _InRounds(ByNodes):
    """Exchange the partial results of a unit in rounds.

    In all rounds together a row arrives for each other node. So all have a place of their own, and
    their receives are open from the start.
    """

    leads = False
    """A barrier of node roots carries no message that depends on another one."""

    def _post(self, u: int) -> list[int]:
        """Reduce my node's blocks, and carry out all rounds; return the tickets of the sends."""
        t, nodes = self.t, self.t.tree.node_count
        rounds = range(round_count(nodes, 1))[::-1]
        landing, tickets, places = self._sums(u, 0) + t.size * self.units[u][1], [], []
        for i in rounds:
            partner = (t.my_node + skip_of(i, nodes, 1)) % nodes
            nbytes = sum(self._nbytes(u, run) for run in self._runs(i, partner))
            tickets.append(t.recv(t.tree.node_root(partner), landing, nbytes, bounded=False))
            places.append(landing)
            landing += nbytes
        self._reduce(u, [int(x) for x in t.tree.members(t.my_node)])
        sent = []
        for i, ticket, place in zip(rounds, tickets, places, strict=True):
            sent.append(self._send(u, i))
            t.need(ticket)
            self._combine(u, i, place)
        return sent

    def _finish(self, u: int) -> list[int]:
        """Do nothing: the rounds leave the results in their places."""
        return []

    def _runs(self, i: int, node: int) -> Iterator[Run]:
        """Yield the nodes whose blocks a node would receive in a round of gather_all."""
        found = [hop.peer for hop in message(i, node, self.t.tree.node_count, 1)]
        first = 0
        for k in range(1, len(found) + 1):
            if k == len(found) or found[k] != found[k - 1] + 1:
                yield found[first], found[k - 1] + 1
                first = k

    def _nbytes(self, u: int, run: Run) -> int:
        """Return the bytes of a unit for the threads of some nodes."""
        return (self.starts[run[1]] - self.starts[run[0]]) * self.units[u][1]

    def _send(self, u: int, i: int) -> int:
        """Send my node's partial results for some nodes; they are complete."""
        t, nodes = self.t, self.t.tree.node_count
        to = t.tree.node_root((t.my_node - skip_of(i, nodes, 1)) % nodes)
        rows = [
            Blocks(self._sums(u, run[0]), self._nbytes(u, run)) for run in self._runs(i, t.my_node)
        ]
        return t.send_blocks(to, rows)

    def _combine(self, u: int, i: int, landing: BlockRef) -> None:
        """Combine what arrived in a round with my node's own."""
        t, nodes = self.t, self.t.tree.node_count
        for run in self._runs(i, (t.my_node + skip_of(i, nodes, 1)) % nodes):
            sums, nbytes = self._sums(u, run[0]), self._nbytes(u, run)
            t.fold(sums, tree_of([sums, landing]), nbytes // self.r.itemsize)
            landing += nbytes


class _SharedInRounds(_InRounds, SharedByNodes):
    """Read my node's blocks where they are."""
