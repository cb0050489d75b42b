"""The operand that stands for all of the shared heap: blocks in any allocations.

Its parts' offsets are those of the heaps. They are found each by itself, since the heaps' segments
lie anywhere in a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .live import Bound

if TYPE_CHECKING:
    from ..team import Team

__all__ = ["Anywhere"]


class Anywhere(Bound):
    """All memory that a team's threads have, in whichever heap."""

    __slots__ = ("_known", "_team")

    def __init__(self, team: Team) -> None:
        self._team = team
        self._known: dict[tuple[int, int], int] = {}
        self.offset = self.address = self.stride = 0
        self.heap = self
        self.place = self._place

    def _place(self, rank: int, offset: int) -> int:
        """The address of a byte of a thread on my node."""
        known = self._known.get((rank, offset))
        if known is None:
            address, stride = self._team.job.heap_at(offset).bind(offset)
            known = int(address + stride * self._team.rank_tree.place(rank))
            self._known[rank, offset] = known  # segments stay where they are
        return known

    def displacement(self, thread: int, offset: int) -> tuple[Any, int]:
        """(remote access, displacement in the target's exposed memory)."""
        return self._team.job.heap_at(offset).displacement(thread, offset)
