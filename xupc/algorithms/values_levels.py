"""allav_broadcast and allav_gather_all by the levels below a node.

In each domain one thread copies a block into its scratch, and the other threads of the domain copy
it from there. So a block crosses the border of each domain once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks, tree_for
from ..plan.placement import Facts
from ..plan.recorder import DST, SRC, Recorder
from ..plan.steps import OP_SCRATCH, STAGING, BlockRef, Ranks
from .conditions import CallFacts, by_name
from .domains import block_entries, parents, same_source
from .level_flow import Descent, Flow, node_runs
from .node_relay import Relay
from .private_staging import LINE, Places, TransferSpec
from .registry import algorithm
from .values import move_of
from .values_across_nodes import AllToAll
from .values_from_root import Downward, chunk_of

__all__ = ["LevelDownward", "Staged", "block_places", "has_room"]


# --- broadcast ---------------------------------------------------------------------------------
@algorithm(
    "allav_broadcast", MULTICORE, "levels",
    "One copy crosses to each node, then one into each socket and cache domain.",
    preferred=by_name,
)  # fmt: skip
def broadcast(t: Recorder, root: int, nbytes: int, in_place: bool) -> None:
    """Pass chunks down a tree of nodes, as by default, then down the domains of each node."""
    downward = LevelDownward(t, move_of(t, "broadcast", root, nbytes, in_place))
    if t.me == downward.node_source:
        downward.pass_on()
    else:
        downward.read()


class LevelDownward(Downward):
    """Record the chunks of a broadcast: each thread copies them from its parent in the node."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        shape = tree_for(t.tree.node_count, m.nbytes, chunk_of(t), t.tuning)
        super().__init__(t, m, shape)
        me, mates = t.tree.local_index(t.me), t.tree.members(t.my_node)
        source = t.tree.local_index(self.node_source)
        tree = parents(t.tree.levels(t.my_node), source)
        self.readers = node_runs(t, np.flatnonzero(tree == me))
        self.parent = int(mates[tree[me]])

    def read(self) -> None:
        """Record a thread that is no node source: copy chunks from the parent's places."""
        t, places = self.t, self.places
        for w in range(self.notices):
            t.wait(self.there, self.parent, w + 1)
            some = self.units[w * self.per_notice : (w + 1) * self.per_notice]
            begin, end = some[0][0], sum(some[-1])
            place = places.on(self.parent, w * self.per_notice)
            if self.readers:
                self.wait_for_readers(w - self.ring)
                mine = places.on(t.me, w * self.per_notice)
                t.copy(mine, place, end - begin)
                t.signal(self.there, self.readers, w + 1)
                place = mine
            t.copy(self.m.dst.on(t.me, begin), place, end - begin)
            if not places.short:
                t.signal(self.used, (Ranks(self.parent),), w + 1)
        self.end()


# --- all threads' blocks -------------------------------------------------------------------------
def block_places(t: Facts, blocks: int, nbytes: int, itemsize: int = 1) -> tuple[Places, int]:
    """Return places for a unit, which has a part of each block, and the most bytes of such a part.

    `blocks`: their number; `nbytes`: the bytes of one. A part is a multiple of `itemsize`.
    """
    if blocks * nbytes <= t.tuning["eager_max"]:
        return Places(OP_SCRATCH, blocks * nbytes), nbytes
    width = t.tuning["staging_bytes"] // (2 * blocks) // LINE * LINE
    width = max(itemsize, width // itemsize * itemsize)
    return Places(STAGING, blocks * width, 2), width


def has_room(call: CallFacts) -> bool:
    """One node, and room for a cache line of each thread's block."""
    return call.one_node and 2 * call.size * call.line <= call.tuning["staging_bytes"]


class Staged:
    """Bring a part of each thread's block, unit by unit, to all domains of one node.

    Parameters
    ----------
    units
        The part of each block, (offset, size), that a unit has.
    """

    def __init__(self, t: Recorder, places: Places, units: list[tuple[int, int]]) -> None:
        self.t, self.places, self.units = t, places, units
        entries = block_entries(t.tree.levels(t.my_node))
        self._entry = entries[-2][t.me].tolist()  # on one node ranks count the node's threads
        self._descent = Descent(entries, range(t.size), t.me, 0)
        self._flow = Flow(
            t, self._descent.readings(), len(units), 0 if places.short else places.depth
        )

    def put(self, unit: int, block: BlockRef) -> None:
        """Copy the unit's part of this thread's own block, `block`, into its scratch."""
        self._flow.begin(unit, 0)
        self.t.copy(self._at(unit, self.t.me, self.t.me), block, self.units[unit][1])
        self._flow.end(unit, 0)

    def _at(self, unit: int, thread: int, block: int) -> BlockRef:
        return self.places.on(thread, unit, block * self.units[unit][1])

    def _places(self, unit: int) -> tuple[list[int], Callable[[int], BlockRef]]:
        size = self.units[unit][1]
        ends = [i * size for i in range(self.t.size + 1)]
        return ends, lambda thread: self._at(unit, thread, 0)

    def take(self, unit: int, copy: Callable[[BlockRef, int, int], None]) -> None:
        """Bring the unit's parts of all blocks to this thread.

        ``copy(row, first, count)`` copies those of `count` blocks from `first` on out of the
        scratch `row`.
        """
        size = self.units[unit][1]
        ends, place = self._places(unit)

        def each(part: BlockRef, begin: int, end: int) -> None:
            copy(part._replace(offset_step=size), begin // size, (end - begin) // size)

        self._descent.record(self.t, self._flow, unit, ends, place, each)

    @contextmanager
    def near(self, unit: int) -> Iterator[list[BlockRef]]:
        """Bring the unit's parts into this thread's narrowest domain, and return where they are.

        They may be read inside the context.
        """
        self._descent.enter(self.t, self._flow, unit, *self._places(unit))
        self._flow.begin(unit, self._descent.last)
        yield [self._at(unit, thread, block) for block, thread in enumerate(self._entry)]
        self._flow.end(unit, self._descent.last)

    def finish(self) -> None:
        """Wait until no thread reads this thread's scratch any more."""
        self._flow.finish()


def _can_gather(call: CallFacts) -> bool:
    """Room for a cache line of each thread's block; all nodes count as the largest one."""
    nodes = call.tree.node_count
    if call.one_node:
        return has_room(call)
    return Relay.fits(call, nodes * call.largest_node * LINE)


@algorithm(
    "allav_gather_all", MULTICORE, "levels",
    "Each block enters each socket and cache domain once; its threads share the blocks.",
    applies=_can_gather, preferred=by_name,
)  # fmt: skip
def gather_all(t: Recorder, root: int, nbytes: int, in_place: bool) -> None:
    """Stage my block, take my share into each domain, copy all blocks from my domain."""
    if t.one_node:
        _gather_inside(t, nbytes, in_place)
    else:
        LevelGather(t, move_of(t, "gather_all", root, nbytes, in_place)).record()


def _gather_inside(t: Recorder, nbytes: int, in_place: bool) -> None:
    places, width = block_places(t, t.size, nbytes)
    staged = Staged(t, places, chunks(nbytes, width))
    own = DST.on(t.me, t.me * nbytes) if in_place else SRC.on(t.me)
    for u, (offset, size) in enumerate(staged.units):

        def copy(
            row: BlockRef, first: int, count: int, offset: int = offset, size: int = size
        ) -> None:
            t.copy(DST.row(t.me, first * nbytes + offset, nbytes), row, size, count)

        staged.put(u, own + offset)
        staged.take(u, copy)
    staged.finish()


class LevelGather(AllToAll):
    """Record the units of a gather_all across nodes, with the levels inside each of them.

    A unit has a part of all blocks. Those of my node come into its domains as on one node. Those of
    other nodes go from the node root down the domains: each thread copies them from its parent.
    """

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        super().__init__(t, m)
        self.relay.crossing, self.relay.passed_down = None, True  # threads take from each other
        levels, self.local = t.tree.levels(t.my_node), t.tree.local_index(t.me)
        mates = t.tree.members(t.my_node)
        self.ranks = mates.tolist()
        blocks = range(len(self.ranks))
        self.descent = Descent(block_entries(levels), blocks, self.local, 0)
        self.flow = Flow(t, self.descent.readings(), len(self.units))
        tree = parents(levels, t.tree.local_index(t.node_root))
        self.parent = int(mates[tree[self.local]])
        self.readers = node_runs(t, np.flatnonzero(tree == self.local))
        self.there = t.channel()

    @staticmethod
    def rows(nodes: int) -> int:
        """Return the number of nodes whose blocks have places: all, this one included."""
        return nodes

    def _cut(self, block: int) -> tuple[int, int]:
        n, relay = self.t.tree.node_count, self.relay
        if relay.out.short:
            return n, block
        room = relay.landing.width // (n * self.t.largest_node) // LINE * LINE
        return n, min(max(LINE, room), relay.out.width, block)

    def _take(self, u: int) -> None:
        t, source = self.t, self.t.node_root
        self._take_mates(u)
        if t.me != source:
            if self.parent != source:
                t.wait(self.there, self.parent, u + 1)
                source = self.parent
            if self.readers:
                self._pass_down(u, source)
                source = t.me
        self._take_arrived(u, 0, source)

    def _pass_down(self, u: int, source: int) -> None:
        """Copy what has arrived from other nodes to my scratch, for the threads below me."""
        t, size = self.t, self.units[u][1][3]
        each, landing = t.largest_node * size, self.relay.landing
        nodes = [(t.my_node - k) % t.tree.node_count for k in range(t.tree.node_count - 1, 0, -1)]
        for first, last, threads in same_source(
            range(len(nodes)), lambda i: t.tree.node_size(nodes[i])
        ):
            into, of = (
                landing.on(thread, u, first * each)._replace(offset_step=each)
                for thread in (t.me, source)
            )
            t.copy(into, of, threads * size, last - first + 1)
        t.signal(self.there, self.readers, u + 1)

    def _take_mates(self, u: int) -> None:
        """Bring the blocks of my node's threads to me, by way of my domains."""
        t, m = self.t, self.m
        _, (_, _, offset, size) = self.units[u]
        row = (t.tree.node_count - 1) * t.largest_node * size  # behind the other nodes'

        def place(thread: int) -> BlockRef:
            return self.relay.landing.on(self.ranks[thread], u, row)

        def take(part: BlockRef, begin: int, end: int) -> None:
            at = 0
            for run in node_runs(t, range(begin // size, end // size)):
                blocks = (part + at)._replace(offset_step=size)
                t.copy(m.to(t, run, offset), blocks, size, run.count)
                at += run.count * size

        self.flow.begin(u, 0)
        t.copy(place(self.local) + self.local * size, self.relay.out.on(t.me, u), size)
        self.flow.end(u, 0)
        ends = [i * size for i in range(len(self.ranks) + 1)]
        self.descent.record(t, self.flow, u, ends, place, take)
