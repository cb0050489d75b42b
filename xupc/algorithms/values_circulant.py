"""allav_broadcast in the fewest rounds: chunks travel on a circulant graph of the nodes.

Node roots receive into their private dst and send from there, as `broadcast_circulant` does between
heaps. A node root copies each chunk for its threads into its staging buffer, in the order in which
chunks arrive.
"""

from __future__ import annotations

from ..plan.patterns import star
from ..plan.recorder import Recorder
from .broadcast_circulant import Crossing, NodeMessages, batched
from .private_staging import TransferSpec
from .values_from_root import Downward

__all__ = ["broadcast"]


def broadcast(t: Recorder, m: TransferSpec) -> None:
    """Exchange chunks between node roots; each node reads them as they arrive."""
    way = _Rounds(t, m)
    if t.me == way.node_source:
        way.pass_on()
    else:
        way.read()


class _Rounds(Downward):
    """Record the chunks of `broadcast`: their places are those of a tree, in another order."""

    def __init__(self, t: Recorder, m: TransferSpec) -> None:
        super().__init__(t, m, star)
        self.crossing = Crossing(t, self.root, self.units)

    def pass_on(self) -> None:
        """Record a node source: its messages, and each chunk for my node."""
        t, m = self.t, self.m
        self.source = m.src if t.me == self.root else m.dst
        NodeMessages(t, self.crossing, m.dst, self.source.on(t.me), self._hand_out).record()
        with t.net():
            self.end()

    def _hand_out(self, i: int) -> None:
        """Copy the chunk that arrived as number `i` to its place, and notify readers of several."""
        t, notice, last = self.t, i // self.per_notice, i + 1 == len(self.units)
        if i % self.per_notice == 0:
            self.wait_for_readers(notice - self.ring)
        if self.readers:
            offset, size = self.units[self.crossing.order[i]]
            t.copy(self.places.on(t.me, i), self.source.on(t.me, offset), size)
        if last or (i + 1) % self.per_notice == 0:
            t.signal(self.there, self.readers, notice + 1)

    def read(self) -> None:
        """Record another thread: copy chunks from the node source's places after each notice."""
        t, number = self.t, 0
        for w, some in enumerate(batched(self.crossing.order, self.per_notice), 1):
            t.wait(self.there, self.node_source, w)
            for offset, size in (self.units[chunk] for chunk in some):
                place = self.places.on(self.node_source, number)
                t.copy(self.m.dst.on(t.me, offset), place, size)
                number += 1
            self.free(w)
