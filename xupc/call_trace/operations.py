"""The operations of a traced program: the calls of all threads of a team that belong together."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .join import Call, Trace

__all__ = ["END", "Group", "START", "groups", "nodes_of"]

START, END = "init", "finalize"
"""The calls that a program begins and ends with; what was before and is after is not recorded."""


@dataclass
class Group:
    """One call of all threads of a team, by thread."""

    calls: dict[int, Call]

    @property
    def first(self) -> Call:
        """Return the call of the lowest thread; name, bytes and variant are those of all."""
        return self.calls[min(self.calls)]

    @property
    def ns(self) -> int:
        """Return the time from the last thread's entry to the last one's end."""
        calls = self.calls.values()
        return max(call.ended for call in calls) - max(call.began for call in calls)


def nodes_of(trace: Trace) -> list[list[int]]:
    """Return the threads of each node of the job."""
    found: dict[int, list[int]] = defaultdict(list)
    for about in trace.threads:
        found[about["node"]].append(about["thread"])
    return [sorted(threads) for _, threads in sorted(found.items())]


def groups(calls: Sequence[Call]) -> Iterator[Group]:
    """Yield operations in an order in which each thread made its calls.

    Where threads disagree, as they can with calls in the background, the earliest comes first.
    """
    every: dict[tuple[int, int], Group] = {}
    queues: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
    for call in sorted(calls, key=lambda call: call.began):
        key = call.team, call.op
        every.setdefault(key, Group({})).calls[call.thread] = call
        queues[call.thread].append(key)
    fronts: dict[tuple[int, int], int] = defaultdict(int)  # threads whose next call it is
    ready: deque[tuple[int, int]] = deque()

    def look(thread: int) -> None:
        while queues[thread] and queues[thread][0] not in every:
            queues[thread].popleft()
        if queues[thread]:
            key = queues[thread][0]
            fronts[key] += 1
            if fronts[key] == len(every[key].calls):
                ready.append(key)

    for thread in list(queues):
        look(thread)
    while every:
        key = ready.popleft() if ready else min(
            (thread[0] for thread in queues.values() if thread),
            key=lambda key: every[key].first.began,
        )  # fmt: skip
        group = every.pop(key, None)
        if group is None:
            continue
        yield group
        for thread in group.calls:
            if queues[thread] and queues[thread][0] == key:
                queues[thread].popleft()
                look(thread)
