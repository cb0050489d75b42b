"""allav_reduce, allav_reduce_all and allav_reduce_scatter by the levels of a node."""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import DST, SRC, Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .level_reduce import SlicedFold, Slicing, even_slices, places_for
from .private_staging import LINE, cut
from .registry import algorithm
from .values_reduce_scatter import ReduceScatter
from .values_reduce_spec import ReduceSpec

_SUMMARY = "Slices are folded inside each cache domain and socket first, then across."


def _slicing(t: Facts, r: ReduceSpec, node: int) -> Slicing:
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact or r.ordered, staged=True)


def _has_room(call: CallFacts) -> bool:
    """One node, and room for an element of each partial result."""
    r: ReduceSpec = call.arguments[0]
    if not call.one_node:
        return False
    return 2 * _slicing(call, r, 0).areas * call.line <= call.tuning["staging_bytes"]


def by_levels(t: Recorder, r: ReduceSpec) -> None:
    """Fold slices up the levels of the node; bring the result down to all, or to one."""
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


for _form in ("allav_reduce", "allav_reduce_all"):
    algorithm(
        _form, MULTICORE, "levels", _SUMMARY, applies=_has_room, preferred=by_name
    )(by_levels)  # fmt: skip


# --- reduce_scatter ------------------------------------------------------------------------------
def _scattered(t: Facts, r: ReduceScatter, node: int) -> Slicing:
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact, staged=True)


def _can_scatter(call: CallFacts) -> bool:
    """One node, and room for an element of each block and partial result, in the written order."""
    r: ReduceScatter = call.arguments[0]
    if not call.one_node or (r.exact and r.most(call) < call.size):
        return False
    room = 2 * _scattered(call, r, 0).areas * (call.size * r.itemsize + LINE)
    return room <= call.tuning["staging_bytes"]


@algorithm(
    "allav_reduce_scatter", MULTICORE, "levels",
    "Blocks are folded inside each cache domain and socket first, then across.",
    applies=_can_scatter, preferred=by_name,
)  # fmt: skip
def scatter_by_levels(t: Recorder, r: ReduceScatter) -> None:
    """Fold the block of each thread up the levels, so that it ends there."""
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
