"""MULTICORE scatter, gather and broadcast of arrays of values across nodes.

Each function is a whole algorithm, recorded on every thread; `values` registers them. In all of
them one thread of each node, the call's root on its own node, sends and receives for the node.
"""

from __future__ import annotations

from ..plan.patterns import Shape, chunks, rotate
from ..plan.placement import Facts
from ..plan.recorder import Recorder
from ..plan.steps import OP_SCRATCH, STAGING, Blocks, Ranks
from .private_staging import LINE, Places, TransferSpec, cut, places_of, units_of, within

__all__ = ["Downward", "broadcast", "chunk_of", "from_root", "to_root"]


def from_root(t: Recorder, m: TransferSpec) -> None:
    """Record scatter: the root sends each node root the blocks of its threads, from its own src.

    A node root (on its own node the root) notifies its threads of each unit. They copy their
    blocks and signal that the place is free.
    """
    assert isinstance(m.source, int)
    root, home = m.source, t.tree.node_of(m.source)
    node_source = t.acting_root(t.my_node, root)
    places = places_of(t, t.largest_node * m.nbytes)
    units = units_of(t.largest_node, m.nbytes, places.width)
    there, used = t.channel(), t.channel()

    def handed(u: int) -> None:
        """Wait until unit u's place is free again."""
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
    """Record gather: each node root sends its threads' blocks straight into the root's dst."""
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
def chunk_of(t: Facts) -> int:
    """Return the size of the chunks of a broadcast."""
    return min(t.tuning["chunk"], t.tuning["staging_bytes"] // 4 // LINE * LINE)


def broadcast(t: Recorder, m: TransferSpec, shape: Shape) -> None:
    """Pass chunks through a tree of nodes.

    ::

        root's node   c0 c1 c2 c3 ->
        next node        c0 c1 c2 ->          its threads copy out of its node root's staging buffer

    A node root notifies its threads of several chunks at once; they signal when they have them.
    """
    downward = Downward(t, m, shape)
    if t.me == downward.server:
        downward.pass_on()
    elif t.me == downward.node_source:
        downward.send_on()
    else:
        downward.read()


class Downward:
    """Record the chunks of `broadcast`: each node has a source, for its other threads to read.

    On the root's own node its threads read from the root, the `server`. With several roots per node
    the node source of a stripe may be another thread: it reads chunks as others do and sends them.
    """

    def __init__(self, t: Recorder, m: TransferSpec, shape: Shape) -> None:
        assert isinstance(m.source, int)
        self.t, self.m, self.root, self.shape = t, m, m.source, shape
        self.node_source = t.acting_root(t.my_node, self.root)
        self.server = self.root if t.on_my_node(self.root) else self.node_source
        self.readers = tuple(t.node_ranks_but(self.server))
        slot, buffer = t.tuning["eager_max"], t.tuning["staging_bytes"]
        self.chunk = chunk_of(t)
        self.places = Places(OP_SCRATCH, slot)
        if m.nbytes > slot:
            self.places = Places(STAGING, self.chunk, buffer // self.chunk // 2 * 2)
        self.half = half = max(1, self.places.depth // 2)
        # chunks per notice: half of the places, or as many as are worth waking threads for
        interval = t.notify_interval(self.chunk)
        self.per_notice = max(
            d for d in range(1, half + 1) if half % d == 0 and d * self.chunk <= interval
        )
        self.ring = self.places.depth // self.per_notice  # notices whose chunks have places
        self.units = chunks(m.nbytes, self.places.width)
        self.notices = -(-len(self.units) // self.per_notice)
        self.there, self.used = t.channel(), t.channel()

    def pass_on(self) -> None:
        """Record a node source: receive from the parent, send to children, serve my node."""
        t, m, places, units = self.t, self.m, self.places, self.units
        parent, children = self._neighbours()
        with t.net():
            tickets: list[int] = []
            sends: list[list[int]] = []

            def free(u: int) -> None:
                """Wait until a unit's place is free."""
                if u % self.per_notice == 0:
                    self.wait_for_readers(u // self.per_notice - self.ring)
                if u >= places.depth and parent is not None:
                    t.need(*sends[u - places.depth])

            for u, (offset, size) in enumerate(units):
                t.turn(u // self.per_notice)
                source = m.src.on(t.me, m.shift + offset)
                if parent is None:
                    free(u)
                    if self.readers:
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
                if (u + 1) % self.per_notice == 0 or u + 1 == len(units):
                    t.signal(self.there, self.readers, u // self.per_notice + 1)
                if parent is not None:
                    t.copy(m.dst.on(t.me, offset), source, size)
            self.end()

    def end(self) -> None:
        """Wait until my threads have copied all chunks out of my staging buffer."""
        self.t.turn(self.notices)
        if not self.places.short:
            for w in range(max(0, self.notices - self.ring), self.notices):
                self.wait_for_readers(w)

    def read(self) -> None:
        """Record another thread: copy chunks from the server's places after each notice."""
        for w in range(self.notices):
            self._read_notice(w)

    def send_on(self) -> None:
        """Record a node source beside the root: copy chunks as `read` does, and send them."""
        t, (_, children) = self.t, self._neighbours()
        with t.net():
            for w in range(self.notices):
                for offset, size in self._read_notice(w):
                    for child in children:
                        t.send(child, self.m.dst.on(t.me, offset), size)

    def _read_notice(self, w: int) -> list[tuple[int, int]]:
        """Copy the chunks of a notice from the server's places, and return them."""
        t = self.t
        t.turn(w)
        t.wait(self.there, self.server, w + 1)
        some = self.units[w * self.per_notice : (w + 1) * self.per_notice]
        begin, end = some[0][0], sum(some[-1])
        place = self.places.on(self.server, w * self.per_notice)
        t.copy(self.m.dst.on(t.me, begin), place, end - begin)
        self.free(w + 1)
        return some

    def free(self, notice: int) -> None:
        """Signal that I have copied the chunks of so many notices."""
        if not self.places.short:
            self.t.signal(self.used, (Ranks(self.server),), notice)

    def wait_for_readers(self, notice: int) -> None:
        """Wait until all readers have copied the chunks of a notice."""
        if notice >= 0:
            self.t.wait(self.used, self.readers, notice + 1)

    def _neighbours(self) -> tuple[int | None, list[int]]:
        """Return the node sources of the parent (None if there is none) and of the children.

        A server that is no node source has none: that thread sends.
        """
        if self.t.me != self.node_source:
            return None, []
        t, nodes, home = self.t, self.t.tree.node_count, self.t.tree.node_of(self.root)
        parent, children = self.shape(rotate(t.my_node, home, nodes), nodes)

        def source(v: int) -> int:
            return t.acting_root((v + home) % nodes, self.root)

        return None if parent is None else source(parent), [source(child) for child in children]
