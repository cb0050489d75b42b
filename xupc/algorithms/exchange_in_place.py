"""Exchange in place: block j of thread i and block i of thread j change places.

::

    before   dst@0: A0 A1 A2   dst@1: B0 B1 B2   dst@2: C0 C1 C2
    after    dst@0: A0 B0 C0   dst@1: A1 B1 C1   dst@2: A2 B2 C2

There is no second array. Either a thread reads a block into a staging buffer before the block is
overwritten, piece by piece, or one thread swaps two blocks. Blocks (i, i) stay untouched.

PULL and PUSH work in *turns*. In a turn thread i exchanges with each thread j for which i + j
lies in a window (mod T), so j also exchanges with i. For four threads and a window of one::

    turn     0      1      2      3
    pairs    1-3    0-1    0-2    0-3
                    2-3           1-2
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, pieces
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import Blocks, Ranks
from .conditions import fused, led, on_one_node, on_several_nodes
from .exchange import Grids, all_pairs, messages
from .registry import algorithm
from .scatter import blocks_for


# --- PULL and PUSH ------------------------------------------------------------------------------
class Turn(NamedTuple):
    """Bytes ``offset .. offset + size`` of the blocks of some `pairs` of each thread."""

    first: int
    pairs: int
    offset: int
    size: int

    def partners(self, t: Recorder) -> Iterator[tuple[Ranks, int]]:
        """Yield my partners, in one or two runs, and at which place of the turn each run begins.

        A pair has the same place on both sides.
        """
        start = (self.first - t.me) % t.size
        count = min(self.pairs, t.size - start)
        yield Ranks(start, count), 0
        if count < self.pairs:
            yield Ranks(0, self.pairs - count), count

    def far(self, t: Recorder) -> list[tuple[Ranks, int]]:
        """Return the runs of my partners that have a thread of another node."""
        found = []
        for run, place in self.partners(t):
            end = run.first + run.count
            near = (
                part.count for mates in t.node_ranks() for part in _within(mates, run.first, end)
            )
            if sum(near) < run.count:
                found.append((run, place))
        return found

    def near(self, t: Recorder) -> Iterator[tuple[Ranks, int, int]]:
        """Yield runs of others on my node, the place of the first, the distance to the next."""
        for run, place in self.partners(t):
            for mates in t.node_ranks():
                for part in _within(mates, run.first, run.first + run.count):
                    for others in part.without(t.me):
                        yield others, place + others.first - run.first, others.step


def _within(run: Ranks, begin: int, end: int) -> tuple[Ranks, ...]:
    """Return the ranks of a run that are in ``range(begin, end)``: one run or none."""
    low = max(0, -(-(begin - run.first) // run.step))
    high = min(run.count, -(-(end - run.first) // run.step))
    return (run.cut(low, high - low),) if low < high else ()


def _turns(t: Recorder, nbytes: int, room: int) -> list[Turn]:
    """All pairs' blocks, so many bytes of each thread at a time."""
    if nbytes <= room:
        return [Turn(first, n, 0, nbytes) for first, n in chunks(t.size, room // nbytes)]
    parts = chunks(nbytes, room)
    return [Turn(first, 1, offset, size) for first in range(t.size) for offset, size in parts]


def _into_place(t: Recorder, dst: Operand, nbytes: int, turn: Turn, base: int) -> None:
    """Copy the blocks in my staging buffer to their places in dst."""
    for partners, start in turn.partners(t):
        for run in partners.without(t.me):
            place = start + run.first - partners.first
            row = t.buffer(t.me, base + place * turn.size, turn.size)
            mine = blocks_for(dst, t.me, run, nbytes) + turn.offset
            t.copy(mine, row, turn.size, run.count)


@algorithm("exchange_in_place", PULL)
def pull(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Read all blocks of a turn into staging buffers; after a barrier, copy them to their places.

    Each block is copied twice, one copy is from thread to thread. Each turn has one barrier.
    """
    t.ready(ALL, ALL)
    for turn in _turns(t, nbytes, t.tuning["staging_bytes"]):
        coming = []
        for run, place in turn.far(t):
            row = t.buffer(t.me, place * turn.size, turn.size)
            yours = dst.across(run, t.me * nbytes + turn.offset)
            coming += t.get(row, yours, turn.size, run.count)
        for run, place, step in turn.near(t):
            row = t.buffer(t.me, place * turn.size, step * turn.size)
            yours = dst.across(run, t.me * nbytes + turn.offset)
            t.copy(row, yours, turn.size, run.count)
        t.need(*coming)
        t.barrier()
        _into_place(t, dst, nbytes, turn, 0)


@algorithm("exchange_in_place", PUSH)
def push(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Write or send all blocks of a turn to staging buffers; then copy them to their places.

    Each block is copied twice. Turns use the two halves of the staging buffer alternately, so each
    turn needs one barrier of the node's threads. Messages synchronise threads of other nodes.
    """
    t.node_entered()
    there = t.channel()
    half = max(1, t.tuning["staging_bytes"] // 2)
    mates = t.node_ranks() if t.tree.node_size(t.my_node) > 1 else ()
    for k, turn in enumerate(_turns(t, nbytes, half)):
        base = k % 2 * half
        far, tickets = turn.far(t), []
        for run, place in far:
            row = t.buffer(t.me, base + place * turn.size)
            step = turn.size
            tickets.append(t.recv(run, row, turn.size, peer_step=step, bounded=False))
        for run, _ in far:
            mine = dst.on(t.me, run.first * nbytes + turn.offset)
            tickets.append(t.send(run, mine, turn.size, peer_step=nbytes))
        for run, place, step in turn.near(t):
            row = t.buffer(run.first, base + place * turn.size)
            row = row._replace(thread_step=run.step, offset_step=step * turn.size)
            mine = blocks_for(dst, t.me, run, nbytes) + turn.offset
            t.copy(row, mine, turn.size, run.count)
        t.need(*tickets)
        t.signal(there, mates, k + 1)
        t.wait(there, mates, k + 1)
        _into_place(t, dst, nbytes, turn, base)


# --- MULTICORE ----------------------------------------------------------------------------------
@algorithm(
    "exchange_in_place", MULTICORE, "fused", "The last thread to arrive swaps all blocks.",
    **fused(all_pairs),
)  # fmt: skip
def fused_swaps(t: Recorder, dst: Operand, nbytes: int) -> None:
    """One thread swaps the blocks of each pair."""
    with t.single_mover(0, anyone=True):
        _swap_all(t, dst, nbytes)


@algorithm(
    "exchange_in_place", MULTICORE, "swaps",
    "Each of two threads swaps half of the bytes of their two blocks.",
    applies=on_one_node,
)  # fmt: skip
def swaps(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Swap without scratch; no thread waits for another one."""
    t.ready(NODE, NODE, node_only=True)
    _swap_mine(t, dst, nbytes, nbytes)
    t.done(NODE, NODE, node_only=True)


@algorithm(
    "exchange_in_place", MULTICORE, "led",
    "Node roots swap and exchange all blocks, and the data travels with the barrier.",
    **led(all_pairs, staged=True),
)  # fmt: skip
def led_rounds(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.size * t.largest_node)
    if t.me == t.node_root:
        _lead(t, dst, nbytes)


@algorithm(
    "exchange_in_place", MULTICORE, "rounds",
    "Node roots exchange blocks through staging buffers, in turn r with node r - k (mod N).",
    applies=on_several_nodes,
)  # fmt: skip
def rounds(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Swap blocks inside a node; node roots exchange the blocks for each other's nodes.

    A message goes from the heaps into the other node root's staging buffer. Every thread copies its
    blocks from there while the next messages arrive.
    """
    t.ready(NODE, NODE, node_only=True)
    SwapRounds(t, dst, nbytes).record()
    t.done(NODE, NODE, node_only=True)


def _swap_all(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Swap the blocks of all pairs of my node."""
    for mates in t.node_ranks():
        for thread in mates:
            for run in t.node_ranks():
                for later in _within(run, thread + 1, t.size):
                    mine = blocks_for(dst, thread, later, nbytes)
                    t.swap(mine, dst.across(later, thread * nbytes), nbytes, later.count)


def _swap_mine(t: Recorder, dst: Operand, nbytes: int, message: int) -> None:
    """Swap my half of the bytes of each pair on my node, in pieces."""
    half = nbytes // 2 // 64 * 64
    for begin, end, low, high in ((0, t.me, half, nbytes), (t.me + 1, t.size, 0, half)):
        for mates in t.node_ranks() if low < high else ():
            for run in _within(mates, begin, end):
                for block, count, offset, size in pieces(run.count, high - low, message):
                    part = run.cut(block, count)
                    mine = blocks_for(dst, t.me, part, nbytes) + (low + offset)
                    yours = dst.across(part, t.me * nbytes + low + offset)
                    t.swap(mine, yours, size, count)


class Item(NamedTuple):
    """A message to a node and one from it, for the same pairs of threads.

    In both directions the grids list the threads of the lower node first, then of the higher one.
    """

    node: int
    lower: bool
    """True if my node is the lower one."""
    grids: Grids
    nbytes: int

    def outgoing(self, t: Recorder, dst: Operand, nbytes: int) -> list[Blocks]:
        """Return the addresses of my node's blocks."""
        out = []
        for low, high, offset, size in self.grids:
            if self.lower:
                at, step = high.first * nbytes + offset, t.once(high.step * nbytes)
                part, down = dst.row(low.first, at, step), (low.step, 0)
            else:
                part = dst.across(high, low.first * nbytes + offset)
                down = (0, low.step * nbytes)
            out.append(Blocks(part, size, high.count, low.count, down))
        return out

    def take(self, t: Recorder, dst: Operand, nbytes: int, base: int, thread: int) -> None:
        """Copy a thread's blocks from its node root's staging buffer; the message is at `base`."""
        for low, high, offset, size in self.grids:
            row = high.count * size
            mine, others = (low, high) if self.lower else (high, low)
            if thread in mine:
                i = (thread - mine.first) // mine.step
                at, step = (i * row, size) if self.lower else (i * size, row)
                source = t.buffer(t.node_root, base + at, step)
                place, step = others.first * nbytes + offset, t.once(others.step * nbytes)
                t.copy(dst.row(thread, place, step), source, size, others.count)
            base += low.count * row


def _items(t: Recorder, nbytes: int, most: int) -> Iterator[Item]:
    """Yield all messages of my node, in the order of the turns."""
    nodes = t.tree.node_count
    for turn in range(nodes):
        node = (turn - t.my_node) % nodes
        if node == t.my_node:
            continue
        low, high = sorted((node, t.my_node))
        for grids in messages(t.node_ranks(low), t.node_ranks(high), nbytes, most):
            total = t.once(sum(a.count * b.count * size for a, b, _, size in grids))
            yield Item(node, t.my_node == low, grids, total)


def _lead(t: Recorder, dst: Operand, nbytes: int) -> None:
    """Record the work of a node root that does everything for its node."""
    items, base = [], 0
    tickets = []
    for item in _items(t, nbytes, t.tuning["staging_bytes"]):
        items.append((item, base))
        root = t.tree.node_root(item.node)
        tickets.append(t.recv(root, t.buffer(t.me, base), item.nbytes, bounded=False))
        base += item.nbytes
    for item, _ in items:
        root = t.tree.node_root(item.node)
        tickets.append(t.send_blocks(root, item.outgoing(t, dst, nbytes)))
    t.need(*tickets)
    _swap_all(t, dst, nbytes)
    for item, at in items:
        for mates in t.node_ranks():
            for thread in mates:
                item.take(t, dst, nbytes, at, thread)


class SwapRounds:
    """A node's messages, in batches that use half of the node root's staging buffer in turn."""

    def __init__(self, t: Recorder, dst: Operand, nbytes: int) -> None:
        self.t, self.dst, self.nbytes = t, dst, nbytes
        self.half = t.tuning["staging_bytes"] // 2
        self.message = min(t.message(nbytes * t.largest_node), self.half)
        self.batches: list[list[tuple[Item, int]]] = []
        at = self.half
        for item in _items(t, nbytes, self.message):
            if at + item.nbytes > self.half:
                self.batches.append([])
                at = 0
            base = (len(self.batches) - 1) % 2 * self.half
            self.batches[-1].append((item, base + at))
            at += item.nbytes
        self.arrived, self.taken = t.channel(), t.channel()

    def record(self) -> None:
        """Record a thread: the blocks of my node change places while messages are in progress."""
        t = self.t
        if t.me == t.node_root:
            self._root()
            return
        _swap_mine(t, self.dst, self.nbytes, self.message)
        for b in range(len(self.batches)):
            t.wait(self.arrived, t.node_root, b + 1)
            self._take(b)
            t.signal(self.taken, (Ranks(t.node_root),), b + 1)

    def _take(self, b: int) -> None:
        for item, base in self.batches[b]:
            item.take(self.t, self.dst, self.nbytes, base, self.t.me)

    def _root(self) -> None:
        """Record the messages, with my own blocks, and the swaps on my node."""
        t, n = self.t, len(self.batches)
        others = t.node_ranks_but(t.me)
        under_way: list[list[int]] = []
        with t.net():
            for b in range(n + 1):
                if b < n:
                    if b > 1:  # they are done with that half
                        t.wait(self.taken, others, b - 1)
                    under_way.append(self._post(b))
                if b:
                    t.need(*under_way[b - 1])
                    t.signal(self.arrived, others, b)
                    self._take(b - 1)
            t.wait(self.taken, others, n)  # no thread reads my staging buffer any more
        _swap_mine(t, self.dst, self.nbytes, self.message)

    def _post(self, b: int) -> list[int]:
        t, tickets = self.t, []
        for item, base in self.batches[b]:
            root = t.tree.node_root(item.node)
            landing = [Blocks(t.buffer(t.me, base), item.nbytes)]
            tickets.append(t.recv_blocks(root, landing, bounded=False))
            tickets.append(t.send_blocks(root, item.outgoing(t, self.dst, self.nbytes)))
        return tickets
