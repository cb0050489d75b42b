"""MULTICORE gather_all, exchange and permute of arrays of values across nodes.

Each function is a whole algorithm, recorded on every thread; `values` registers them. Threads
and node roots hand blocks to each other by a `Relay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.patterns import chunks, pieces
from ..plan.recorder import Operand, Recorder
from ..plan.steps import Blocks, Ranks
from .node_relay import SMALL_PIECE, Relay
from .private_staging import LINE, TransferSpec, Unit, units_of, within

__all__ = ["AllToAll", "all_to_all", "permute"]


# --- gather_all and exchange ------------------------------------------------------------------
def all_to_all(t: Recorder, m: TransferSpec) -> None:
    """Send blocks in rounds: in round k a node root sends those for the node k places ahead.

    A unit is several rounds of short blocks, or a part of the blocks of one round of long ones.
    Round 0 stays inside the node::

        node 0   [0]   [1]->   [2]->       N = 3; [x]: what is for node x (gather_all: the same)
        node 1   [1]   [2]->   [0]->
    """
    AllToAll(t, m).record()


class AllToAll:
    """Record the units of `all_to_all`: some rounds, and a part of the blocks of each."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        self.t, self.m = t, m
        n, most = t.tree.node_count, t.largest_node
        each = most if m.by_target else 1  # blocks that a thread has for a node
        block = each * m.nbytes
        out, landing = block * (n if m.by_target else 1), block * self.rows(n) * most
        self.relay = Relay(t, out, landing, m.nbytes * t.size * most)
        self.message = t.message(block, "alltoall_chunk")
        rounds, width = self._cut(block)
        whole = rounds > 1 and m.by_target
        parts = [(0, each, 0, m.nbytes)] if whole else units_of(each, m.nbytes, width)
        self.units = [
            (range(k, min(k + rounds, n)), part) for part in parts for k in range(0, n, rounds)
        ]

    @staticmethod
    def rows(nodes: int) -> int:
        """Return the number of nodes whose blocks a node root has a place for."""
        return nodes - 1

    def _cut(self, block: int) -> tuple[int, int]:
        """Return how many rounds a unit has, and how many bytes a thread stages for one node."""
        n, relay = self.t.tree.node_count, self.relay
        if relay.out.short:
            return n, block
        room = relay.landing.width // self.t.largest_node
        if self.m.by_target:
            width = min(relay.out.width, room)
            return max(1, min(n, width // block)), width
        # the same staged blocks serve all rounds
        width = max(room // (n - 1) // LINE * LINE, min(room, SMALL_PIECE))
        width = min(width, relay.out.width, block)
        return n if width * (n - 1) <= room else room // width, width

    def record(self) -> None:
        """Record all units."""
        self.relay.run(len(self.units), self._stage, self._post, self._take)

    def _count(self, node: int, part: Unit) -> int:
        """Return how many blocks of a unit a thread has for a node."""
        if not self.m.by_target:
            return 1
        return min(part[1], max(0, self.t.tree.node_size(node) - part[0]))

    def _stage(self, u: int) -> None:
        t, m, out = self.t, self.m, self.relay.out
        rounds, (first, blocks, offset, size) = self.units[u]
        if not m.by_target:
            t.copy(out.on(t.me, u), m.of(t, Ranks(t.me), offset), size)
            return
        rows = _Rows(size)  # the places of blocks, and their receivers
        for i, k in enumerate(rounds):
            node = (t.my_node + k) % t.tree.node_count
            rows.add(i * blocks * size, within(t, node, first, blocks))
        for at, run in rows:
            place = out.on(t.me, u, at)._replace(offset_step=size)
            t.copy(place, m.of(t, run, offset), size, run.count)

    def _post(self, u: int) -> list[int]:
        t, n, tickets = self.t, self.t.tree.node_count, list[int]()
        rounds, part = self.units[u]
        blocks, size = part[1], part[3]
        sent = range(max(rounds[0], 1), rounds[-1] + 1)
        each = t.largest_node * blocks * size
        row = self._count(t.my_node, part) * size  # from a thread of another node
        for i, roots, threads in _together(t, [(t.my_node - k) % n for k in reversed(sent)]):
            for first, count, offset, nbytes in self._messages(threads, row):
                place = self.relay.landing.on(t.me, u, i * each + first * row + offset)
                tickets.append(
                    t.recv(roots, place, count * nbytes, peer_step=each, bounded=False)
                )
        for k in sent:
            node = (t.my_node + k) % n
            row = self._count(node, part) * size
            at = (k - rounds[0]) * blocks * size if self.m.by_target else 0
            for first, count, offset, nbytes in self._messages(t.tree.node_size(t.my_node), row):
                rows = [
                    Blocks(self.relay.out.across(x, u, at + offset), nbytes, x.count)
                    for x in within(t, t.my_node, first, count)
                ]
                tickets.append(t.send_blocks(t.tree.node_root(node), rows))
        return tickets

    def _messages(self, threads: int, row: int) -> Iterable[Unit]:
        """Return the messages into which the blocks of one node for another one are cut."""
        return pieces(threads, row, self.message) if row else ()

    def _take(self, u: int) -> None:
        t, m = self.t, self.m
        rounds, part = self.units[u]
        first, _, offset, size = part
        place = t.tree.local_index(t.me) - first if m.by_target else 0
        if not 0 <= place < self._count(t.my_node, part):
            return
        for run in t.node_ranks() if not rounds[0] else ():
            row = self.relay.out.across(run, u, place * size)
            t.copy(m.to(t, run, offset), row, size, run.count)
        self._take_arrived(u, place, t.node_root)

    def _take_arrived(self, u: int, place: int, of: int) -> None:
        """Copy the blocks of other nodes from where they are on a thread of mine."""
        t, m = self.t, self.m
        rounds, part = self.units[u]
        _, blocks, offset, size = part
        mine = self._count(t.my_node, part)
        rows = _Rows(mine * size)  # the places of blocks, and their senders
        for i, k in enumerate(range(rounds[-1], max(rounds[0], 1) - 1, -1)):
            at = i * t.largest_node * blocks * size + place * size
            rows.add(at, t.node_ranks((t.my_node - k) % t.tree.node_count))
        for at, run in rows:
            row = self.relay.landing.on(of, u, at)._replace(offset_step=mine * size)
            t.copy(m.to(t, run, offset), row, size, run.count)


class _Rows:
    """Join runs of threads whose blocks are `each` bytes apart, to as few runs as possible."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._rows: list[tuple[int, Ranks]] = []

    def __iter__(self) -> Iterator[tuple[int, Ranks]]:
        return iter(self._rows)

    def add(self, at: int, runs: Iterable[Ranks]) -> None:
        """Add the blocks of runs that are in a row from a place on."""
        for run in runs:
            begin, last = self._rows[-1] if self._rows else (0, None)
            if last and at == begin + last.count * self.each and (longer := last.then(run)):
                self._rows[-1] = begin, longer
            else:
                self._rows.append((at, run))
            at += run.count * self.each


def _together(t: Recorder, nodes: Sequence[int]) -> list[tuple[int, Ranks, int]]:
    """Return runs of node roots with nodes of one size: index in the list, ranks, size."""
    runs: list[tuple[int, Ranks, int]] = []
    for i, node in enumerate(nodes):
        roots, size = Ranks(t.tree.node_root(node)), t.tree.node_size(node)
        if runs and size == runs[-1][2] and (longer := runs[-1][1].then(roots)):
            runs[-1] = runs[-1][0], longer, size
        else:
            runs.append((i, roots, size))
    return runs


# --- permute --------------------------------------------------------------------------------
def permute(t: Recorder, perm: NDArray[Any], dst: Operand, src: Operand, nbytes: int) -> None:
    """Send the blocks from one node to another one in one message for each unit."""
    node_of, mine = t.tree.node_index, t.tree.members(t.my_node)
    of = int(np.flatnonzero(perm == t.me)[0])
    leaving: dict[int, list[int]] = {}
    for thread in mine.tolist():
        leaving.setdefault(int(node_of[perm[thread]]), []).append(thread)
    arriving = [int(i) for i in np.flatnonzero(node_of[perm] == t.my_node)]
    coming = {
        node: [i for i in arriving if node_of[i] == node]
        for node in {int(node_of[i]) for i in arriving}
    }
    order = [i for node in sorted(coming) if node != t.my_node for i in coming[node]]
    most = t.largest_node
    relay = Relay(t, nbytes, most * nbytes, most * nbytes)
    width = relay.out.width
    if not relay.out.short:
        width = min(width, relay.landing.width // most)
    units = [(0, nbytes)] if relay.out.short else chunks(nbytes, width)

    def stage(u: int) -> None:
        offset, size = units[u]
        t.copy(relay.out.on(t.me, u), src.on(t.me, offset), size)

    def post(u: int) -> list[int]:
        size, tickets = units[u][1], []
        for node in sorted(coming):
            if node != t.my_node:
                place = relay.landing.on(t.me, u, order.index(coming[node][0]) * size)
                nbytes = len(coming[node]) * size
                tickets.append(t.recv(t.tree.node_root(node), place, nbytes, bounded=False))
        for node in sorted(leaving):
            if node != t.my_node:
                blocks = [Blocks(relay.out.on(i, u), size) for i in leaving[node]]
                tickets.append(t.send_blocks(t.tree.node_root(node), blocks))
        return tickets

    def take(u: int) -> None:
        offset, size = units[u]
        place = relay.out.on(of, u)
        if not t.on_my_node(of):
            place = relay.landing.on(t.node_root, u, order.index(of) * size)
        t.copy(dst.on(t.me, offset), place, size)

    relay.run(len(units), stage, post, take)
