"""allav_reduce_scatter: element by element over the threads, block i of the result to thread i.

T blocks of n elements on each thread, in private memory, an operation written +::

    src@0: a0 a1   src@1: b0 b1   src@2: ...      dst@0: a0+b0   dst@1: a1+b1   ...

It is an exchange of blocks whose receivers reduce what arrives. The written order of operands is
that of the ranks: groups of neighbouring threads are joined as `patterns.tree_joins` says, the
groups one after the other, so that no receiver needs room for a block of every thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from ..flags import MULTICORE, PULL, PUSH
from ..plan.placement import Facts
from ..plan.recorder import ALL, DST, SRC, Recorder
from ..plan.steps import STAGING, BlockRef, FoldOperand, Ranks
from ..records import record
from .conditions import CallFacts, on_one_node
from .node_relay import Relay
from .private_staging import LINE, Places, TransferSpec, cut, places_of, reaches
from .reduce_positions import nodes_by_rank, nodes_in_order
from .reduce_spec import joined, tree_of
from .registry import algorithm
from .values import move_of, stage_blocks

__all__ = ["ByNodes", "ReduceScatter", "push", "read_group"]

_GROUP = 256
"""Threads whose operands are joined as a tree."""
_DEEP = 3
"""Units that a node root has in transit: it posts their messages, and finishes them."""


class Unit(NamedTuple):
    """Bytes ``offset .. offset + size`` of the blocks for some threads."""

    to: Ranks
    offset: int
    size: int


@record
class ReduceScatter:
    """The arguments of a reduction whose result is scattered.

    Attributes
    ----------
    nelems, itemsize
        Elements of a block, and bytes of an element.
    exact
        True if operands must be joined in the written order: under REPRODUCIBLE, and for an
        operation that is not commutative.
    """

    nelems: int
    itemsize: int
    exact: bool

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return self.nelems * self.itemsize

    def move(self, t: Recorder) -> TransferSpec:
        """Return the exchange that brings the operands."""
        return move_of(t, "exchange", 0, self.nbytes, False)

    def own(self, t: Recorder, offset: int) -> BlockRef:
        """Return this thread's operand for its own result, from a byte of the block on."""
        return SRC.on(t.me, t.me * self.nbytes + offset)

    def most(self, t: Facts) -> int:
        """Return the threads of a group: fewer if the places cannot hold an element of each."""
        room = min(t.tuning["staging_chunk"], t.tuning["staging_bytes"] // 3) // LINE * LINE
        return max(1, min(_GROUP, t.size, room // self.itemsize))

    def groups(self, t: Recorder) -> Iterator[Ranks]:
        """Return the groups of operands, in the order in which they are joined."""
        most = self.most(t)
        for first in range(0, t.size, most):
            yield Ranks(first, min(most, t.size - first))

    def units(self, t: Recorder, width: int) -> list[Unit]:
        """Cut all blocks so that those of a unit, or of a group of operands, fit `width` bytes."""
        return [
            Unit(to, offset, size)
            for offset, size in cut(self.nbytes, width // self.most(t), self.itemsize)
            for to in self.groups(t)
        ]

    def join(
        self, t: Recorder, dst: BlockRef, group: Ranks, parts: list[BlockRef], size: int
    ) -> None:
        """Reduce the operands of one group to `dst`, or join them with what is there."""
        leaves = tree_of(parts)
        if group.first:
            leaves = [FoldOperand(dst), *joined(leaves)]
        t.fold(dst, leaves, size // self.itemsize)


# --- PULL --------------------------------------------------------------------------------------
def _can_be_direct(call: CallFacts) -> bool:
    """One node, whose threads can access each other's private memory."""
    return call.one_node and call.tuning["direct_min"] > 0


def _is_direct(call: CallFacts) -> bool:
    """Blocks of at least `direct_min_alltoall` bytes, on two threads `direct_min_pair`."""
    return reaches(call.tree, call.tuning, call.nbytes, from_all=True, to_all=True)


_DIRECT = "Each thread reads its block in the private memory of every other one."
_STAGED = "Threads copy their blocks into their scratch; each reads its own of every thread."


@algorithm(
    "allav_reduce_scatter", PULL, "direct", _DIRECT, applies=_can_be_direct, preferred=_is_direct
)
def pull_direct(t: Recorder, r: ReduceScatter) -> None:
    """Reduce blocks that are read where they lie, in pieces that stay in the cache."""
    r.move(t).offer(t)
    t.after(ALL, ALL)
    width = t.tuning["staging_bytes"] // r.most(t) // LINE * LINE
    mine = t.me * r.nbytes
    for offset, size in cut(r.nbytes, width, r.itemsize):
        for group in r.groups(t):
            parts = [t.buffer(t.me, k * width) for k in range(group.count)]
            for i, part in zip(group, parts, strict=True):
                if i != t.me:
                    t.reach(part, Ranks(i), mine + offset, size)
            if t.me in group:
                parts[t.me - group.first] = r.own(t, offset)
            r.join(t, DST.on(t.me, offset), group, parts, size)
    t.after(ALL, ALL)


@algorithm("allav_reduce_scatter", PULL, "staged", _STAGED)
def pull_staged(t: Recorder, r: ReduceScatter) -> None:
    """Reduce blocks that are read in scratch; those of other nodes are read one-sided."""
    m = r.move(t)
    if not t.one_node:
        t.expose()
    out, landing = _places(t, r)
    for u, unit in enumerate(r.units(t, min(out.width, landing.width))):
        stage_blocks(t, m, unit.to, unit.offset, unit.size, out.on(t.me, u))
        if out.short:
            t.after(ALL, ALL)
        else:
            t.barrier()
        if t.me in unit.to:
            for group in r.groups(t):
                parts = _read(t, r, unit, group, out, landing, u)
                r.join(t, DST.on(t.me, unit.offset), group, parts, unit.size)
    if not out.short:
        t.barrier()


def _places(t: Recorder, r: ReduceScatter) -> tuple[Places, Places]:
    """Return the places for what a thread stages, and for what it reads from other nodes."""
    out = places_of(t, r.nbytes * t.size)
    if t.one_node:
        return out, out
    third = t.tuning["staging_bytes"] // 3 // LINE * LINE
    if out.short:
        return out, Places(STAGING, third)
    return Places(STAGING, third, 2), Places(STAGING, third, 1, 2 * third)


def _read(
    t: Recorder, r: ReduceScatter, unit: Unit, group: Ranks, out: Places, landing: Places, u: int
) -> list[BlockRef]:
    """Return where the operands of a group are: in scratch, but for this thread's own."""
    at = (t.me - unit.to.first) * unit.size
    parts = read_group(t, group, out.across(group, u, at), landing.on(t.me, 0), unit.size)
    if t.me in group:
        parts[t.me - group.first] = r.own(t, unit.offset)
    return parts


def read_group(
    t: Recorder, group: Ranks, row: BlockRef, landing: BlockRef, size: int
) -> list[BlockRef]:
    """Return where this thread can load a block of each thread of a group.

    Parameters
    ----------
    row : BlockRef
        The blocks, one on each thread of the group. Those of other nodes are read one-sided.
    landing : BlockRef
        Room for a block of each thread of the group, in this thread's memory.
    size : int
        Bytes of a block.
    """
    read = landing._replace(offset_step=size)
    if not t.one_node:
        t.need(*t.get(read, row, size, group.count))
    return [(row if t.on_my_node(i) else read).block(k) for k, i in enumerate(group)]


# --- PUSH --------------------------------------------------------------------------------------
@algorithm("allav_reduce_scatter", PUSH)
def push(t: Recorder, r: ReduceScatter) -> None:
    """Each thread writes its blocks to the others' scratch, which reduce what arrives.

    To other nodes it sends them.
    """
    most = r.most(t)
    places = places_of(t, r.nbytes * most)
    if not places.short:
        t.node_barrier()  # a thread may still read its scratch in an earlier call
    u = 0
    for offset, size in cut(r.nbytes, places.width // most, r.itemsize):
        for group in r.groups(t):
            _bring(t, r, group, places, u, offset, size)
            parts = [places.on(t.me, u, k * size) for k in range(group.count)]
            if t.me in group:
                parts[t.me - group.first] = r.own(t, offset)
            r.join(t, DST.on(t.me, offset), group, parts, size)
            u += 1
            if places.short and u * most < t.size:
                t.node_barrier()  # the next group goes to the same place


def _bring(
    t: Recorder, r: ReduceScatter, group: Ranks, places: Places, u: int, offset: int, size: int
) -> None:
    """Send or write the operands of the threads of a group, and wait for mine."""
    everyone, me = Ranks(0, t.size), t.me
    tickets = []
    if not t.one_node:
        row = places.on(me, u)
        tickets.append(t.recv(group, row, size, peer_step=size, bounded=False))
        if me in group:
            t.send(everyone, SRC.row(me, offset, 0), size, peer_step=r.nbytes)
    if me in group:
        m, at = r.move(t), (me - group.first) * size
        for _, part in m.near(t, ALL, but=me):
            t.copy(places.across(part, u, at), m.of(t, part, offset), size, part.count)
    if places.short:
        t.after(ALL, ALL, node_only=not t.one_node)
    else:
        t.node_barrier()
    t.need(*tickets)


# --- MULTICORE -----------------------------------------------------------------------------------
algorithm(
    "allav_reduce_scatter", MULTICORE, "direct", _DIRECT, applies=_can_be_direct,
    preferred=_is_direct,
)(pull_direct)  # fmt: skip
algorithm("allav_reduce_scatter", MULTICORE, "staged", _STAGED, applies=on_one_node)(pull_staged)


def by_nodes(call: CallFacts) -> bool:
    """Several nodes, in operand order if that matters, and room for a unit."""
    return not call.one_node and ByNodes.applies(call, call.arguments[0])


@algorithm(
    "allav_reduce_scatter", MULTICORE, "nodes",
    "Node roots reduce the blocks of their nodes, and exchange the partial results.",
    applies=by_nodes,
)  # fmt: skip
def nodes(t: Recorder, r: ReduceScatter) -> None:
    """Reduce the blocks of each node on its node root; node roots exchange the partial results.

    So (N-1)/N of the data of one thread leave a node, for any number of threads on it.
    """
    ByNodes(t, r).record()


algorithm(
    "allav_reduce_scatter", MULTICORE, "push",
    "Threads send blocks to each other, as in PUSH: for every order and size.",
)(push)  # fmt: skip


class ByNodes:
    """The units of a reduction by nodes: a piece of the block of every thread.

    Blocks are staged node by node, so that what a node root sends to another one is contiguous.
    A place for what arrives holds the node's own sums of all blocks, and one row from each other
    node; the results replace the node's own sums.
    """

    leads = True
    """A single short unit travels with a barrier of node roots."""
    areas = 1
    """How many times the bytes of a unit a thread keeps in its scratch; each in whole lines."""

    def __init__(self, t: Recorder, r: ReduceScatter) -> None:
        self.t, self.r = t, r
        self.order = nodes_by_rank(t)
        sizes = (t.tree.node_size(node) for node in range(t.tree.node_count))
        self.starts = list(accumulate(sizes, initial=0))
        landing = self.landing_bytes(t, r)
        crossing = landing if self.leads else None
        self.relay = Relay(t, self._out_bytes(t, r), landing, crossing, _DEEP)
        self.units = self.units_of(t, r)

    @staticmethod
    def _landing_blocks(t: Facts) -> int:
        return t.size + (t.tree.node_count - 1) * t.largest_node

    @classmethod
    def landing_bytes(cls, t: Facts, r: ReduceScatter) -> int:
        """Return the bytes of all blocks that a node root has a place for."""
        return cls._landing_blocks(t) * r.nbytes

    @classmethod
    def _out_bytes(cls, t: Facts, r: ReduceScatter) -> int:
        """Return the bytes that a thread keeps of all blocks."""
        each = t.size * r.nbytes
        return each if cls.areas == 1 else cls.areas * (-(-each // LINE) * LINE)

    @classmethod
    def units_of(cls, t: Facts, r: ReduceScatter) -> list[tuple[int, int]]:
        """Return the pieces of every block that travel together: offsets and sizes."""
        out, landing = Relay.places(t, cls._out_bytes(t, r), cls.landing_bytes(t, r), _DEEP)
        width = r.nbytes
        if not out.short:
            area = out.width // cls.areas // LINE * LINE if cls.areas > 1 else out.width
            width = min(area // t.size, landing.width // cls._landing_blocks(t))
        return cut(r.nbytes, width, r.itemsize)

    @classmethod
    def applies(cls, t: Facts, r: ReduceScatter) -> bool:
        """Return whether it keeps the order that `r` asks for, and has room for a unit."""
        in_order = r.most(t) == t.size and nodes_in_order(t)
        return (in_order or not r.exact) and cls._fits(t, r)

    @classmethod
    def _fits(cls, t: Facts, r: ReduceScatter) -> bool:
        """Return whether a unit of at least one element of each block has room."""
        blocks = cls._landing_blocks(t)
        each = t.size * r.itemsize + (LINE if cls.areas > 1 else 0)
        staged = cls.areas * each <= min(t.tuning["staging_bytes"] // 8, 4096)
        return staged and Relay.fits(t, blocks * r.itemsize + LINE, _DEEP)

    def record(self) -> None:
        """Record all units."""
        self.relay.run(
            len(self.units), self._stage, self._post, self._take, self._finish, only=ALL
        )

    def _members(self, node: int) -> int:
        return self.starts[node + 1] - self.starts[node]

    def _stage(self, u: int) -> None:
        """Put my blocks side by side, node by node."""
        t, r = self.t, self.r
        offset, size = self.units[u]
        m, at = r.move(t), 0
        for node in range(t.tree.node_count):
            for run in t.node_ranks(node):
                place = self.relay.out.on(t.me, u, at)._replace(offset_step=size)
                t.copy(place, m.of(t, run, offset), size, run.count)
                at += run.count * size

    def _sums(self, u: int, node: int) -> BlockRef:
        """Return where my node's sums for the threads of a node are."""
        size = self.units[u][1]
        return self.relay.landing.on(self.t.node_root, u, self.starts[node] * size)

    def _arrived(self, u: int, node: int) -> BlockRef:
        """Return where the row of another node's sums for my node's threads arrives."""
        t, size = self.t, self.units[u][1]
        before = node - (node > t.my_node)  # other nodes with lower numbers
        return self._sums(u, 0) + (t.size + before * self._members(t.my_node)) * size

    def _others(self) -> list[int]:
        """Return the other nodes, in an order of my own."""
        n = self.t.tree.node_count
        return [(self.t.my_node + k) % n for k in range(1, n)]

    def _post(self, u: int) -> list[int]:
        """Reduce my node's blocks; send each node its row."""
        t, size = self.t, self.units[u][1]
        row = self._members(t.my_node) * size
        tickets = [
            t.recv(t.tree.node_root(node), self._arrived(u, node), row, bounded=False)
            for node in self._others()
        ]
        self._reduce(u, [int(x) for x in t.tree.members(t.my_node)])
        for node in self._others():
            nbytes = self._members(node) * size
            tickets.append(t.send(t.tree.node_root(node), self._sums(u, node), nbytes))
        return tickets

    def _reduce(self, u: int, mates: list[int]) -> None:
        """Reduce what my node's threads have staged, the blocks for all threads at once."""
        t, size = self.t, self.units[u][1]
        leaves = tree_of([self.relay.out.on(i, u) for i in mates])
        t.fold(self._sums(u, 0), leaves, t.size * size // self.r.itemsize)

    def _finish(self, u: int) -> list[int]:
        """Join what has arrived with my node's own."""
        t, size = self.t, self.units[u][1]
        mine = self._sums(u, t.my_node)
        parts = [mine if node == t.my_node else self._arrived(u, node) for node in self.order]
        nelems = self._members(t.my_node) * size // self.r.itemsize
        t.fold(mine, tree_of(parts), nelems)
        return []

    def _take(self, u: int) -> None:
        t, (offset, size) = self.t, self.units[u]
        place = self._sums(u, t.my_node) + t.tree.local_index(t.me) * size
        t.copy(DST.on(t.me, offset), place, size)
