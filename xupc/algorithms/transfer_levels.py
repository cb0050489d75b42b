"""The `_v` and `_x` forms of broadcast and gather_all by the levels below a node.

Each block enters each domain once, as in `gather_all_levels`. Here each block has its own length,
and its own place on each thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks
from ..plan.recorder import Operand, Recorder
from .block_crossing import distinct_blocks
from .conditions import by_name, on_one_node
from .domains import Pairs, Threads, block_entries, first_levels, pairs_between
from .level_flow import Flow, Reading
from .registry import algorithm
from .transfer_lists import Transfers

_SUMMARY = "Each block enters each socket and cache domain once; threads share the blocks."


def by_levels(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Copy my share of what enters each of my domains, chunk by chunk."""
    if not moves.total:
        return
    lists = _Lists(t, dst, src, moves)
    direct, every = lists.reads()
    t.ready_each(*_both_ways(direct, t.me), node_only=True)
    lists.record()
    t.done_each(*_both_ways(every, t.me))


for _name in ("broadcast_v", "broadcast_x", "gather_all_v", "gather_all_x"):
    algorithm(
        _name, MULTICORE, "levels", _SUMMARY, applies=on_one_node, preferred=by_name
    )(by_levels)  # fmt: skip


def _both_ways(reads: Pairs, me: int) -> tuple[list[int], list[int]]:
    """Return the threads that I read from, and those that read from me."""
    return np.flatnonzero(reads[me]).tolist(), np.flatnonzero(reads[:, me]).tolist()


class _Lists:
    """Record the phases in which the threads of one node copy the blocks of each other.

    There is one node, so a thread has the same number in the team and in the node. Each thread
    receives each block once.
    """

    def __init__(self, t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
        self.t, self.dst, self.src = t, dst, src
        self.blocks, number = distinct_blocks(moves)
        self.places = np.zeros((t.size, len(self.blocks.src)), np.int64)
        self.places[moves.dst, number] = moves.dst_at
        levels = t.tree.levels(t.my_node)
        self.entries = block_entries(levels, tuple(self.blocks.src.tolist()))
        longest = int(self.blocks.nbytes.max())
        self.units = chunks(longest, t.chunk(longest))
        self.flow = Flow(t, self._readings(), len(self.units))

    def _readings(self) -> Iterator[Reading]:
        """Yield the reads of blocks from threads that have copied them.

        A read of another thread's own block, from its src, needs no signal of this call.
        """
        used = range(len(self.blocks.src))
        for level, (outer, inner) in enumerate(pairwise(self.entries)):
            first = first_levels(self.entries, level)
            for wide in range(1, level + 1):
                pairs = pairs_between(np.where(first == wide, inner, outer), outer, used)
                yield Reading(level, wide - 1, pairs)

    def reads(self) -> tuple[Pairs, Pairs]:
        """Return which threads read from which: the reads of a block's src, and all reads."""
        each = np.arange(self.t.size)[:, None]
        direct, every = (np.zeros((self.t.size, self.t.size), bool) for _ in range(2))
        for outer, inner in pairwise(self.entries):
            reader, block = np.nonzero((inner == each) & (outer != each))
            source = outer[reader, block]
            every[reader, source] = True
            own = source == self.blocks.src[block]
            direct[reader[own], source[own]] = True
        return direct, every

    def record(self) -> None:
        """Copy my own blocks, and my share of each phase, chunk by chunk."""
        t = self.t
        for block in np.flatnonzero(self.blocks.src == t.me).tolist():
            self._copy(block, t.me, 0, int(self.blocks.nbytes[block]))
        for u, (offset, size) in enumerate(self.units):
            for phase, (outer, inner) in enumerate(pairwise(self.entries)):
                self.flow.begin(u, phase)
                for block in self._share(outer[t.me], inner[t.me]):
                    self._copy(block, int(outer[t.me, block]), offset, size)
                self.flow.end(u, phase)

    def _share(self, outer: Threads, inner: Threads) -> list[int]:
        """Return the blocks that this thread copies into its domain."""
        found: list[int] = np.flatnonzero((inner == self.t.me) & (outer != self.t.me)).tolist()
        return found

    def _copy(self, block: int, source: int, offset: int, size: int) -> None:
        """Copy up to `size` bytes of a block, from `offset` on, from a thread that has it."""
        n = min(size, int(self.blocks.nbytes[block]) - offset)
        if n <= 0:
            return
        if source == self.blocks.src[block]:
            place = self.src.on(source, int(self.blocks.src_at[block]) + offset)
        else:
            place = self.dst.on(source, int(self.places[source, block]) + offset)
        self.t.copy(self.dst.on(self.t.me, int(self.places[self.t.me, block]) + offset), place, n)
