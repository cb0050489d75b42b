"""A communicator among threads of one process: what start-up needs of mpi4py's, for unit tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["Comm", "in_threads"]

T = TypeVar("T")
TIMEOUT = 30.0


class _Group:
    """The state that the members of a communicator share."""

    def __init__(self, size: int) -> None:
        self.rows: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)


class Comm:
    """The communicator of one member; the methods are mpi4py's."""

    def __init__(self, rank: int, group: _Group) -> None:
        self.rank = rank
        self._group = group

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return len(self._group.rows)

    def allgather(self, value: Any) -> list[Any]:
        group = self._group
        group.rows[self.rank] = value
        group.barrier.wait(TIMEOUT)
        rows = list(group.rows)
        group.barrier.wait(TIMEOUT)
        return rows

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]

    def Barrier(self) -> None:
        self.allgather(None)

    def Split(self, color: int, key: int) -> Comm:
        rows = self.allgather((color, key))
        ranks = sorted((k, rank) for rank, (c, k) in enumerate(rows) if c == color)
        mine = ranks.index((key, self.rank))
        offered = self.allgather(_Group(len(ranks)) if mine == 0 else None)
        return Comm(mine, offered[ranks[0][1]])

    def Free(self) -> None:
        self.allgather(None)


def in_threads(size: int, call: Callable[[Comm], T]) -> list[T]:
    """The results of `call(comm)` on each of `size` threads, by rank."""
    group = _Group(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, [Comm(rank, group) for rank in range(size)]))
