"""Operands bound to memory: what plans need to find its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..plan.steps import OP_SCRATCH_BYTES, SLOTS

if TYPE_CHECKING:
    from .team_state import TeamState

__all__ = ["HeapOperand", "BoundOperand", "PrivateOperand", "ScratchOperand"]


class BoundOperand:
    """An operand in a heap, from one offset on."""

    __slots__ = ("address", "heap", "offset", "place", "stride")

    place: Callable[[int, int], int] | None
    """``(rank, offset) -> address``, where an offset alone says where memory is: `HeapOperand`."""

    def __init__(self, heap: Any, offset: int) -> None:
        self.heap = heap
        self.place = None
        self.offset = offset
        self.address, self.stride = heap.bind(offset)

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants."""
        return self.address, self.stride


class ScratchOperand(BoundOperand):
    """Every thread's lines of scratch, of which each operation has its own."""

    __slots__ = ("_lines",)

    def __init__(self, heap: Any, offset: int) -> None:
        super().__init__(heap, offset)
        self._lines = self.address, self.offset

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants: it finds the operation's line itself."""
        return self._lines[0], self.stride

    def turn(self, operation: int) -> None:
        """Stand for this operation's line."""
        at = operation % SLOTS * OP_SCRATCH_BYTES
        self.address, self.offset = self._lines[0] + at, self._lines[1] + at


class PrivateOperand:
    """An operand of one thread's own; plans name no other thread's.

    Attributes
    ----------
    address
        Of the memory that the call under way has.
    """

    __slots__ = ("address",)

    stride = 0
    offset = 0
    place = None

    def __init__(self) -> None:
        self.address = 0

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants."""
        return self.address, 0


class HeapOperand(BoundOperand):
    """All memory that a team's threads have, in whichever heap: blocks in any allocations.

    Its parts' offsets are those of the heaps. They are found each by itself, since the heaps'
    segments lie anywhere in a process.
    """

    __slots__ = ("_known", "_team")

    def __init__(self, team: TeamState) -> None:
        self._team = team
        self._known: dict[tuple[int, int], int] = {}
        self.offset = self.address = self.stride = 0

    @property
    def heap(self) -> HeapOperand:
        """What finds each part's own heap."""
        return self

    def place(self, rank: int, offset: int) -> int:
        """Return the address of a byte of a thread on my node."""
        known = self._known.get((rank, offset))
        if known is None:
            address, stride = self._team.job.heap_at(offset).bind(offset)
            known = int(address + stride * self._team.rank_tree.place(rank))
            self._known[rank, offset] = known  # segments stay where they are
        return known

    def displacement(self, thread: int, offset: int) -> tuple[Any, int]:
        """(remote access, displacement in the target's exposed memory)."""
        return self._team.job.heap_at(offset).displacement(thread, offset)
