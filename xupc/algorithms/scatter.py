"""all_scatter: block i of the root's area to dst on thread i (UPC 1.3, 7.4.2.2).

::

    before   src@root: A B C D    after   dst@0: A   dst@1: B   dst@2: C   dst@3: D

In place the root's own block is left where it is, in src: it is neither read nor written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, filled
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import BlockRef, Blocks, Ranks
from .conditions import CallFacts, fused, led, on_one_node, on_several_nodes
from .registry import algorithm, derive


def blocks_for(area: Operand, on: int, ranks: Ranks, nbytes: int) -> BlockRef:
    """Return the row of blocks that belong to `ranks` in the area of T blocks on thread `on`."""
    return area.row(on, ranks.first * nbytes, ranks.step * nbytes)


@algorithm("scatter", PULL)
def pull(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each thread copies its own block, by load/store or by a one-sided read."""
    t.ready(root, ALL)
    if not (in_place and t.me == root):
        t.fetch(dst.on(t.me), src.on(root, t.me * nbytes), nbytes)
    t.done(ALL, root)


@algorithm("scatter", PUSH)
def push(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """The root copies to its node's threads and sends one message to each other thread."""
    but = root if in_place else None
    if t.one_node:
        with t.single_mover(root):
            _hand_out(t, dst, src, root, nbytes, but)
        return
    t.ready(ALL, root, node_only=True)
    for offset, size in chunks(nbytes, t.tuning["max_message"]):
        if t.me == root:
            t.send(Ranks(0, t.size), src.on(root, offset), size, peer_step=nbytes)
        elif not t.on_my_node(root):
            t.recv(root, dst.on(t.me, offset), size)
    if t.me == root:
        _hand_out(t, dst, src, root, nbytes, but)
    t.done(root, ALL, node_only=True)


def _hand_out(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, but: int | None
) -> None:
    """Copy my node's blocks to its threads, to all but one."""
    for run in t.node_ranks_but(but):
        t.copy(dst.across(run), blocks_for(src, root, run, nbytes), nbytes, run.count)


# --- MULTICORE ----------------------------------------------------------------------------------
def all_blocks(call: CallFacts) -> int:
    """Return the bytes of all threads' blocks."""
    return call.nbytes * call.size


def node_blocks(call: CallFacts) -> int:
    """Return the bytes of the blocks of a node's threads."""
    return call.nbytes * call.largest_node


@algorithm(
    "scatter", MULTICORE, "fused", "The last thread to arrive copies all blocks.",
    **fused(all_blocks),
)  # fmt: skip
def fused_copy(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """One thread copies all blocks."""
    with t.single_mover(root, anyone=True):
        _hand_out(t, dst, src, root, nbytes, root if in_place else None)


algorithm(
    "scatter", MULTICORE, "pull", "Each thread copies its own block, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


@algorithm(
    "scatter", MULTICORE, "led",
    "Node roots write to their threads, and the blocks travel with the barrier.",
    **led(node_blocks),
)  # fmt: skip
def led_star(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.largest_node)
    if t.me == t.node_root:
        _lead(t, dst, src, root, nbytes, t.message(nbytes), root if in_place else None)


@algorithm(
    "scatter", MULTICORE, "star",
    "The root sends each node root its node's blocks, which arrive where they belong.",
    applies=on_several_nodes,
)  # fmt: skip
def star(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Send one message per node (and chunk); the root's own node reads its blocks itself.

    A node root receives into the heaps of its node's threads, so no block is copied there. Large
    blocks go to all nodes in turn, a message each.
    """
    home = t.on_my_node(root)
    message = t.message(nbytes)
    node_source = t.acting_root(t.my_node, root)
    if home:
        t.ready(root, NODE, node_only=True)
    else:
        t.ready(NODE, node_source, node_only=True)
    if t.me == root:
        with t.net():
            _send_all(t, src, root, nbytes, message)
    elif t.me == node_source:
        _recv_all(t, dst, root, nbytes, message)
    if home:
        if not (in_place and t.me == root):
            t.copy(dst.on(t.me), src.on(root, t.me * nbytes), nbytes)
        t.done(NODE, root, node_only=True)
    else:
        t.done(node_source, NODE, node_only=True)


def _lead(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, message: int,
    but: int | None,
) -> None:
    """Record the work of a node root that does everything for its node."""
    if not t.on_my_node(root):
        _recv_all(t, dst, t.tree.root_of(root), nbytes, message)
        return
    _send_all(t, src, root, nbytes, message)
    _hand_out(t, dst, src, root, nbytes, but)


def _recv_all(t: Recorder, dst: Operand, of: int, nbytes: int, message: int) -> None:
    """Receive the blocks of my node directly in the heaps of its threads."""
    for shares in node_messages(t, t.my_node, nbytes, message):
        t.recv_blocks(of, [spread(dst, share) for share in shares])


def _send_all(t: Recorder, src: Operand, root: int, nbytes: int, message: int) -> None:
    """Send the blocks of every other node."""
    for to, shares in messages_of_others(t, nbytes, message):
        t.send_blocks(to, [together(src, root, share, nbytes) for share in shares])


class Share(NamedTuple):
    """So many bytes, from an offset on, of the block of each of some threads."""

    ranks: Ranks
    offset: int
    nbytes: int


def spread(operand: Operand, share: Share) -> Blocks:
    """Return the share in the threads' own heaps."""
    ranks, offset, nbytes = share
    return Blocks(operand.across(ranks, offset), nbytes, ranks.count)


def together(area: Operand, on: int, share: Share, nbytes: int) -> Blocks:
    """Return the share in the area on thread `on`, where all threads have a block of `nbytes`."""
    ranks, offset, size = share
    return Blocks(blocks_for(area, on, ranks, nbytes) + offset, size, ranks.count)


def node_messages(t: Recorder, node: int, nbytes: int, message: int) -> Iterator[list[Share]]:
    """Yield what is in the messages from or to a node: the order both ends keep."""
    rows = [(run, run.count) for run in t.node_ranks(node)]
    for shares in filled(rows, nbytes, message):
        yield [
            Share(run.cut(block, count), offset, size)
            for run, block, count, offset, size in shares
        ]


def messages_of_others(
    t: Recorder, nbytes: int, message: int
) -> Iterator[tuple[int, list[Share]]]:
    """Yield (node root, message) of all other nodes, the nodes in turn: all keep busy."""
    nodes = t.tree.node_count
    waiting = [
        (t.tree.node_root(node), node_messages(t, node, nbytes, message))
        for node in ((t.my_node + k) % nodes for k in range(1, nodes))
    ]
    while waiting:
        still = []
        for node_root, rest in waiting:
            for shares in itertools.islice(rest, 1):
                yield node_root, shares
                still.append((node_root, rest))
        waiting = still


# --- in place -----------------------------------------------------------------------------------
def own_block_stays(function: Callable[..., None]) -> Callable[..., None]:
    """Return an algorithm that leaves the root's own block as it is."""

    def record(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
        function(t, dst, src, root, nbytes, in_place=True)

    return record


derive("scatter_in_place", "scatter", own_block_stays)
