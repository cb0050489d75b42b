"""MULTICORE across nodes for arrays of values: what node roots send for their threads.

Each function is a whole algorithm, recorded on every thread; `values.multicore` chooses.
In all of them a node's threads put what they have for others into their places (`staging`)
and tell their node root; messages go from there to places of the other node roots, which
tell their threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.patterns import chunks, pieces, rotate, tree_for
from ..plan.recorder import Operand, Recorder, Who
from ..plan.steps import OP_SCRATCH, STAGING, Blocks, Ranks
from .private_staging import LINE, Places, TransferSpec, Unit, cut, places_of, units_of, within

__all__ = ["Relay", "all_to_all", "broadcast", "from_root", "permute", "to_root"]

_PIECE = 4096
"""Smaller pieces of what is for all nodes are not cut: they go to some of the nodes at a time."""


class Relay:
    """Units that all threads of a node hand to their node root, and back what it received.

    ::

        thread       in(0)  in(1)             out(0)  in(2)            out(1)  in(3)
        node root        [0 ------------------|
                               [1 ----------------------------------|

    A unit is put into its place while the one before is on the wire. A place for what is
    staged is taken again four units later, one for what arrives `deep` units later; the staging
    buffer is divided in proportion, but so that what is staged is no less than a small piece.
    A single unit that all wait for is led: it travels with a barrier of node roots.

    Parameters
    ----------
    out, landing
        Bytes that a thread stages in a unit, and that arrive at a node root. If they are too
        many, the caller cuts its units to what `out` and `landing` of this object are then;
        if what is staged fits a op_scratch, there is one unit.
    crossing
        What a node would send and get in all, for `Recorder.root_exchange`; None: not to be led.
    deep
        Units that a node root has under way: 2, or 3 if it sends each twice (see `run`).
    """

    def __init__(
        self, t: Recorder, out: int, landing: int, crossing: int | None = None, deep: int = 2
    ) -> None:
        self.t = t
        self.crossing = crossing
        out, landing = -(-out // LINE) * LINE, -(-landing // LINE) * LINE
        slot, buffer = t.tuning["eager_max"], t.tuning["staging_bytes"]
        depth = 4
        least = min(out, _PIECE, buffer // (2 * depth) // LINE * LINE)
        staged = max(least, out * buffer // (depth * out + deep * landing) // LINE * LINE)
        arriving = min(landing, (buffer - depth * staged) // deep // LINE * LINE)
        self.out = Places(OP_SCRATCH, out)
        self.landing = Places(STAGING, arriving, deep, depth * staged)
        if out > slot or landing > arriving:
            self.out = Places(STAGING, staged, depth)
        elif out + landing <= slot:
            self.landing = Places(OP_SCRATCH, landing, 1, out)
        self._deep = deep

    @staticmethod
    def fits(t: Recorder, landing: int, deep: int = 2) -> bool:
        """Whether so many bytes may arrive in a unit, however much is staged."""
        return landing <= t.tuning["staging_bytes"] // (2 * deep)

    def run(
        self,
        units: int,
        stage: Callable[[int], None],
        post: Callable[[int], list[int]],
        take: Callable[[int], None],
        finish: Callable[[int], list[int]] = lambda u: [],
        *,
        only: Who | None = None,
    ) -> None:
        """Record all units.

        `post` and `finish` are the node root's: messages, whose tickets it returns, and what
        is to be done when they are through, which may be messages again. Those of the next
        unit, or the next two if the relay is 3 `deep`, are posted in between.

        `only`: the thread, on whichever node, or ALL that `take` a unit, and only from the node
        root; without, all do, and from each other. Who takes nothing goes ahead of the node root.
        """
        t = self.t
        assert units == 1 or not self.out.short
        if units == 1 and not isinstance(only, int) and self._led():
            stage(0)
            t.barrier()
            if t.me == t.node_root:
                t.need(*post(0))
                t.need(*finish(0))
            t.barrier()
            take(0)
            self._leave(only, t.node_ranks())
            return
        given, landed = t.channel(), t.channel()
        woken, others = list(t.node_ranks()), list[Ranks]()
        if isinstance(only, int):
            woken, others = [Ranks(only)] if t.on_my_node(only) else [], t.node_ranks_but(only)
        taker = any(t.me in run for run in woken)
        sent = t.channel() if others else -1
        ahead = units if self.out.short else self.out.depth  # units that the others may be ahead
        lag = self._deep - 1  # units from one that is posted to the one that is taken meanwhile
        posted: dict[int, list[int]] = {}
        finished: dict[int, list[int]] = {}
        for u in range(units + lag):
            if u < units:
                if u >= ahead and not taker:
                    t.wait(sent, t.node_root, u - ahead + 1)
                stage(u)
                t.signal(given, (Ranks(t.node_root),), u + 1)
            if t.me == t.node_root:
                with t.net():
                    if u < units:
                        t.wait(given, t.node_ranks(), u + 1)
                        posted[u] = post(u)
                    if 0 < u <= units:
                        t.need(*posted.pop(u - 1))
                        finished[u - 1] = finish(u - 1)
                        if u <= units - ahead:
                            t.signal(sent, others, u)
                    if u >= lag:
                        t.need(*finished.pop(u - lag))
                        t.signal(landed, woken, u - lag + 1)
            if u >= lag and taker:
                t.wait(landed, t.node_root, u - lag + 1)
                take(u - lag)
        self._leave(only, woken)
        if others and not self.out.short:
            if t.me == t.node_root:
                with t.net():
                    t.signal(sent, others, max(0, units - ahead) + 1)
            elif not taker:
                t.wait(sent, t.node_root, max(0, units - ahead) + 1)

    def _led(self) -> bool:
        return self.crossing is not None and self.t.root_exchange(self.crossing, meets=True)

    def _leave(self, only: Who | None, woken: Sequence[Ranks]) -> None:
        """Wait until those `woken` read no staging buffer of mine any more."""
        t = self.t
        if self.landing.short:
            return
        if only is None and not self.out.short:
            t.node_barrier()
            return
        taken = t.channel()
        if t.me == t.node_root:
            t.wait(taken, [part for run in woken for part in run.without(t.me)])
        elif any(t.me in run for run in woken):
            t.signal(taken, (Ranks(t.node_root),))


# --- gather_all and exchange ------------------------------------------------------------------
def all_to_all(t: Recorder, m: TransferSpec) -> None:
    """In round k a node root sends what its threads have for the node k places on.

    Some rounds in a unit while blocks are short, a part of the blocks of one round when they
    are long. Round 0 stays inside the node::

        node 0   [0]   [1]->   [2]->       N = 3; [x]: what is for node x (gather_all: the same)
        node 1   [1]   [2]->   [0]->
    """
    _Rounds(t, m).record()


class _Rounds:
    """The units of `all_to_all`: some rounds, and a part of the blocks that go in each."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        self.t, self.m = t, m
        n, most = t.tree.node_count, t.largest_node
        each = most if m.by_target else 1  # blocks that a thread has for a node
        block = each * m.nbytes
        out, landing = block * (n if m.by_target else 1), block * (n - 1) * most
        self.relay = Relay(t, out, landing, m.nbytes * t.size * most)
        self.message = t.message(block, "alltoall_chunk")
        rounds, width = self._cut(block)
        whole = rounds > 1 and m.by_target
        parts = [(0, each, 0, m.nbytes)] if whole else units_of(each, m.nbytes, width)
        self.units = [
            (range(k, min(k + rounds, n)), part) for part in parts for k in range(0, n, rounds)
        ]

    def _cut(self, block: int) -> tuple[int, int]:
        """How many rounds are in a unit, and how many bytes of a thread's for one node."""
        n, relay = self.t.tree.node_count, self.relay
        if relay.out.short:
            return n, block
        room = relay.landing.width // self.t.largest_node
        if self.m.by_target:
            width = min(relay.out.width, room)
            return max(1, min(n, width // block)), width
        # what is staged serves all rounds
        width = max(room // (n - 1) // LINE * LINE, min(room, _PIECE))
        width = min(width, relay.out.width, block)
        return n if width * (n - 1) <= room else room // width, width

    def record(self) -> None:
        """Record all of it."""
        self.relay.run(len(self.units), self._stage, self._post, self._take)

    def _count(self, node: int, part: Unit) -> int:
        """How many blocks of a unit a thread has for a node."""
        if not self.m.by_target:
            return 1
        return min(part[1], max(0, self.t.tree.node_size(node) - part[0]))

    def _stage(self, u: int) -> None:
        t, m, out = self.t, self.m, self.relay.out
        rounds, (first, blocks, offset, size) = self.units[u]
        if not m.by_target:
            t.copy(out.on(t.me, u), m.of(t, Ranks(t.me), offset), size)
            return
        rows = _Rows(size)  # where blocks are put, and who gets them
        for i, k in enumerate(rounds):
            node = (t.my_node + k) % t.tree.node_count
            rows.add(i * blocks * size, within(t, node, first, blocks))
        for at, run in rows:
            place = out.on(t.me, u, at)._replace(offset_step=size)
            t.copy(place, m.of(t, run, offset), size, run.count)

    def _post(self, u: int) -> list[int]:
        t, n, tickets = self.t, self.t.tree.node_count, list[int]()
        rounds, part = self.units[u]
        blocks, size = part[1], part[3]
        sent = range(max(rounds[0], 1), rounds[-1] + 1)
        each = t.largest_node * blocks * size
        row = self._count(t.my_node, part) * size  # from a thread of another node
        for i, roots, threads in _together(t, [(t.my_node - k) % n for k in reversed(sent)]):
            for first, count, offset, nbytes in self._messages(threads, row):
                place = self.relay.landing.on(t.me, u, i * each + first * row + offset)
                tickets.append(
                    t.recv(roots, place, count * nbytes, peer_step=each, bounded=False)
                )
        for k in sent:
            node = (t.my_node + k) % n
            row = self._count(node, part) * size
            at = (k - rounds[0]) * blocks * size if self.m.by_target else 0
            for first, count, offset, nbytes in self._messages(t.tree.node_size(t.my_node), row):
                rows = [
                    Blocks(self.relay.out.across(x, u, at + offset), nbytes, x.count)
                    for x in within(t, t.my_node, first, count)
                ]
                tickets.append(t.send_blocks(t.tree.node_root(node), rows))
        return tickets

    def _messages(self, threads: int, row: int) -> Iterable[Unit]:
        """What one node's threads have for another one, cut into messages."""
        return pieces(threads, row, self.message) if row else ()

    def _take(self, u: int) -> None:
        t, m = self.t, self.m
        rounds, part = self.units[u]
        first, blocks, offset, size = part
        mine = self._count(t.my_node, part)
        place = t.tree.local_index(t.me) - first if m.by_target else 0
        if not 0 <= place < mine:
            return
        for run in t.node_ranks() if not rounds[0] else ():
            row = self.relay.out.across(run, u, place * size)
            t.copy(m.to(t, run, offset), row, size, run.count)
        rows = _Rows(mine * size)  # where they lie, and whose they are
        for i, k in enumerate(range(rounds[-1], max(rounds[0], 1) - 1, -1)):
            at = i * t.largest_node * blocks * size + place * size
            rows.add(at, t.node_ranks((t.my_node - k) % t.tree.node_count))
        for at, run in rows:
            row = self.relay.landing.on(t.node_root, u, at)._replace(offset_step=mine * size)
            t.copy(m.to(t, run, offset), row, size, run.count)


class _Rows:
    """Runs of threads with the places of their blocks, `each` bytes apart: long ones."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._rows: list[tuple[int, Ranks]] = []

    def __iter__(self) -> Iterator[tuple[int, Ranks]]:
        return iter(self._rows)

    def add(self, at: int, runs: Iterable[Ranks]) -> None:
        """Add the blocks of runs that lie one after the other from a place on."""
        for run in runs:
            begin, last = self._rows[-1] if self._rows else (0, None)
            if last and at == begin + last.count * self.each and (longer := last.then(run)):
                self._rows[-1] = begin, longer
            else:
                self._rows.append((at, run))
            at += run.count * self.each


def _together(t: Recorder, nodes: Sequence[int]) -> list[tuple[int, Ranks, int]]:
    """Node roots, neighbours in a list with nodes of one size as one run: where, who, the size."""
    runs: list[tuple[int, Ranks, int]] = []
    for i, node in enumerate(nodes):
        roots, size = Ranks(t.tree.node_root(node)), t.tree.node_size(node)
        if runs and size == runs[-1][2] and (longer := runs[-1][1].then(roots)):
            runs[-1] = runs[-1][0], longer, size
        else:
            runs.append((i, roots, size))
    return runs


# --- permute --------------------------------------------------------------------------------
def permute(t: Recorder, perm: NDArray[Any], dst: Operand, src: Operand, nbytes: int) -> None:
    """The blocks that leave a node for another one, in one message for each unit."""
    node_of, mine = t.tree.node_index, t.tree.members(t.my_node)
    of = int(np.flatnonzero(perm == t.me)[0])
    leaving: dict[int, list[int]] = {}
    for thread in mine.tolist():
        leaving.setdefault(int(node_of[perm[thread]]), []).append(thread)
    arriving = [int(i) for i in np.flatnonzero(node_of[perm] == t.my_node)]
    coming = {
        node: [i for i in arriving if node_of[i] == node]
        for node in {int(node_of[i]) for i in arriving}
    }
    order = [i for node in sorted(coming) if node != t.my_node for i in coming[node]]
    most = t.largest_node
    relay = Relay(t, nbytes, most * nbytes, most * nbytes)
    width = relay.out.width
    if not relay.out.short:
        width = min(width, relay.landing.width // most)
    units = [(0, nbytes)] if relay.out.short else chunks(nbytes, width)

    def stage(u: int) -> None:
        offset, size = units[u]
        t.copy(relay.out.on(t.me, u), src.on(t.me, offset), size)

    def post(u: int) -> list[int]:
        size, tickets = units[u][1], []
        for node in sorted(coming):
            if node != t.my_node:
                place = relay.landing.on(t.me, u, order.index(coming[node][0]) * size)
                nbytes = len(coming[node]) * size
                tickets.append(t.recv(t.tree.node_root(node), place, nbytes, bounded=False))
        for node in sorted(leaving):
            if node != t.my_node:
                blocks = [Blocks(relay.out.on(i, u), size) for i in leaving[node]]
                tickets.append(t.send_blocks(t.tree.node_root(node), blocks))
        return tickets

    def take(u: int) -> None:
        offset, size = units[u]
        place = relay.out.on(of, u)
        if not t.on_my_node(of):
            place = relay.landing.on(t.node_root, u, order.index(of) * size)
        t.copy(dst.on(t.me, offset), place, size)

    relay.run(len(units), stage, post, take)


# --- from and to one thread --------------------------------------------------------------------
def from_root(t: Recorder, m: TransferSpec) -> None:
    """scatter: the root sends each node root what its threads get, out of its own src.

    A node root (at home the root) hands it out; it tells its threads of each unit and
    hears from them when they have it.
    """
    assert isinstance(m.source, int)
    root, home = m.source, t.tree.node_of(m.source)
    node_source = t.acting_root(t.my_node, root)
    places = places_of(t, t.largest_node * m.nbytes)
    units = units_of(t.largest_node, m.nbytes, places.width)
    there, used = t.channel(), t.channel()

    def handed(u: int) -> None:
        """Unit u's place is free again."""
        if u >= 0 and not places.short:
            t.wait(used, t.node_ranks(), u + 1)

    if t.me == node_source:
        with t.net():
            for u, unit in enumerate(units):
                handed(u - places.depth)
                tickets = []
                if t.me == root:
                    for node in range(t.tree.node_count):
                        blocks = m.blocks_for(t, node, unit)
                        if node != home and blocks:
                            t.send_blocks(t.tree.node_root(node), blocks)
                    at = 0
                    for piece in m.blocks_for(t, home, unit):
                        place = places.on(t.me, u, at)._replace(offset_step=unit[3])
                        t.copy(place, piece.part, piece.nbytes, piece.columns)
                        at += piece.size
                else:
                    size = sum(run.count for run in within(t, t.my_node, *unit[:2])) * unit[3]
                    if size:
                        tickets.append(t.recv(root, places.on(t.me, u), size))
                t.need(*tickets)
                t.signal(there, t.node_ranks(), u + 1)
    for u, (first, count, offset, size) in enumerate(units):
        t.wait(there, node_source, u + 1)
        at = t.tree.local_index(t.me) - first
        if 0 <= at < count:
            t.copy(m.dst.on(t.me, offset), places.on(node_source, u, at * size), size)
        if not places.short:
            t.signal(used, (Ranks(node_source),), u + 1)
    if t.me == node_source:
        with t.net():
            for u in range(max(0, len(units) - places.depth), len(units)):
                handed(u)


def to_root(t: Recorder, m: TransferSpec) -> None:
    """gather: each node root sends its threads' blocks straight into the root's dst."""
    assert isinstance(m.target, int)
    root = m.target
    node_source = t.acting_root(t.my_node, root)
    places = places_of(t, m.nbytes)
    units = cut(m.nbytes, places.width)
    given, used = t.channel(), t.channel()
    sends: list[int] = []
    if t.me == node_source:
        with t.net():
            for u, (offset, size) in enumerate(units):
                for node in range(t.tree.node_count) if t.me == root else ():
                    if node != t.my_node:
                        t.recv_blocks(t.tree.node_root(node), m.blocks_from(t, node, offset, size))
                t.wait(given, t.node_ranks(), u + 1)
                if t.me == root:
                    for run in t.node_ranks():
                        t.copy(m.to(t, run, offset), places.across(run, u), size, run.count)
                else:
                    rows = [
                        Blocks(places.across(run, u), size, run.count) for run in t.node_ranks()
                    ]
                    sends.append(t.send_blocks(root, rows))
                    t.need(sends[-1])
                if not places.short:
                    t.signal(used, t.node_ranks(), u + 1)
    for u, (offset, size) in enumerate(units):
        if u >= places.depth:
            t.wait(used, node_source, u + 1 - places.depth)
        t.copy(places.on(t.me, u), m.of(t, Ranks(t.me), offset), size)
        t.signal(given, (Ranks(node_source),), u + 1)
    for u in range(max(0, len(units) - places.depth), len(units)) if not places.short else ():
        t.wait(used, node_source, u + 1)


# --- broadcast ---------------------------------------------------------------------------------
def broadcast(t: Recorder, m: TransferSpec) -> None:
    """Down a `pipeline` of nodes, mostly a chain; short: a star or a binomial tree.

    ::

        root's node   c0 c1 c2 c3 ->
        next node        c0 c1 c2 ->          its threads copy out of its node root's staging buffer

    A node's threads are told of some chunks at once, and say when they have them.
    """
    downward = _Downward(t, m)
    if t.me == downward.node_source:
        downward.pass_on()
    else:
        downward.listen()


class _Downward:
    """The chunks of `broadcast`: on each node one speaks, the root at home, the others listen."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        assert isinstance(m.source, int)
        self.t, self.m, self.root = t, m, m.source
        self.node_source = t.acting_root(t.my_node, self.root)
        self.listeners = tuple(t.node_ranks_but(self.node_source))
        slot, buffer = t.tuning["eager_max"], t.tuning["staging_bytes"]
        self.chunk = min(t.tuning["chunk"], buffer // 4 // LINE * LINE)
        self.places = Places(OP_SCRATCH, slot)
        if m.nbytes > slot:
            self.places = Places(STAGING, self.chunk, buffer // self.chunk // 2 * 2)
        self.half = half = max(1, self.places.depth // 2)
        # so many chunks are told of at once: half of the places, or what is enough to be worth it
        interval = t.notify_interval(self.chunk)
        self.word = max(
            d for d in range(1, half + 1) if half % d == 0 and d * self.chunk <= interval
        )
        self.ring = self.places.depth // self.word  # words that there is room for
        self.units = chunks(m.nbytes, self.places.width)
        self.words = -(-len(self.units) // self.word)
        self.there, self.used = t.channel(), t.channel()

    def pass_on(self) -> None:
        """A node source's part: from the one before to those behind, and to the node's others."""
        t, m, places, units = self.t, self.m, self.places, self.units
        parent, children = self._neighbours()
        with t.net():
            tickets: list[int] = []
            sends: list[list[int]] = []

            def free(u: int) -> None:
                """Before something comes into a unit's place."""
                if u % self.word == 0:
                    self._heard(u // self.word - self.ring)
                if u >= places.depth and parent is not None:
                    t.need(*sends[u - places.depth])

            for u, (offset, size) in enumerate(units):
                source = m.src.on(t.me, m.shift + offset)
                if parent is None:
                    free(u)
                    if self.listeners:
                        t.copy(places.on(t.me, u), source, size)
                else:
                    ahead = min(len(units), u + min(self.half, t.tuning["window"]))
                    for v in range(len(tickets), max(u + 1, ahead)):
                        free(v)
                        place = places.on(t.me, v)
                        tickets.append(t.recv(parent, place, units[v][1], bounded=False))
                    t.need(tickets[u])
                    source = places.on(t.me, u)
                sends.append([t.send(child, source, size) for child in children])
                if (u + 1) % self.word == 0 or u + 1 == len(units):
                    t.signal(self.there, self.listeners, u // self.word + 1)
                if parent is not None:
                    t.copy(m.dst.on(t.me, offset), source, size)
            if not places.short:
                for w in range(max(0, self.words - self.ring), self.words):
                    self._heard(w)

    def listen(self) -> None:
        """The others' part: word by word out of the node source's places."""
        t, places = self.t, self.places
        for w in range(self.words):
            t.wait(self.there, self.node_source, w + 1)
            some = self.units[w * self.word : (w + 1) * self.word]
            begin, end = some[0][0], sum(some[-1])
            place = places.on(self.node_source, w * self.word)
            t.copy(self.m.dst.on(t.me, begin), place, end - begin)
            if not places.short:
                t.signal(self.used, (Ranks(self.node_source),), w + 1)

    def _heard(self, word: int) -> None:
        """All listeners have that word."""
        if word >= 0:
            self.t.wait(self.used, self.listeners, word + 1)

    def _neighbours(self) -> tuple[int | None, list[int]]:
        """The node source before mine, if there is one, and those behind it."""
        t, nodes, home = self.t, self.t.tree.node_count, self.t.tree.node_of(self.root)
        shape = tree_for(nodes, self.m.nbytes, self.chunk, t.tuning)
        parent, children = shape(rotate(t.my_node, home, nodes), nodes)

        def speaks(v: int) -> int:
            return t.acting_root((v + home) % nodes, self.root)

        return None if parent is None else speaks(parent), [speaks(child) for child in children]
