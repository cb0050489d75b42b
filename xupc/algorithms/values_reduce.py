"""allav_reduce, allav_reduce_all.

n elements on each of T threads, in private memory, element by element::

    reduce       0: a b   1: c d   2: e f    to   one: a+c+e b+d+f
    reduce_all                                    all: the same

The threads' values are joined in the order of `patterns.tree_joins`. Operands never change
places. Across nodes MULTICORE joins node by node where only the brackets are others, unless
REPRODUCIBLE is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import binomial
from ..plan.recorder import ALL, Recorder
from ..plan.steps import OP_SCRATCH, BlockRef, FoldOperand, Ranks
from . import values_reduce_across_nodes as nodes
from .conditions import CallFacts, on_one_node
from .private_staging import LINE, places_of, reaches
from .reduce_spec import tree_of
from .registry import algorithm
from .tree_pipeline import DEPTH, Edge, FanIn
from .values_reduce_spec import ReduceSpec

__all__ = ["read_and_fold"]


# --- PULL and PUSH -------------------------------------------------------------------------------
def _tree(t: Recorder, r: ReduceSpec, *, push: bool) -> None:
    """Reduce up a binomial tree to rank 0; pass the result to the root, or down to all."""
    places = DEPTH * (2 + max(1, (t.size - 1).bit_length())) + 1 + 2 * DEPTH
    width = min(t.unit(r.nbytes, r.nbytes), t.tuning["staging_bytes"] // places // LINE * LINE)
    width = max(t.line, width)
    units = r.units(width)
    up = FanIn(t, 0, [t.size] * len(units), r.to, width, push=push)
    down = _Down(t, len(units), width, push=push) if r.to is None else None
    ahead = DEPTH if down is not None else 0
    for j in range(len(units) + ahead):
        if j < len(units):
            offset, size = units[j]
            own = [FoldOperand(r.src.on(t.me, offset))]
            leaves = up.values(j, own, size // r.itemsize, size)
            if t.me == up.owner:
                t.fold(r.dst.on(t.me, offset), leaves, size // r.itemsize)
                up.taken(j)
        if down is not None and j >= ahead:
            offset, size = units[j - ahead]
            down.piece(j - ahead, r.dst.on(t.me, offset), size)
    up.end()
    if down is not None:
        down.end()


class _Down:
    """My edges of a binomial tree down from rank 0, its ends in private memory."""

    def __init__(self, t: Recorder, tasks: int, width: int, *, push: bool) -> None:
        self.t = t
        there, room = t.channel(), t.channel()
        parent, children = binomial(t.me, t.size)
        staged = t.tuning["staging_bytes"] // LINE * LINE - 2 * DEPTH * width
        landing = staged + DEPTH * width

        def edge(giver: int, taker: int) -> Edge:
            return Edge(t, giver, taker, tasks, there, room, staged, landing, width, push)

        self.above = None if parent is None else edge(parent, t.me)
        self.below = [edge(t.me, child) for child in children]
        if self.above is not None:
            self.above.begin()

    def piece(self, j: int, mine: BlockRef, nbytes: int) -> None:
        """Record piece j of the result: at the top it is complete, elsewhere it arrives."""
        t = self.t
        if self.above is not None:
            t.copy(mine, self.above.take(j, nbytes), nbytes)
            self.above.taken(j)
        targets = [edge.target(j) for edge in self.below]
        for target in dict.fromkeys(targets):
            t.copy(target, mine, nbytes)
        for edge in self.below:
            edge.give(j, nbytes)

    def end(self) -> None:
        """Wait, after the last piece, until no thread reads my staging buffer."""
        for edge in self.below:
            edge.end()


def pull(t: Recorder, r: ReduceSpec) -> None:
    """Each thread of a binomial tree reads its children's values, and then its parent's result."""
    _tree(t, r, push=False)


def push(t: Recorder, r: ReduceSpec) -> None:
    """Each thread of a binomial tree writes its value to its parent, the result to its children."""
    _tree(t, r, push=True)


# --- MULTICORE -----------------------------------------------------------------------------------
def direct(t: Recorder, r: ReduceSpec) -> None:
    """Let each receiver read all blocks where they lie, and fold them."""
    read_and_fold(t, r)


def slices(t: Recorder, r: ReduceSpec) -> None:
    """Fold a slice of each unit on each thread."""
    _in_units(t, r, _share)


def staged(t: Recorder, r: ReduceSpec) -> None:
    """Copy each unit to scratch, where each receiver folds it; meanwhile the next one is copied."""
    _in_units(t, r, _bring)


_FoldUnit = Callable[[Recorder, ReduceSpec, list[BlockRef], int, int], None]


def _in_units(t: Recorder, r: ReduceSpec, fold: _FoldUnit) -> None:
    places = places_of(t, r.nbytes)
    for u, (offset, size) in enumerate(r.units(places.width)):
        fold(t, r, [places.on(i, u) for i in range(t.size)], offset, size)
    if not places.short:
        t.barrier()


def read_and_fold(t: Recorder, r: ReduceSpec, *, keeps: bool = False) -> None:
    """Let one thread, or all, read all blocks where they lie, and fold them.

    It works in pieces that stay in its cache. Where all fold, all have a piece before its result
    may overwrite it. `keeps`: a thread's own values are its result, except for the one that folds.
    """
    me, to = t.me, ALL if r.to is None else r.to
    width = r.room(t)
    if to != me:
        t.offer(r.src.on(me), r.nbytes)
    t.after(ALL, to)
    if keeps and me != to and not r.in_place:
        t.copy(r.dst.on(me), r.src.on(me), r.nbytes)
    for offset, size in r.units(width):
        parts = [t.buffer(me, i * width) for i in range(t.size)]
        parts[me] = r.src.on(me, offset)
        if r.wanted(me):
            for i in range(t.size):
                if i != me:
                    t.reach(parts[i], Ranks(i), offset, size)
        if to == ALL:
            t.barrier()
        if r.wanted(me):
            t.fold(r.dst.on(me, offset), tree_of(parts), size // r.itemsize)
    if to != ALL:
        t.after(to, ALL)


def _bring(t: Recorder, r: ReduceSpec, parts: list[BlockRef], offset: int, size: int) -> None:
    """Copy each thread's value to its place; each receiver of the result folds them."""
    me, short = t.me, parts[0].operand == OP_SCRATCH
    if t.size > 1 and me != r.to:
        t.copy(parts[me], r.src.on(me, offset), size)
    if short and r.to is not None:
        t.after(ALL, r.to)
    else:
        t.barrier()
    if r.wanted(me):
        parts[me] = r.src.on(me, offset)
        t.fold(r.dst.on(me, offset), tree_of(parts), size // r.itemsize)


def _share(t: Recorder, r: ReduceSpec, parts: list[BlockRef], offset: int, size: int) -> None:
    """Fold a slice of all values on each thread; receivers of the result copy all slices."""
    me, n = t.me, size // r.itemsize
    grain = max(1, LINE // r.itemsize)
    ends = [min(n, -(-n // grain) * i // t.size * grain) * r.itemsize for i in range(t.size + 1)]
    slices = list(pairwise(ends))
    begin, end = slices[me]
    for first, last in ((0, begin), (end, size)):
        if first < last:
            t.copy(parts[me] + first, r.src.on(me, offset + first), last - first)
    t.barrier()
    if begin < end:
        here = [part + begin for part in parts]
        here[me] = r.src.on(me, offset + begin)
        result = r.dst.on(me, offset + begin) if r.wanted(me) else parts[me] + begin
        t.fold(result, tree_of(here), (end - begin) // r.itemsize)
        if r.to is None and t.size > 1:
            t.copy(parts[me] + begin, result, end - begin)
    t.barrier()
    if r.wanted(me):
        for i, (first, last) in enumerate(slices):
            if i != me and first < last:
                t.copy(r.dst.on(me, offset + first), parts[i] + first, last - first)


# --- where each variant can run -----------------------------------------------------------------
def _work(call: CallFacts) -> ReduceSpec:
    work: ReduceSpec = call.arguments[0]
    return work


def _can_be_direct(call: CallFacts) -> bool:
    """One node whose threads can read each other's private memory."""
    r = _work(call)
    return call.one_node and call.tuning["direct_min"] > 0 and r.itemsize <= r.room(call)


def _is_direct(call: CallFacts) -> bool:
    """To one of few threads or both of two, `direct_min` to `direct_reduce_max` bytes.

    Long values are read directly only where threads read each other's writes slowly. Elsewhere
    the other threads would be idle meanwhile, so they copy their values to the reader.
    """
    r = _work(call)
    both = r.to is None
    few = call.size == 2 if both else call.size < call.tuning["parallel_fold_threads"]
    short = r.nbytes <= call.tuning["direct_reduce_max"]
    return few and short and reaches(call.tree, call.tuning, r.nbytes, both, both, same=True)


def _is_in_slices(call: CallFacts) -> bool:
    """More than `eager_max` bytes on at least `parallel_fold_threads` threads.

    On fewer the receiver folds all values itself: slices that others write into its private memory
    take longer.
    """
    r = _work(call)
    few = call.size < call.tuning["parallel_fold_threads"]
    return not (few or places_of(call, r.nbytes).short)


def _register(form: str, *, to_one: bool) -> None:
    """Register all variants for a collective."""
    algorithm(form, PULL)(pull)
    algorithm(form, PUSH)(push)
    add = partial(algorithm, form, MULTICORE)
    add(
        "direct", "Each receiver reads all values in the private memory of the others.",
        applies=_can_be_direct, preferred=_is_direct,
    )(direct)  # fmt: skip
    add(
        "slices", "All threads copy their values to scratch, and each folds a slice of them.",
        applies=on_one_node, preferred=_is_in_slices,
    )(slices)  # fmt: skip
    add(
        "staged", "All threads copy their values to scratch, and each receiver folds them.",
        applies=on_one_node,
    )(staged)  # fmt: skip
    add(
        "nodes", "Node roots exchange the values of their nodes, wherever the result is needed.",
        applies=nodes.can_be_exchanged, preferred=nodes.is_exchanged,
    )(nodes.exchange)  # fmt: skip
    if to_one:
        add(
            "chain", "Units pass a chain of nodes to the receiver's, each adds its own values.",
            applies=nodes.can_pass_chain, preferred=nodes.passes_chain,
        )(nodes.pipeline)  # fmt: skip
    add(
        "parts", "Each node finishes a part of the result, for all nodes or for the receiver's.",
        applies=nodes.can_be_in_parts, preferred=nodes.nodes_pay,
    )(nodes.in_parts)  # fmt: skip
    add(
        "table", "Node roots exchange all threads' values, and each receiver combines them.",
        applies=nodes.has_table,
    )(nodes.reduce_by_table)  # fmt: skip
    add("push", "A binomial tree of threads, as in PUSH: for every order, size and placement.")(
        push
    )


_register("allav_reduce", to_one=True)
_register("allav_reduce_all", to_one=False)
