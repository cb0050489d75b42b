"""all_exchange: block j of thread i to block i of thread j (UPC 1.3, 7.4.2.5).

::

    before   src@0: A0 A1 A2   src@1: B0 B1 B2   src@2: C0 C1 C2
    after    dst@0: A0 B0 C0   dst@1: A1 B1 C1   dst@2: A2 B2 C2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, filled, pieces
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import Blocks, Ranks
from .conditions import CallFacts, fused, led, on_one_node, on_several_nodes
from .registry import algorithm
from .scatter import blocks_for


@algorithm("exchange", PULL)
def pull(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each thread copies T blocks, its node's by load/store, the others one-sided."""
    t.ready(ALL, ALL)
    if not t.one_node:
        everyone = Ranks(0, t.size)
        mine = src.across(everyone, t.me * nbytes)
        with t.net():
            t.get(blocks_for(dst, t.me, everyone, nbytes), mine, nbytes, t.size)
    for run in t.node_ranks():
        mine = src.across(run, t.me * nbytes)
        t.copy(blocks_for(dst, t.me, run, nbytes), mine, nbytes, run.count)
    t.done(ALL, ALL)


@algorithm("exchange", PUSH)
def push(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each thread copies a block to each of its node's threads and sends one to each other."""
    t.ready(NODE, NODE, node_only=True)
    if not t.one_node:
        everyone = Ranks(0, t.size)
        with t.net():
            for offset, size in chunks(nbytes, t.tuning["max_message"]):
                t.recv(everyone, dst.on(t.me, offset), size, peer_step=nbytes)
                t.send(everyone, src.on(t.me, offset), size, peer_step=nbytes)
    for run in t.node_ranks():
        yours = blocks_for(src, t.me, run, nbytes)
        t.copy(dst.across(run, t.me * nbytes), yours, nbytes, run.count)
    t.done(NODE, NODE, node_only=True)


# --- MULTICORE ----------------------------------------------------------------------------------
def all_pairs(call: CallFacts) -> int:
    """Return the bytes that a node's threads have for all threads."""
    return call.nbytes * call.size * call.largest_node


@algorithm(
    "exchange", MULTICORE, "fused", "The last thread to arrive copies all blocks.",
    **fused(all_pairs),
)  # fmt: skip
def fused_copy(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """One thread copies the blocks of each pair."""
    with t.single_mover(0, anyone=True):
        _copy_all(t, dst, src, nbytes)


algorithm(
    "exchange", MULTICORE, "pull", "Each thread copies its blocks of all threads, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


@algorithm(
    "exchange", MULTICORE, "led",
    "Node roots copy and exchange all blocks, and the data travels with the barrier.",
    **led(all_pairs),
)  # fmt: skip
def led_rounds(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.size * t.largest_node)
    if t.me == t.node_root:
        message = t.message(nbytes * t.largest_node, "alltoall_chunk")
        _between_nodes(t, dst, src, nbytes, message)
        _copy_all(t, dst, src, nbytes)


@algorithm(
    "exchange", MULTICORE, "rounds",
    "One message per pair of nodes and chunk, from heap to heap; in round k to the k-th next node.",
    applies=on_several_nodes,
)  # fmt: skip
def rounds(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Send one message per pair of nodes and chunk, from heap to heap; threads pull the rest.

    A message holds, for each thread of the sending node in turn, its blocks for all threads of
    the receiving node. MPI reads them in src and writes them to dst, without a staging buffer. In
    round k a node root sends to the node k places after it and receives from the one k before::

        node 0 (threads 0, 1) to node 1 (threads 2, 3)
        src@0: . . 2 3   src@1: . . 2 3    ->    dst@2: 0 1 . .   dst@3: 0 1 . .

    Meanwhile every thread copies its blocks from the threads of its node.
    """
    message = t.message(nbytes * t.largest_node, "alltoall_chunk")
    t.ready(NODE, NODE, node_only=True)
    if t.me == t.node_root:
        with t.net():
            _between_nodes(t, dst, src, nbytes, message)
    for run in t.node_ranks():
        # in pieces, so that a node root looks at the network in between
        for block, count, offset, size in pieces(run.count, nbytes, message):
            part = run.cut(block, count)
            mine = src.across(part, t.me * nbytes + offset)
            t.copy(blocks_for(dst, t.me, part, nbytes) + offset, mine, size, count)
    t.done(NODE, NODE, node_only=True)


def _copy_all(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Copy all blocks that the threads of my node have for each other."""
    for run in t.node_ranks():
        for thread in run:
            for to in t.node_ranks():
                yours = blocks_for(src, thread, to, nbytes)
                t.copy(dst.across(to, thread * nbytes), yours, nbytes, to.count)


def _between_nodes(t: Recorder, dst: Operand, src: Operand, nbytes: int, message: int) -> None:
    """Send and receive the blocks between the threads of my node and those of others."""
    mine = t.node_ranks()

    def outgoing(node: int) -> Iterator[list[Blocks]]:
        for grids in messages(mine, t.node_ranks(node), nbytes, message):
            yield [
                Blocks(
                    blocks_for(src, of.first, to, nbytes) + offset, size, to.count,
                    of.count, (of.step, 0),
                )
                for of, to, offset, size in grids
            ]

    def incoming(node: int) -> Iterator[list[Blocks]]:
        for grids in messages(t.node_ranks(node), mine, nbytes, message):
            yield [
                Blocks(
                    dst.across(to, of.first * nbytes + offset), size, to.count,
                    of.count, (0, of.step * nbytes),
                )
                for of, to, offset, size in grids
            ]

    trade(t, outgoing, incoming)


Grids = list[tuple[Ranks, Ranks, int, int]]
"""Senders, receivers, and which bytes (offset, size) of the block from each to each."""


def messages(
    senders: Sequence[Ranks], receivers: Sequence[Ranks], nbytes: int, most: int
) -> Iterator[Grids]:
    """Cut what one node has for another one into messages of at most `most` bytes.

    Sender after sender: all blocks of several of them while they are small, else full
    messages that end anywhere in a block.
    """
    row = nbytes * sum(run.count for run in receivers)
    if 4 * row > most:
        rows = [((Ranks(of), to), to.count) for run in senders for of in run for to in receivers]
        for shares in filled(rows, nbytes, most):
            yield [
                (of, to.cut(block, count), offset, size)
                for (of, to), block, count, offset, size in shares
            ]
        return
    message: Grids = []
    left = room = most // row
    for run in senders:
        at = 0
        while at < run.count:
            count = min(left, run.count - at)
            message += [(run.cut(at, count), to, 0, nbytes) for to in receivers]
            at += count
            left -= count
            if not left:
                yield message
                message, left = [], room
    if message:
        yield message


Messages = Callable[[int], Iterable[list[Blocks]]]
"""The messages to or from a node, in order."""


def trade(t: Recorder, outgoing: Messages, incoming: Messages) -> list[int]:
    """Record a node root's messages to and from all other nodes, and return their tickets.

    Both ends post a message at the same place (round, number). The messages that must complete
    before it have earlier places, so bounded windows cannot deadlock.
    """
    nodes = t.tree.node_count
    tickets = []
    for k in range(1, nodes):
        to, of = (t.my_node + k) % nodes, (t.my_node - k) % nodes
        for taken, given in zip_longest(incoming(of), outgoing(to)):
            if taken:
                tickets.append(t.recv_blocks(t.tree.node_root(of), taken))
            if given:
                tickets.append(t.send_blocks(t.tree.node_root(to), given))
    return tickets
