"""all_gather_all by the levels below a node: each block enters each node and domain once.

The blocks that enter a domain are divided among its threads. In phase k each thread copies its
share into its domain of level k, from threads of the domain of level k - 1 around it, which have
copied it before. Threads 0 to 3 have the blocks A to D, and ``0 <- C`` means that 0 copies C::

    2 L3 domains of 2 threads      phase 1: 0 <- C   1 <- D   2 <- A   3 <- B
                                   phase 2: 0 <- B D   1 <- A C   2 <- D B   3 <- C A

Blocks of other nodes arrive at the node root, as in the default variant. Every thread needs all of
them, so in each domain its root copies them first, and the others copy from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks
from ..plan.recorder import NODE, Operand, Recorder
from .conditions import by_name
from .domains import Threads, block_entries, first_levels, pairs_between, parents, same_source
from .gather_all import InPlace, arrivals, in_place, way_between
from .level_flow import Flow, Reading, node_runs
from .registry import algorithm

_SUMMARY = "Each block enters each node, socket and cache domain once; threads share the blocks."


@algorithm("gather_all", MULTICORE, "levels", _SUMMARY, preferred=by_name)
def by_levels(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Gather the blocks of my node by levels, chunk by chunk, then those of other nodes."""
    arrived = t.channel()
    t.ready(NODE, NODE, node_only=True)
    inside = _Inside(t, dst, src, nbytes)
    tree = parents(t.tree.levels(t.my_node), t.tree.local_index(t.node_root))
    readers = node_runs(t, np.flatnonzero(tree == inside.me))
    way, least = way_between(t, nbytes)
    words = arrivals(t, dst, nbytes, least)
    if t.me == t.node_root and not t.one_node:
        with t.net():
            way(t, dst, src, nbytes, partial(t.signal, arrived, readers), words)
    inside.record()
    if t.me != t.node_root:
        parent = int(t.tree.members(t.my_node)[tree[inside.me]])
        for number, word in enumerate(words, 1):
            t.wait(arrived, parent, number)
            for row, size, count in word:
                t.copy(row, row._replace(thread=parent), size, count)
            t.signal(arrived, readers, number)
    t.done(NODE, NODE, node_only=True)


algorithm("gather_all_in_place", MULTICORE, "levels", _SUMMARY, preferred=by_name)(
    in_place(by_levels)
)


class _Inside:
    """Record the phases in which the threads of a node copy the blocks of each other."""

    def __init__(self, t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
        self.t, self.dst, self.src, self.nbytes = t, dst, src, nbytes
        self.me = t.tree.local_index(t.me)
        self.entries = block_entries(t.tree.levels(t.my_node))
        self.units = chunks(nbytes, t.chunk(nbytes))
        self.flow = Flow(t, self._readings(), len(self.units))

    def _readings(self) -> Iterator[Reading]:
        """Yield the reads of blocks from threads that have copied them.

        A read of another thread's own block, from its src, needs no signal of this call.
        """
        blocks = range(len(self.entries[0]))
        for level, (outer, inner) in enumerate(pairwise(self.entries)):
            first = first_levels(self.entries, level)
            for wide in range(1, level + 1):
                pairs = pairs_between(np.where(first == wide, inner, outer), outer, blocks)
                yield Reading(level, wide - 1, pairs)

    def record(self) -> None:
        """Copy my own block, and my share of each phase, chunk by chunk."""
        t = self.t
        if not isinstance(self.src, InPlace):
            t.copy(self.dst.on(t.me, t.me * self.nbytes), self.src.on(t.me), self.nbytes)
        for u, (offset, size) in enumerate(self.units):
            for phase, (outer, inner) in enumerate(pairwise(self.entries)):
                self.flow.begin(u, phase)
                for first, last, source in self._shares(outer[self.me], inner[self.me]):
                    self._copy(first, last, source, offset, size)
                self.flow.end(u, phase)

    def _shares(self, outer: Threads, inner: Threads) -> Iterator[tuple[int, int, int]]:
        """Yield runs of blocks that this thread copies: first, last, source.

        Source -1: from the src of the thread that each block belongs to.
        """
        takes = (inner == self.me) & (outer != self.me)
        where = np.where(outer == np.arange(outer.size), -1, outer)
        chosen = [int(x) if mine else None for x, mine in zip(where, takes, strict=True)]
        yield from same_source(range(outer.size), chosen.__getitem__)

    def _copy(self, first: int, last: int, source: int, offset: int, size: int) -> None:
        """Copy a part of each of the blocks `first` to `last`, numbered inside the node."""
        t, n = self.t, self.nbytes
        for ranks in node_runs(t, range(first, last + 1)):
            at, step = ranks.first * n + offset, ranks.step * n
            if source < 0:
                row = self.src.across(ranks, offset)
            else:
                row = self.dst.row(int(t.tree.members(t.my_node)[source]), at, step)
            t.copy(self.dst.row(t.me, at, step), row, size, ranks.count)
