"""Reductions of shared arrays by the levels below a node (`level_reduce`).

Threads read each other's operands in shared memory, only inside the narrowest domain. In a
reduction to one value each thread first folds its own elements.
"""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import ALL, DST, Recorder
from ..plan.steps import BlockRef, FoldOperand
from .conditions import CallFacts, by_name
from .level_by_nodes import LevelByNodes, has_room
from .level_reduce import SUMMARY, SlicedFold, Slicing, even_slices, places_for
from .private_staging import cut
from .reduce_spec import Piece, Reduction
from .registry import algorithm
from .values_reduce_across_nodes import (
    can_be_in_parts,
    can_pass_chain,
    is_exchanged,
    passes_chain,
)
from .values_reduce_spec import ReduceSpec


def _slicing(t: Facts, r: Reduction, blocks: int) -> Slicing:
    """Return how the threads of one node divide results that combine so many blocks each."""
    n = r.positions(blocks)
    found = (r.layout.position(thread) for thread in range(t.size))
    positions = tuple(p if p is not None and p < n else None for p in found)
    return Slicing(t.tree.levels(0), positions, r.exact or r.ordered, not r.element_wise)


def _has_room(call: CallFacts, r: Reduction) -> bool:
    """Return whether there is room on one node, and rows need no order."""
    if r.by_row:
        return False
    slicings = (_slicing(call, r, blocks) for *_, blocks in r.ranges(0, r.each))
    return all(slicing.fits(call, call.line) for slicing in slicings)


def by_levels(t: Recorder, r: Reduction) -> None:
    """Fold slices up the levels of the node; bring the result down to all, or put it to one."""
    t.ready(ALL, ALL)
    used = 0
    for begin, end, blocks in r.ranges(0, r.each):
        used = _fold_range(t, r, (begin, end, blocks), used)
    t.done(ALL, ALL)


def _fold_range(t: Recorder, r: Reduction, piece: Piece, used: int) -> int:
    """Reduce results over the same number of blocks; return the used bytes of the op_scratch."""
    first, end, blocks = piece
    slicing, nbytes = _slicing(t, r, blocks), (end - first) * r.itemsize
    places, width = places_for(t, slicing.areas, nbytes, used)
    units = cut(nbytes, width, r.itemsize)
    mine = slicing.positions[t.me]

    def own(thread: int, u: int, begin: int) -> FoldOperand:
        position = slicing.positions[thread]
        assert position is not None
        return r.leaf(position, first + (units[u][0] + begin) // r.itemsize, blocks)

    def put(place: BlockRef, _begin: int, _end: int) -> None:
        if mine is not None:
            t.fold(place, [r.leaf(mine, 0, blocks)])

    def result(u: int, begin: int, thread: int = t.me if r.to is None else r.to) -> BlockRef:
        return DST.on(thread, first * r.itemsize + units[u][0] + begin)

    fold = SlicedFold(
        t, slicing, places, width, [even_slices(n, r.itemsize, t.size) for _, n in units],
        r.itemsize, own if r.element_wise else None, None if r.to is None else -1,
        final=None if r.to is None else result,
    )  # fmt: skip
    for u in range(len(units)):

        def take(place: BlockRef, begin: int, end: int, u: int = u) -> None:
            t.copy(result(u, begin), place, end - begin)

        fold.stage(u, put)
        fold.up(u)
        if r.to is None:
            fold.down(u, take)
    fold.finish()
    return used + places.width if places.short else used


# --- across nodes --------------------------------------------------------------------------------
def _as_values(r: Reduction) -> ReduceSpec:
    """Return the reduction of each thread's blocks, or of its value, as one of private arrays."""
    return ReduceSpec(r.each, r.itemsize, r.to, r.ordered, r.exact, False)


def _facts(call: CallFacts | Recorder, work: ReduceSpec) -> CallFacts:
    return CallFacts(call.tree, call.tuning, call.sync, [work], call.kernel)


def _can_reduce(call: CallFacts) -> bool:
    """One node, or as much on each thread, in order if that matters; NONCOMM_FUNC: one row; room.

    On several nodes each thread has equally many whole blocks, or in a reduction to one value any
    elements. Where the order matters, the operands begin at thread 0, and nodes are in order.
    """
    r: Reduction = call.arguments[0]
    if call.one_node:
        return _has_room(call, r)
    even = r.short == r.each and r.layout.blocks % call.size == 0
    enough = even if r.element_wise else r.layout.positions == call.size
    begins = not r.exact or r.layout.first == 0
    if not (enough and begins and has_room(call)) or r.by_row:
        return False
    return can_be_in_parts(_facts(call, _as_values(r)))


def reduce_by_levels(t: Recorder, r: Reduction) -> None:
    """Fold slices up the levels of each node; node roots exchange; results go down to all or one.

    In a reduction to one value there is one slice.
    """
    if t.one_node:
        by_levels(t, r)
    elif r.element_wise:
        SharedLevels(t, r).record()
    else:
        ValueLevels(t, r).record()


for _form in ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all"):
    algorithm(
        _form, MULTICORE, "levels", SUMMARY, applies=_can_reduce, preferred=by_name
    )(reduce_by_levels)  # fmt: skip


class ValueLevels(LevelByNodes):
    """Record a reduction to one value across nodes: each thread first folds its own elements."""

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.shared = r
        work = _as_values(r)
        super().__init__(t, work, is_exchanged(_facts(t, work)), False)

    def _put(self, _unit: int, place: BlockRef, _begin: int, _end: int) -> None:
        position = self.shared.layout.position(self.t.me)
        assert position is not None
        self.t.fold(place, [self.shared.leaf(position, 0, self.shared.layout.blocks)])

    @property
    def _reads_own(self) -> bool:
        return False


class SharedLevels(LevelByNodes):
    """Record a reduction across nodes whose operands are read in shared memory, without a copy."""

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.shared = r
        work = _as_values(r)
        call = _facts(t, work)
        flat = is_exchanged(call)
        super().__init__(t, work, flat, not flat and can_pass_chain(call) and passes_chain(call))

    def _slicing(self) -> Slicing:
        mates = self.t.tree.node_size(self.t.my_node)
        levels = self.t.tree.levels(self.t.my_node)
        return Slicing(levels, tuple(range(mates)), self.shared.exact, staged=False)

    def _own(self, thread: int, u: int, begin: int) -> FoldOperand:
        rank = int(self.t.tree.members(self.t.my_node)[thread])
        position = self.shared.layout.position(rank)
        assert position is not None
        element = (self.units[u][0] + begin) // self.r.itemsize
        return self.shared.leaf(position, element, self.shared.layout.blocks)

    def record(self) -> None:
        """Record all units, between the waits of MYSYNC for the threads of my node."""
        if self.t.sync[0] == "my":
            self.t.node_barrier()
        super().record()
        if self.t.sync[1] == "my":
            self.t.join()
            self.t.node_barrier()
