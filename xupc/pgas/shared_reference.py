"""What shared arrays and pointers-to-shared have in common, and the fields of a pointer.

A pointer holds its *rank*: the number of its thread among those that its allocation is dealt over.
In memory of all threads that is the thread itself; in memory of a team it is not.
"""

from __future__ import annotations

from typing import Any, Self, TypeAlias

import numpy as np

from ..errors import show
from .allocation import Allocation

__all__ = [
    "Address",
    "PointerFields",
    "SharedReference",
    "as_address",
]


Address: TypeAlias = tuple[Allocation, int, int]
"""Allocation, thread and byte address."""


class SharedReference:
    """The base of `SharedPointer` and `SharedArray`: both stand for an address of shared memory."""

    __slots__ = ()

    @property
    def _start(self) -> PointerFields:
        """Pointer to element 0."""
        raise NotImplementedError

    @property
    def _address(self) -> Address:
        """Address of element 0."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        raise NotImplementedError


class PointerFields(SharedReference):
    """The fields of a `SharedPointer`."""

    __slots__ = (
        "__weakref__", "_addr", "_allocation", "_blocksize", "_dtype", "_phase", "_rank",
    )  # fmt: skip

    def __init__(
        self,
        allocation: Allocation,
        rank: int,
        phase: int,
        addr: int,
        blocksize: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._allocation = allocation
        self._rank = rank
        self._phase = phase
        self._addr = addr
        self._blocksize = blocksize
        self._dtype = dtype

    # --- what it is

    @property
    def _start(self) -> Self:
        return self

    @property
    def _address(self) -> Address:
        return self._allocation, self.thread, self._addr

    @property
    def thread(self) -> int:
        """Thread that the element has affinity to (UPC language, 7.2.3)."""
        return self._allocation.members[self._rank]

    @property
    def phase(self) -> int:
        """Position of the element in its block; 0 if the blocksize is 0 (UPC language, 7.2.3)."""
        return self._phase

    @property
    def addr(self) -> int:
        """Byte offset in the thread's part of the heap (UPC language, 7.2.3)."""
        return self._addr

    @property
    def blocksize(self) -> int:
        """Elements per block; 0: indefinite."""
        return self._blocksize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._dtype

    @property
    def team(self) -> Any:
        """Team that the memory is dealt over; None if this thread does not know that team."""
        return self._allocation.team

    @property
    def allocation(self) -> Allocation:
        """Memory that the pointer may access."""
        return self._allocation


def as_address(x: SharedReference) -> Address:
    """Return the address of a pointer, or of element 0 of an array.

    Neither range nor liveness is checked.

    Raises
    ------
    TypeError
        If it is neither a SharedArray nor a SharedPointer.
    """
    try:
        if isinstance(x, SharedReference):
            return x._address
    except (AttributeError, ReferenceError):  # a mock, a proxy of what is gone
        pass
    raise TypeError(f"{show(x)}: expected a SharedArray or a SharedPointer")
