"""Which node has which blocks of a reduction, and whether nodes' values combine in order."""

from __future__ import annotations

from collections.abc import Sequence

from ..plan.patterns import tree_joins
from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import FoldOperand
from .reduce_spec import Reduction

__all__ = [
    "in_order", "join_in_order", "leaves_of", "nodes_by_rank", "nodes_in_order", "order_of",
    "positions_of", "targets",
]  # fmt: skip


def positions_of(t: Facts, r: Reduction, node: int, blocks: int) -> list[int]:
    """Return a node's positions that have one of so many blocks, in order."""
    n = r.positions(blocks)
    threads = (int(thread) for thread in t.tree.members(node))
    found = (r.layout.position(thread) for thread in threads)
    return sorted(p for p in found if p is not None and p < n)


def order_of(t: Facts, r: Reduction, blocks: int) -> list[int]:
    """Return the nodes that have any of so many blocks, by their first positions."""
    first = {node: positions_of(t, r, node, blocks) for node in range(t.tree.node_count)}
    return sorted((node for node in first if first[node]), key=lambda node: first[node][0])


def leaves_of(t: Recorder, r: Reduction, begin: int, blocks: int) -> list[FoldOperand]:
    """Return the tree of my node's blocks for the results from `begin` on."""
    positions = positions_of(t, r, t.my_node, blocks)
    joins = tree_joins(len(positions))
    return [
        r.leaf(p, begin, blocks)._replace(joins=n) for p, n in zip(positions, joins, strict=True)
    ]


def in_order(t: Facts, r: Reduction) -> bool:
    """Return whether combining nodes' values keeps the one documented order."""
    blocks = r.layout.blocks
    return join_in_order([positions_of(t, r, node, blocks) for node in order_of(t, r, blocks)])


def join_in_order(nodes: Sequence[Sequence[int]]) -> bool:
    """Return whether nodes with these positions, in order, combine in the one documented order.

    They do if all have the same number of neighbouring positions, and that is a power of two.
    """
    size = len(nodes[0])
    return (
        all(p[-1] - p[0] == len(p) - 1 for p in nodes)
        and all(len(p) == size for p in nodes[:-1])
        and (len(nodes) == 1 or (len(nodes[-1]) <= size and size & (size - 1) == 0))
    )


def nodes_by_rank(t: Facts) -> list[int]:
    """Return the nodes, ordered by their first threads."""
    nodes = range(t.tree.node_count)
    return sorted(nodes, key=lambda node: int(t.tree.members(node)[0]))


def nodes_in_order(t: Facts) -> bool:
    """Return whether combining the values of nodes keeps the documented order of their threads."""
    return join_in_order([t.tree.members(node).tolist() for node in nodes_by_rank(t)])


def targets(t: Recorder, r: Reduction) -> list[int]:
    """Return the nodes that need the result."""
    return list(range(t.tree.node_count)) if r.to is None else [t.tree.node_of(r.to)]
