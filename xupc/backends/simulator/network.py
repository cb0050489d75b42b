"""The links of nodes, as the clock of a plan shares them out."""

from __future__ import annotations

from ...topology.tree import Tree
from .rates import Rates

__all__ = ["Network"]

OUT, INTO = 0, 1
_SHORT = 0.01  # of a call's time


class Network:
    """Say when messages have left the links of their senders and passed those of their receivers.

    A link carries one message after the other in each direction, at `Rates.wire`. A message of
    `Rates.split` bytes or more goes over all links of a node in equal parts. A shorter one goes
    over the first link, or if no message is split, over the link of its thread. The first link is
    that of the lowest threads of a node, and so on, so that several roots have different ones.

    A link that has been idle carries up to `Rates.burst` bytes at once. So a shaper does that lets
    a token bucket fill, and a switch that has room for them.
    """

    def __init__(self, tree: Tree, rates: Rates) -> None:
        self.wire, self.links, self.split = rates.wire, rates.links, rates.split
        self.grace = rates.burst / rates.wire
        self.node = tree.node_index.tolist()
        self.own = [0] * len(self.node)
        if not self.split and self.links > 1:
            for threads in tree.nodes:
                for place, thread in enumerate(threads):
                    self.own[thread] = place * self.links // len(threads)
        nodes = range(tree.node_count)
        self.carried = [[[-self.grace] * self.links for _ in nodes] for _ in (OUT, INTO)]
        """By direction, node and link: when its bytes so far have passed at its rate."""

    def idle_after(self, end: float, later: float) -> bool:
        """Return whether a call that begins at `later` finds all links as idle as this one.

        `end`: of this call; what a link carries at once hardly counts in a much longer one.
        """
        if self.grace <= _SHORT * end:
            return True
        idle = later - self.grace
        return all(link <= idle for way in self.carried for node in way for link in node)

    def later(self, time: float) -> list[list[list[float]]]:
        """Return the state of the links at a time, for a call that begins then."""
        return [
            [[max(-self.grace, link - time) for link in node] for node in way]
            for way in self.carried
        ]

    def leave(self, sender: int, start: float, nbytes: int) -> tuple[float, float]:
        """Return when a message begins to leave its node, and when all of it has left, in ns."""
        if not nbytes:
            return start, start
        return self._pass(OUT, self.node[sender], sender, start, nbytes)

    def reach(self, ends: tuple[int, int], begin: float, left: float, nbytes: int) -> float:
        """Return when all of a message has passed the link of its receiver, in ns.

        Parameters
        ----------
        ends
            The sender, and the receiver, which takes the message over the link of that number.
        begin, left
            When the message begins to reach that link, and when the sender's has carried it.
        """
        if not nbytes:
            return max(begin, left)
        return max(left, self._pass(INTO, self.node[ends[1]], ends[0], begin, nbytes)[1])

    def _pass(
        self, way: int, node: int, sender: int, start: float, nbytes: int
    ) -> tuple[float, float]:
        """Return when the links of a node begin to carry a message, and when they have done so."""
        carried = self.carried[way][node]
        if self.links == 1:
            begin = max(start, carried[0])
            done = carried[0] = max(carried[0], start - self.grace) + nbytes / self.wire
            return begin, max(start, done)
        whole = self.split and nbytes >= self.split
        used = range(self.links) if whole else (self.own[sender],)
        time = nbytes / self.wire / len(used)
        begin = max(start, min(carried[link] for link in used))
        for link in used:
            carried[link] = max(carried[link], start - self.grace) + time
        return begin, max(start, *(carried[link] for link in used))
