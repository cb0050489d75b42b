"""The `_v` and `_x` forms of broadcast and gather_all by the levels below a node.

Each block enters each domain once, as in `gather_all_levels`. Here each block has its own length,
and its own place on each thread. Blocks of other nodes arrive at the node root, as in ``routes``.
Every thread receives all of them, so in each domain its root copies them first, and the others copy
from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks
from ..plan.recorder import Operand, Recorder
from .block_crossing import Crossing, crossing_of, distinct_blocks
from .block_transfers import Work, exchange_blocks
from .conditions import by_name
from .domains import Pairs, Threads, block_entries, first_levels, pairs_between, parents
from .level_flow import Flow, Reading, node_runs
from .registry import algorithm
from .transfer_lists import Transfers

_SUMMARY = "Each block enters each node, socket and cache domain once; threads share the blocks."


def by_levels(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Copy my share of what enters each of my domains, chunk by chunk."""
    if not moves.total:
        return
    crossing, near = (Crossing.none(), moves) if t.one_node else crossing_of(t, moves)
    lists, arrivals = _Lists(t, dst, src, near), _Arrivals(t, dst, src, crossing)
    (direct, every), (sent, passed) = lists.reads(), arrivals.reads()
    t.ready_each(*_both_ways(direct | sent, lists.me, lists.ranks), node_only=True)
    arrivals.exchange()
    lists.record()
    arrivals.pass_on()
    t.done_each(*_both_ways(every | sent | passed, lists.me, lists.ranks))


for _name in ("broadcast_v", "broadcast_x", "gather_all_v", "gather_all_x"):
    algorithm(_name, MULTICORE, "levels", _SUMMARY, preferred=by_name)(by_levels)


def _both_ways(reads: Pairs, me: int, ranks: Threads) -> tuple[list[int], list[int]]:
    """Return the threads that I read from, and those that read from me."""
    return ranks[reads[me]].tolist(), ranks[reads[:, me]].tolist()


class _Lists:
    """Record the phases in which the threads of a node copy the blocks of each other.

    Each thread receives each block once.
    """

    def __init__(self, t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
        self.t, self.dst, self.src = t, dst, src
        self.ranks, self.me = t.tree.members(t.my_node), t.tree.local_index(t.me)
        self.blocks, number = distinct_blocks(moves)
        self.starts = np.searchsorted(self.ranks, self.blocks.src)
        self.places = np.zeros((len(self.ranks), len(self.starts)), np.int64)
        self.places[np.searchsorted(self.ranks, moves.dst), number] = moves.dst_at
        self.entries = block_entries(t.tree.levels(t.my_node), tuple(self.starts.tolist()))
        longest = int(self.blocks.nbytes.max(initial=0))
        self.units = chunks(longest, t.chunk(longest))
        self.flow = Flow(t, self._readings(), len(self.units))

    def _readings(self) -> Iterator[Reading]:
        """Yield the reads of blocks from threads that have copied them.

        A read of another thread's own block, from its src, needs no signal of this call.
        """
        used = range(len(self.starts))
        for level, (outer, inner) in enumerate(pairwise(self.entries)):
            first = first_levels(self.entries, level)
            for wide in range(1, level + 1):
                pairs = pairs_between(np.where(first == wide, inner, outer), outer, used)
                yield Reading(level, wide - 1, pairs)

    def reads(self) -> tuple[Pairs, Pairs]:
        """Return which threads read from which: the reads of a block's src, and all reads."""
        size = len(self.ranks)
        each = np.arange(size)[:, None]
        direct, every = (np.zeros((size, size), bool) for _ in range(2))
        for outer, inner in pairwise(self.entries):
            reader, block = np.nonzero((inner == each) & (outer != each))
            source = outer[reader, block]
            every[reader, source] = True
            own = source == self.starts[block]
            direct[reader[own], source[own]] = True
        return direct, every

    def record(self) -> None:
        """Copy my own blocks, and my share of each phase, chunk by chunk."""
        for block in np.flatnonzero(self.starts == self.me).tolist():
            self._copy(block, self.me, 0, int(self.blocks.nbytes[block]))
        for u, (offset, size) in enumerate(self.units):
            for phase, (outer, inner) in enumerate(pairwise(self.entries)):
                self.flow.begin(u, phase)
                for block in self._share(outer[self.me], inner[self.me]):
                    self._copy(block, int(outer[self.me, block]), offset, size)
                self.flow.end(u, phase)

    def _share(self, outer: Threads, inner: Threads) -> list[int]:
        """Return the blocks that this thread copies into its domain."""
        found: list[int] = np.flatnonzero((inner == self.me) & (outer != self.me)).tolist()
        return found

    def _copy(self, block: int, source: int, offset: int, size: int) -> None:
        """Copy up to `size` bytes of a block, from `offset` on, from a thread that has it."""
        n = min(size, int(self.blocks.nbytes[block]) - offset)
        if n <= 0:
            return
        rank = int(self.ranks[source])
        if source == self.starts[block]:
            place = self.src.on(rank, int(self.blocks.src_at[block]) + offset)
        else:
            place = self.dst.on(rank, int(self.places[source, block]) + offset)
        to = self.dst.on(self.t.me, int(self.places[self.me, block]) + offset)
        self.t.copy(to, place, n)


class _Arrivals:
    """Record the blocks that cross between nodes.

    The node root receives each into its own dst, since it is the lowest receiver of its node. Each
    other thread copies them from its parent in the domains.
    """

    def __init__(self, t: Recorder, dst: Operand, src: Operand, crossing: Crossing) -> None:
        self.t, self.dst, self.src = t, dst, src
        self.work = Work.of(t, Transfers(*np.empty((5, 0), np.int64)), crossing)
        self.root, self.me = t.tree.local_index(t.node_root), t.tree.local_index(t.me)
        self.parents = parents(t.tree.levels(t.my_node), self.root)
        self.readers = node_runs(t, np.flatnonzero(self.parents == self.me))
        self.arrived = -1 if t.one_node else t.channel()

    def reads(self) -> tuple[Pairs, Pairs]:
        """Return which threads read from which: those of a block's src, and those of parents."""
        size, crossing = len(self.parents), self.work.crossing
        sent, passed = (np.zeros((size, size), bool) for _ in range(2))
        for home, rank in zip(crossing.home, crossing.src, strict=True):
            if home == self.t.my_node:
                sent[self.root, self.t.tree.local_index(rank)] = True
        if self.work.notices:
            others = np.flatnonzero(self.parents >= 0)
            passed[others, self.parents[others]] = True
        return sent, passed

    def exchange(self) -> None:
        """Record the messages of a node root."""
        t, work = self.t, self.work
        if self.me == self.root and work.events:
            with t.net():
                exchange_blocks(t, self.dst, self.src, work, self.arrived, self.readers)

    def pass_on(self) -> None:
        """Copy what has arrived from my parent, then notify those that copy it from me."""
        if self.me == self.root:
            return
        t, crossing = self.t, self.work.crossing
        parent = int(t.tree.members(t.my_node)[self.parents[self.me]])
        places = [
            dict(place for place in (landing, *follows) if place and place[0] in (t.me, parent))
            for landing, follows in zip(crossing.landing, crossing.follows, strict=True)
        ]
        for number, notice in enumerate(self.work.notices, 1):
            t.wait(self.arrived, parent, number)
            for event in notice:
                for block, offset, nbytes in event.pieces:
                    here, there = (places[block][rank] + offset for rank in (t.me, parent))
                    t.copy(self.dst.on(t.me, here), self.dst.on(parent, there), nbytes)
            t.signal(self.arrived, self.readers, number)
