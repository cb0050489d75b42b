"""allav_broadcast ... allav_permute: blocks from private memory to private memory.

::

    broadcast    0: A   1: .   2: .      to   A   A   A        the root's to all
    scatter      0: A B C                to   A   B   C        the root's, one for each
    gather       0: A   1: B   2: C      to   A B C            to the root
    gather_all   0: A   1: B   2: C      to   A B C   A B C   A B C
    exchange     0: A0 A1   1: B0 B1     to   A0 B0   A1 B1
    permute      0: A   1: B   2: C      to   C   A   B        to any order

A :class:`~.private_staging.TransferSpec` says which of them it is; each way below does them all.
Where threads of a node may not reach into each other's private memory, and for short blocks, a
block takes two copies inside a node; the second one of a unit goes on while the first one of the
next does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import Shape, binary, binomial, chain, chunks, star, tree_for
from ..plan.recorder import ALL, DST, SRC, Recorder
from ..plan.steps import BlockRef, Ranks
from ..plan.trees import NAMED
from . import values_across_nodes as nodes
from . import values_circulant as circulant
from . import values_from_root as rooted
from .conditions import CallFacts, Condition, by_name, on_one_node, on_several_nodes
from .permute import Permutation, ends_of
from .private_staging import LINE, TransferSpec, cut, deposits, places_of, reaches, units_of
from .registry import algorithm
from .several_roots import parted_label
from .values_gather_circulant import gather_all as gather_all_circulant
from .values_gather_circulant import unit_fits

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


_LABELS = ("", "direct", "staged", "rounds")
"""The variants of exchange and permute of which `transforms` knows whether they work in place."""


def move_of(t: Recorder, flow: str, root: int, nbytes: int, in_place: bool) -> TransferSpec:
    """Return the move of a collective; in place, dst is src too."""
    give, take, by_target, by_source = FLOWS[flow]
    src = DST if in_place else SRC
    shift = t.me * nbytes if in_place and by_source and not by_target else 0
    source, target = ALL if give else root, ALL if take else root
    return TransferSpec(source, target, nbytes, by_target, by_source, DST, src, shift)


def transforms(
    flow: str, flag: int, tree: Tree, tuning: Mapping[str, int], nbytes: int, label: str = ""
) -> bool:
    """Return whether an algorithm can have dst as src; else the caller copies that before.

    It cannot where blocks arrive in dst before all that were there have left. `label`: the variant,
    if the call names one.
    """
    if flow not in ("exchange", "permute"):
        return True
    one_node = tree.node_count == 1
    all_to_all = flow == "exchange"
    label, _ = parted_label(label)
    if label:
        straight = label == "direct"
    elif flag == PUSH:
        straight = deposits(tree, tuning, nbytes)
    else:
        straight = reaches(tree, tuning, nbytes, all_to_all, all_to_all)
    if straight or label not in _LABELS:
        return False
    if flow == "permute":
        return one_node or flag != PUSH
    if not one_node and flag != PULL:
        return False
    width = min(tuning["staging_chunk"], tuning["staging_bytes"] // 2)
    return flag == PUSH or tree.size * nbytes <= tuning["eager_max"] or tree.size * LINE <= width


# --- PULL ----------------------------------------------------------------------------------
def pull_staged(t: Recorder, m: TransferSpec) -> None:
    """Senders copy their blocks into their scratch, receivers copy them from there.

    Receivers on other nodes read one-sided, straight into their private memory.
    """
    t.expose()
    everyone = m.ranks(t, m.target)
    blocks = everyone.count if m.by_target else 1
    places = places_of(t, m.nbytes * blocks)
    for u, (first, count, offset, size) in enumerate(units_of(blocks, m.nbytes, places.width)):
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


def pull_direct(t: Recorder, m: TransferSpec) -> None:
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
    """Copy my blocks for some threads, but not for me, side by side to a place."""
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
def push_staged(t: Recorder, m: TransferSpec) -> None:
    """Senders copy their blocks into the receivers' scratch, receivers copy them out.

    To other nodes they are sent, from private memory to private memory.
    """
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
    senders = t.largest_node if m.source == ALL else 1
    places = places_of(t, m.nbytes * senders)
    mine = t.tree.local_index(t.me) if m.source == ALL else 0
    if not places.short:
        t.node_barrier()  # scratch is written only when its thread has left earlier calls
    for u, (offset, size) in enumerate(cut(m.nbytes, places.width // senders)):
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


def push_direct(t: Recorder, m: TransferSpec) -> None:
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
def shared(t: Recorder, m: TransferSpec) -> None:
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


# --- registration --------------------------------------------------------------------------
def _in_place(call: CallFacts) -> bool:
    return bool(call.arguments[-1])


def _can_be_direct(call: CallFacts) -> bool:
    """One node whose threads can access each other's private memory."""
    return call.one_node and call.tuning["direct_min"] > 0


def _can_be_direct_with_src(call: CallFacts) -> bool:
    """One node whose threads can access each other's private memory, dst is not src."""
    return _can_be_direct(call) and not _in_place(call)


def _reads(flow: str) -> Condition:
    """Return the condition that direct reads are faster than staging."""
    give, take, by_target, _ = FLOWS.get(flow, (False, False, True, False))

    def condition(call: CallFacts) -> bool:
        """Blocks of at least `direct_min` bytes (or that of its kind)."""
        return reaches(call.tree, call.tuning, call.nbytes, give, take, not by_target)

    return condition


def _writes(flow: str) -> Condition:
    """Return the condition that direct writes are faster than staging."""
    give, take, _, _ = FLOWS.get(flow, (True, True, True, False))

    def condition(call: CallFacts) -> bool:
        """At least `direct_put_min` bytes of the thread that writes most."""
        others = 1 if give and take else call.size - 1
        return deposits(call.tree, call.tuning, call.nbytes * others)

    return condition


def _reads_and_writes(flow: str) -> Condition:
    """Return the condition that both at once are fastest."""
    reads, writes = _reads(flow), _writes(flow)

    def condition(call: CallFacts) -> bool:
        """Blocks of at least `direct_min_shared_source`, `direct_put_min` bytes in all."""
        return reads(call) and writes(call)

    return condition


def _register(
    flow: str, flag: int, label: str, summary: str, way: Callable[[Recorder, TransferSpec], None],
    applies: Condition | None = None, preferred: Condition | None = None,
) -> None:  # fmt: skip
    def record(t: Recorder, root: int, nbytes: int, in_place: bool) -> None:
        way(t, move_of(t, flow, root, nbytes, in_place))

    record.__doc__ = way.__doc__
    add = algorithm(f"allav_{flow}", flag, label, summary, applies=applies, preferred=preferred)
    add(record)


_DIRECT_PULL = "Receivers read blocks from the senders' private memory: one copy."
_STAGED_PULL = "Senders copy blocks into their scratch, receivers copy them from there."
_DIRECT_PUSH = "Senders write blocks to the receivers' private memory: one copy."
_STAGED_PUSH = "Senders copy blocks into the receivers' scratch; messages go to private memory."
_ROUNDS = "Node roots exchange staged blocks; in round k with the node k places after."


def _register_tree(shape: Shape, text: str, default: str = "") -> None:
    """Register a broadcast that sends chunks along a tree of nodes.

    `default`: where it is the default; without it the variant is used by name only.
    """

    def preferred(call: CallFacts) -> bool:
        unit = rooted.chunk_of(call)
        return tree_for(call.tree.node_count, call.nbytes, unit, call.tuning) is shape

    def way(t: Recorder, m: TransferSpec) -> None:
        rooted.broadcast(t, m, shape)

    preferred.__doc__ = default
    way.__doc__ = rooted.broadcast.__doc__
    name = shape.__name__
    condition = preferred if default else by_name
    _register("broadcast", MULTICORE, name, text, way, on_several_nodes, condition)


for _flow in FLOWS:
    _direct = _can_be_direct_with_src if _flow == "exchange" else _can_be_direct
    _register(_flow, PULL, "direct", _DIRECT_PULL, pull_direct, _direct, _reads(_flow))
    _register(_flow, PULL, "staged", _STAGED_PULL, pull_staged)
    _register(_flow, PUSH, "direct", _DIRECT_PUSH, push_direct, _direct, _writes(_flow))
    _register(_flow, PUSH, "staged", _STAGED_PUSH, push_staged)
    if _flow in ("broadcast", "gather"):  # one side would be idle
        _register(
            _flow, MULTICORE, "shared",
            "Receivers read the beginnings of blocks while senders write the rest: one copy.",
            shared, _can_be_direct, _reads_and_writes(_flow),
        )  # fmt: skip
    _register(_flow, MULTICORE, "direct", _DIRECT_PULL, pull_direct, _direct, _reads(_flow))
    _register(_flow, MULTICORE, "staged", _STAGED_PULL, pull_staged, on_one_node)
for _flow in ("gather_all", "exchange"):
    _register(_flow, MULTICORE, "rounds", _ROUNDS, nodes.all_to_all, on_several_nodes)
_register(
    "gather", MULTICORE, "star",
    "Each node root sends its threads' staged blocks straight into the root's dst.",
    rooted.to_root, on_several_nodes,
)  # fmt: skip
_register(
    "scatter", MULTICORE, "star",
    "The root sends each node root the blocks of its threads, from its own src.",
    rooted.from_root, on_several_nodes,
)  # fmt: skip
_register_tree(
    star, "The root sends the block to each other node root itself.",
    "Less than `pipeline_min` bytes on at most `few_nodes_max` nodes.",
)  # fmt: skip
_register_tree(
    binomial, "The block goes down a binomial tree of nodes, chunk by chunk.",
    "Less than `pipeline_min` bytes, or fewest messages in sequence: chunks x log2 N.",
)  # fmt: skip
_register_tree(
    chain, "Chunks go along a chain of nodes, one on every link at the same time.",
    "Fewest messages in sequence on N nodes: chunks + N - 2.",
)  # fmt: skip
_register_tree(
    binary, "Chunks go down a complete binary tree of nodes, two on each way down.",
    "Fewest messages in sequence on N nodes: 2 (chunks + log2 (N + 1) - 2).",
)  # fmt: skip
for _shape, _words in NAMED:
    _register_tree(_shape, f"Chunks go down a tree of nodes, {_words}")
_register(
    "broadcast", MULTICORE, "circulant",
    "Chunks go to log2 N nodes in turn, in the fewest rounds for any number N of nodes.",
    circulant.broadcast, on_several_nodes, by_name,
)  # fmt: skip
_register(
    "gather_all", MULTICORE, "circulant",
    "Node roots exchange staged blocks in log2 N rounds, and send again what arrived before.",
    gather_all_circulant, unit_fits, by_name,
)  # fmt: skip


# --- permute -------------------------------------------------------------------------------
def _others(t: Recorder, threads: Sequence[int], *, near: bool = False) -> list[int]:
    """Return the threads other than me; `near`: only those on my node."""
    return [x for x in threads if x != t.me and (t.on_my_node(x) or not near)]


@algorithm(
    "allav_permute", PULL, "direct", _DIRECT_PULL,
    applies=_can_be_direct_with_src, preferred=_reads("permute"),
)  # fmt: skip
def pull_permuted_direct(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """Record a permutation like the other moves: each thread has one sender and one receiver."""
    to, of = ends_of(t, perm)
    t.offer(SRC.on(t.me), nbytes)
    t.after_each(_others(t, [of]), _others(t, [to]))
    if of != t.me:
        t.reach(DST.on(t.me), Ranks(of), 0, nbytes)
    else:
        t.copy(DST.on(t.me), SRC.on(t.me), nbytes)
    t.after_each(_others(t, [to]), _others(t, [of]))


@algorithm("allav_permute", PULL, "staged", _STAGED_PULL)
def pull_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """Record a permutation like the other moves: each thread has one sender and one receiver."""
    src = DST if in_place else SRC
    to, of = ends_of(t, perm)
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


@algorithm(
    "allav_permute", PUSH, "direct", _DIRECT_PUSH,
    applies=_can_be_direct_with_src, preferred=_writes("permute"),
)  # fmt: skip
def push_permuted_direct(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """Record a permutation like the other moves: each thread has one sender and one receiver."""
    to, of = ends_of(t, perm)
    t.offer(DST.on(t.me), nbytes)
    t.after_each(_others(t, [to]), _others(t, [of]))
    if to != t.me:
        t.deposit(SRC.on(t.me), Ranks(to), 0, nbytes)
    else:
        t.copy(DST.on(t.me), SRC.on(t.me), nbytes)
    t.after_each(_others(t, [of]), _others(t, [to]))
    if of != t.me:
        t.reclaim(DST.on(t.me), nbytes)


@algorithm("allav_permute", PUSH, "staged", _STAGED_PUSH)
def push_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """Record a permutation like the other moves: each thread has one sender and one receiver."""
    src = DST if in_place else SRC
    to, of = ends_of(t, perm)
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
    senders, receivers = _others(t, [of], near=True), _others(t, [to], near=True)
    for u, (offset, size) in enumerate(chunks(nbytes, places.width)):
        for receiver in receivers:
            t.copy(places.on(receiver, u), src.on(t.me, offset), size)
        if places.short:
            t.after_each(senders, receivers)
        else:
            t.node_barrier()
        for _ in senders:
            t.copy(DST.on(t.me, offset), places.on(t.me, u), size)
        if of == t.me and not in_place:
            t.copy(DST.on(t.me, offset), src.on(t.me, offset), size)


algorithm(
    "allav_permute", MULTICORE, "direct", _DIRECT_PULL,
    applies=_can_be_direct_with_src, preferred=_reads("permute"),
)(pull_permuted_direct)  # fmt: skip
algorithm("allav_permute", MULTICORE, "staged", _STAGED_PULL, applies=on_one_node)(pull_permuted)


@algorithm(
    "allav_permute", MULTICORE, "rounds",
    "One message per pair of nodes and unit, from the scratch of threads to that of a node root.",
    applies=on_several_nodes,
)  # fmt: skip
def multicore_permuted(t: Recorder, perm: Permutation, nbytes: int, in_place: bool) -> None:
    """Send the blocks from one node to another one in one message for each unit."""
    nodes.permute(t, perm, DST, DST if in_place else SRC, nbytes)
