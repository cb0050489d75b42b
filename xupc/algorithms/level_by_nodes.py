"""A reduction across nodes whose threads fold by the levels inside each node."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, FoldOperand
from .domains import parents
from .level_flow import node_runs
from .level_reduce import SlicedFold, Slicing, even_slices
from .private_staging import LINE
from .values_reduce_across_nodes import ByNodes
from .values_reduce_spec import ReduceSpec

__all__ = ["MOST_AREAS", "LevelByNodes", "has_room", "slicing_of"]

MOST_AREAS = 6
"""The most areas, each with the bytes of a unit, of a thread's staging buffer across nodes.

A node whose levels need more leaves out its narrowest ones.
"""


def slicing_of(t: Facts, r: ReduceSpec, node: int) -> Slicing:
    """Return how the threads of a node divide a unit."""
    size = t.tree.node_size(node)
    return Slicing(t.tree.levels(node), tuple(range(size)), r.exact or r.ordered, staged=True)


def has_room(t: Facts) -> bool:
    """Return whether units across nodes are not too short in the staging buffer."""
    return t.tuning["staging_bytes"] >= 16 * MOST_AREAS * t.line


class LevelByNodes(ByNodes):
    """Record the units of a reduction across nodes, with the levels inside each of them.

    The slices of a unit are folded up the levels. The node root exchanges them with other nodes.
    Results go from the node root down the domains: each thread copies them from its parent. The
    sizes of units are the same on all nodes, even if their levels differ.
    """

    def __init__(self, t: Recorder, r: ReduceSpec, flat: bool, chained: bool) -> None:
        super().__init__(t, r, flat=flat, chained=chained, areas=MOST_AREAS)
        sizes = [size for _, size in self.units]
        stride = -(-sizes[0] // LINE) * LINE
        mates = t.tree.node_size(t.my_node)
        self.fold = SlicedFold(
            t, self._slicing().within(MOST_AREAS), self.relay.out, stride,
            [even_slices(size, r.itemsize, mates) for size in sizes], r.itemsize,
            self._own if self._reads_own else None, -1, reuses=False,
        )  # fmt: skip
        tree = parents(t.tree.levels(t.my_node), t.tree.local_index(t.node_root))
        self.parent = int(t.tree.members(t.my_node)[tree[self.fold.me]])
        self.readers = node_runs(t, np.flatnonzero(tree == self.fold.me))
        self.there = -1 if r.to is not None else t.channel()

    def record(self) -> None:
        """Record all units; a result for all threads goes from parent to child in each node."""
        finish = self._pass_on if self.chained else self._finish
        self.relay.run(
            len(self.units), self._stage, self._post, self._take, finish, only=self.r.to
        )

    def _slicing(self) -> Slicing:
        return slicing_of(self.t, self.r, self.t.my_node)

    def _own(self, _thread: int, u: int, begin: int) -> FoldOperand:
        return FoldOperand(self.r.src.on(self.t.me, self.units[u][0] + begin))

    @property
    def _reads_own(self) -> bool:
        """True if a thread folds its own operand where it is, without a copy in its scratch."""
        return True

    def _put(self, u: int, place: BlockRef, begin: int, end: int) -> None:
        """Copy these bytes of my operand of a unit to a place."""
        self.t.copy(place, self._own(0, u, begin).part, end - begin)

    def _stage(self, u: int) -> None:
        self.fold.stage(u, partial(self._put, u))
        self.fold.up(u)

    def _fold_node(self, u: int) -> None:
        for place, begin, end in self.fold.gathered(u):
            self.t.copy(self._mine(u) + begin, place, end - begin)

    def _take(self, u: int) -> None:
        t, (offset, size) = self.t, self.units[u]
        source = self._mine(u)
        if self.r.to is None and t.me != t.node_root:
            if self.parent != t.node_root:
                t.wait(self.there, self.parent, u + 1)
                source = self._kept(u, self.parent)
            if self.readers:
                t.copy(self._kept(u, t.me), source, size)
                t.signal(self.there, self.readers, u + 1)
                source = self._kept(u, t.me)
        t.copy(self.r.dst.on(t.me, offset), source, size)

    def _kept(self, u: int, thread: int) -> BlockRef:
        """Return where a thread keeps the result for the threads that copy it from there."""
        return self.fold.result(self.t.tree.local_index(thread), u)
