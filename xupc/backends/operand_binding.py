"""Operands of plans, bound to memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..pgas.heap import Heap
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS
from ..topology.tree import Tree

__all__ = ["HeapOperand", "BoundOperand", "PrivateOperand", "ScratchOperand"]


class BoundOperand:
    """An operand in a heap, starting at an offset."""

    __slots__ = ("address", "heap", "offset", "place", "stride")

    place: Callable[[int, int], int] | None
    """``(rank, offset) -> address`` in a `HeapOperand`, whose offsets may be in any heap."""

    def __init__(self, heap: Any, offset: int) -> None:
        self.heap = heap
        self.place = None
        self.offset = offset
        self.address, self.stride = heap.bind(offset)

    @property
    def pair(self) -> tuple[int, int]:
        """Address and stride, for the core."""
        return self.address, self.stride


class ScratchOperand(BoundOperand):
    """The lines of op_scratch of all threads; each operation uses one line."""

    __slots__ = ("_lines",)

    def __init__(self, heap: Any, offset: int) -> None:
        super().__init__(heap, offset)
        self._lines = self.address, self.offset

    @property
    def pair(self) -> tuple[int, int]:
        """Address and stride, for the core, which computes the line of an operation."""
        return self._lines[0], self.stride

    def turn(self, operation: int) -> None:
        """Point to the line of an operation."""
        at = operation % SLOTS * OP_SCRATCH_BYTES
        self.address, self.offset = self._lines[0] + at, self._lines[1] + at


class PrivateOperand:
    """An operand in private memory of this thread.

    Attributes
    ----------
    address
        Address of the memory in the current call.
    """

    __slots__ = ("address",)

    stride = 0
    offset = 0
    place = None

    def __init__(self) -> None:
        self.address = 0

    @property
    def pair(self) -> tuple[int, int]:
        """Address and stride, for the core."""
        return self.address, 0


class HeapOwner(Protocol):
    """The part of the job that finds heaps."""

    def heap_at(self, offset: int) -> Heap:
        """Return the heap that an offset belongs to."""


class OperandTeam(Protocol):
    """The part of a team that `HeapOperand` uses."""

    @property
    def job(self) -> HeapOwner:
        """Job of the team."""

    @property
    def rank_tree(self) -> Tree:
        """Nodes of the ranks."""


class HeapOperand(BoundOperand):
    """All memory of the threads of a team, in all heaps: blocks in any allocations.

    Offsets are those of the heaps. Each address is looked up, since the segments of the heaps may
    be mapped anywhere.
    """

    __slots__ = ("_known", "_team")

    def __init__(self, team: OperandTeam) -> None:
        self._team = team
        self._known: dict[tuple[int, int], int] = {}
        self.offset = self.address = self.stride = 0

    @property
    def heap(self) -> HeapOperand:
        """This operand, which finds the heap of each offset."""
        return self

    def place(self, rank: int, offset: int) -> int:
        """Return the address of a byte of a thread on this node."""
        known = self._known.get((rank, offset))
        if known is None:
            address, stride = self._team.job.heap_at(offset).bind(offset)
            known = int(address + stride * self._team.rank_tree.place(rank))
            self._known[rank, offset] = known  # segments stay where they are
        return known

    def displacement(self, thread: int, offset: int) -> tuple[Any, int]:
        """Return (remote access, displacement in the target's window)."""
        return self._team.job.heap_at(offset).displacement(thread, offset)
