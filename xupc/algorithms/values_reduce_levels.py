"""allav_reduce, allav_reduce_all and allav_reduce_scatter by the levels of a node."""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import DST, SRC, Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .level_by_nodes import MOST_AREAS, LevelByNodes, slicing_of
from .level_reduce import SlicedFold, Slicing, even_slices, places_for
from .private_staging import LINE, cut
from .registry import algorithm
from .values_reduce_across_nodes import (
    can_be_in_parts,
    can_pass_chain,
    is_exchanged,
    passes_chain,
)
from .values_reduce_scatter import ByNodes as ScatterByNodes
from .values_reduce_scatter import ReduceScatter
from .values_reduce_spec import ReduceSpec

_SUMMARY = "Slices are folded inside each cache domain and socket first, then across."


def _has_room(call: CallFacts) -> bool:
    """One node, or as `parts`; room for an element of each partial result."""
    r: ReduceSpec = call.arguments[0]
    if not call.one_node:
        room = call.tuning["staging_bytes"] >= 16 * MOST_AREAS * call.line
        return room and can_be_in_parts(call)
    return 2 * slicing_of(call, r, 0).areas * call.line <= call.tuning["staging_bytes"]


def by_levels(t: Recorder, r: ReduceSpec) -> None:
    """Fold slices up the levels of each node; bring the result down to all, or to one."""
    if t.one_node:
        _on_one_node(t, r)
        return
    call = CallFacts(t.tree, t.tuning, t.sync, [r], t.kernel)
    flat = is_exchanged(call)
    LevelByNodes(t, r, flat, not flat and can_pass_chain(call) and passes_chain(call)).record()


def _on_one_node(t: Recorder, r: ReduceSpec) -> None:
    slicing = slicing_of(t, r, t.my_node)
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
