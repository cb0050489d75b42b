"""all_broadcast by the levels below a node: the block enters each node and domain once.

In each domain one thread copies the block from outside, and the others copy from that thread, chunk
by chunk. It is the root of the domain (its lowest thread); in the domains of the root of the call,
the latter::

    2 sockets of 2 L3 domains of 2 threads, root 0

    0 -> 4        into the other socket
    0 -> 2        4 -> 6        into the other L3 domain of each socket
    0 -> 1        2 -> 3        4 -> 5        6 -> 7

Between nodes it goes down the same tree as in the default variant. Its chunks then go down the
domains of each node.
"""

from __future__ import annotations

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks, tree_for
from ..plan.recorder import Operand, Recorder
from .broadcast import between_nodes
from .conditions import by_name
from .domains import parents
from .level_flow import node_runs
from .registry import algorithm


@algorithm(
    "broadcast", MULTICORE, "levels",
    "The block enters each node, socket and cache domain once, chunk by chunk.",
    preferred=by_name,
)  # fmt: skip
def by_levels(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each thread copies every chunk from its parent in the node, then signals its children."""
    node_source, mates = t.acting_root(t.my_node, root), t.tree.members(t.my_node)
    tree = parents(t.tree.levels(t.my_node), t.tree.local_index(node_source))
    parent = int(mates[tree[t.tree.local_index(t.me)]])
    children = np.flatnonzero(tree == t.tree.local_index(t.me))
    below, readers = mates[children].tolist(), node_runs(t, children)
    top, near_root = t.me == node_source, t.me != root and parent == root
    t.ready_each([root] if near_root else [], below if t.me == root else [], node_only=True)
    arrived, chunk = t.channel(), t.chunk(nbytes)
    if top and not t.one_node:
        shape = tree_for(t.tree.node_count, nbytes, min(chunk, nbytes), t.tuning)
        between_nodes(t, dst, src, root, chunks(nbytes, chunk), shape, arrived, readers)
    source = src.on(root) if near_root or t.me == root else dst.on(parent)
    step = chunk if t.one_node else t.notify_interval(chunk)
    for number, (offset, size) in enumerate(chunks(nbytes, step), 1):
        if t.me == root:
            t.copy(dst.on(t.me, offset), source + offset, 0 if in_place else size)
        elif not top:
            if not near_root:
                t.wait(arrived, parent, number)
            t.copy(dst.on(t.me, offset), source + offset, size)
            t.signal(arrived, readers, number)
    t.done_each([] if top else [parent], below)
