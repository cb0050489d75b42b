"""The operand that stands for all of the shared heap: blocks in any allocations.

Its parts' offsets are those of the heap. They are found each by itself, since the heap's segments
lie anywhere in a process.
"""

from __future__ import annotations

from typing import Any

from .live import Bound

__all__ = ["Anywhere"]


class Anywhere(Bound):
    """All memory that a team's threads have."""

    __slots__ = ("_heap", "_known", "_threads")

    def __init__(self, heap: Any, threads: Any) -> None:
        self._heap = heap
        self._threads = threads
        self._known: dict[tuple[int, int], int] = {}
        self.offset = self.address = self.stride = 0
        self.remote = None
        self.place = self._place

    def _place(self, rank: int, offset: int) -> int:
        """The address of a byte of a thread on my node."""
        known = self._known.get((rank, offset))
        if known is None:
            heap = self._heap
            address, stride = heap.bind(offset)
            known = int(address + stride * heap.tree.local_index(self._threads[rank]))
            self._known[rank, offset] = known  # segments stay where they are
        return known
