"""allav_gather_all on a circulant graph of the nodes: log2 N messages in sequence.

Threads hand their blocks to their node root in units, as in `values_across_nodes`. Node roots
exchange each unit in the rounds of `gather_all_circulant`, with one chunk per node: what arrived in
earlier rounds is sent again from its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..plan.circulant import message, round_count, skip_of
from ..plan.recorder import Recorder
from ..plan.steps import Blocks
from .conditions import CallFacts
from .node_relay import Relay
from .private_staging import LINE, TransferSpec
from .values_across_nodes import AllToAll

__all__ = ["gather_all", "unit_fits"]


def unit_fits(call: CallFacts) -> bool:
    """Several nodes, and room for a cache line of each thread's block of all nodes."""
    n, most = call.tree.node_count, call.largest_node
    return n > 1 and Relay.fits(call, (n - 1) * most * LINE)


def gather_all(t: Recorder, m: TransferSpec) -> None:
    """Exchange the blocks of each unit between node roots in rounds."""
    _InRounds(t, m).record()


class _InRounds(AllToAll):
    """Record units that have a part of all blocks."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        super().__init__(t, m)
        self.relay.crossing = None  # no barrier can carry messages that depend on others

    def _cut(self, block: int) -> tuple[int, int]:
        """Return that a unit has all rounds, and how many bytes of each block."""
        n, relay = self.t.tree.node_count, self.relay
        if relay.out.short:
            return n, block
        room = relay.landing.width // self.t.largest_node // (n - 1)
        return n, min(max(LINE, room // LINE * LINE), relay.out.width, block)

    def _post(self, u: int) -> list[int]:
        """Carry out all rounds but the last receive; return the tickets that are open."""
        t, n = self.t, self.t.tree.node_count
        received, sent = [], []
        for i in range(round_count(n, 1)):
            of = (t.my_node - skip_of(i, n, 1)) % n
            coming = self._rows(u, (hop.peer for hop in message(i, t.my_node, n, 1)))
            received.append(t.recv_blocks(t.tree.node_root(of), coming, bounded=False))
        for i, ticket in enumerate(received):
            to = (t.my_node + skip_of(i, n, 1)) % n
            going = self._rows(u, (hop.peer for hop in message(i, to, n, 1)))
            sent.append(t.send_blocks(t.tree.node_root(to), going))
            if i + 1 < len(received):
                t.need(ticket)
        return [*sent, received[-1]]

    def _rows(self, u: int, nodes: Iterable[int]) -> list[Blocks]:
        """Return where the blocks of some nodes are on my node: its own ones are staged."""
        t, size, rows = self.t, self.units[u][1][3], list[Blocks]()
        each = t.largest_node * size
        for node in nodes:
            if node == t.my_node:
                own = (Blocks(self.relay.out.across(x, u), size, x.count) for x in t.node_ranks())
                rows += own
            else:
                at = (node - t.my_node - 1) % t.tree.node_count * each
                place = self.relay.landing.on(t.me, u, at)
                rows.append(Blocks(place, t.tree.node_size(node) * size))
        return _joined(rows)


def _joined(rows: Iterable[Blocks]) -> list[Blocks]:
    """Join single blocks that follow each other in one thread's memory."""
    found: list[Blocks] = []
    for row in rows:
        last = found[-1] if found else None
        if last and last.columns == row.columns == 1 and last.part + last.nbytes == row.part:
            found[-1] = last._replace(nbytes=last.nbytes + row.nbytes)
        else:
            found.append(row)
    return found
