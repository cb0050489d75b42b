"""MULTICORE reductions of arrays of values across nodes.

Each function is a whole algorithm, recorded on every thread; `values_reduce` chooses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..plan.patterns import chain
from ..plan.recorder import ALL, Recorder
from ..plan.steps import FOLD_DEPTH, BlockRef, Blocks, FoldOperand
from .node_relay import Relay
from .private_staging import LINE
from .reduce_parts import in_parts, parts_pay
from .reduce_positions import nodes_by_rank, nodes_in_order
from .reduce_spec import tree_of
from .values_reduce_spec import ReduceSpec

__all__ = [
    "by_nodes", "doubling", "fold_in_line", "node_after_node", "reduce", "result_in_line",
    "running", "table",
]  # fmt: skip

_MOST = FOLD_DEPTH - 2  # values that a fold keeps before it joins them
_DEEP = 3  # units under way where results follow values on the same links


def reduce(t: Recorder, r: ReduceSpec, tree: Callable[[Recorder, ReduceSpec], None]) -> None:
    """Node by node, or of all threads in their order, or (many nodes) up a tree of threads."""
    few = t.tree.node_count <= t.tuning["few_nodes_max"]
    free = not (r.exact or r.ordered)
    unit = min(r.nbytes, t.tuning["staging_bytes"] // 10)
    pays = few or (free and r.to is None and parts_pay(t, unit))
    if pays and _nodes_fit(t, r) and (free or nodes_in_order(t)):
        by_nodes(t, r)
    elif few and _table_fits(t):
        homes = range(t.tree.node_count) if r.to is None else [t.tree.node_of(r.to)]

        def take(offset: int, size: int, at: Callable[[int], BlockRef]) -> None:
            if r.wanted(t.me):
                parts = [at(i) for i in range(t.size)]
                t.fold(r.dst.on(t.me, offset), tree_of(parts), size // r.itemsize)

        table(t, r, set(homes), take)
    else:
        tree(t, r)


def running(t: Recorder, r: ReduceSpec, reverse: bool, long: Callable[[], None]) -> None:
    """prefix and suffix: all values to all nodes if few and short; by nodes; or `long`."""
    nodes = t.tree.node_count
    few = nodes <= t.tuning["few_nodes_max"]
    if not (few and _table_fits(t) and r.nbytes * t.size <= t.tuning["pipeline_min"]):
        units = -(-r.nbytes // t.tuning["pipeline_min"])
        if not _neighbours(t) or (few and r.nbytes * t.largest_node > t.tuning["fold_wakeup_min"]):
            long()
        elif few or r.exact or units * (nodes - 1).bit_length() >= units + nodes - 2:
            node_after_node(t, r, reverse)
        else:
            doubling(t, r, reverse)
        return

    def take(offset: int, size: int, at: Callable[[int], BlockRef]) -> None:
        parts = [at(i) for i in r.operands(t.me, t.size, reverse)]
        result_in_line(t, r, offset, size, parts, reverse)

    table(t, r, set(range(t.tree.node_count)), take)


def fold_in_line(
    t: Recorder, dst: BlockRef, parts: list[BlockRef], nelems: int, reverse: bool
) -> None:
    """Values joined one after the other, from the first on, or from the last.

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


def _neighbours(t: Recorder) -> bool:
    """Return whether the threads of each node have consecutive ranks."""
    return np.array_equal(np.diff(t.tree.node_roots), t.tree.node_sizes[:-1])


def _table_fits(t: Recorder) -> bool:
    """Return whether a node root has room to receive a cache line of each thread."""
    return Relay.fits(t, t.size * t.line)


def _nodes_fit(t: Recorder, r: ReduceSpec) -> bool:
    """Whether what `ByNodes` puts there does, in units of a line at least."""
    most = max((1 + t.tree.node_count) * t.line, 2 * (t.line + _spare(t, r)))
    return Relay.fits(t, most, _DEEP)


def _spare(t: Recorder, r: ReduceSpec) -> int:
    """Bytes that the parts of a unit for each node may have besides, whole lines: one element."""
    return -(-t.tree.node_count * r.itemsize // LINE) * LINE


# --- all threads' values ------------------------------------------------------------------------
def table(
    t: Recorder, r: ReduceSpec, homes: set[int],
    take: Callable[[int, int, Callable[[int], BlockRef]], None],
) -> None:
    """Send each thread's values to the node roots of `homes`, for `take` on these nodes.

    All values are combined in one order on every placement; T n bytes arrive at a node.
    """
    every = len(homes) == t.tree.node_count
    relay = Relay(t, r.nbytes, t.size * r.nbytes, t.size * r.nbytes if every else None)
    width = r.nbytes
    if not relay.out.short:
        width = min(relay.out.width, relay.landing.width // t.size)
    units = r.units(width)
    members = [[int(x) for x in t.tree.members(node)] for node in range(t.tree.node_count)]
    starts = [sum(map(len, members[:node])) for node in range(t.tree.node_count)]

    def stage(u: int) -> None:
        offset, size = units[u]
        t.copy(relay.out.on(t.me, u), r.src.on(t.me, offset), size)

    def post(u: int) -> list[int]:
        size, tickets = units[u][1], []
        for node in range(t.tree.node_count) if t.my_node in homes else ():
            if node != t.my_node:
                place = relay.landing.on(t.me, u, starts[node] * size)
                nbytes = len(members[node]) * size
                tickets.append(t.recv(t.tree.node_root(node), place, nbytes, bounded=False))
        for node in sorted(homes - {t.my_node}):
            rows = [Blocks(relay.out.across(run, u), size, run.count) for run in t.node_ranks()]
            tickets.append(t.send_blocks(t.tree.node_root(node), rows))
        return tickets

    def out(u: int) -> None:
        offset, size = units[u]

        def at(thread: int) -> BlockRef:
            if t.on_my_node(thread):
                return relay.out.on(thread, u)
            node = t.tree.node_of(thread)
            place = starts[node] + members[node].index(thread)
            return relay.landing.on(t.node_root, u, place * size)

        take(offset, size, at)

    relay.run(len(units), stage, post, out, only=None if t.my_node in homes else r.to)


# --- prefix and suffix, node after node ----------------------------------------------------------
def node_after_node(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    """Pass chunks through a chain of nodes; inside a node all threads combine at once.

    Each thread combines the value of the node before with the staged values of its node's threads
    up to itself. The order is that of a chain of threads, in which each wakes the next one.
    """
    line = Line(t, r, reverse, 2, max(t.line, t.tuning["pipeline_min"]))

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
        """The root of a node, by where it is in the line."""
        return self.t.tree.node_root(self._turned(at))

    def place(self, u: int, k: int) -> BlockRef:
        """My node root's k-th place of a unit."""
        return self.relay.landing.on(self.t.node_root, u, k * self.stride)

    def staged(self, u: int, last: int | None = None) -> list[BlockRef]:
        """What my node's threads have staged in the order of the line, or what `last` combines."""
        end = len(self.mates)
        if last is not None:
            end = self.mates.index(last) + (not self.r.exclusive)
        return [self.relay.out.on(i, u) for i in self.mates[:end]]

    def join(self, dst: BlockRef, u: int, parts: list[BlockRef]) -> None:
        """Join values that are given in the order of the line."""
        nelems = self.units[u][1] // self.r.itemsize
        fold_in_line(self.t, dst, self._by_rank(parts), nelems, self.reverse)

    def _by_rank(self, parts: list[BlockRef]) -> list[BlockRef]:
        return parts[::-1] if self.reverse else parts

    def run(
        self,
        before: Callable[[int], list[BlockRef]],
        post: Callable[[int], list[int]],
        finish: Callable[[int], list[int]],
    ) -> None:
        """Record all units; a thread combines the values of `before` with those of its node."""
        t, r = self.t, self.r

        def stage(u: int) -> None:
            offset, size = self.units[u]
            t.copy(self.relay.out.on(t.me, u), r.src.on(t.me, offset), size)

        def take(u: int) -> None:
            parts = self._by_rank(before(u) + self.staged(u, t.me))
            result_in_line(t, r, *self.units[u], parts, self.reverse)

        self.relay.run(len(self.units), stage, post, take, finish)


# --- node by node ---------------------------------------------------------------------------------
def by_nodes(t: Recorder, r: ReduceSpec) -> None:
    """A node root folds its threads' values; node roots then join theirs, unit by unit."""
    ByNodes(t, r).record()


class ByNodes:
    """Record the units of a reduction node by node.

    In parts, each node root combines a part of a unit and sends it to the nodes that need it;
    2 (N-1)/N of n bytes leave a node, or arrive at the one that needs them. Short results are
    combined on each node that needs them. A long result for one node passes a chain of nodes, with
    n bytes on each link.

    A place for arriving values has two parts: the node's own value, which the result replaces when
    it has been sent, and the values of others.
    """

    def __init__(self, t: Recorder, r: ReduceSpec) -> None:
        self.t, self.r = t, r
        n = self.n = t.tree.node_count
        self.order = nodes_by_rank(t)
        self.home = None if r.to is None else t.tree.node_of(r.to)
        exact = r.exact or r.ordered  # the order of a chain is not the nodes'
        parts = r.to is None or in_parts(t, r.nbytes) or (exact and n > 2)
        short = t.tuning["pipeline_min"] // (n if r.to is None else 1)
        self.flat = r.nbytes < short or (exact and not parts)
        self.slots = 1 + (n if self.flat else 1)
        spare = 0 if self.flat else _spare(t, r)
        landing = self.slots * (r.nbytes + spare + LINE)
        crossing = r.nbytes * t.largest_node if self.flat else None
        self.relay = Relay(t, r.nbytes, landing, crossing, _DEEP)
        width = r.nbytes
        if not self.relay.out.short:
            room = self.relay.landing.width // self.slots // LINE * LINE - spare
            width = min(self.relay.out.width, room)
        self.chained = not self.flat and not parts
        if self.chained:  # the last unit is soonest through if it is not a large one
            width = t.unit(r.nbytes, width)
        self.units = r.units(width)
        self.stride = -(-max(size for _, size in self.units) // LINE) * LINE + spare
        every = set(range(n))
        self.homes = every if self.home is None else {self.home}
        self.joiners = self.homes if self.flat else every

    def record(self) -> None:
        """On every thread."""
        finish = self._pass_on if self.chained else self._finish
        only = ALL if self.r.to is None else self.r.to
        self.relay.run(len(self.units), self._stage, self._post, self._take, finish, only=only)

    def _stage(self, u: int) -> None:
        offset, size = self.units[u]
        self.t.copy(self.relay.out.on(self.t.me, u), self.r.src.on(self.t.me, offset), size)

    def _place(self, u: int, slot: int) -> BlockRef:
        return self.relay.landing.on(self.t.node_root, u, slot * self.stride)

    def _mine(self, u: int) -> BlockRef:
        """My node's value, later the result."""
        return self._place(u, 0)

    def _arrived(self, u: int, node: int) -> BlockRef:
        """Return the place of the value that arrives from a node's root."""
        if self.flat:
            return self._place(u, 1 + node)
        begin, end = self._part(u, self.t.my_node)
        before = node - (node > self.t.my_node)  # other nodes with lower numbers
        return self._place(u, 1) + before * (end - begin)

    def _part(self, u: int, node: int) -> tuple[int, int]:
        """The bytes of a unit that a node joins."""
        size = self.r.itemsize
        n = self.units[u][1] // size
        if self.flat:
            return 0, n * size
        return n * node // self.n * size, n * (node + 1) // self.n * size

    def _take(self, u: int) -> None:
        offset, size = self.units[u]
        self.t.copy(self.r.dst.on(self.t.me, offset), self._mine(u), size)

    def _others(self, of: set[int]) -> list[int]:
        """Some nodes without mine, in an order of my own."""
        after = ((self.t.my_node + k) % self.n for k in range(1, self.n))
        return [node for node in after if node in of]

    def _root(self, node: int) -> int:
        return self.t.tree.node_root(node)

    def _post(self, u: int) -> list[int]:
        """My node's value, and the first messages."""
        t, size = self.t, self.units[u][1]
        tickets: list[int] = []
        if self.chained:
            if (child := self._child()) is not None:
                place = self._place(u, 1)
                tickets.append(t.recv(self._root(child), place, size, bounded=False))
        elif t.my_node in self.joiners:
            begin, end = self._part(u, t.my_node)
            for node in self._others(set(range(self.n))) if begin < end else ():
                place = self._arrived(u, node)
                tickets.append(t.recv(self._root(node), place, end - begin, bounded=False))
        mates = [int(x) for x in t.tree.members(t.my_node)]
        leaves = tree_of([self.relay.out.on(i, u) for i in mates])
        t.fold(self._mine(u), leaves, size // self.r.itemsize)
        for node in () if self.chained else self._others(self.joiners):
            begin, end = self._part(u, node)
            if begin < end:
                tickets.append(t.send(self._root(node), self._mine(u) + begin, end - begin))
        return tickets

    def _finish(self, u: int) -> list[int]:
        """When the others' values are there: my part of the result, and to whom it goes."""
        t = self.t
        tickets = []
        if t.my_node in self.homes:
            for node in () if self.flat else self._others(self.joiners):
                begin, end = self._part(u, node)
                if begin < end:
                    place = self._mine(u) + begin
                    tickets.append(t.recv(self._root(node), place, end - begin, bounded=False))
        begin, end = self._part(u, t.my_node)
        if begin < end and t.my_node in self.joiners:
            parts = [
                self._mine(u) + begin if node == t.my_node else self._arrived(u, node)
                for node in self.order
            ]
            t.fold(self._mine(u) + begin, tree_of(parts), (end - begin) // self.r.itemsize)
            for node in () if self.flat else self._others(self.homes):
                tickets.append(t.send(self._root(node), self._mine(u) + begin, end - begin))
        return tickets

    def _child(self) -> int | None:
        assert self.home is not None
        _, children = chain((self.t.my_node - self.home) % self.n, self.n)
        return (children[0] + self.home) % self.n if children else None

    def _pass_on(self, u: int) -> list[int]:
        """Down the chain, when what my node waits for is there."""
        t, size = self.t, self.units[u][1]
        assert self.home is not None
        parts = [self._mine(u)]
        if self._child() is not None:
            parts.append(self._place(u, 1))
        t.fold(self._mine(u), tree_of(parts), size // self.r.itemsize)
        parent, _ = chain((t.my_node - self.home) % self.n, self.n)
        if parent is None:
            return []
        return [t.send(self._root((parent + self.home) % self.n), self._mine(u), size)]
