"""all_reduce_mpi_all by recursive multiplying: log4 N messages in sequence, for short values.

In each round the nodes of a group of 4 send their values to each other, and all combine them in the
order of the group, so all have the same bits. The distance of the nodes of a group is 1, then 4,
then 16; the last group has 2 nodes where the number of nodes is 2, 8, 32, ... Nodes beyond the
largest power of two give their value to a node before, and get the result from it::

    round 0    {0 1 2 3} {4 5 6 7}            N = 8
    round 1    {0 4} {1 5} {2 6} {3 7}
"""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.placement import Facts
from ..plan.recorder import DST, NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef
from .conditions import CallFacts, by_name
from .reduce_circulant import all_nodes_have_operands
from .reduce_pipeline import ReducePipeline
from .reduce_spec import Reduction, tree_of
from .registry import algorithm

__all__ = ["groups"]

RADIX = 4
"""The nodes of a group: more of them are fewer rounds, and more messages in each."""


def groups(v: int, n: int) -> list[list[int]]:
    """Return the groups of node `v` of `n`, a power of two; it is in each of them.

    >>> groups(5, 8)
    [[4, 5, 6, 7], [1, 5]]
    """
    found, step = [], 1
    while step < n:
        radix = min(RADIX, n // step)
        first = v - v // step % radix * step
        found.append([first + digit * step for digit in range(radix)])
        step *= radix
    return found


def _core(nodes: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << (nodes.bit_length() - 1)


def _width(r: Reduction) -> int:
    """Return the bytes of a place."""
    return -(-r.nbytes // 64) * 64


def _fits(call: CallFacts) -> bool:
    """Several nodes, all with operands, element by element in any order; room for all rounds."""
    r: Reduction = call.arguments[0]
    return (
        all_nodes_have_operands(call)
        and _places(call) * _width(r) <= (call.tuning["staging_bytes"])
    )


def _places(t: Facts) -> int:
    """Return how many values arrive at a node at most."""
    core = _core(t.tree.node_count)
    return 1 + sum(len(group) - 1 for group in groups(0, core))


@algorithm(
    "reduce_mpi_all", MULTICORE, "multiplying",
    "Nodes exchange their values in groups of 4, at distances 1, 4, 16, ...: for short values.",
    applies=_fits, preferred=by_name,
)  # fmt: skip
def multiplying(t: Recorder, r: Reduction) -> None:
    """Combine the values of groups of nodes in the dst of node roots."""
    arrived = t.channel()
    pieces = r.pieces(0, r.each, r.nbytes)
    making = ReducePipeline(t, r, pieces, t.node_root)
    t.ready(NODE, NODE, node_only=True)
    if t.me == t.node_root:
        with t.net():
            for i in range(len(pieces)):
                making.wait(i)
            _Exchange(t, r).record()
            t.signal(arrived, t.node_ranks_but(t.me))
    for i, piece in making.mine():
        making.make(i, piece, DST.on(t.node_root, piece[0] * r.itemsize))
    if t.me != t.node_root:
        t.wait(arrived, t.node_root)
        t.copy(DST.on(t.me), DST.on(t.node_root), r.nbytes)
    t.done(NODE, NODE, node_only=True)


class _Exchange:
    """Record a node root's messages and folds. All receives are open from the start."""

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.t, self.r = t, r
        self.core, self.value = _core(t.tree.node_count), DST.on(t.me)
        self.places = 0

    def record(self) -> None:
        """Record all rounds, or what a node beyond the power of two does."""
        me, nodes = self.t.my_node, self.t.tree.node_count
        if me >= self.core:
            self._give(me - self.core)
            return
        extra = [me + self.core] if me + self.core < nodes else []
        rows = [[me, *extra], *groups(me, self.core)]
        open_ = [self._receive(row) for row in rows]
        for i, (row, landings) in enumerate(zip(rows, open_, strict=True)):
            sent = [self._send(node) for node in row if node != me] if i else []
            self.t.need(*(ticket for ticket, _ in landings.values()), *sent)
            parts = [landings[node][1] if node != me else self.value for node in row]
            if len(parts) > 1:
                self.t.fold(self.value, tree_of(parts), self.r.each)
        self.t.need(*(self._send(node) for node in extra))

    def _give(self, node: int) -> None:
        """Give the value to a node, and get the result from it."""
        t, root = self.t, self.t.tree.node_root(node)
        t.need(self._send(node))
        t.need(t.recv(root, self.value, self.r.nbytes, bounded=False))

    def _send(self, node: int) -> int:
        return self.t.send(self.t.tree.node_root(node), self.value, self.r.nbytes)

    def _receive(self, row: list[int]) -> dict[int, tuple[int, BlockRef]]:
        """Open receives from the other nodes of a group; return tickets and places by node."""
        found = {}
        for node in row:
            if node != self.t.my_node:
                place = Operand(STAGING).on(self.t.me, self.places * _width(self.r))
                root = self.t.tree.node_root(node)
                found[node] = self.t.recv(root, place, self.r.nbytes, bounded=False), place
                self.places += 1
        return found
