"""all_broadcast: the root's block to dst on every thread (UPC 1.3, 7.4.2.1).

T threads on N nodes, n bytes::

    before   src@root: A          after   dst@0: A   dst@1: A   ...   dst@T-1: A

`in_place`: the root's own block at dst is left alone (see `broadcast_in_place`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import Shape, chunks, rotate, star, tree_for
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import BlockRef, Ranks
from .registry import algorithm


@algorithm("broadcast", PULL)
def pull(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each thread copies for itself, by load/store or by a one-sided read.

    One copy per thread, all at once; T - T/N reads over the root's link.
    """
    t.ready(root, ALL)
    if not (in_place and t.me == root):
        t.fetch(dst.on(t.me), src.on(root), nbytes)
    t.done(ALL, root)


@algorithm("broadcast", PUSH)
def push(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """The root copies to its node's threads and sends to each of the others.

    T copies one after the other; T - T/N messages over the root's link.
    """
    but = root if in_place else None
    if t.one_node:
        with t.single_mover(root):
            _hand_out(t, dst, src.on(root), nbytes, t.node_ranks(), but)
        return
    t.ready(ALL, root, node_only=True)
    for offset, size in chunks(nbytes, t.tuning["max_message"]):
        if t.me == root:
            t.send(Ranks(0, t.size), src.on(root, offset), size)
        elif not t.on_my_node(root):
            t.recv(root, dst.on(t.me, offset), size)
    if t.me == root:
        _hand_out(t, dst, src.on(root), nbytes, t.node_ranks(), but)
    t.done(root, ALL, node_only=True)


def _hand_out(
    t: Recorder, dst: Operand, source: BlockRef, nbytes: int, to: Sequence[Ranks], but: int | None
) -> None:
    """Copy one block to threads of my node but one."""
    for run in to:
        for part in run.without(but):
            t.copy(dst.across(part), source, nbytes, part.count)


@algorithm("broadcast", MULTICORE)
def multicore(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Send the block in chunks between node roots; each node copies chunks as they arrive.

    n bytes enter each node. A large block travels along a chain of nodes, with one chunk on every
    link at the same time. On too many nodes for a chain it travels down a tree (`pipeline`). The
    root sends a small block directly to a few nodes, or down a binomial tree to many nodes::

        root's node   c0 c1 c2 c3 ->              its threads read src
        next node        c0 c1 c2 ->              its threads read dst@node_root
        last node           c0 c1                  chunk by chunk behind the network

    A node root writes a small block to its threads itself. In a job of one node, the last
    thread to arrive writes a small block to all threads; each thread pulls a large block.
    """
    but = root if in_place else None
    if t.one_node:
        if nbytes <= t.tuning["fused_max"]:
            with t.single_mover(root, anyone=True):
                _hand_out(t, dst, src.on(root), nbytes, t.node_ranks(), but)
        else:
            pull(t, dst, src, root, nbytes, in_place=in_place)
        return

    if nbytes <= t.tuning["pipeline_min"] and t.root_exchange(
        nbytes * t.largest_node, one_block=True
    ):
        if t.me == t.node_root:
            _lead(t, dst, src, root, nbytes, but)
        return
    home = t.on_my_node(root)
    node_source = t.acting_root(t.my_node, root)
    arrived, chunk = t.channel(), t.chunk(nbytes)
    parts = chunks(nbytes, chunk)

    if t.me == node_source:
        _between_nodes(t, dst, src, root, parts, arrived)
    if home:
        # the root's own node reads src itself
        t.ready(root, NODE, node_only=True)
        if t.me != but:
            for offset, size in parts:
                t.copy(dst.on(t.me, offset), src.on(root, offset), size)
    elif t.me != node_source:
        for i, (offset, size) in enumerate(chunks(nbytes, t.notify_interval(chunk))):
            t.wait(arrived, node_source, i + 1)
            t.copy(dst.on(t.me, offset), dst.on(node_source, offset), size)
    t.done(NODE, node_source, node_only=True)


def _lead(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, but: int | None
) -> None:
    """A node root's work when it does everything for its node."""
    parent, children = _tree(t, root, star)
    if parent is None:
        source, targets = src.on(root), t.node_ranks()
    else:
        source, targets = dst.on(t.me), tuple(t.node_ranks_but(t.me))
        t.need(t.recv(t.tree.node_root(parent), source, nbytes))
    for child in children:
        t.send(t.tree.node_root(child), source, nbytes)
    _hand_out(t, dst, source, nbytes, targets, but)


def _tree(t: Recorder, root: int, shape: Shape) -> tuple[int | None, list[int]]:
    """My node's parent and children in a tree of nodes with the root's at the top."""
    nodes, first = t.tree.node_count, t.tree.node_of(root)
    parent, children = shape(rotate(t.my_node, first, nodes), nodes)
    back = [(v + first) % nodes for v in children]
    return (None if parent is None else (parent + first) % nodes), back


def _between_nodes(
    t: Recorder,
    dst: Operand,
    src: Operand,
    root: int,
    parts: list[tuple[int, int]],
    arrived: int,
) -> None:
    """The network's half: take each chunk, tell my node, pass it on."""
    nodes = t.tree.node_count
    nbytes, chunk = sum(size for _, size in parts), parts[0][1]
    shape = tree_for(nodes, nbytes, chunk, t.tuning)
    parent, children = _tree(t, root, shape)

    def node_source(node: int) -> int:
        return t.acting_root(node, root)

    source = src.on(root) if parent is None else dst.on(t.me)
    interval = t.notify_interval(chunk)
    with t.net():
        tickets: list[int] = []
        for i, (offset, size) in enumerate(parts):
            if parent is not None:
                while len(tickets) < min(len(parts), i + t.tuning["window"]):
                    o, n = parts[len(tickets)]
                    tickets.append(t.recv(node_source(parent), dst.on(t.me, o), n, bounded=False))
                t.need(tickets[i])
                word, rest = divmod(offset + size, interval)
                if not rest or i + 1 == len(parts):
                    t.signal(arrived, t.node_ranks(), word + bool(rest))
            for child in children:
                t.send(node_source(child), source + offset, size)
