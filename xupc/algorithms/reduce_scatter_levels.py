"""all_reduce_scatter and allav_reduce_scatter by the levels below a node (`level_reduce`).

The block of each thread is folded up the levels, so that the result is at the thread in the end.
Operands in shared memory are read there. Those in private memory are copied to scratch first.
Across nodes each node root sends what the threads of its node have combined.
"""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import ALL, DST, SRC, Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .level_by_nodes import MOST_AREAS
from .level_reduce import SlicedFold, Slicing, even_slices, places_for
from .private_staging import LINE, cut
from .registry import algorithm
from .values_reduce_scatter import ByNodes, ReduceScatter

_SUMMARY = "Blocks are folded inside each cache domain and socket first, then across."


def _slicing(t: Facts, r: ReduceScatter, node: int, *, staged: bool) -> Slicing:
    """Return how the threads of a node divide the blocks: each has its own."""
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact, staged)


def _fits_one_node(call: CallFacts, *, staged: bool) -> bool:
    """Return whether there is room for an element of each block and partial result, in order."""
    r: ReduceScatter = call.arguments[0]
    if r.exact and r.most(call) < call.size:
        return False
    return _slicing(call, r, 0, staged=staged).fits(call, call.size * r.itemsize + LINE)


class _OneNode:
    """The units on one node, and the folds of each; a unit has a chunk of each thread's block."""

    def __init__(self, t: Recorder, r: ReduceScatter, *, staged: bool) -> None:
        self.t, self.r = t, r
        slicing = _slicing(t, r, t.my_node, staged=staged)
        places, width = places_for(t, slicing.areas, t.size * r.nbytes)
        self.units = cut(r.nbytes, width // t.size, r.itemsize)
        ends = [[i * size for i in range(t.size + 1)] for _, size in self.units]
        own = None if staged else self._operand
        sizes = None if staged else [size for _, size in self.units]
        self.fold = SlicedFold(t, slicing, places, width, ends, r.itemsize, own, -1, sizes)

    def row(self, thread: int, u: int, begin: int) -> BlockRef:
        """Return a thread's operands of a unit, from a byte of the unit on."""
        return SRC.row(thread, self._at(u, begin), self.r.nbytes)

    def _operand(self, thread: int, u: int, begin: int) -> FoldOperand:
        return FoldOperand(SRC.on(thread, self._at(u, begin)), step=self.r.nbytes)

    def _at(self, u: int, begin: int) -> int:
        """Return the place of a unit's byte in the operands: block after block of the unit."""
        offset, size = self.units[u]
        return begin // size * self.r.nbytes + offset

    def finish_unit(self, u: int) -> None:
        """Fold a unit up the levels, and copy my block of it to its place."""
        t, (offset, size) = self.t, self.units[u]
        self.fold.up(u)
        t.copy(DST.on(t.me, offset), self.fold.result(t.me, u) + t.me * size, size)


# --- shared arrays ------------------------------------------------------------------------------
def _can_be_shared(call: CallFacts) -> bool:
    """One node, or as `nodes`; room for an element of each block and partial result; in order."""
    if not call.one_node:
        return LevelNodes.applies(call, call.arguments[0])
    return _fits_one_node(call, staged=False)


@algorithm(
    "reduce_scatter", MULTICORE, "levels", _SUMMARY, applies=_can_be_shared, preferred=by_name
)
def shared_by_levels(t: Recorder, r: ReduceScatter) -> None:
    """Fold the block of each thread up the levels, so that it ends there; or at the node root.

    Across nodes each thread copies its operands to its scratch, as private ones: only then are all
    blocks for a node next to each other.
    """
    if not t.one_node:
        LevelNodes(t, r).record()
        return
    t.ready(ALL, ALL)
    work = _OneNode(t, r, staged=False)
    for u in range(len(work.units)):
        work.finish_unit(u)
    work.fold.finish()
    t.done(ALL, ALL)


# --- private arrays -----------------------------------------------------------------------------
def _can_be_private(call: CallFacts) -> bool:
    """One node, or as `nodes`; room for an element of each block and partial result; in order."""
    if not call.one_node:
        return LevelNodes.applies(call, call.arguments[0])
    return _fits_one_node(call, staged=True)


@algorithm(
    "allav_reduce_scatter", MULTICORE, "levels", _SUMMARY,
    applies=_can_be_private, preferred=by_name,
)  # fmt: skip
def private_by_levels(t: Recorder, r: ReduceScatter) -> None:
    """Fold the block of each thread up the levels, so that it ends there; or at the node root."""
    if not t.one_node:
        LevelNodes(t, r).record()
        return
    work = _OneNode(t, r, staged=True)
    for u, (_, size) in enumerate(work.units):

        def put(place: BlockRef, begin: int, end: int, u: int = u, n: int = size) -> None:
            t.copy(place._replace(offset_step=n), work.row(t.me, u, begin), n, (end - begin) // n)

        work.fold.stage(u, put)
        work.finish_unit(u)
    work.fold.finish()


class LevelNodes(ByNodes):
    """Record the units across nodes: all blocks are folded up the levels of each node."""

    leads = False
    areas = MOST_AREAS

    def __init__(self, t: Recorder, r: ReduceScatter) -> None:
        super().__init__(t, r)
        sizes = [t.size * size for _, size in self.units]
        mates = t.tree.node_size(t.my_node)
        self.fold = SlicedFold(
            t, _slicing(t, r, t.my_node, staged=True).within(self.areas), self.relay.out,
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
