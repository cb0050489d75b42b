"""allav_reduce and allav_reduce_all by the levels of a node."""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .level_by_nodes import LevelByNodes, has_room, slicing_of
from .level_reduce import SUMMARY, SlicedFold, even_slices, places_for
from .registry import algorithm
from .values_reduce_across_nodes import (
    can_be_in_parts,
    can_pass_chain,
    is_exchanged,
    passes_chain,
)
from .values_reduce_spec import ReduceSpec


def _has_room(call: CallFacts) -> bool:
    """Room for an element of each partial result; several nodes: the conditions of `parts`."""
    r: ReduceSpec = call.arguments[0]
    if not call.one_node:
        return has_room(call) and can_be_in_parts(call)
    return slicing_of(call, r, 0).fits(call, call.line)


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
        _form, MULTICORE, "levels", SUMMARY, applies=_has_room, preferred=by_name
    )(by_levels)  # fmt: skip
