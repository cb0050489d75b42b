"""allav_reduce, allav_reduce_all and allav_reduce_scatter by the levels of a node."""

from __future__ import annotations

import numpy as np

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import DST, SRC, Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .domains import parents
from .level_flow import node_runs
from .level_reduce import SlicedFold, Slicing, even_slices, places_for
from .private_staging import LINE, cut
from .registry import algorithm
from .values_reduce_across_nodes import (
    ByNodes,
    can_be_in_parts,
    can_pass_chain,
    is_exchanged,
    passes_chain,
)
from .values_reduce_scatter import ByNodes as ScatterByNodes
from .values_reduce_scatter import ReduceScatter
from .values_reduce_spec import ReduceSpec

__all__ = ["MOST_AREAS", "LevelByNodes"]

MOST_AREAS = 6
"""Across nodes: how many times the bytes of a unit a thread keeps; a node may leave out levels."""
_SUMMARY = "Slices are folded inside each cache domain and socket first, then across."


def _slicing(t: Facts, r: ReduceSpec, node: int) -> Slicing:
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact or r.ordered, staged=True)


def _has_room(call: CallFacts) -> bool:
    """One node, or as `parts`; room for an element of each partial result."""
    r: ReduceSpec = call.arguments[0]
    if not call.one_node:
        room = call.tuning["staging_bytes"] >= 16 * MOST_AREAS * call.line
        return room and can_be_in_parts(call)
    return 2 * _slicing(call, r, 0).areas * call.line <= call.tuning["staging_bytes"]


def by_levels(t: Recorder, r: ReduceSpec) -> None:
    """Fold slices up the levels of each node; bring the result down to all, or to one."""
    if t.one_node:
        _on_one_node(t, r)
        return
    call = CallFacts(t.tree, t.tuning, t.sync, [r], t.kernel)
    flat = is_exchanged(call)
    LevelByNodes(t, r, flat, not flat and can_pass_chain(call) and passes_chain(call)).record()


def _on_one_node(t: Recorder, r: ReduceSpec) -> None:
    slicing = _slicing(t, r, t.my_node)
    places, width = places_for(t, slicing.areas, r.nbytes)
    units = r.units(width)

    def own(_thread: int, u: int, begin: int) -> FoldOperand:
        return FoldOperand(r.src.on(t.me, units[u][0] + begin))

    fold = SlicedFold(
        t, slicing, places, width, [even_slices(n, r.itemsize, t.size) for _, n in units],
        r.itemsize, own, r.to,
    )  # fmt: skip
    for u, (offset, _) in enumerate(units):

        def put(place: BlockRef, begin: int, end: int, offset: int = offset) -> None:
            t.copy(place, r.src.on(t.me, offset + begin), end - begin)

        def take(place: BlockRef, begin: int, end: int, offset: int = offset) -> None:
            t.copy(r.dst.on(t.me, offset + begin), place, end - begin)

        fold.stage(u, put)
        fold.up(u)
        fold.down(u, take)
    fold.finish()


class LevelByNodes(ByNodes):
    """Record the units of a reduction across nodes, with the levels inside each of them.

    The slices of a unit are folded up the levels, and the node root sends them. Results go from the
    node root down the domains: each thread copies them from its parent. Unit sizes are the same on
    all nodes, whatever their levels.
    """

    def __init__(self, t: Recorder, r: ReduceSpec, flat: bool, chained: bool) -> None:
        super().__init__(t, r, flat=flat, chained=chained, areas=MOST_AREAS)
        sizes = [size for _, size in self.units]
        stride = -(-sizes[0] // LINE) * LINE
        mates = t.tree.node_size(t.my_node)
        self.fold = SlicedFold(
            t, self._slicing().within(MOST_AREAS), self.relay.out, stride,
            [even_slices(size, r.itemsize, mates) for size in sizes], r.itemsize, self._own, -1,
            reuses=False,
        )  # fmt: skip
        tree = parents(t.tree.levels(t.my_node), t.tree.local_index(t.node_root))
        self.parent = int(t.tree.members(t.my_node)[tree[self.fold.me]])
        self.readers = node_runs(t, np.flatnonzero(tree == self.fold.me))
        self.there = -1 if r.to is not None else t.channel()

    def record(self) -> None:
        """Record all units; to all threads, these take results from each other."""
        finish = self._pass_on if self.chained else self._finish
        self.relay.run(
            len(self.units), self._stage, self._post, self._take, finish, only=self.r.to
        )

    def _slicing(self) -> Slicing:
        return _slicing(self.t, self.r, self.t.my_node)

    def _own(self, _thread: int, u: int, begin: int) -> FoldOperand:
        return FoldOperand(self.r.src.on(self.t.me, self.units[u][0] + begin))

    def _stage(self, u: int) -> None:
        def put(place: BlockRef, begin: int, end: int) -> None:
            self.t.copy(place, self._own(0, u, begin).part, end - begin)

        self.fold.stage(u, put)
        self.fold.up(u)

    def _fold_node(self, u: int) -> None:
        for place, begin, end in self.fold.gathered(u):
            self.t.copy(self._mine(u) + begin, place, end - begin)

    def _take(self, u: int) -> None:
        t, (offset, size) = self.t, self.units[u]
        source = self._mine(u)
        if self.r.to is None and t.me != t.node_root:
            if self.parent != t.node_root:
                t.wait(self.there, self.parent, u + 1)
                source = self._kept(u, self.parent)
            if self.readers:
                t.copy(self._kept(u, t.me), source, size)
                t.signal(self.there, self.readers, u + 1)
                source = self._kept(u, t.me)
        t.copy(self.r.dst.on(t.me, offset), source, size)

    def _kept(self, u: int, thread: int) -> BlockRef:
        """Return where a thread keeps the result for those below it."""
        return self.fold.result(self.t.tree.local_index(thread), u)


for _form in ("allav_reduce", "allav_reduce_all"):
    algorithm(
        _form, MULTICORE, "levels", _SUMMARY, applies=_has_room, preferred=by_name
    )(by_levels)  # fmt: skip


# --- reduce_scatter ------------------------------------------------------------------------------
def _scattered(t: Facts, r: ReduceScatter, node: int) -> Slicing:
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact, staged=True)


def _can_scatter(call: CallFacts) -> bool:
    """One node, or as `nodes`; room for an element of each block and partial result; in order."""
    r: ReduceScatter = call.arguments[0]
    if not call.one_node:
        return LevelNodes.applies(call, r)
    if r.exact and r.most(call) < call.size:
        return False
    room = 2 * _scattered(call, r, 0).areas * (call.size * r.itemsize + LINE)
    return room <= call.tuning["staging_bytes"]


@algorithm(
    "allav_reduce_scatter", MULTICORE, "levels",
    "Blocks are folded inside each cache domain and socket first, then across.",
    applies=_can_scatter, preferred=by_name,
)  # fmt: skip
def scatter_by_levels(t: Recorder, r: ReduceScatter) -> None:
    """Fold the block of each thread up the levels, so that it ends there; or at the node root."""
    if not t.one_node:
        LevelNodes(t, r).record()
        return
    slicing = _scattered(t, r, t.my_node)
    places, width = places_for(t, slicing.areas, t.size * r.nbytes)
    units = cut(r.nbytes, width // t.size, r.itemsize)
    ends = [[i * size for i in range(t.size + 1)] for _, size in units]
    fold = SlicedFold(t, slicing, places, width, ends, r.itemsize, None, -1)
    for u, (offset, size) in enumerate(units):

        def put(place: BlockRef, begin: int, end: int, offset: int = offset, n: int = size) -> None:
            row = SRC.row(t.me, begin // n * r.nbytes + offset, r.nbytes)
            t.copy(place._replace(offset_step=n), row, n, (end - begin) // n)

        fold.stage(u, put)
        fold.up(u)
        t.copy(DST.on(t.me, offset), fold.result(t.me, u) + t.me * size, size)
    fold.finish()


class LevelNodes(ScatterByNodes):
    """Record the units across nodes: all blocks are folded up the levels of each node."""

    leads = False
    areas = MOST_AREAS

    def __init__(self, t: Recorder, r: ReduceScatter) -> None:
        super().__init__(t, r)
        sizes = [t.size * size for _, size in self.units]
        mates = t.tree.node_size(t.my_node)
        self.fold = SlicedFold(
            t, _scattered(t, r, t.my_node).within(self.areas), self.relay.out,
            -(-sizes[0] // LINE) * LINE, [even_slices(n, r.itemsize, mates) for n in sizes],
            r.itemsize, None, -1, reuses=False,
        )  # fmt: skip

    def _stage(self, u: int) -> None:
        stage = super()._stage
        self.fold.stage(u, lambda _place, _begin, _end: stage(u))
        self.fold.up(u)

    def _reduce(self, u: int, mates: list[int]) -> None:
        """Copy the slices from the threads of the node that have folded them."""
        for place, begin, end in self.fold.gathered(u):
            self.t.copy(self._sums(u, 0) + begin, place, end - begin)
