"""What threads do in one call or many, as operations and what each of them waits for.

An operation is work of one thread, or one side of a message between nodes. It may wait for
operations of its own node only: two nodes meet in messages alone. The two lanes of a thread and the
remote reads that are served from its memory are units of their own, which overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..topology.tree import Tree

__all__ = ["RECEIVE", "SEND", "SERVED", "WORK", "Graph", "Operation"]

WORK, SEND, RECEIVE = "work", "send", "receive"
SERVED: Final = 2
"""The unit of reads of a thread's memory by other nodes; 0 and 1 are its lanes."""


class Operation(NamedTuple):
    """One operation of a thread.

    Attributes
    ----------
    kind
        WORK, SEND or RECEIVE.
    thread, unit
        Which thread of the job does it, and on which of its units.
    what
        copy, fold, signal ..., for readers.
    nbytes
        What it moves; 0: a signal.
    ns
        The time of WORK.
    peer, tag
        The thread at the other end of a message, and the number that both ends of it have: no other
        message between their nodes has the same.
    ended, begun
        The operations that end, or only begin, before this one begins.
    """

    kind: str
    thread: int
    unit: int
    what: str
    nbytes: int = 0
    ns: float = 0.0
    peer: int = -1
    tag: int = -1
    ended: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()


class Graph:
    """Operations by number, each after all that it waits for, on the nodes of a job."""

    def __init__(self, tree: Tree, operations: list[Operation]) -> None:
        self.tree = tree
        self.operations = operations

    def of_nodes(self) -> Iterator[list[int]]:
        """Yield the numbers of the operations of each node."""
        found: dict[int, list[int]] = defaultdict(list)
        node = self.tree.node_index.tolist()
        for number, operation in enumerate(self.operations):
            found[node[operation.thread]].append(number)
        for k in range(self.tree.node_count):
            yield found[k]

    def ended(self) -> list[tuple[int, ...]]:
        """Return for each operation those that end before, without those that only begin before.

        An operation that begins before gives what it waits for itself.
        """
        found: list[tuple[int, ...]] = []
        for operation in self.operations:
            before = dict.fromkeys(operation.ended)
            for other in operation.begun:
                before.update(dict.fromkeys(found[other]))
            found.append(tuple(before))
        return found
