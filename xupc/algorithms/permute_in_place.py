"""all_permute in place: each thread's block is overwritten with that of another one.

::

    before   dst@0: A   dst@1: B   dst@2: C      perm 2 0 1
    after    dst@0: B   dst@1: C   dst@2: A

Blocks pass through the staging buffer of the thread to which they go, piece by piece: a piece comes
there while the one before it is put into place. Blocks that stay where they are (perm[i] = i)
are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks
from ..plan.recorder import NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef, Ranks
from ..records import record
from .conditions import fused, led, on_one_node, on_several_nodes
from .permute import Permutation, crossing_threads, ends_of, near, trade_blocks
from .registry import algorithm
from .scatter import all_blocks, node_blocks


def _pieces(t: Recorder, nbytes: int) -> tuple[list[tuple[int, int]], int]:
    """Return the pieces of a block, and their distance in a staging buffer, which holds two."""
    piece = min(t.tuning["reduce_chunk"], t.tuning["staging_bytes"] // 2)
    return chunks(nbytes, piece), piece


@algorithm("permute_in_place", PULL)
def pull(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Each thread reads a piece into its staging buffer; it overwrites what has been read."""
    to, of = ends_of(t, perm)
    t.ready_each(owners=[of], users=[to])
    t.expose()
    read = t.channel()
    if of == t.me:
        return
    parts, apart = _pieces(t, nbytes)
    for k in range(len(parts) + 1):
        if k < len(parts):
            offset, size = parts[k]
            t.need(*t.fetch(t.buffer(t.me, k % 2 * apart), dst.on(of, offset), size))
            t.signal_thread(read, of, k + 1)
        if k:
            offset, size = parts[k - 1]
            t.wait_for_thread(read, to, k)
            t.copy(dst.on(t.me, offset), t.buffer(t.me, (k - 1) % 2 * apart), size)


@algorithm("permute_in_place", PUSH)
def push(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Each thread writes a piece to the other's staging buffer, by load/store or by a message."""
    to, of = ends_of(t, perm)
    t.peer_entered(owners=[to], users=[of])
    there, taken = t.channel(), t.channel()
    if of == t.me:
        return
    parts, apart = _pieces(t, nbytes)
    coming: dict[int, int] = {}
    going: dict[int, int] = {}
    for k in range(len(parts) + 1):
        if k < len(parts):
            offset, size = parts[k]
            place = k % 2 * apart
            if not t.on_my_node(of):
                coming[k] = t.recv(of, t.buffer(t.me, place), size, bounded=False)
            if not t.on_my_node(to):
                going[k] = t.send(to, dst.on(t.me, offset), size)
            else:
                if k > 1:
                    t.wait(taken, to, k - 1)
                t.copy(t.buffer(to, place), dst.on(t.me, offset), size)
                t.signal(there, (Ranks(to),), k + 1)
        if k:
            offset, size = parts[k - 1]
            if t.on_my_node(of):
                t.wait(there, of, k)
            t.need(*(tickets[k - 1] for tickets in (coming, going) if tickets))
            t.copy(dst.on(t.me, offset), t.buffer(t.me, (k - 1) % 2 * apart), size)
            if t.on_my_node(of) and k + 1 < len(parts):
                t.signal(taken, (Ranks(of),), k)


@algorithm(
    "permute_in_place", MULTICORE, "fused", "The last thread to arrive turns all cycles.",
    **fused(all_blocks),
)  # fmt: skip
def fused_swaps(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """One thread swaps the blocks of each cycle."""
    with t.single_mover(0, anyone=True):
        _turn(t, dst, perm, 0, nbytes)


@algorithm(
    "permute_in_place", MULTICORE, "swaps",
    "Each thread turns a slice of every cycle, by swaps of blocks.",
    applies=on_one_node,
)  # fmt: skip
def swaps(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Swap without scratch; no thread waits for another one."""
    t.ready(NODE, NODE, node_only=True)
    begin, end = (-(-nbytes * k // t.size // 64) * 64 for k in (t.me, t.me + 1))
    _turn(t, dst, perm, begin, min(end, nbytes))
    t.done(NODE, NODE, node_only=True)


@algorithm(
    "permute_in_place", MULTICORE, "led",
    "Node roots swap and exchange all blocks, and the data travels with the barrier.",
    **led(node_blocks, staged=True),
)  # fmt: skip
def led_rounds(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.largest_node)
    if t.me == t.node_root:
        _lead(t, dst, perm, nbytes)


@algorithm(
    "permute_in_place", MULTICORE, "rounds",
    "One message per pair of nodes and piece, from heaps to the targets' staging buffers.",
    applies=on_several_nodes,
)  # fmt: skip
def rounds(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Exchange pieces between nodes; the blocks that stay inside a node move as in PULL."""
    Crossing(t, dst, perm, nbytes).record()


def _cycles(perm: Permutation, members: Permutation) -> Iterator[list[int]]:
    """Yield the cycles of some threads that do not leave them, of two threads and more."""
    inside, seen = set(members.tolist()), set()
    for first in members.tolist():
        cycle, thread = [], first
        while thread in inside and thread not in seen:
            seen.add(thread)
            cycle.append(thread)
            thread = int(perm[thread])
        if thread == first and len(cycle) > 1:
            yield cycle


def _turn(t: Recorder, dst: Operand, perm: Permutation, begin: int, end: int) -> None:
    """Turn bytes ``begin .. end`` of all cycles of my node: the first block goes to each place."""
    if begin < end:
        for first, *rest in _cycles(perm, t.tree.members(t.my_node)):
            for thread in rest:
                t.swap(dst.on(first, begin), dst.on(thread, begin), end - begin)


@record
class _At(Operand):
    """An operand from a place on."""

    offset: int

    def on(self, thread: int, offset: int = 0) -> BlockRef:
        """Return its memory on one thread."""
        return BlockRef(self.index, thread, self.offset + offset)


def _lead(t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
    """Record the work of a node root that does everything for its node."""
    t.buffer(t.me)
    t.need(*trade_blocks(t, Operand(STAGING), dst, perm, nbytes, t.message(nbytes)))
    source = np.argsort(perm)
    _turn(t, dst, perm, 0, nbytes)
    for end in t.tree.members(t.my_node).tolist():
        if t.on_my_node(int(perm[end])):
            continue
        while t.on_my_node(of := int(source[end])):  # from the block that has left, backwards
            t.copy(dst.on(end), dst.on(of), nbytes)
            end = of
        t.copy(dst.on(end), t.buffer(end), nbytes)


class Crossing:
    """Pieces of all blocks of a node, two of them under way."""

    def __init__(self, t: Recorder, dst: Operand, perm: Permutation, nbytes: int) -> None:
        self.t, self.dst, self.perm = t, dst, perm
        self.to, self.of = ends_of(t, perm)
        self.message = t.message(nbytes)
        self.half = t.tuning["staging_bytes"] // 2
        self.parts = chunks(nbytes, self.half)
        self.crossing = crossing_threads(t, perm)
        source = np.argsort(perm)
        self.receivers = {x for x in self.crossing if not t.on_my_node(int(source[x]))}
        root = t.me == t.node_root
        t.peer_entered(
            owners=[*near(t, [self.of]), *(self.crossing if root else ())],
            users=[*near(t, [self.to]), *([t.node_root] if t.me in self.crossing else ())],
        )
        self.read, self.arrived, self.taken = t.channel(), t.channel(), t.channel()

    def record(self) -> None:
        """Record the steps of a thread."""
        t, n = self.t, len(self.parts)
        root = t.me == t.node_root and bool(self.crossing)
        under_way: list[list[int]] = []
        done: list[int] = []
        here = None
        for k in range(n + 1):
            if root:
                with t.net():
                    if k < n:
                        under_way.append(self._post(k, done))
                    if k:
                        t.need(*under_way[k - 1])
                        t.signal(self.arrived, _each(self.crossing - {t.me}), k)
                        here = t.post()
            if self.of == t.me:
                continue
            if k < n and t.on_my_node(self.of):
                offset, size = self.parts[k]
                t.copy(self._landing(k, t.me), self.dst.on(self.of, offset), size)
                t.signal(self.read, (Ranks(self.of),), k + 1)
            if k:
                self._into_place(k - 1, here)
                if root and t.me in self.receivers:
                    done.append(t.post())

    def _landing(self, k: int, thread: int) -> BlockRef:
        return self.t.buffer(thread, k % 2 * self.half)

    def _post(self, k: int, done: list[int]) -> list[int]:
        """Post the messages of a piece, when its places are free of the piece two before."""
        t = self.t
        if k > 1:
            t.wait(self.taken, _each(self.receivers - {t.me}), k - 1)
            t.need(*done[k - 2 : k - 1])
        offset, size = self.parts[k]
        area, landing = _At(self.dst.index, offset), _At(STAGING, k % 2 * self.half)
        t.buffer(t.me)
        return trade_blocks(t, landing, area, self.perm, size, self.message)

    def _into_place(self, k: int, here: int | None) -> None:
        """Copy my piece to its place, when what it overwrites has been read or sent."""
        t = self.t
        offset, size = self.parts[k]
        if t.on_my_node(self.to):
            t.wait(self.read, self.to, k + 1)
        if t.me in self.crossing:
            if t.me == t.node_root:
                assert here is not None
                t.need(here)
            else:
                t.wait(self.arrived, t.node_root, k + 1)
        t.copy(self.dst.on(t.me, offset), self._landing(k, t.me), size)
        if t.me in self.receivers and t.me != t.node_root and k + 2 < len(self.parts):
            t.signal(self.taken, (Ranks(t.node_root),), k + 1)


def _each(threads: set[int]) -> list[Ranks]:
    return [Ranks(thread) for thread in sorted(threads)]
