"""MULTICORE reduce and reduce_all of arrays of values across nodes.

Each function is a whole algorithm, recorded on every thread, and each condition says where one can
run or is the default; `values_reduce` registers them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..plan.patterns import chain
from ..plan.placement import Facts
from ..plan.recorder import ALL, Recorder
from ..plan.steps import BlockRef, Blocks
from .conditions import CallFacts
from .node_relay import Relay
from .private_staging import LINE, Places
from .reduce_parts import in_parts as parts_are_faster
from .reduce_parts import parts_pay
from .reduce_positions import nodes_by_rank, nodes_in_order
from .reduce_spec import tree_of
from .values_reduce_spec import ReduceSpec

__all__ = [
    "can_be_exchanged", "can_be_in_parts", "can_pass_chain", "exchange", "has_table", "in_parts",
    "is_exchanged", "nodes_pay", "passes_chain", "pipeline", "reduce_by_table", "table",
]  # fmt: skip

_DEEP = 3  # units under way where results follow values on the same links


# --- where each variant can run -----------------------------------------------------------------
def _work(call: CallFacts) -> ReduceSpec:
    work: ReduceSpec = call.arguments[0]
    return work


def has_table(call: CallFacts) -> bool:
    """Few nodes, whose roots have room to receive a cache line of each thread."""
    return not call.one_node and call.few_nodes and Relay.fits(call, call.size * call.line)


def _free(r: ReduceSpec) -> bool:
    """Return whether the values of nodes may be combined in any order."""
    return not (r.exact or r.ordered)


def can_be_in_parts(call: CallFacts) -> bool:
    """Several nodes, in operand order if that matters, and room for a unit."""
    r = _work(call)
    most = max((1 + call.tree.node_count) * call.line, 2 * (call.line + _spare(call, r)))
    fits = not call.one_node and Relay.fits(call, most, _DEEP)
    return fits and (_free(r) or nodes_in_order(call))


def can_be_exchanged(call: CallFacts) -> bool:
    """As `parts`, and no node root sends more than `max_messages` messages.

    A unit gets shorter with more nodes, since a value of each has a place. So all units of long
    values would take messages in the square of the number of nodes.
    """
    if not can_be_in_parts(call):
        return False
    r, n = _work(call), call.tree.node_count
    places = Relay.places(call, r.nbytes, (1 + n) * (r.nbytes + LINE), _DEEP)
    units = r.units(_width_of(places, r, 1 + n))
    return len(units) * (n - 1) <= call.tuning["max_messages"]


def _width_of(
    places: tuple[Places, Places], r: ReduceSpec, slots: int, spare: int = 0, areas: int = 1
) -> int:
    """Return the bytes of a unit, for the places of staged and of arriving values.

    `slots`: the values of a unit that have a place at a node root, each with `spare` bytes more.
    """
    out, landing = places
    if out.short:
        return r.nbytes
    return min(out.width // areas // LINE * LINE, landing.width // slots // LINE * LINE - spare)


def can_pass_chain(call: CallFacts) -> bool:
    """Several nodes and room for a unit, to one receiver in any order, not under REPRODUCIBLE."""
    r = _work(call)
    return r.to is not None and _free(r) and can_be_in_parts(call)


def nodes_pay(call: CallFacts) -> bool:
    """Few nodes; or to all in any order, where parts are neither short nor many."""
    r = _work(call)
    unit = min(r.nbytes, call.tuning["staging_bytes"] // 10)
    return call.few_nodes or (_free(r) and r.to is None and parts_pay(call, unit))


def is_exchanged(call: CallFacts) -> bool:
    """Less than `pipeline_min` bytes (to all: for each node); or two nodes, one order."""
    r, n = _work(call), call.tree.node_count
    short = call.tuning["pipeline_min"] // (n if r.to is None else 1)
    pair = n == 2 and r.to is not None and not _free(r)
    return nodes_pay(call) and (r.nbytes < short or pair)


def passes_chain(call: CallFacts) -> bool:
    """Two nodes, more than `few_nodes_max`, or more than `pipeline_min` / 2 bytes for each node."""
    return nodes_pay(call) and not parts_are_faster(call, _work(call).nbytes)


def _spare(t: Facts, r: ReduceSpec) -> int:
    """Return the spare bytes of a unit, in whole lines: one element for each node's part."""
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


def reduce_by_table(t: Recorder, r: ReduceSpec) -> None:
    """Let each receiver combine the values of all threads in their order."""
    homes = range(t.tree.node_count) if r.to is None else [t.tree.node_of(r.to)]

    def take(offset: int, size: int, at: Callable[[int], BlockRef]) -> None:
        if r.wanted(t.me):
            parts = [at(i) for i in range(t.size)]
            t.fold(r.dst.on(t.me, offset), tree_of(parts), size // r.itemsize)

    table(t, r, set(homes), take)


# --- node by node ---------------------------------------------------------------------------------
def exchange(t: Recorder, r: ReduceSpec) -> None:
    """Fold each node's values on its root; combine the nodes' values wherever they are needed."""
    ByNodes(t, r, flat=True).record()


def in_parts(t: Recorder, r: ReduceSpec) -> None:
    """Fold each node's values on its root; each node root combines a part of a unit, for all."""
    ByNodes(t, r).record()


def pipeline(t: Recorder, r: ReduceSpec) -> None:
    """Fold each node's values on its root; each adds them to what arrives from the node before."""
    ByNodes(t, r, chained=True).record()


class ByNodes:
    """Record the units of a reduction node by node.

    In parts, each node root combines a part of a unit and sends it to the nodes that need it;
    2 (N-1)/N of n bytes leave a node, or arrive at the one that needs them.

    A place for arriving values has two parts: the node's own value, which the result replaces when
    it has been sent, and the values of others.

    Parameters
    ----------
    flat
        The results are combined on each node that needs them, instead of in parts: n bytes for
        each of these leave a node, with one message in sequence.
    chained
        The result for one node passes a chain of nodes, with n bytes on each link.
    areas
        How many times the bytes of a unit a thread keeps in its scratch. More than one: no unit
        travels with a barrier.
    """

    def __init__(
        self, t: Recorder, r: ReduceSpec, *, flat: bool = False, chained: bool = False,
        areas: int = 1,
    ) -> None:  # fmt: skip
        self.t, self.r = t, r
        self.flat, self.chained = flat, chained
        n = self.n = t.tree.node_count
        self.order = nodes_by_rank(t)
        self.home = None if r.to is None else t.tree.node_of(r.to)
        self.slots = 1 + (n if flat else 1)
        spare = 0 if flat else _spare(t, r)
        landing = self.slots * (r.nbytes + spare + LINE)
        crossing = r.nbytes * t.largest_node if flat and areas == 1 else None
        out = r.nbytes if areas == 1 else areas * (-(-r.nbytes // LINE) * LINE)
        self.relay = Relay(t, out, landing, crossing, _DEEP)
        places = self.relay.out, self.relay.landing
        width = _width_of(places, r, self.slots, spare, areas)
        if chained and not self.relay.out.short:
            width = t.unit(r.nbytes, width)  # the last unit is soonest through if it is not long
        self.units = r.units(width)
        self.stride = -(-max(size for _, size in self.units) // LINE) * LINE + spare
        every = set(range(n))
        self.homes = every if self.home is None else {self.home}
        self.joiners = self.homes if flat else every

    def record(self) -> None:
        """Record the steps of a thread."""
        finish = self._pass_on if self.chained else self._finish
        only = ALL if self.r.to is None else self.r.to
        self.relay.run(len(self.units), self._stage, self._post, self._take, finish, only=only)

    def _stage(self, u: int) -> None:
        offset, size = self.units[u]
        self.t.copy(self.relay.out.on(self.t.me, u), self.r.src.on(self.t.me, offset), size)

    def _place(self, u: int, slot: int) -> BlockRef:
        return self.relay.landing.on(self.t.node_root, u, slot * self.stride)

    def _mine(self, u: int) -> BlockRef:
        """Return the place of my node's value, which later has the result."""
        return self._place(u, 0)

    def _arrived(self, u: int, node: int) -> BlockRef:
        """Return the place of the value that arrives from a node's root."""
        if self.flat:
            return self._place(u, 1 + node)
        begin, end = self._part(u, self.t.my_node)
        before = node - (node > self.t.my_node)  # other nodes with lower numbers
        return self._place(u, 1) + before * (end - begin)

    def _part(self, u: int, node: int) -> tuple[int, int]:
        """Return the bytes of a unit that a node combines."""
        size = self.r.itemsize
        n = self.units[u][1] // size
        if self.flat:
            return 0, n * size
        return n * node // self.n * size, n * (node + 1) // self.n * size

    def _take(self, u: int) -> None:
        offset, size = self.units[u]
        self.t.copy(self.r.dst.on(self.t.me, offset), self._mine(u), size)

    def _others(self, of: set[int]) -> list[int]:
        """Return some nodes without mine, in an order that differs from node to node."""
        after = ((self.t.my_node + k) % self.n for k in range(1, self.n))
        return [node for node in after if node in of]

    def _root(self, node: int) -> int:
        return self.t.tree.node_root(node)

    def _post(self, u: int) -> list[int]:
        """Fold my node's value, and post the first messages."""
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
        self._fold_node(u)
        for node in () if self.chained else self._others(self.joiners):
            begin, end = self._part(u, node)
            if begin < end:
                tickets.append(t.send(self._root(node), self._mine(u) + begin, end - begin))
        return tickets

    def _fold_node(self, u: int) -> None:
        """Fold the values of my node's threads."""
        mates = [int(x) for x in self.t.tree.members(self.t.my_node)]
        leaves = tree_of([self.relay.out.on(i, u) for i in mates])
        self.t.fold(self._mine(u), leaves, self.units[u][1] // self.r.itemsize)

    def _finish(self, u: int) -> list[int]:
        """Record, when the others' values are there, my part of the result and its messages."""
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
        """Pass a unit down the chain when the messages that my node waits for have arrived."""
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
