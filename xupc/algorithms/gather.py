"""all_gather: every thread's block to the root's area, in order (UPC 1.3, 7.4.2.3).

::

    before   src@0: A   src@1: B   src@2: C   src@3: D      after   dst@root: A B C D

In place the root's own block is in dst already: it is neither read nor written.
"""

from __future__ import annotations

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import Ranks
from .conditions import fused, led, on_one_node, on_several_nodes
from .registry import algorithm, derive
from .scatter import (
    all_blocks,
    blocks_for,
    messages_of_others,
    node_blocks,
    node_messages,
    own_block_stays,
    spread,
    together,
)


@algorithm("gather", PULL)
def pull(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """The root copies from its node's threads and reads from each of the others."""
    but = root if in_place else None
    if t.one_node:
        with t.single_mover(root):
            _collect(t, dst, src, root, nbytes, but)
        return
    t.ready(ALL, root)
    if t.me == root:
        everyone = Ranks(0, t.size)
        with t.net():
            t.get(blocks_for(dst, root, everyone, nbytes), src.across(everyone), nbytes, t.size)
        _collect(t, dst, src, root, nbytes, but)
    t.done(root, ALL)


def _collect(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, but: int | None
) -> None:
    """Copy the blocks of my node's threads, of all but one."""
    for run in t.node_ranks_but(but):
        t.copy(blocks_for(dst, root, run, nbytes), src.across(run), nbytes, run.count)


@algorithm("gather", PUSH)
def push(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """All threads copy at once, by load/store or by a message to the root."""
    t.ready(root, ALL, node_only=True)
    if t.on_my_node(root):
        if t.me == root and not t.one_node:
            with t.net():
                for offset, size in chunks(nbytes, t.tuning["max_message"]):
                    t.recv(Ranks(0, t.size), dst.on(root, offset), size, peer_step=nbytes)
        if not (in_place and t.me == root):
            t.copy(dst.on(root, t.me * nbytes), src.on(t.me), nbytes)
    else:
        for offset, size in chunks(nbytes, t.tuning["max_message"]):
            t.send(root, src.on(t.me, offset), size)
    t.done(ALL, root, node_only=True)


# --- MULTICORE ----------------------------------------------------------------------------------
@algorithm(
    "gather", MULTICORE, "fused", "The last thread to arrive copies all blocks.",
    **fused(all_blocks),
)  # fmt: skip
def fused_copy(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """One thread copies all blocks."""
    with t.single_mover(root, anyone=True):
        _collect(t, dst, src, root, nbytes, root if in_place else None)


algorithm(
    "gather", MULTICORE, "push", "Each thread copies its block to the root, as in PUSH.",
    applies=on_one_node,
)(push)  # fmt: skip


@algorithm(
    "gather", MULTICORE, "led",
    "Node roots read from their threads, and the blocks travel with the barrier.",
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
    "gather", MULTICORE, "star",
    "Each node root sends its node's blocks to the root; there each thread writes its own.",
    applies=on_several_nodes,
)  # fmt: skip
def star(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Send one message per node (and chunk), from the heaps of the node's threads into place."""
    message = t.message(nbytes)
    node_source = t.acting_root(t.my_node, root)
    if t.on_my_node(root):
        t.ready(root, NODE, node_only=True)
        if t.me == root:
            with t.net():
                _take_all(t, dst, root, nbytes, message)
        if not (in_place and t.me == root):
            t.copy(dst.on(root, t.me * nbytes), src.on(t.me), nbytes)
        t.done(NODE, root, node_only=True)
        return
    t.ready(NODE, node_source, node_only=True)
    if t.me == node_source:
        _send_all(t, src, root, nbytes, message)
    t.done(node_source, NODE, node_only=True)


def _lead(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, message: int,
    but: int | None,
) -> None:
    """Record the work of a node root that does everything for its node."""
    if not t.on_my_node(root):
        _send_all(t, src, t.tree.root_of(root), nbytes, message)
        return
    _take_all(t, dst, root, nbytes, message)
    _collect(t, dst, src, root, nbytes, but)


def _send_all(t: Recorder, src: Operand, to: int, nbytes: int, message: int) -> None:
    """Send the blocks of my node directly from the heaps of its threads."""
    for shares in node_messages(t, t.my_node, nbytes, message):
        t.send_blocks(to, [spread(src, share) for share in shares])


def _take_all(t: Recorder, dst: Operand, root: int, nbytes: int, message: int) -> None:
    """Receive the blocks of every other node in their places."""
    for of, shares in messages_of_others(t, nbytes, message):
        t.recv_blocks(of, [together(dst, root, share, nbytes) for share in shares])


# --- in place -----------------------------------------------------------------------------------
derive("gather_in_place", "gather", own_block_stays)
