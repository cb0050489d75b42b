"""The global zone: one thread allocates memory of every thread.

The table of used ranges is at the start of thread 0's part of the zone. A thread that allocates or
frees locks the table, changes it and unlocks it. In a job of one node the lock is a kernel lock on
a byte of the control file, which the kernel releases when the holder dies. Across nodes it is a
ticket lock: two integers next to the table, accessed one-sided.

Each entry is (start, bytes). Entries are sorted, so a free range is a gap.

The last line of the table's space belongs to each thread itself. There the team writes the last led
call that the thread has left, for threads of other nodes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import HeapError
from .heap import Heap

__all__ = ["GlobalZone"]

ENTRIES = 1000
_HEAD = struct.Struct("<qqq")  # next ticket, ticket being served, entries
TABLE_BYTES = 16384
_LEFT = TABLE_BYTES - 64


class GlobalZone:
    """My access to the zone.

    Parameters
    ----------
    heap : Heap
    lock : callable
        Returns a context manager that holds the zone's lock.
    """

    def __init__(self, heap: Heap, lock: Callable[[], Any]) -> None:
        self.heap = heap
        self.start = heap.individual_end
        self.end = heap.global_end
        self.lock = lock
        self.left_word = self.start + _LEFT

    @contextlib.contextmanager
    def _table(self) -> Iterator[list[tuple[int, int]]]:
        """Lock the table and yield it; write it back if it has changed."""
        with self.lock():
            data = np.empty(TABLE_BYTES, np.uint8)
            self.heap.get(0, self.start, data)
            _, _, count = _HEAD.unpack(data[: _HEAD.size].tobytes())
            numbers = data[_HEAD.size : _HEAD.size + 16 * count].view(np.int64).reshape(-1, 2)
            table = [(int(a), int(n)) for a, n in numbers]
            before = list(table)
            yield table
            if table != before:
                out = np.array(table, np.int64).reshape(-1).view(np.uint8)
                if out.size:
                    self.heap.put(0, self.start + _HEAD.size, out)
                count_bytes = np.array([len(table)], np.int64).view(np.uint8)
                self.heap.put(0, self.start + 16, count_bytes)

    def alloc(self, nbytes: int) -> int:
        """Return an offset free on every thread."""
        size = max(64, -(-nbytes // 64) * 64)
        with self._table() as table:
            here = self.start + TABLE_BYTES
            for i, (start, taken) in enumerate([*table, (self.end, 0)]):
                if start - here >= size and len(table) < ENTRIES:
                    table.insert(i, (here, size))
                    return here
                here = start + taken
        if len(table) == ENTRIES:
            raise HeapError(
                f"global_alloc: {nbytes} bytes: the table of the global zone is full: no more "
                f"than {ENTRIES} allocations at a time"
            )
        raise HeapError(
            f"global_alloc: {nbytes} bytes of each thread do not fit the global zone of "
            f"{self.end - self.start - TABLE_BYTES} bytes, {self._free(table)} of them free "
            "(heap_size makes it larger; all_alloc grows by itself)"
        )

    def _free(self, table: list[tuple[int, int]]) -> int:
        return self.end - self.start - TABLE_BYTES - sum(n for _, n in table)

    def free(self, offset: int) -> bool:
        """Give back what `alloc` gave; False if that was done before."""
        with self._table() as table:
            for i, (start, _) in enumerate(table):
                if start == offset:
                    del table[i]
                    return True
        return False

    def clear(self, thread: int, offset: int, nbytes: int) -> None:
        """Zero a range of a thread."""
        step = 1 << 20
        zeros = np.zeros(min(nbytes, step), np.uint8)
        for at in range(0, nbytes, step):
            self.heap.put(thread, offset + at, zeros[: min(step, nbytes - at)])
