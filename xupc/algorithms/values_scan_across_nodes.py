"""MULTICORE prefix and suffix reductions of arrays of values across nodes.

Each function is a whole algorithm, recorded on every thread, and each condition says where one can
run or is the default; `values_scan` registers them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..plan.recorder import Recorder
from ..plan.steps import FOLD_DEPTH, BlockRef, FoldOperand
from .conditions import CallFacts
from .node_relay import Relay
from .private_staging import LINE
from .values_reduce_across_nodes import table
from .values_reduce_spec import ReduceSpec

__all__ = [
    "Line", "by_table", "can_double", "can_follow_nodes", "chain_unit", "doubling", "doubling_pays",
    "fold_in_line", "follow_nodes", "node_after_node", "passes_nodes", "result_in_line",
    "table_is_short",
]  # fmt: skip

_MOST = FOLD_DEPTH - 2  # values that a fold keeps before it joins them


# --- where each variant can run -----------------------------------------------------------------
def _work(call: CallFacts) -> ReduceSpec:
    work: ReduceSpec = call.arguments[0]
    return work


def table_is_short(call: CallFacts) -> bool:
    """At most `pipeline_min` bytes of all threads."""
    return _work(call).nbytes * call.size <= call.tuning["pipeline_min"]


def can_follow_nodes(call: CallFacts) -> bool:
    """Several nodes, whose threads have consecutive ranks."""
    tree = call.tree
    return not call.one_node and np.array_equal(np.diff(tree.node_roots), tree.node_sizes[:-1])


def can_double(call: CallFacts) -> bool:
    """Several nodes, whose threads have consecutive ranks, not under REPRODUCIBLE."""
    return not _work(call).exact and can_follow_nodes(call)


def passes_nodes(call: CallFacts) -> bool:
    """Few nodes with at most `fold_wakeup_min` bytes each, or many units for the nodes."""
    r, nodes = _work(call), call.tree.node_count
    if call.few_nodes:
        return r.nbytes * call.largest_node <= call.tuning["fold_wakeup_min"]
    units = -(-r.nbytes // max(1, call.tuning["pipeline_min"]))
    return r.exact or units * (nodes - 1).bit_length() >= units + nodes - 2


def doubling_pays(call: CallFacts) -> bool:
    """More than `few_nodes_max` nodes."""
    return not call.few_nodes


# --- values in line -------------------------------------------------------------------------------
def fold_in_line(
    t: Recorder, dst: BlockRef, parts: list[BlockRef], nelems: int, reverse: bool
) -> None:
    """Fold values one after the other, from the first on or from the last.

    From the last on, so many at a time as a fold can keep: ``a (b (c d))``.
    """
    if not reverse:
        leaves = [FoldOperand(part, joins=int(i > 0)) for i, part in enumerate(parts)]
        t.fold(dst, leaves, nelems)
        return
    while parts:
        rest, some = parts[:-_MOST], parts[-_MOST:]
        leaves = [FoldOperand(part) for part in some]
        leaves[-1] = leaves[-1]._replace(joins=len(some) - 1)
        t.fold(dst, leaves, nelems)
        parts = [*rest, dst] if rest else []


def result_in_line(
    t: Recorder, r: ReduceSpec, offset: int, size: int, parts: list[BlockRef], reverse: bool
) -> None:
    """Record my result of a unit, of values in the order of ranks; the first thread has none."""
    dst, nelems = r.dst.on(t.me, offset), size // r.itemsize
    if r.exclusive and len(parts) == 1:
        t.copy(dst, parts[0], size)
    elif parts:
        fold_in_line(t, dst, parts, nelems, reverse)
    elif r.identity:
        t.fold(dst, [], nelems)


# --- all threads' values --------------------------------------------------------------------------
def by_table(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Let each thread combine the values of the threads up to itself, or from itself on."""

    def take(offset: int, size: int, at: Callable[[int], BlockRef]) -> None:
        parts = [at(i) for i in r.operands(t.me, t.size, reverse)]
        result_in_line(t, r, offset, size, parts, reverse)

    table(t, r, set(range(t.tree.node_count)), take)


# --- node after node ------------------------------------------------------------------------------
def node_after_node(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Pass chunks through a chain of nodes; inside a node all threads combine at once.

    Each thread combines the value of the node before with the staged values of its node's threads
    up to itself. The order is that of a chain of threads, in which each wakes the next one.
    """
    follow_nodes(Line(t, r, reverse, 2, chain_unit(t)))


def chain_unit(t: Recorder) -> int:
    """Return the most bytes of a unit that passes a chain of nodes."""
    return max(t.line, t.tuning["pipeline_min"])


def follow_nodes(line: Line) -> None:
    """Record a scan whose units pass a chain of nodes; `line` has places for two values."""
    t = line.t

    def before(u: int) -> list[BlockRef]:
        return [line.place(u, 0)] if line.here else []

    def post(u: int) -> list[int]:
        of, size = line.here - 1, line.units[u][1]
        return [t.recv(line.root(of), place, size, bounded=False) for place in before(u)]

    def pass_on(u: int) -> list[int]:
        if line.here + 1 == line.nodes:
            return []
        mine = line.place(u, 1)
        line.join(mine, u, before(u) + line.staged(u))
        return [t.send(line.root(line.here + 1), mine, line.units[u][1])]

    line.run(before, post, pass_on)


def doubling(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Record prefix and suffix: a node sends the value of its last 2^k nodes 2^k nodes ahead.

    So n bytes leave a node in each of the log2 N rounds k = 0, 1, ..., while a chain of N nodes
    needs N messages in sequence. A thread combines all arrived values with those of its node's
    threads up to itself.
    """
    rounds = range((t.tree.node_count - 1).bit_length())
    line = Line(t, r, reverse, 2 * len(rounds), r.nbytes)
    here, nodes = line.here, line.nodes

    def arrived(u: int, k: int) -> BlockRef:
        return line.place(u, k)

    def joined(u: int, k: int) -> BlockRef:
        return line.place(u, len(rounds) + k)

    def trade(u: int) -> list[int]:
        size = line.units[u][1]
        mine = joined(u, 0)  # the value of the nodes up to mine, as far as they have arrived
        if here + 1 < nodes:
            line.join(mine, u, line.staged(u))
        for k in rounds:
            tickets = []
            if here - 2**k >= 0:
                tickets.append(t.recv(line.root(here - 2**k), arrived(u, k), size, bounded=False))
            if here + 2**k < nodes:
                tickets.append(t.send(line.root(here + 2**k), mine, size))
            t.need(*tickets)
            if here - 2**k >= 0 and here + 2 ** (k + 1) < nodes:
                line.join(joined(u, k + 1), u, [arrived(u, k), mine])
                mine = joined(u, k + 1)
        return []

    def before(u: int) -> list[BlockRef]:
        return [arrived(u, k) for k in reversed(rounds) if here - 2**k >= 0]

    line.run(before, lambda u: [], trade)


class Line:
    """Nodes in the order in which values are joined: from the first on, or from the last.

    Parameters
    ----------
    places
        How many values a node root keeps besides: what comes from other nodes, what goes there.
    most
        The largest unit.
    """

    def __init__(self, t: Recorder, r: ReduceSpec, reverse: bool, places: int, most: int) -> None:
        self.t, self.r, self.reverse = t, r, reverse
        self.nodes = t.tree.node_count
        self.here = self._turned(t.my_node)
        self.mates = [int(x) for x in t.tree.members(t.my_node)][:: -1 if reverse else 1]
        self.relay = Relay(t, r.nbytes, places * (r.nbytes + LINE))
        width = r.nbytes
        if not self.relay.out.short:
            room = self.relay.landing.width // places // LINE * LINE
            width = min(self.relay.out.width, room, most)
        self.units = r.units(width)
        self.stride = -(-max(size for _, size in self.units) // LINE) * LINE

    def _turned(self, node: int) -> int:
        return self.nodes - 1 - node if self.reverse else node

    def root(self, at: int) -> int:
        """Return the root of a node, by where it is in the line."""
        return self.t.tree.node_root(self._turned(at))

    def place(self, u: int, k: int) -> BlockRef:
        """Return my node root's k-th place of a unit."""
        return self.relay.landing.on(self.t.node_root, u, k * self.stride)

    def up_to(self, last: int) -> list[int]:
        """Return the threads of my node whose values `last` combines, in the order of the line."""
        return self.mates[: self.mates.index(last) + (not self.r.exclusive)]

    def staged(self, u: int, threads: list[int] | None = None) -> list[BlockRef]:
        """Return what some threads have staged, or all of my node in the order of the line."""
        return [self.relay.out.on(i, u) for i in (self.mates if threads is None else threads)]

    def join(self, dst: BlockRef, u: int, parts: list[BlockRef]) -> None:
        """Join values that are given in the order of the line."""
        nelems = self.units[u][1] // self.r.itemsize
        fold_in_line(self.t, dst, self.by_rank(parts), nelems, self.reverse)

    def by_rank(self, parts: list[BlockRef]) -> list[BlockRef]:
        """Return values that are given in the order of the line in the order of ranks."""
        return parts[::-1] if self.reverse else parts

    def run(
        self,
        before: Callable[[int], list[BlockRef]],
        post: Callable[[int], list[int]],
        finish: Callable[[int], list[int]],
    ) -> None:
        """Record all units; a thread combines the values of `before` with those of its node."""
        t = self.t

        def stage(u: int) -> None:
            offset, size = self.units[u]
            t.copy(self.relay.out.on(t.me, u), self.r.src.on(t.me, offset), size)

        def take(u: int) -> None:
            self.take(u, before(u))

        self.relay.run(len(self.units), stage, post, take, finish)

    def take(self, u: int, before: list[BlockRef]) -> None:
        """Make my result of a unit from what comes before my node and my node's staged values."""
        parts = self.by_rank(before + self.staged(u, self.up_to(self.t.me)))
        result_in_line(self.t, self.r, *self.units[u], parts, self.reverse)
