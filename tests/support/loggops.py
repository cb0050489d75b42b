"""A reader of GOAL and a simulator of its LogGOPS model, written from the format and the model.

It uses nothing of xupc. A send takes o of its cpu; its bytes take G each on the network of either
rank, which carries one message at a time in a direction; the first byte arrives L later; the
receive takes o of its cpu. A message of more than S bytes leaves when its receive has been posted.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Operation", "read", "run"]

_OPERATION = re.compile(
    r"(?P<label>\w+): (?:calc (?P<ns>\d+)|(?P<kind>send|recv) (?P<size>\d+)b (?:to|from) "
    r"(?P<peer>\d+) tag (?P<tag>\d+)) cpu (?P<cpu>\d+)"
)
_ORDER = re.compile(r"(?P<label>\w+) (?P<how>i?requires) (?P<other>\w+)")


@dataclass
class Operation:
    """An operation of a rank; `size` is the ns of a calc or the bytes of a message."""

    kind: str
    size: int
    peer: int
    tag: int
    cpu: int
    requires: list[int] = field(default_factory=list)
    irequires: list[int] = field(default_factory=list)


def read(text: str) -> list[list[Operation]]:
    """Return the operations of each rank."""
    ranks: list[list[Operation]] = []
    labels: dict[str, int] = {}
    expected, inside = -1, False
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("//"):
            continue
        if line.startswith("num_ranks "):
            expected = int(line.split()[1])
        elif found := re.fullmatch(r"rank (\d+) \{", line):
            assert (inside, int(found[1])) == (False, len(ranks)), line
            ranks.append([])
            labels, inside = {}, True
        elif line == "}":
            assert inside
            inside = False
        elif found := _OPERATION.fullmatch(line):
            assert inside
            assert found["label"] not in labels, line
            labels[found["label"]] = len(ranks[-1])
            kind = found["kind"] or "calc"
            size = int(found["ns"] or found["size"] or 0)
            assert kind == "calc" or size > 0, line
            ranks[-1].append(Operation(
                kind, size, int(found["peer"] or 0), int(found["tag"] or 0), int(found["cpu"]),
            ))  # fmt: skip
            assert ranks[-1][-1].cpu < 256, line
        else:
            found = _ORDER.fullmatch(line)
            assert found, f"not GOAL: {line}"
            operation = ranks[-1][labels[found["label"]]]
            getattr(operation, found["how"]).append(labels[found["other"]])
    assert (inside, len(ranks)) == (False, expected)
    return ranks


def run(
    ranks: list[list[Operation]], *, L: float, o: float, G: float, S: int = 0
) -> float:
    """Return the time at which all operations have ended; AssertionError if some never do."""
    return _Run(ranks, L, o, G, S).end()


class _Run:
    """A heap of operations and messages, the earliest first."""

    def __init__(
        self, ranks: list[list[Operation]], L: float, o: float, G: float, S: int
    ) -> None:
        self.ranks, self.L, self.o, self.G, self.S = ranks, L, o, G, S
        self.heap: list[tuple[float, int, str, int, int]] = []
        self.pushed = 0
        self.cpu: dict[tuple[int, int], float] = defaultdict(float)
        self.out: dict[int, float] = defaultdict(float)
        self.into: dict[int, float] = defaultdict(float)
        self.sends: dict[tuple[int, int, int], tuple[float, int]] = {}
        self.receives: dict[tuple[int, int, int], tuple[float, int]] = {}
        self.left = [[len(x.requires) + len(x.irequires) for x in ops] for ops in ranks]
        self.after: dict[tuple[int, int, str], list[int]] = defaultdict(list)
        self.done = 0
        for rank, operations in enumerate(ranks):
            for k, operation in enumerate(operations):
                for other in operation.requires:
                    self.after[rank, other, "done"].append(k)
                for other in operation.irequires:
                    self.after[rank, other, "started"].append(k)
                if not self.left[rank][k]:
                    self.push(0.0, "ready", rank, k)

    def push(self, time: float, what: str, rank: int, k: int) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (time, self.pushed, what, rank, k))

    def end(self) -> float:
        last = 0.0
        while self.heap:
            now, _, what, rank, k = heapq.heappop(self.heap)
            if what == "ready":
                self.start(now, rank, k)
                continue
            if what == "there":
                self.take(now, rank, k)
                continue
            if what == "arrived":
                self.receive(now, rank, k)
                continue
            if what == "done":
                last = max(last, now)
                self.done += 1
            for other in self.after[rank, k, what]:
                self.left[rank][other] -= 1
                if not self.left[rank][other]:
                    self.push(now, "ready", rank, other)
        total = sum(map(len, self.ranks))
        assert self.done == total, f"{total - self.done} of {total} operations never end"
        return last

    def start(self, now: float, rank: int, k: int) -> None:
        operation = self.ranks[rank][k]
        place = rank, operation.cpu
        if operation.kind != "recv" and self.cpu[place] > now:
            self.push(self.cpu[place], "ready", rank, k)
            return
        self.push(now, "started", rank, k)
        if operation.kind == "calc":
            self.cpu[place] = now + operation.size
            self.push(now + operation.size, "done", rank, k)
        elif operation.kind == "send":
            self.cpu[place] = now + self.o
            key = rank, operation.peer, operation.tag
            assert key not in self.sends, f"two messages are alike: {key}"
            self.sends[key] = now + self.o, k
            if operation.size <= self.S:
                self.push(now + self.o, "done", rank, k)
            self.match(key)
        else:
            key = operation.peer, rank, operation.tag
            assert key not in self.receives, f"two receives are alike: {key}"
            self.receives[key] = now, k
            self.match(key)

    def match(self, key: tuple[int, int, int]) -> None:
        """Send a message if both ends of it are there."""
        if key not in self.sends or key not in self.receives:
            return
        (sent, k), (posted, at) = self.sends[key], self.receives[key]
        source, target, _ = key
        size = self.ranks[source][k].size
        assert size == self.ranks[target][at].size, f"ends of different sizes: {key}"
        long = size > self.S
        begin = max(sent, self.out[source], posted if long else 0.0)
        left = self.out[source] = begin + size * self.G
        if long:
            self.push(left, "done", source, k)
        self.push(begin + self.L, "there", target, at)

    def take(self, now: float, rank: int, k: int) -> None:
        """Take the bytes of a message whose first one is there."""
        left = self.into[rank] = max(now, self.into[rank]) + self.ranks[rank][k].size * self.G
        self.push(left, "arrived", rank, k)

    def receive(self, now: float, rank: int, k: int) -> None:
        """Let a receive whose message is there take its time, when its cpu is free."""
        place = rank, self.ranks[rank][k].cpu
        if self.cpu[place] > now:
            self.push(self.cpu[place], "arrived", rank, k)
            return
        self.cpu[place] = now + self.o
        self.push(now + self.o, "done", rank, k)
