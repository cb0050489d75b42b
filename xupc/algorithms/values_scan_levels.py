"""Scans of arrays of values by the levels below a node: each value enters each domain once.

A scan joins the values one after the other, so a domain cannot combine some of them first. All
values of a node's threads come into each of its domains, as in gather_all, and each thread combines
those up to its own. Between nodes the units pass a chain, as in ``chain``. What comes before a node
goes from its root down the domains: each thread copies it from its parent.
"""

from __future__ import annotations

import numpy as np

from ..flags import MULTICORE
from ..plan.recorder import Recorder
from ..plan.steps import BlockRef
from .conditions import CallFacts, by_name
from .domains import block_entries, parents
from .level_flow import Descent, Flow, node_runs
from .node_relay import Relay
from .registry import algorithm
from .values_levels import Staged, block_places, has_room
from .values_reduce_spec import ReduceSpec
from .values_scan_across_nodes import (
    Line,
    can_follow_nodes,
    chain_unit,
    follow_nodes,
    result_in_line,
)


def _by_levels(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    if not t.one_node:
        follow_nodes(_LevelLine(t, r, reverse))
        return
    places, width = block_places(t, t.size, r.nbytes, r.itemsize)
    staged = Staged(t, places, r.units(width))
    for u, (offset, size) in enumerate(staged.units):
        staged.put(u, r.src.on(t.me, offset))
        with staged.near(u) as parts:
            parts[t.me] = r.src.on(t.me, offset)
            needed = [parts[i] for i in r.operands(t.me, t.size, reverse)]
            result_in_line(t, r, offset, size, needed, reverse)
    staged.finish()


class _LevelLine(Line):
    """Record the units of a scan that pass a chain of nodes, with the levels inside each of them.

    The places of a thread: what comes before its node, at the node root what its node sends on,
    and the values of its node's threads, next to each other.
    """

    def __init__(self, t: Recorder, r: ReduceSpec, reverse: bool) -> None:
        super().__init__(t, r, reverse, 2 + t.largest_node, chain_unit(t))
        self.relay.passed_down = True
        levels, self.local = t.tree.levels(t.my_node), t.tree.local_index(t.me)
        self.ranks = t.tree.members(t.my_node).tolist()
        entries = block_entries(levels)
        self.nearest = entries[-2][self.local].tolist()
        self.descent = Descent(entries, range(len(self.ranks)), self.local, 0)
        self.flow = Flow(t, self.descent.readings(), len(self.units))
        tree = parents(levels, t.tree.local_index(t.node_root))
        self.parent = self.ranks[tree[self.local]]
        self.readers = node_runs(t, np.flatnonzero(tree == self.local))
        self.there = t.channel()

    def take(self, u: int, before: list[BlockRef]) -> None:
        """Make my result of a unit from values in my domain, and from what my parent has."""
        t, r, (offset, size) = self.t, self.r, self.units[u]
        ends = [i * size for i in range(len(self.ranks) + 1)]

        def values(thread: int) -> BlockRef:
            return self.relay.landing.on(self.ranks[thread], u, 2 * self.stride)

        self.flow.begin(u, 0)
        t.copy(values(self.local) + ends[self.local], self.relay.out.on(t.me, u), size)
        self.flow.end(u, 0)
        self.descent.enter(t, self.flow, u, ends, values)
        parts = self._handed_down(u) if before else []
        self.flow.begin(u, self.descent.last)
        for rank in self.up_to(t.me):
            block = t.tree.local_index(rank)
            parts.append(values(self.nearest[block]) + ends[block])
        result_in_line(t, r, offset, size, self.by_rank(parts), self.reverse)
        self.flow.end(u, self.descent.last)

    def _handed_down(self, u: int) -> list[BlockRef]:
        """Get what comes before my node from my parent, for me and for the threads below me."""
        t, source = self.t, self.t.node_root
        if t.me != source:
            if self.parent != source:
                t.wait(self.there, self.parent, u + 1)
                source = self.parent
            if self.readers:
                mine, there = (self.relay.landing.on(rank, u) for rank in (t.me, source))
                t.copy(mine, there, self.units[u][1])
                t.signal(self.there, self.readers, u + 1)
                source = t.me
        return [self.relay.landing.on(source, u)]


def _has_room(call: CallFacts) -> bool:
    """One node, or nodes of consecutive threads; room for a cache line of each thread's block."""
    if call.one_node:
        return has_room(call)
    return can_follow_nodes(call) and Relay.fits(call, (2 + call.largest_node) * call.line)


def forward(t: Recorder, r: ReduceSpec) -> None:
    """Bring all values into my domain; combine those up to mine."""
    _by_levels(t, r, False)


def backward(t: Recorder, r: ReduceSpec) -> None:
    """Bring all values into my domain; combine those from mine on."""
    _by_levels(t, r, True)


for _form in ("prefix", "suffix", "exclusive_prefix", "exclusive_suffix"):
    algorithm(
        f"allav_{_form}_reduce", MULTICORE, "levels",
        "Each value enters each socket and cache domain once; each thread combines those up to its "
        "own.", applies=_has_room, preferred=by_name,
    )(backward if _form.endswith("suffix") else forward)  # fmt: skip
