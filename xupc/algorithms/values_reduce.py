"""allav_reduce, allav_reduce_all, allav_prefix_reduce, allav_suffix_reduce.

n elements on each of T threads, in private memory, element by element::

    reduce       0: a b   1: c d   2: e f    to   one: a+c+e b+d+f
    reduce_all                                    all: the same
    prefix       0: a b   1: a+c b+d   2: a+c+e b+d+f
    suffix       0: a+c+e b+d+f   1: c+e d+f   2: e f
    exclusive    0: 0 0   1: a b   2: a+c b+d

The threads' values are joined in the order of `patterns.tree_joins`, those of prefix and
suffix one after the other, from the first or the last thread on. Operands never change
places. Across nodes MULTICORE joins node by node where only the brackets are others, unless
REPRODUCIBLE is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import lcm

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import binomial
from ..plan.recorder import ALL, Recorder
from ..plan.steps import OP_SCRATCH, BlockRef, FoldOperand, Ranks
from . import values_reduce_across_nodes as nodes
from .private_staging import LINE, places_of, reaches
from .reduce_spec import tree_of
from .registry import algorithm
from .tree_pipeline import DEPTH, Edge, FanIn
from .values_reduce_across_nodes import fold_in_line, result_in_line
from .values_reduce_spec import ReduceSpec


# --- PULL and PUSH: reduce and reduce_all ------------------------------------------------------
def _tree(t: Recorder, r: ReduceSpec, *, push: bool) -> None:
    """Up a binomial tree of threads to rank 0, then to the root, or down the tree to all."""
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
        """The j-th piece of the result: at the top it is there, elsewhere it comes."""
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


# --- PULL and PUSH: prefix and suffix ------------------------------------------------------------
def _chain_width(t: Recorder, r: ReduceSpec) -> int:
    unit = t.unit(r.nbytes, r.nbytes)
    if t.one_node:  # few threads: longer ones, of which the chain is soon full
        unit = max(unit, r.nbytes // (4 * t.size))
    return max(t.line, min(unit, t.tuning["staging_bytes"] // 4) // LINE * LINE)


def _chain(t: Recorder, r: ReduceSpec, reverse: bool, *, push: bool) -> None:
    """Down a chain of threads, each joining what comes with its own: n bytes over each edge."""
    way = -1 if reverse else 1
    before, behind = t.me - way, t.me + way
    width = _chain_width(t, r)
    units = r.units(width)
    there, room = t.channel(), t.channel()
    landing = DEPTH * width

    def edge(giver: int, taker: int) -> Edge:
        return Edge(t, giver, taker, len(units), there, room, 0, landing, width, push)

    if not push:
        t.expose()
    above = edge(before, t.me) if 0 <= before < t.size else None
    below = edge(t.me, behind) if 0 <= behind < t.size else None
    if above is not None:
        above.begin()
    for j, (offset, size) in enumerate(units):
        given = [] if above is None else [above.take(j, size)]
        own = [r.src.on(t.me, offset)]
        parts = own + given if reverse else given + own
        if r.exclusive and below is not None:  # before my result may overwrite my values
            fold_in_line(t, below.target(j), parts, size // r.itemsize, reverse)
            below.give(j, size)
        result_in_line(t, r, offset, size, given if r.exclusive else parts, reverse)
        if above is not None:
            above.taken(j)
        if below is not None and not r.exclusive:
            t.copy(below.target(j), r.dst.on(t.me, offset), size)
            below.give(j, size)
    if below is not None:
        below.end()


# --- MULTICORE -----------------------------------------------------------------------------------
def multicore(t: Recorder, r: ReduceSpec) -> None:
    """Share the work inside a node by load and store; between nodes their roots communicate.

    On one node, all threads copy short values to scratch, and each receiver folds them. Of long
    values each thread folds a slice. A few threads do so only for a single receiver, and not if it
    reads the values directly or if they are very long. Then they copy a unit to scratch while the
    one before is folded. If two threads both want the result, each folds it for itself.
    """
    if not t.one_node:
        nodes.reduce(t, r, push)
        return
    if r.reaches(t):
        _reach(t, r)
        return
    places = places_of(t, r.nbytes)
    few = t.size < t.tuning["parallel_fold_threads"]
    share = not places.short and not (few and (r.to is None or r.nbytes >= 4 * places.width))
    for u, (offset, size) in enumerate(r.units(places.width)):
        parts = [places.on(i, u) for i in range(t.size)]
        if share:
            _share(t, r, parts, offset, size)
        else:
            _bring(t, r, parts, offset, size)
    if not places.short:
        t.barrier()


def _reach(t: Recorder, r: ReduceSpec, *, keeps: bool = False) -> None:
    """One of a few threads, or both of two, take all blocks where they lie, and fold them.

    It works in pieces that stay in its cache. Of two threads both have a piece before its result
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
    """All bring their values, and who wants the result folds them."""
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
    """Each thread folds a slice of all values, which the others bring; who wants it takes all."""
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


def multicore_running(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """All values to where they are needed; node after node; or thread after thread, as PUSH.

    Of a long one each edge between neighbours carries n bytes, and so does a link between
    nodes whose threads follow each other. Inside a node all that is not short is long. Of two
    threads the second takes the first one's values where they lie, of very long ones half.
    """
    if not t.one_node:
        nodes.running(t, r, reverse, lambda: _chain(t, r, reverse, push=True))
        return
    places = places_of(t, r.nbytes)
    if not places.short:
        if t.size == 2 and reaches(t.tree, t.tuning, r.nbytes):
            last = int(not reverse)
            if r.exclusive:
                _hand_on(t, r, last)
            elif r.nbytes <= t.tuning["direct_reduce_max"]:
                _reach(t, replace(r, to=last), keeps=True)
            else:
                _pair(t, r, last)
        else:
            _chain(t, r, reverse, push=True)
        return
    if t.me != (0 if reverse else t.size - 1):  # that thread's values no other needs
        t.copy(places.on(t.me, 0), r.src.on(t.me), r.nbytes)
    t.barrier()
    needed = r.operands(t.me, t.size, reverse)
    parts = [r.src.on(i) if i == t.me else places.on(i, 0) for i in needed]
    result_in_line(t, r, 0, r.nbytes, parts, reverse)


def _hand_on(t: Recorder, r: ReduceSpec, last: int) -> None:
    """Record an exclusive scan of two threads: the last one copies the first one's values."""
    first = 1 - last
    if t.me == first:
        t.offer(r.src.on(first), r.nbytes)
    t.after(first, last)
    if t.me == last:
        t.reach(r.dst.on(last), Ranks(first), 0, r.nbytes)
    elif not r.in_place:
        result_in_line(t, r, 0, r.nbytes, [], False)
    t.after(last, first)
    if t.me == first and r.in_place:
        result_in_line(t, r, 0, r.nbytes, [], False)


def _pair(t: Recorder, r: ReduceSpec, last: int) -> None:
    """A chain of two: half of each unit is brought, the other half taken where it lies.

    So both have as much to do, since the first copies all of its values to its dst.
    """
    first, me = 1 - last, t.me
    units = r.units(_chain_width(t, r))
    width, grain = units[0][1], lcm(LINE, r.itemsize)
    there, room = t.channel(), t.channel()
    edge = Edge(t, first, last, len(units), there, room, 0, DEPTH * width, width, True)
    if me == first:
        t.offer(r.src.on(me), r.nbytes)
    else:
        edge.begin()
    for j, (offset, size) in enumerate(units):
        half = size // 2 // grain * grain
        dst, own = r.dst.on(me, offset), r.src.on(me, offset)
        if me == first:
            t.copy(edge.target(j), own, half)
            edge.give(j, half)
            if dst != own:
                t.copy(dst, own, size)
            continue
        _fold_pair(t, r, dst, own, edge.take(j, half), half)
        t.reach(t.buffer(me), Ranks(first), offset + half, size - half)
        _fold_pair(t, r, dst + half, own + half, t.buffer(me), size - half)
        edge.taken(j)
    t.after(last, first)  # until all is taken


def _fold_pair(
    t: Recorder, r: ReduceSpec, dst: BlockRef, mine: BlockRef, other: BlockRef, size: int
) -> None:
    if not size:
        return
    parts = [mine, mine]
    parts[1 - t.me] = other
    t.fold(dst, tree_of(parts), size // r.itemsize)


def _running(name: str, reverse: bool) -> None:
    def pull_running(t: Recorder, r: ReduceSpec) -> None:
        """Each thread reads its neighbour's results."""
        _chain(t, r, reverse, push=False)

    def push_running(t: Recorder, r: ReduceSpec) -> None:
        """Each thread writes its results to its neighbour."""
        _chain(t, r, reverse, push=True)

    def multicore_(t: Recorder, r: ReduceSpec) -> None:
        """All values to all; longer, across nodes: a chain of them; long: a chain of threads."""
        multicore_running(t, r, reverse)

    for flag, function in ((PULL, pull_running), (PUSH, push_running), (MULTICORE, multicore_)):
        algorithm(name, flag)(function)


for _form in ("allav_reduce", "allav_reduce_all"):
    algorithm(_form, PULL)(pull)
    algorithm(_form, PUSH)(push)
    algorithm(_form, MULTICORE)(multicore)
_running("allav_prefix_reduce", False)
_running("allav_suffix_reduce", True)
_running("allav_exclusive_prefix_reduce", False)
_running("allav_exclusive_suffix_reduce", True)
