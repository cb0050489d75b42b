"""all_broadcast: the root's block to dst on every thread (UPC 1.3, 7.4.2.1).

T threads on N nodes, n bytes::

    before   src@root: A          after   dst@0: A   dst@1: A   ...   dst@T-1: A

`in_place`: the root's own block at dst is left alone (see `broadcast_in_place`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import Shape, binary, binomial, chain, chunks, rotate, star, tree_for
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import BlockRef, Ranks
from ..plan.trees import NAMED
from .conditions import CallFacts, by_name, fused, led, on_one_node, on_several_nodes
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


# --- MULTICORE ----------------------------------------------------------------------------------
def _one_block(call: CallFacts) -> int:
    """Return the bytes that all threads of a node receive."""
    return call.nbytes * call.largest_node


def _block(call: CallFacts) -> int:
    return call.nbytes


@algorithm(
    "broadcast", MULTICORE, "fused", "The last thread to arrive writes the block to all threads.",
    **fused(_block),
)  # fmt: skip
def fused_copy(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """One thread copies the block to each thread."""
    with t.single_mover(root, anyone=True):
        _hand_out(t, dst, src.on(root), nbytes, t.node_ranks(), root if in_place else None)


algorithm(
    "broadcast", MULTICORE, "pull", "Each thread copies for itself, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


@algorithm(
    "broadcast", MULTICORE, "led",
    "Node roots write to their threads, and the block travels with the barrier.",
    **led(_one_block, one_block=True, most="pipeline_min"),
)  # fmt: skip
def led_star(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.largest_node)
    if t.me == t.node_root:
        _lead(t, dst, src, root, nbytes, root if in_place else None)


def _across(shape: Shape, name: str, summary: str, text: str = "") -> None:
    """Register a variant that sends chunks between node roots along a tree of nodes.

    `text`: where it is the default; without it the variant is used by name only.
    """

    def preferred(call: CallFacts) -> bool:
        unit = min(call.chunk(call.nbytes), call.nbytes)
        return tree_for(call.tree.node_count, call.nbytes, unit, call.tuning) is shape

    @algorithm(
        "broadcast", MULTICORE, name, summary, applies=on_several_nodes,
        preferred=preferred if text else by_name,
    )  # fmt: skip
    def across(
        t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
    ) -> None:
        """Send chunks along a tree of nodes; each node copies them as they arrive."""
        _chunks_across(t, dst, src, root, nbytes, shape, root if in_place else None)

    preferred.__doc__ = text


_across(
    star, "star", "The root sends the block to each other node root itself.",
    "Less than `pipeline_min` bytes on at most `few_nodes_max` nodes.",
)  # fmt: skip
_across(
    binomial, "binomial", "The block goes down a binomial tree of nodes, chunk by chunk.",
    "Less than `pipeline_min` bytes, or fewest messages in sequence: chunks x log2 N.",
)  # fmt: skip
_across(
    chain, "chain", "Chunks go along a chain of nodes, one on every link at the same time.",
    "Fewest messages in sequence on N nodes: chunks + N - 2.",
)  # fmt: skip
_across(
    binary, "binary", "Chunks go down a complete binary tree of nodes, two on each way down.",
    "Fewest messages in sequence on N nodes: 2 (chunks + log2 (N + 1) - 2).",
)  # fmt: skip
for _shape, _words in NAMED:
    _across(_shape, _shape.__name__, f"Chunks go down a tree of nodes, {_words}")


def _chunks_across(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, shape: Shape, but: int | None
) -> None:
    """Send the block in chunks between node roots; each node copies chunks as they arrive.

    n bytes enter each node. In a chain::

        root's node   c0 c1 c2 c3 ->              its threads read src
        next node        c0 c1 c2 ->              its threads read dst@node_root
        last node           c0 c1                  chunk by chunk behind the network
    """
    home = t.on_my_node(root)
    node_source = t.acting_root(t.my_node, root)
    arrived, chunk = t.channel(), t.chunk(nbytes)
    parts = chunks(nbytes, chunk)

    if home:
        # the root's own node reads src itself
        t.ready(root, NODE, node_only=True)
    if t.me == node_source:
        between_nodes(t, dst, src, root, parts, shape, arrived, t.node_ranks())
    if home:
        if t.me != but:
            for offset, size in parts:
                t.copy(dst.on(t.me, offset), src.on(root, offset), size)
    elif t.me != node_source:
        for i, (offset, size) in enumerate(chunks(nbytes, t.notify_interval(chunk))):
            t.turn(i)
            t.wait(arrived, node_source, i + 1)
            t.copy(dst.on(t.me, offset), dst.on(node_source, offset), size)
    t.done(NODE, node_source, node_only=True)


def _lead(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, but: int | None) -> None:
    """Record the work of a node root that does everything for its node."""
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
    """Return my node's parent and children in a tree of nodes with the root's at the top."""
    nodes, first = t.tree.node_count, t.tree.node_of(root)
    parent, children = shape(rotate(t.my_node, first, nodes), nodes)
    back = [(v + first) % nodes for v in children]
    return (None if parent is None else (parent + first) % nodes), back


def between_nodes(
    t: Recorder, dst: Operand, src: Operand, root: int, parts: list[tuple[int, int]],
    shape: Shape, arrived: int, readers: Sequence[Ranks],
) -> None:  # fmt: skip
    """Take each chunk from the node's parent, notify readers, send it to the children."""
    chunk = parts[0][1]
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
                    t.signal(arrived, readers, word + bool(rest))
            for child in children:
                t.send(node_source(child), source + offset, size)
