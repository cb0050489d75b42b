"""allav_broadcast ... allav_permute: blocks from private memory to private memory.

::

    broadcast    0: A   1: .   2: .      to   A   A   A        the root's to all
    scatter      0: A B C                to   A   B   C        the root's, one for each
    gather       0: A   1: B   2: C      to   A B C            to the root
    gather_all   0: A   1: B   2: C      to   A B C   A B C   A B C
    exchange     0: A0 A1   1: B0 B1     to   A0 B0   A1 B1
    permute      0: A   1: B   2: C      to   C   A   B        to any order

A :class:`~.private_staging.TransferSpec` says which of them it is; each algorithm below does them
all. Where threads of a node may not reach into each other's private memory, and for short blocks,
a block takes two copies inside a node; the second one of a unit goes on while the first one of
the next does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks
from ..plan.recorder import ALL, DST, SRC, Recorder
from ..plan.steps import BlockRef, Ranks
from . import values_across_nodes as nodes
from . import values_from_root as rooted
from .permute import Permutation, ends_of
from .private_staging import LINE, TransferSpec, cut, deposits, places_of, reaches, units_of
from .registry import algorithm

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = ["FLOWS", "move_of", "stage_blocks", "transforms"]

FLOWS: dict[str, tuple[bool, bool, bool, bool]] = {
    "broadcast": (False, True, False, False),
    "scatter": (False, True, True, False),
    "gather": (True, False, False, True),
    "gather_all": (True, True, False, True),
    "exchange": (True, True, True, True),
}
"""All threads give, all take; a block for each target, a place for each source."""


def move_of(t: Recorder, flow: str, root: int, nbytes: int, in_place: bool) -> TransferSpec:
    """The move of a collective; in place, dst is src too."""
    give, take, by_target, by_source = FLOWS[flow]
    src = DST if in_place else SRC
    shift = t.me * nbytes if in_place and by_source and not by_target else 0
    source, target = ALL if give else root, ALL if take else root
    return TransferSpec(source, target, nbytes, by_target, by_source, DST, src, shift)


def transforms(
    flow: str, flag: int, tree: Tree, tuning: Mapping[str, int], nbytes: int
) -> bool:
    """Whether an algorithm can have dst as src; else the caller copies that before.

    It cannot where blocks arrive in dst before all that were there have left.
    """
    if flow not in ("exchange", "permute"):
        return True
    one_node = tree.node_count == 1
    all_to_all = flow == "exchange"
    if flag == PUSH:
        straight = deposits(tree, tuning, nbytes)
    else:
        straight = reaches(tree, tuning, nbytes, all_to_all, all_to_all)
    if straight:
        return False
    if flow == "permute":
        return one_node or flag != PUSH
    if not one_node and flag != PULL:
        return False
    width = min(tuning["staging_chunk"], tuning["staging_bytes"] // 2)
    return flag == PUSH or tree.size * nbytes <= tuning["eager_max"] or tree.size * LINE <= width


# --- PULL ----------------------------------------------------------------------------------
def pull(t: Recorder, m: TransferSpec) -> None:
    """Givers copy their blocks into their scratch, takers copy them from there.

    Takers of other nodes read one-sided, straight into their private memory. Inside a node
    long blocks are taken straight from the givers' private memory.
    """
    if m.reaches(t):
        _reach(t, m)
        return
    t.expose()
    everyone = m.ranks(t, m.target)
    blocks = everyone.count if m.by_target else 1
    places = places_of(t, m.nbytes * blocks)
    for u, (first, count, offset, size) in enumerate(
        units_of(blocks, m.nbytes, places.width)
    ):
        to = everyone.cut(first, count)
        if m.gives(t.me):
            stage_blocks(t, m, to, offset, size, places.on(t.me, u))
        if places.short:
            t.after(m.source, m.target)
        else:
            t.barrier()
        if m.takes(t.me) and (not m.by_target or t.me in to):
            at = (t.me - to.first) * size if m.by_target else 0
            for _, run in m.near(t, m.source, but=t.me):
                t.copy(m.to(t, run, offset), places.across(run, u, at), size, run.count)
            if not t.one_node:
                of = m.ranks(t, m.source)
                t.need(*t.get(m.to(t, of, offset), places.across(of, u, at), size, of.count))
    m.own(t)
    if not places.short:
        t.barrier()


def _reach(t: Recorder, m: TransferSpec) -> None:
    """Copy once: a source has entered before it is read, and returns after all have read."""
    if m.gives(t.me):
        m.offer(t)
    t.after(m.source, m.target)
    if m.takes(t.me):
        m.reach(t, m.nbytes)
        m.own(t)
    t.after(m.target, m.source)


def stage_blocks(
    t: Recorder, m: TransferSpec, to: Ranks, offset: int, size: int, place: BlockRef
) -> None:
    """My blocks for some threads, side by side, into a place; not my own one."""
    if not m.by_target:
        if m.ranks(t, m.target).without(t.me):
            t.copy(place, m.of(t, Ranks(t.me), offset), size)
        return
    for part in to.without(t.me):
        target = place + (part.first - to.first) * size
        if size == m.nbytes:  # they are side by side in src, too
            t.copy(target, m.of(t, part)._replace(offset_step=0), size * part.count)
        else:
            t.copy(target._replace(offset_step=size), m.of(t, part, offset), size, part.count)


# --- PUSH ----------------------------------------------------------------------------------
def push(t: Recorder, m: TransferSpec) -> None:
    """Givers copy their blocks into the takers' scratch, takers copy them out.

    To other nodes they are sent, from private memory to private memory. Inside a node long
    blocks are written straight to the takers' private memory.
    """
    if m.deposits(t):
        _deposit(t, m)
        return
    if not t.one_node:
        of, to = m.ranks(t, m.source), m.ranks(t, m.target)
        with t.net():
            for offset, size in chunks(m.nbytes, t.tuning["max_message"]):
                if m.takes(t.me):
                    t.recv(of, m.to(t, of, offset)._replace(offset_step=0), size,
                           peer_step=m.nbytes if m.by_source else 0)  # fmt: skip
                if m.gives(t.me):
                    t.send(to, m.of(t, to, offset)._replace(offset_step=0), size,
                           peer_step=m.nbytes if m.by_target else 0)  # fmt: skip
    givers = t.largest_node if m.source == ALL else 1
    places = places_of(t, m.nbytes * givers)
    mine = t.tree.local_index(t.me) if m.source == ALL else 0
    if not places.short:
        t.node_barrier()  # scratch is written only when its thread has left earlier calls
    for u, (offset, size) in enumerate(cut(m.nbytes, places.width // givers)):
        if m.gives(t.me):
            for _, run in m.near(t, m.target, but=t.me):
                t.copy(places.across(run, u, mine * size), m.of(t, run, offset), size, run.count)
        if places.short:
            t.after(m.source, m.target, node_only=not t.one_node)
        else:
            t.node_barrier()
        if m.takes(t.me):
            for at, run in m.near(t, m.source, but=t.me):
                place = places.on(t.me, u, at * size if m.source == ALL else 0)
                row = place._replace(offset_step=size)
                t.copy(m.to(t, run, offset), row, size, run.count)
    m.own(t)


def _deposit(t: Recorder, m: TransferSpec) -> None:
    """Copy once: a target has entered before it is written, and returns when it has everything."""
    if m.takes(t.me):
        m.lend(t)
    if m.source == ALL:  # no thread writes before all calls are compared
        t.barrier()
    else:
        t.after(m.target, m.source)
    if m.gives(t.me):
        m.deposit(t, 0)
    m.own(t)
    t.after(m.source, m.target)
    if m.takes(t.me):
        m.reclaim(t, 0)


# --- MULTICORE -----------------------------------------------------------------------------
def multicore(t: Recorder, m: TransferSpec) -> None:
    """Send a block once to each node with a receiver; inside the node threads pull it.

    Node roots send and receive for their nodes (the call's root for its own). Inside one node it is
    PULL, but both sides copy where one of them would be idle.
    """
    one_idle = (m.source == ALL) != (m.target == ALL) and not m.by_target
    if one_idle and m.reaches(t) and m.deposits(t):
        _share(t, m)
    elif t.one_node:
        pull(t, m)
    elif m.source == ALL and m.target == ALL:
        nodes.all_to_all(t, m)
    elif m.source == ALL:
        rooted.to_root(t, m)
    elif m.by_target:
        rooted.from_root(t, m)
    else:
        rooted.broadcast(t, m)


def _share(t: Recorder, m: TransferSpec) -> None:
    """One copy; the beginnings of blocks are taken, the rest is brought, both at the same time.

    Cut so that all threads have as much to do: in a broadcast the root brings as much as each
    other thread takes; in a gather the root takes little, since it has its own block to copy.
    """
    taken = m.nbytes * (t.size - 1) // t.size if m.target == ALL else m.nbytes // (2 * t.size)
    taken -= taken % LINE
    if t.me == m.source or (m.source == ALL and t.me != m.target):
        m.offer(t)
    else:
        m.lend(t)
    t.barrier()
    if m.takes(t.me):
        m.reach(t, taken)
    if m.gives(t.me):
        m.deposit(t, taken)
    m.own(t)
    t.barrier()
    if m.takes(t.me):
        m.reclaim(t, taken)


def _of(flow: str, way: Callable[[Recorder, TransferSpec], None]) -> Callable[..., None]:
    def record(t: Recorder, root: int, nbytes: int, in_place: bool) -> None:
        way(t, move_of(t, flow, root, nbytes, in_place))

    record.__doc__ = way.__doc__
    return record


for _flow in FLOWS:
    algorithm(f"allav_{_flow}", PULL)(
        _of(_flow, pull)
    )
    algorithm(f"allav_{_flow}", PUSH)(
        _of(_flow, push)
    )
    algorithm(f"allav_{_flow}", MULTICORE)(_of(_flow, multicore))


# --- permute -------------------------------------------------------------------------------
def _others(t: Recorder, threads: Sequence[int], *, near: bool = False) -> list[int]:
    """Those that are not me; `near`: on my node."""
    return [x for x in threads if x != t.me and (t.on_my_node(x) or not near)]


@algorithm("allav_permute", PULL)
def pull_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """As the other moves, with one giver and one taker each."""
    src = DST if in_place else SRC
    to, of = ends_of(t, perm)
    if reaches(t.tree, t.tuning, nbytes):
        t.offer(src.on(t.me), nbytes)
        t.after_each(_others(t, [of]), _others(t, [to]))
        if of != t.me:
            t.reach(DST.on(t.me), Ranks(of), 0, nbytes)
        elif not in_place:
            t.copy(DST.on(t.me), src.on(t.me), nbytes)
        t.after_each(_others(t, [to]), _others(t, [of]))
        return
    t.expose()
    places = places_of(t, nbytes)
    for u, (offset, size) in enumerate(chunks(nbytes, places.width)):
        if to != t.me:
            t.copy(places.on(t.me, u), src.on(t.me, offset), size)
        if places.short:
            t.after_each(_others(t, [of]), _others(t, [to]))
        else:
            t.barrier()
        if of != t.me:
            t.need(*t.fetch(DST.on(t.me, offset), places.on(of, u), size))
        elif not in_place:
            t.copy(DST.on(t.me, offset), src.on(t.me, offset), size)
    if not places.short:
        t.barrier()


@algorithm("allav_permute", PUSH)
def push_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """As the other moves, with one giver and one taker each."""
    src = DST if in_place else SRC
    to, of = ends_of(t, perm)
    if deposits(t.tree, t.tuning, nbytes):
        t.offer(DST.on(t.me), nbytes)
        t.after_each(_others(t, [to]), _others(t, [of]))
        if to != t.me:
            t.deposit(src.on(t.me), Ranks(to), 0, nbytes)
        elif not in_place:
            t.copy(DST.on(t.me), src.on(t.me), nbytes)
        t.after_each(_others(t, [of]), _others(t, [to]))
        if of != t.me:
            t.reclaim(DST.on(t.me), nbytes)
        return
    if not t.one_node:
        with t.net():
            for offset, size in chunks(nbytes, t.tuning["max_message"]):
                if not t.on_my_node(of):
                    t.recv(of, DST.on(t.me, offset), size)
                if not t.on_my_node(to):
                    t.send(to, src.on(t.me, offset), size)
    places = places_of(t, nbytes)
    if not places.short:
        t.node_barrier()
    givers, takers = _others(t, [of], near=True), _others(t, [to], near=True)
    for u, (offset, size) in enumerate(chunks(nbytes, places.width)):
        for taker in takers:
            t.copy(places.on(taker, u), src.on(t.me, offset), size)
        if places.short:
            t.after_each(givers, takers)
        else:
            t.node_barrier()
        for _ in givers:
            t.copy(DST.on(t.me, offset), places.on(t.me, u), size)
        if of == t.me and not in_place:
            t.copy(DST.on(t.me, offset), src.on(t.me, offset), size)


@algorithm("allav_permute", MULTICORE)
def multicore_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """One message per pair of nodes and unit. Inside one node: PULL."""
    if t.one_node:
        pull_permuted(t, perm, nbytes, in_place)
    else:
        nodes.permute(t, perm, DST, DST if in_place else SRC, nbytes)


