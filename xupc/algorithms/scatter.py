"""all_scatter: block i of the root's area to dst on thread i (UPC 1.3, 7.4.2.2).

::

    before   src@root: A B C D    after   dst@0: A   dst@1: B   dst@2: C   dst@3: D
"""

from __future__ import annotations

from collections.abc import Iterator

from ..flags import MULTICORE, PULL, PUSH
from ..patterns import chunks, pieces
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import Part, Ranks
from .registry import algorithm


def blocks_for(area: Operand, on: int, ranks: Ranks, nbytes: int) -> Part:
    """The row of blocks that belong to `ranks` in the area of T blocks on thread `on`."""
    return area.row(on, ranks.first * nbytes, ranks.step * nbytes)


@algorithm("scatter", PULL, "every thread reads its block from the root")
def pull(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """Each thread copies its own block, by load/store or by a one-sided read."""
    t.ready(root, ALL)
    t.fetch(dst.on(t.me), src.on(root, t.me * nbytes), nbytes)
    t.done(ALL, root)


@algorithm("scatter", PUSH, "the root writes each thread's block")
def push(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """The root copies to its node's threads and sends one message to each other thread."""
    if t.one_node:
        with t.alone(root):
            for run in t.mates():
                t.copy(dst.across(run), blocks_for(src, root, run, nbytes), nbytes, run.count)
        return
    t.ready(ALL, root, node_only=True)
    for offset, size in chunks(nbytes, t.tuning["message"]):
        if t.me == root:
            t.send(Ranks(0, t.size), src.on(root, offset), size, peer_step=nbytes)
        elif not t.on_my_node(root):
            t.recv(root, dst.on(t.me, offset), size)
    if t.me == root:
        for run in t.mates():
            t.copy(dst.across(run), blocks_for(src, root, run, nbytes), nbytes, run.count)
    t.done(root, ALL, node_only=True)


@algorithm("scatter", MULTICORE, "a node's blocks cross together, straight into its threads' heaps")
def multicore(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """The root sends each node root its node's blocks; they land where they belong.

    One message per node (and run of ranks, and chunk); no copy inside the other
    nodes at all: the node root receives into the heaps of its node's threads. At
    home every thread reads its own block. Large blocks go to all nodes in turn, a
    piece each.
    """
    if t.one_node:
        if nbytes * t.size <= t.tuning["fuse"]:
            with t.alone(root, anyone=True):
                for run in t.mates():
                    t.copy(dst.across(run), blocks_for(src, root, run, nbytes), nbytes, run.count)
        else:
            pull(t, dst, src, root, nbytes)
        return

    home = t.on_my_node(root)
    message = t.message(nbytes)
    if t.lead(nbytes * t.largest_node):
        if t.me == t.node_root:
            _lead(t, dst, src, root, nbytes, message)
        return
    speaker = t.acting_root(t.my_node, root)
    if home:
        t.ready(root, NODE, node_only=True)
    else:
        t.ready(NODE, speaker, node_only=True)
    if t.me == root:
        with t.net():
            _send_all(t, src, root, nbytes, message)
    elif t.me == speaker:
        _recv_all(t, dst, root, nbytes, message)
    if home:
        t.copy(dst.on(t.me), src.on(root, t.me * nbytes), nbytes)
        t.done(NODE, root, node_only=True)
    else:
        t.done(speaker, NODE, node_only=True)


def _lead(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, message: int
) -> None:
    """A node root's work when it does everything for its node."""
    if not t.on_my_node(root):
        _recv_all(t, dst, t.tree.root_of(root), nbytes, message)
        return
    _send_all(t, src, root, nbytes, message)
    for run in t.mates():
        t.copy(dst.across(run), blocks_for(src, root, run, nbytes), nbytes, run.count)


def _recv_all(t: Recorder, dst: Operand, of: int, nbytes: int, message: int) -> None:
    """My node's blocks, straight into its threads' heaps."""
    for run in t.mates():
        for block, count, offset, size in pieces(run.count, nbytes, message):
            part = dst.across(run, offset).block(block)
            t.recv(of, part._replace(thread_step=run.step), size, count)


def node_pieces(
    t: Recorder, node: int, nbytes: int, message: int
) -> Iterator[tuple[Ranks, tuple[int, int, int, int]]]:
    """A node's blocks cut into messages, run after run: the order both ends keep."""
    for run in t.mates(node):
        for piece in pieces(run.count, nbytes, message):
            yield run, piece


def _send_all(t: Recorder, src: Operand, root: int, nbytes: int, message: int) -> None:
    """Every other node's blocks, the nodes in turn so that all of them keep busy."""
    nodes = t.tree.node_count
    waiting = [
        (t.tree.node_root(node), node_pieces(t, node, nbytes, message))
        for node in ((t.my_node + k) % nodes for k in range(1, nodes))
    ]
    while waiting:
        still = []
        for to, rest in waiting:
            run, (block, count, offset, size) = next(rest, (None, (0, 0, 0, 0)))
            if run is None:
                continue
            row = src.row(root, (run.first + block * run.step) * nbytes, run.step * nbytes)
            t.send(to, row + offset, size, count)
            still.append((to, rest))
        waiting = still
