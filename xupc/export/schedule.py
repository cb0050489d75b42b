"""An order in which the operations of a graph can be carried out, by the time of each of them.

The times are those of a machine on which messages do not share the network: they only give an
order. What a thread still waits for a signal is settled here, too: a signal is visible to other
threads a cache line's latency after it was raised, and a thread that comes later does not wait.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from ..backends.simulator.errors import ProtocolError
from ..backends.simulator.rates import Rates
from .graph import RECEIVE, SEND, Graph

__all__ = ["Schedule", "scheduled"]

_Pair = tuple[int, int, int]
"""The nodes of sender and receiver of a message, and its tag."""


class Schedule:
    """The begin and the end of each operation in ns, and the operations by their begin."""

    def __init__(self, begins: list[float], ends: list[float], order: list[int]) -> None:
        self.begins = begins
        self.ends = ends
        self.order = order


def scheduled(graph: Graph, rates: Rates) -> tuple[Graph, Schedule]:
    """Return a graph with the times of its waits, and when its operations begin and end.

    Raises
    ------
    ProtocolError
        The operations wait for each other in a circle.
    """
    found = _Run(graph, rates)
    found.run()
    operations = list(graph.operations)
    for number, operation in enumerate(operations):
        if operation.what == "wait":
            took = found.ends[number] - found.begins[number]
            operations[number] = operation._replace(ns=took)
    return Graph(graph.tree, operations), Schedule(found.begins, found.ends, found.order)


class _Run:
    """A heap of begins and ends of operations, the earliest first."""

    def __init__(self, graph: Graph, rates: Rates) -> None:
        self.operations = graph.operations
        self.node = graph.tree.node_index.tolist()
        self.rates = rates
        n = len(graph.operations)
        self.begins, self.ends = [0.0] * n, [0.0] * n
        self.order: list[int] = []
        self.left = [len(x.ended) + len(x.begun) for x in graph.operations]
        self.on_end: dict[int, list[int]] = defaultdict(list)
        self.on_begin: dict[int, list[int]] = defaultdict(list)
        self.one_side: dict[_Pair, tuple[int, float]] = {}
        self.heap: list[tuple[float, int, bool]] = []  # time, operation, whether it ends
        for number, operation in enumerate(graph.operations):
            for other in operation.ended:
                self.on_end[other].append(number)
            for other in operation.begun:
                self.on_begin[other].append(number)
            if not self.left[number]:
                self.heap.append((0.0, number, False))

    def run(self) -> None:
        """Carry out all operations."""
        done = 0
        while self.heap:
            now, number, ends = heapq.heappop(self.heap)
            if ends:
                self.ends[number] = now
                done += 1
            else:
                self.begins[number] = now
                self.order.append(number)
                self._begin(now, number)
            for after in (self.on_end if ends else self.on_begin).pop(number, ()):
                self.left[after] -= 1
                if not self.left[after]:
                    heapq.heappush(self.heap, (now, after, False))
        if done < len(self.operations):
            raise ProtocolError(f"{len(self.operations) - done} operations wait for each other")

    def _begin(self, now: float, number: int) -> None:
        """Find the end of an operation, or of the other side of its message."""
        operation = self.operations[number]
        if operation.kind not in (SEND, RECEIVE):
            end = now + operation.ns
            if operation.what == "wait":
                end = max([now, *(
                    self.ends[other] + self.rates.line for other in operation.ended
                    if self.operations[other].thread != operation.thread
                )])  # fmt: skip
            self._end(end, number)
            return
        here, there = self.node[operation.thread], self.node[operation.peer]
        sends = operation.kind == SEND
        pair = (here, there, operation.tag) if sends else (there, here, operation.tag)
        other = self.one_side.pop(pair, None)
        if other is None:
            self.one_side[pair] = number, now
            return
        sent, received = (number, other[0]) if sends else (other[0], number)
        rates, nbytes = self.rates, operation.nbytes
        left = max(now, other[1]) + rates.send + nbytes * (rates.per_byte + 1 / rates.wire)
        self._end(left, sent)
        self._end(left + rates.latency + rates.receive + nbytes * rates.per_byte, received)

    def _end(self, time: float, number: int) -> None:
        heapq.heappush(self.heap, (time, number, True))
