"""Move values up and down a binomial tree of threads, task by task.

PULL and PUSH of the computational collectives use this module. MULTICORE uses it where the order of
all operands matters. The vertices of the tree are *positions*, which count the threads from the
one where the data begins. The order of combination is that of `patterns.tree_joins`, for every
placement of the threads.

A task is a short vector of values. On each edge of the tree two tasks may be in progress::

    PUSH    the giver writes (or sends) to the taker's staging buffer, when there is room
    PULL    the taker reads (or gets) the giver's staging buffer, when it is ready

Later tasks may have fewer positions than earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..plan.patterns import binomial
from ..plan.recorder import Operand, Recorder
from ..plan.steps import OP_SCRATCH, STAGING, BlockRef, Blocks, FoldOperand
from ..records import mutable_record

__all__ = ["DEPTH", "FanOut", "Edge", "FanIn", "trade_values", "traded_values"]

DEPTH = 2
"""Tasks under way on an edge: so many places it has at either end."""


@mutable_record
class Edge:
    """An edge from one thread, the `giver`, to another; only these two record its steps.

    Attributes
    ----------
    tasks
        The number of tasks.
    ready, room
        Channels of the giver and the taker.
    staged, landing
        The offsets of the values in the giver's and in the taker's staging buffer.
    width
        Bytes from one of two places to the other.
    push
        True if the giver writes, False if the taker reads.
    """

    t: Recorder
    giver: int
    taker: int
    tasks: int
    ready: int
    room: int
    staged: int
    landing: int
    width: int
    push: bool

    @cached_property
    def _sends(self) -> list[int]:
        return []

    def begin(self) -> None:
        """Record the steps before the first task."""
        if self.push and self._near and self.t.me == self.taker and self.tasks:
            self.t.signal_thread(self.room, self.giver, 1)

    @property
    def _near(self) -> bool:
        return self.t.tree.node_of(self.giver) == self.t.tree.node_of(self.taker)

    def _stage(self, j: int) -> BlockRef:
        return Operand(STAGING).on(self.giver, self.staged + j % DEPTH * self.width)

    def _land(self, j: int) -> BlockRef:
        return Operand(STAGING).on(self.taker, self.landing + j % DEPTH * self.width)

    # -- the giver ---------------------------------------------------------------------
    def target(self, j: int) -> BlockRef:
        """Return the place where the giver must put the value of task `j`."""
        t = self.t
        if not self.push:
            if j >= DEPTH:
                t.wait_for_thread(self.room, self.taker, j + 1 - DEPTH)
            return self._stage(j)
        if self._near:
            t.wait(self.room, self.taker, max(1, j))
            return self._land(j)
        if j >= DEPTH:
            t.need(self._sends[j - DEPTH])
        return self._stage(j)

    def give(self, j: int, nbytes: int) -> None:
        """Send the value of task `j`, or notify the taker that it is ready."""
        if self.push and not self._near:
            self._sends.append(self.t.send(self.taker, self._stage(j), nbytes))
        else:
            self.t.signal_thread(self.ready, self.taker, j + 1)

    def end(self) -> None:
        """Wait until no thread reads my staging buffer any more, after the last task."""
        if not self.push:
            for j in range(max(0, self.tasks - DEPTH), self.tasks):
                self.t.wait_for_thread(self.room, self.taker, j + 1)

    # -- the taker ---------------------------------------------------------------------
    def take(self, j: int, nbytes: int) -> BlockRef:
        """Wait for the value of task `j`, and return its place."""
        t = self.t
        if self.push and not self._near:
            t.need(t.recv(self.giver, self._land(j), nbytes))
            return self._land(j)
        t.wait_for_thread(self.ready, self.giver, j + 1)
        if self.push:
            return self._land(j)
        if self._near:
            return self._stage(j)
        t.need(*t.get(self._land(j), self._stage(j), nbytes))
        return self._land(j)

    def taken(self, j: int) -> None:
        """Record that the taker has read the value of task `j`."""
        if not self.push:
            self.t.signal_thread(self.room, self.giver, j + 1)
        elif self._near and j + DEPTH < self.tasks:
            self.t.signal_thread(self.room, self.giver, j + DEPTH)


class FanIn:
    """My edges of a tree, and one from its top to the thread that wants the result.

    Parameters
    ----------
    t
        The recorder.
    first, way
        The thread at position 0, and whether positions go up (1) or down (-1) from there.
    counts
        How many positions take part in each task; never more than in the one before.
    owner
        The thread that takes the results; position 0 itself if None.
    width
        Bytes of the largest task; see `FanIn.width`.
    push
        Whether children write, or parents read.
    """

    def __init__(
        self,
        t: Recorder,
        first: int,
        counts: Sequence[int],
        owner: int | None,
        width: int,
        *,
        push: bool,
        way: int = 1,
    ) -> None:
        self.t = t
        self.counts = counts
        self.first = first
        self.way = way
        self.me = (t.me - first) * way % t.size
        self.owner = first if owner is None else owner
        ready, room = t.channel(), t.channel()
        n = counts[0]
        parent, children = binomial(self.me, n) if self.me < n else (None, [])
        step = DEPTH * width

        def edge(child: int, above: int) -> Edge:
            tasks = sum(count > child for count in counts)
            landing = step * (child - above).bit_length()
            below, over = self._thread(child), self._thread(above)
            return Edge(t, below, over, tasks, ready, room, 0, landing, width, push)

        self.above = None if parent is None else edge(self.me, parent)
        self.below = {child: edge(child, self.me) for child in sorted(children)}
        landing = step * (1 + _levels(n))
        self.hop: Edge | None = None
        if self.owner != first:
            last = t.channel()
            if t.me in (first, self.owner):
                self.hop = Edge(
                    t, first, self.owner, len(counts), ready, last, 0, landing, width, push
                )
        self.spare = Operand(STAGING).on(t.me, landing + step)
        if not push:
            t.expose()
        for below in (*self.below.values(), self.hop):
            if below is not None:
                below.begin()

    @staticmethod
    def width(t: Recorder, positions: int, most: int) -> int:
        """Return the most bytes that a task may have on a tree; `most` is the wanted number."""
        slots = DEPTH * (2 + _levels(positions)) + 1
        return max(t.line, min(-(-most // 64) * 64, t.tuning["staging_bytes"] // slots // 64 * 64))

    def _thread(self, position: int) -> int:
        return (self.first + self.way * position) % self.t.size

    def values(
        self, j: int, own: Sequence[FoldOperand], nelems: int, nbytes: int
    ) -> list[FoldOperand]:
        """Fold the values of task `j` and send the result up; return the leaves on the owner.

        The owner calls `taken` when it has folded them.
        """
        t = self.t
        leaves: list[FoldOperand] = []
        if self.me < self.counts[j]:
            leaves = list(own)
            for child, edge in self.below.items():
                if child < self.counts[j]:
                    leaves.append(FoldOperand(edge.take(j, nbytes), joins=1))
            out = self.above if self.above is not None else self.hop
            if out is not None:
                t.fold(out.target(j), leaves, nelems)
                out.give(j, nbytes)
                self._taken(j)
                leaves = []
        if self.hop is not None and t.me == self.owner:
            leaves = [FoldOperand(self.hop.take(j, nbytes))]
        return leaves

    def _taken(self, j: int) -> None:
        for child, edge in self.below.items():
            if child < self.counts[j]:
                edge.taken(j)

    def taken(self, j: int) -> None:
        """Record that the owner has folded the leaves that `values` returned."""
        if self.hop is not None:
            self.hop.taken(j)
        else:
            self._taken(j)

    def end(self) -> None:
        """Wait until no thread reads my staging buffer any more, after the last task."""
        if self.above is not None:
            self.above.end()
        if self.hop is not None and self.t.me == self.first:
            self.hop.end()


def _levels(n: int) -> int:
    """Return the largest number of children of a position."""
    return max(1, (n - 1).bit_length())


class FanOut:
    """My edges down the tree: each thread's dst receives its parent's dst, piece by piece.

    All threads take part. Children from position `gave` on send nothing up the tree. In PUSH a
    parent may write to such a child only after the child has entered the call.
    """

    def __init__(self, t: Recorder, first: int, gave: int, *, push: bool) -> None:
        self.t = t
        self.push = push
        me = (t.me - first) % t.size
        parent, children = binomial(me, t.size)
        self.parent = None if parent is None else (first + parent) % t.size
        self.children = [(first + c) % t.size for c in children]
        self.there, self.here = t.channel(), t.channel()
        self.pieces = 0
        if not push:
            t.expose()
            self.silent: set[int] = set()
            return
        self.silent = {
            (first + c) % t.size for c in children if c >= gave and self._near(first + c)
        }
        if self.parent is not None and me >= gave and self._near(self.parent):
            t.signal_thread(self.here, self.parent)

    def _near(self, thread: int) -> bool:
        return self.t.on_my_node(thread % self.t.size)

    def piece(self, part: BlockRef, nbytes: int) -> None:
        """Record the next piece of dst: at the top it is complete, elsewhere it arrives."""
        t = self.t
        self.pieces += 1
        mine = part._replace(thread=t.me)
        if self.parent is not None:
            if self.push and not self._near(self.parent):
                t.need(t.recv(self.parent, mine, nbytes))
            else:
                t.wait_for_thread(self.there, self.parent, self.pieces)
                if not self.push:
                    t.need(*t.fetch(mine, part._replace(thread=self.parent), nbytes))
        for child in self.children if self.push else ():
            if not self._near(child):
                t.send(child, mine, nbytes)
                continue
            if child in self.silent:
                t.wait_for_thread(self.here, child)
                self.silent.remove(child)
            t.copy(part._replace(thread=child), mine, nbytes)
        for child in self.children:  # the first word wakes all: everything must be there
            if not self.push or self._near(child):
                t.signal_thread(self.there, child, self.pieces)

    def end(self) -> None:
        """Wait under MYSYNC until my children have read my dst."""
        t = self.t
        if self.push or t.sync[1] != "my":
            return
        if self.parent is not None:
            t.signal_thread(self.here, self.parent)
        for child in self.children:
            t.wait_for_thread(self.here, child)


# --- between node roots, all at once ----------------------------------------------------------
def trade_values(
    t: Recorder, threads: Sequence[int], size: int, targets: Sequence[int]
) -> list[int]:
    """Send my node's op_scratch values, and receive other nodes' values in my staging buffer.

    Only node roots call this. Each of `threads` has one value; the node roots of `targets` get
    all values. Return the tickets of the receives.
    """
    of: dict[int, list[int]] = {}
    for i, thread in enumerate(threads):
        of.setdefault(t.tree.node_of(thread), []).append(i)
    tickets = []
    if t.my_node in targets:
        for node, places in of.items():
            if node != t.my_node:
                table = [Blocks(Operand(STAGING).on(t.me, i * size), size) for i in places]
                tickets.append(t.recv_blocks(t.tree.node_root(node), table, bounded=False))
    if mine := of.get(t.my_node):
        slots = [Blocks(Operand(OP_SCRATCH).on(threads[i]), size) for i in mine]
        for node in targets:
            if node != t.my_node:
                t.send_blocks(t.tree.node_root(node), slots)
    return tickets


def traded_values(t: Recorder, threads: Sequence[int], size: int) -> list[BlockRef]:
    """Return the places where my node finds all values after `trade_values`."""
    return [
        Operand(OP_SCRATCH).on(thread)
        if t.on_my_node(thread)
        else Operand(STAGING).on(t.node_root, i * size)
        for i, thread in enumerate(threads)
    ]
