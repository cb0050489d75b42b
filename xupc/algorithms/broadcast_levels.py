"""all_broadcast by the levels below a node: the block enters each domain once.

The thread that takes it in is the root of the domain, or the root of the call in its own domains::

    2 sockets of 2 L3 domains of 2 threads, root 0

    0 -> 4        into the other socket
    0 -> 2        4 -> 6        into the other L3 domain of each socket
    0 -> 1        2 -> 3        4 -> 5        6 -> 7
"""

from __future__ import annotations

import numpy as np

from ..flags import MULTICORE
from ..plan.patterns import chunks
from ..plan.recorder import Operand, Recorder
from .conditions import by_name, on_one_node
from .domains import parents, ranks_of
from .registry import algorithm


@algorithm(
    "broadcast", MULTICORE, "levels",
    "The block enters each socket and cache domain once, chunk by chunk.",
    applies=on_one_node, preferred=by_name,
)  # fmt: skip
def by_levels(
    t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int, *, in_place: bool = False
) -> None:
    """Each thread copies every chunk from its parent, then signals its children."""
    tree = parents(t.tree.levels(t.my_node), root)
    parent, children = int(tree[t.me]), np.flatnonzero(tree == t.me).tolist()
    near_root = parent == root
    t.ready_each([root] if near_root else [], children if t.me == root else [], node_only=True)
    arrived = t.channel()
    source = src.on(root) if near_root or t.me == root else dst.on(parent)
    for number, (offset, size) in enumerate(chunks(nbytes, t.chunk(nbytes)), 1):
        if t.me == root:
            t.copy(dst.on(root, offset), source + offset, 0 if in_place else size)
            continue
        if not near_root:
            t.wait(arrived, parent, number)
        t.copy(dst.on(t.me, offset), source + offset, size)
        t.signal(arrived, ranks_of(children), number)
    t.done_each([] if t.me == root else [parent], children)
