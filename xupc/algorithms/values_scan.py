"""allav_prefix_reduce, allav_suffix_reduce, and their exclusive forms.

n elements on each of T threads, in private memory, element by element::

    src          0: a b   1: c d   2: e f
    prefix       0: a b   1: a+c b+d   2: a+c+e b+d+f
    suffix       0: a+c+e b+d+f   1: c+e d+f   2: e f
    exclusive    0: 0 0   1: a b   2: a+c b+d

The values are joined one after the other, from the first or the last thread on. Operands never
change places.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import lcm

from ..flags import MULTICORE, PULL, PUSH
from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, Ranks
from ..records import replace
from . import values_scan_across_nodes as nodes
from .conditions import CallFacts, Condition
from .private_staging import LINE, deposits, places_of, reaches
from .reduce_spec import tree_of
from .registry import Function, algorithm
from .tree_pipeline import DEPTH, Edge
from .values_reduce import read_and_fold
from .values_reduce_across_nodes import has_table
from .values_reduce_spec import ReduceSpec
from .values_scan_across_nodes import fold_in_line, result_in_line

Way = Callable[[Recorder, ReduceSpec, bool], None]


# --- a chain of threads ---------------------------------------------------------------------------
def _chain_width(t: Recorder, r: ReduceSpec) -> int:
    unit = t.unit(r.nbytes, r.nbytes)
    if t.one_node:  # few threads: longer ones, of which the chain is soon full
        unit = max(unit, r.nbytes // (4 * t.size))
    return max(t.line, min(unit, t.tuning["staging_bytes"] // 4) // LINE * LINE)


def _chain(t: Recorder, r: ReduceSpec, reverse: bool, *, push: bool) -> None:
    """Pass values down a chain of threads, each of which joins its own: n bytes over each edge."""
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


def pull(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Let each thread read its neighbour's results."""
    _chain(t, r, reverse, push=False)


def push(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Let each thread write its results to its neighbour."""
    _chain(t, r, reverse, push=True)


# --- MULTICORE on one node ------------------------------------------------------------------------
def staged(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Copy all values to scratch; each thread combines those up to its own."""
    places = places_of(t, r.nbytes)
    if t.me != (0 if reverse else t.size - 1):  # that thread's values no other needs
        t.copy(places.on(t.me, 0), r.src.on(t.me), r.nbytes)
    t.barrier()
    needed = r.operands(t.me, t.size, reverse)
    parts = [r.src.on(i) if i == t.me else places.on(i, 0) for i in needed]
    result_in_line(t, r, 0, r.nbytes, parts, reverse)


def direct(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Record a scan of two threads: the last one reads the values of the first one."""
    last = int(not reverse)
    if r.exclusive:
        _hand_on(t, r, last)
    else:
        read_and_fold(t, replace(r, to=last), keeps=True)


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


def shared(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Record an exclusive scan of two threads: the last one reads half, the first one writes half.

    So both copy, each half of the first one's values.
    """
    first, me = int(reverse), t.me
    last = 1 - first
    read = r.nbytes // 2 // LINE * LINE
    t.offer(r.src.on(me) if me == first else r.dst.on(me), r.nbytes)
    t.barrier()
    if me == last:
        t.reach(r.dst.on(me), Ranks(first), 0, read)
    else:
        t.deposit(r.src.on(me, read), Ranks(last), read, r.nbytes - read)
        if not r.in_place:
            result_in_line(t, r, 0, r.nbytes, [], False)
    t.barrier()
    if me == last:
        t.reclaim(r.dst.on(me, read), r.nbytes - read)
    elif r.in_place:
        result_in_line(t, r, 0, r.nbytes, [], False)


def halves(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Record a chain of two: half of each unit is staged, the other half read where it lies.

    So both have as much to do, since the first copies all of its values to its dst.
    """
    first, me = int(reverse), t.me
    last = 1 - first
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


# --- where each variant can run -------------------------------------------------------------------
def _work(call: CallFacts) -> ReduceSpec:
    work: ReduceSpec = call.arguments[0]
    return work


def _can_be_staged(call: CallFacts) -> bool:
    """One node, at most `eager_max` bytes."""
    return call.one_node and _work(call).nbytes <= call.tuning["eager_max"]


def _can_be_direct(call: CallFacts) -> bool:
    """Two threads of one node that can read each other's private memory."""
    return call.one_node and call.size == 2 and call.tuning["direct_min"] > 0


def _is_read(call: CallFacts) -> bool:
    """At least `direct_min` bytes."""
    return reaches(call.tree, call.tuning, _work(call).nbytes)


def _is_shared(call: CallFacts) -> bool:
    """At least `direct_min` and `direct_put_min` bytes."""
    return _is_read(call) and deposits(call.tree, call.tuning, _work(call).nbytes)


def _is_read_whole(call: CallFacts) -> bool:
    """At least `direct_min` and, unless EXCLUSIVE, at most `direct_reduce_max` bytes."""
    r = _work(call)
    return _is_read(call) and (r.exclusive or r.nbytes <= call.tuning["direct_reduce_max"])


@cache
def _directed(way: Way, reverse: bool) -> Function:
    """Return the function of a variant: the same one for two names of one way."""

    def record(t: Recorder, r: ReduceSpec) -> None:
        way(t, r, reverse)

    return record


def _register(form: str, *, reverse: bool) -> None:
    """Register all variants for a collective."""

    def add(
        flag: int, label: str, summary: str, way: Way, applies: Condition | None = None,
        preferred: Condition | None = None,
    ) -> None:  # fmt: skip
        algorithm(form, flag, label, summary, applies=applies, preferred=preferred)(
            _directed(way, reverse)
        )

    add(PULL, "", "Each thread reads its neighbour's results.", pull)
    add(PUSH, "", "Each thread writes its results to its neighbour.", push)
    add(
        MULTICORE, "staged", "All threads copy their values to scratch; each combines those up to "
        "its own.", staged, _can_be_staged,
    )  # fmt: skip
    if form.startswith("allav_exclusive"):
        add(
            MULTICORE, "shared", "The last of two threads reads half of the values of the first "
            "directly, while the first writes the others.", shared, _can_be_direct, _is_shared,
        )  # fmt: skip
    add(
        MULTICORE, "direct", "The last of two threads reads all values of the first in its private "
        "memory.", direct, _can_be_direct, _is_read_whole,
    )  # fmt: skip
    if not form.startswith("allav_exclusive"):
        add(
            MULTICORE, "halves", "The last of two threads reads half of each unit directly, the "
            "first stages the other.", halves, _can_be_direct, _is_read,
        )  # fmt: skip
    add(
        MULTICORE, "table", "Node roots exchange all threads' values, and each thread combines "
        "those up to its own.", nodes.by_table, has_table, nodes.table_is_short,
    )  # fmt: skip
    add(
        MULTICORE, "chain", "Units pass a chain of nodes, on each of which all threads combine "
        "them at once.", nodes.node_after_node, nodes.can_follow_nodes, nodes.passes_nodes,
    )  # fmt: skip
    add(
        MULTICORE, "doubling", "In round k a node sends the value of its last 2^k nodes 2^k nodes "
        "ahead.", nodes.doubling, nodes.can_double, nodes.doubling_pays,
    )  # fmt: skip
    add(
        MULTICORE, "push", "A chain of threads, as in PUSH: for every order, size and placement.",
        push,
    )  # fmt: skip


_register("allav_prefix_reduce", reverse=False)
_register("allav_suffix_reduce", reverse=True)
_register("allav_exclusive_prefix_reduce", reverse=False)
_register("allav_exclusive_suffix_reduce", reverse=True)
