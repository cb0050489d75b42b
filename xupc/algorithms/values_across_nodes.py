"""MULTICORE across nodes for arrays of values: what node roots send for their threads.

Each function is a whole algorithm, recorded on every thread; `values.multicore` chooses.
In all of them a node's threads put what they have for others into their places (`staging`)
and tell their node root; messages go from there to places of the other node roots, which
tell their threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..patterns import chunks, rotate, tree_for
from ..plan.recorder import Operand, Recorder, Who
from ..plan.steps import BUFFER, SLOT, Blocks, Ranks
from .staging import LINE, Move, Places, Unit, cut, places_of, units_of, within

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
    staged is taken again four units later, one for what arrives two units later; the BUFFER
    is divided in proportion, but so that what is staged is no less than a small piece.
    A single unit that all wait for is led: it travels with a barrier of node roots.

    Parameters
    ----------
    out, landing
        Bytes that a thread stages in a unit, and that arrive at a node root. If they are too
        many, the caller cuts its units to what `out` and `landing` of this object are then;
        if what is staged fits a SLOT, there is one unit.
    crossing
        What a node would send and get in all, for `Recorder.lead`; None: not to be led.
    """

    def __init__(self, t: Recorder, out: int, landing: int, crossing: int | None = None) -> None:
        self.t = t
        self.crossing = crossing
        out, landing = -(-out // LINE) * LINE, -(-landing // LINE) * LINE
        slot, buffer = t.tuning["slot"], t.tuning["buffer"]
        depth, deep = 4, 2
        least = min(out, _PIECE, buffer // (2 * depth) // LINE * LINE)
        staged = max(least, out * buffer // (depth * out + deep * landing) // LINE * LINE)
        arriving = min(landing, (buffer - depth * staged) // deep // LINE * LINE)
        self.out = Places(SLOT, out)
        self.landing = Places(BUFFER, arriving, deep, depth * staged)
        if out > slot or landing > arriving:
            self.out = Places(BUFFER, staged, depth)
        elif out + landing <= slot:
            self.landing = Places(SLOT, landing, 1, out)

    def run(
        self,
        units: int,
        stage: Callable[[int], None],
        post: Callable[[int], list[int]],
        take: Callable[[int], None],
        finish: Callable[[int], None] = lambda u: None,
        *,
        only: Who | None = None,
    ) -> None:
        """Record all units.

        `post` and `finish` are the node root's: messages, whose tickets it returns, and what
        is to be done when they are through. The next unit's are posted in between.

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
                finish(0)
            t.barrier()
            take(0)
            self._leave(only, t.mates())
            return
        given, landed = t.channel(), t.channel()
        woken, others = list(t.mates()), list[Ranks]()
        if isinstance(only, int):
            woken, others = [Ranks(only)] if t.on_my_node(only) else [], t.mates_but(only)
        taker = any(t.me in run for run in woken)
        sent = t.channel() if others else -1
        ahead = units if self.out.short else self.out.depth  # units that the others may be ahead
        tickets: dict[int, list[int]] = {}
        for u in range(units + 1):
            if u < units:
                if u >= ahead and not taker:
                    t.wait(sent, t.node_root, u - ahead + 1)
                stage(u)
                t.signal(given, (Ranks(t.node_root),), u + 1)
            if t.me == t.node_root:
                with t.net():
                    if u < units:
                        t.wait(given, t.mates(), u + 1)
                        tickets[u] = post(u)
                    if u:
                        t.need(*tickets.pop(u - 1))
                        finish(u - 1)
                        t.signal(landed, woken, u)
                        if u <= units - ahead:
                            t.signal(sent, others, u)
            if u and taker:
                t.wait(landed, t.node_root, u)
                take(u - 1)
        self._leave(only, woken)
        if others and not self.out.short:
            if t.me == t.node_root:
                with t.net():
                    t.signal(sent, others, max(0, units - ahead) + 1)
            elif not taker:
                t.wait(sent, t.node_root, max(0, units - ahead) + 1)

    def _led(self) -> bool:
        return self.crossing is not None and self.t.lead(self.crossing, meets=True)

    def _leave(self, only: Who | None, woken: Sequence[Ranks]) -> None:
        """Wait until those `woken` read no BUFFER of mine any more."""
        t = self.t
        if self.landing.short:
            return
        if only is None and not self.out.short:
            t.meet()
            return
        taken = t.channel()
        if t.me == t.node_root:
            t.wait(taken, [part for run in woken for part in run.without(t.me)])
        elif any(t.me in run for run in woken):
            t.signal(taken, (Ranks(t.node_root),))


# --- gather_all and exchange ------------------------------------------------------------------
def all_to_all(t: Recorder, m: Move) -> None:
    """In round k a node root sends what its threads have for the node k places on.

    Some rounds in a unit while blocks are short, a part of the blocks of one round when they
    are long. Round 0 stays inside the node::

        node 0   [0]   [1]->   [2]->       N = 3; [x]: what is for node x (gather_all: the same)
        node 1   [1]   [2]->   [0]->
    """
    n, most = t.tree.node_count, t.largest_node
    each = most if m.by_target else 1  # blocks that a thread has for a node
    block = each * m.nbytes
    out, landing = block * (n if m.by_target else 1), block * (n - 1) * most
    relay = Relay(t, out, landing, m.nbytes * t.size * most)
    rounds, width = n, block
    if not relay.out.short:
        room = relay.landing.width // most
        if m.by_target:
            width = min(relay.out.width, room)
            rounds = max(1, min(n, width // block))
        else:  # what is staged serves all rounds
            width = max(room // (n - 1) // LINE * LINE, min(room, _PIECE))
            width = min(width, relay.out.width, block)
            rounds = n if width * (n - 1) <= room else room // width
    whole = rounds > 1 and m.by_target
    parts = [(0, each, 0, m.nbytes)] if whole else units_of(each, m.nbytes, width)
    units = [(range(k, min(k + rounds, n)), part) for part in parts for k in range(0, n, rounds)]

    def count(node: int, part: Unit) -> int:
        """How many blocks of a unit a thread has for a node."""
        return min(part[1], max(0, t.tree.node_size(node) - part[0])) if m.by_target else 1

    def stage(u: int) -> None:
        ks, part = units[u]
        first, blocks, offset, size = part
        if not m.by_target:
            t.copy(relay.out.on(t.me, u), m.of(t, Ranks(t.me), offset), size)
            return
        rows: list[tuple[int, Ranks]] = []  # where blocks are put, and who gets them
        for k in ks:
            at = (k - ks[0]) * blocks * size
            for run in within(t, (t.my_node + k) % n, first, blocks):
                _append(rows, at, run, size)
                at += run.count * size
        for at, run in rows:
            place = relay.out.on(t.me, u, at)._replace(offset_step=size)
            t.copy(place, m.of(t, run, offset), size, run.count)

    def post(u: int) -> list[int]:
        ks, part = units[u]
        size, tickets = part[3], []
        real = range(max(ks[0], 1), ks[-1] + 1)
        each = most * part[1] * size
        for i, roots, threads in _together(t, [(t.my_node - k) % n for k in reversed(real)]):
            nbytes = count(t.my_node, part) * size * threads
            place = relay.landing.on(t.me, u, i * each)
            if nbytes:
                tickets.append(t.recv(roots, place, nbytes, peer_step=each, bounded=False))
        for k in real:
            node = (t.my_node + k) % n
            nbytes = count(node, part) * size
            at = (k - ks[0]) * part[1] * size if m.by_target else 0
            if nbytes:
                rows = [Blocks(relay.out.across(x, u, at), nbytes, x.count) for x in t.mates()]
                tickets.append(t.send_blocks(t.tree.node_root(node), rows))
        return tickets

    def take(u: int) -> None:
        ks, part = units[u]
        first, _, offset, size = part
        mine = count(t.my_node, part)
        place = t.tree.local_index(t.me) - first if m.by_target else 0
        if not 0 <= place < mine:
            return
        for run in t.mates() if not ks[0] else ():
            t.copy(m.to(t, run, offset), relay.out.across(run, u, place * size), size, run.count)
        rows: list[tuple[int, Ranks]] = []  # where it lies, and whose it is
        for i, k in enumerate(range(ks[-1], max(ks[0], 1) - 1, -1)):
            at = i * most * part[1] * size + place * size
            for run in t.mates((t.my_node - k) % n):
                _append(rows, at, run, mine * size)
                at += run.count * mine * size
        for at, run in rows:
            row = relay.landing.on(t.node_root, u, at)._replace(offset_step=mine * size)
            t.copy(m.to(t, run, offset), row, size, run.count)

    relay.run(len(units), stage, post, take)


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


def _append(rows: list[tuple[int, Ranks]], at: int, run: Ranks, each: int) -> None:
    """The place of a run's blocks, so far apart: of one row with the last ones if they go on."""
    if rows:
        begin, last = rows[-1]
        longer = last.then(run)
        if longer and at == begin + last.count * each:
            rows[-1] = begin, longer
            return
    rows.append((at, run))


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
def from_root(t: Recorder, m: Move) -> None:
    """scatter: the root sends each node root what its threads get, out of its own src.

    A node root (at home the root) hands it out; it tells its threads of each unit and
    hears from them when they have it.
    """
    assert isinstance(m.source, int)
    root, home = m.source, t.tree.node_of(m.source)
    speaker = t.acting_root(t.my_node, root)
    places = places_of(t, t.largest_node * m.nbytes)
    units = units_of(t.largest_node, m.nbytes, places.width)
    there, used = t.channel(), t.channel()

    def handed(u: int) -> None:
        """Unit u's place is free again."""
        if u >= 0 and not places.short:
            t.wait(used, t.mates(), u + 1)

    if t.me == speaker:
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
                t.signal(there, t.mates(), u + 1)
    for u, (first, count, offset, size) in enumerate(units):
        t.wait(there, speaker, u + 1)
        at = t.tree.local_index(t.me) - first
        if 0 <= at < count:
            t.copy(m.dst.on(t.me, offset), places.on(speaker, u, at * size), size)
        if not places.short:
            t.signal(used, (Ranks(speaker),), u + 1)
    if t.me == speaker:
        with t.net():
            for u in range(max(0, len(units) - places.depth), len(units)):
                handed(u)


def to_root(t: Recorder, m: Move) -> None:
    """gather: each node root sends its threads' blocks straight into the root's dst."""
    assert isinstance(m.target, int)
    root = m.target
    speaker = t.acting_root(t.my_node, root)
    places = places_of(t, m.nbytes)
    units = cut(m.nbytes, places.width)
    given, used = t.channel(), t.channel()
    sends: list[int] = []
    if t.me == speaker:
        with t.net():
            for u, (offset, size) in enumerate(units):
                for node in range(t.tree.node_count) if t.me == root else ():
                    if node != t.my_node:
                        t.recv_blocks(t.tree.node_root(node), m.blocks_from(t, node, offset, size))
                t.wait(given, t.mates(), u + 1)
                if t.me == root:
                    for run in t.mates():
                        t.copy(m.to(t, run, offset), places.across(run, u), size, run.count)
                else:
                    rows = [Blocks(places.across(run, u), size, run.count) for run in t.mates()]
                    sends.append(t.send_blocks(root, rows))
                    t.need(sends[-1])
                if not places.short:
                    t.signal(used, t.mates(), u + 1)
    for u, (offset, size) in enumerate(units):
        if u >= places.depth:
            t.wait(used, speaker, u + 1 - places.depth)
        t.copy(places.on(t.me, u), m.of(t, Ranks(t.me), offset), size)
        t.signal(given, (Ranks(speaker),), u + 1)
    for u in range(max(0, len(units) - places.depth), len(units)) if not places.short else ():
        t.wait(used, speaker, u + 1)


# --- broadcast ---------------------------------------------------------------------------------
def broadcast(t: Recorder, m: Move) -> None:
    """Down a `pipeline` of nodes, mostly a chain; short: a star or a binomial tree.

    ::

        root's node   c0 c1 c2 c3 ->
        next node        c0 c1 c2 ->          its threads copy out of its node root's BUFFER

    A node's threads are told of some chunks at once, and say when they have them.
    """
    assert isinstance(m.source, int)
    root = m.source
    nodes, home = t.tree.node_count, t.tree.node_of(root)
    chunk = min(t.tuning["chunk"], t.tuning["buffer"] // 4 // LINE * LINE)
    shape = tree_for(nodes, m.nbytes, chunk, t.tuning)
    parent, children = shape(rotate(t.my_node, home, nodes), nodes)

    def speaks(v: int) -> int:
        return t.acting_root((v + home) % nodes, root)

    me = t.acting_root(t.my_node, root)
    places = Places(SLOT, t.tuning["slot"])
    if m.nbytes > t.tuning["slot"]:
        places = Places(BUFFER, chunk, t.tuning["buffer"] // chunk // 2 * 2)
    half = max(1, places.depth // 2)
    # so many chunks are told of at once: half of the places, or what is enough to be worth it
    word = max(d for d in range(1, half + 1) if half % d == 0 and d * chunk <= t.told(chunk))
    units = chunks(m.nbytes, places.width)
    words = -(-len(units) // word)
    there, used = t.channel(), t.channel()
    listeners = tuple(part for run in t.mates() for part in run.without(me))

    if t.me == me:
        with t.net():
            tickets: list[int] = []
            sends: list[list[int]] = []
            ring = places.depth // word  # words that there is room for

            def free(u: int) -> None:
                """Before something comes into a unit's place."""
                if u % word == 0 and u // word >= ring:
                    t.wait(used, listeners, u // word - ring + 1)
                if u >= places.depth and parent is not None:
                    t.need(*sends[u - places.depth])

            for u, (offset, size) in enumerate(units):
                source = m.src.on(t.me, m.shift + offset)
                if parent is None:
                    free(u)
                    if listeners:
                        t.copy(places.on(t.me, u), source, size)
                else:
                    ahead = min(len(units), u + min(half, t.tuning["window"]))
                    while len(tickets) < max(u + 1, ahead):
                        v = len(tickets)
                        free(v)
                        tickets.append(
                            t.recv(speaks(parent), places.on(t.me, v), units[v][1], bounded=False)
                        )
                    t.need(tickets[u])
                    source = places.on(t.me, u)
                sends.append([t.send(speaks(child), source, size) for child in children])
                if (u + 1) % word == 0 or u + 1 == len(units):
                    t.signal(there, listeners, u // word + 1)
                if parent is not None:
                    t.copy(m.dst.on(t.me, offset), source, size)
            if not places.short:
                for w in range(max(0, words - ring), words):
                    t.wait(used, listeners, w + 1)
        return
    for w in range(words):
        t.wait(there, me, w + 1)
        first, last = units[w * word], units[min((w + 1) * word, len(units)) - 1]
        size = last[0] + last[1] - first[0]
        t.copy(m.dst.on(t.me, first[0]), places.on(me, w * word), size)
        if not places.short:
            t.signal(used, (Ranks(me),), w + 1)
