"""Pointers-to-shared: their arithmetic, their accesses, and pointers read from arrays and pickles.

A `SharedPointer` carries its `Allocation`, so that a range check needs no look-up. It may see the
memory with another dtype and blocksize.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import show
from ..records import public_names
from .access import load, out_of_range, store
from .allocation import Allocation, Memory, check_dtype, current_memory
from .integer_arguments import at_least_0, integer, is_integer
from .pointer import advance, distance
from .pointer_record import (
    PointerRecord,
    allocation_of,
    check_record,
    converted,
    is_pointer_dtype,
    record_of,
)
from .shared_reference import PointerFields, SharedReference
from .slices import read_items, runs_within, slice_items, write_items

__all__ = [
    "SharedPointer",
    "by_value",
    "decode",
    "from_entry",
    "pointer_to",
    "to_pointer",
]


class SharedPointer(PointerFields):
    """A pointer-to-shared: thread, phase and address. Immutable.

    ``p + n`` and ``p - n`` move by elements, over the threads if the blocksize is not 0;
    ``p - q`` is the number of elements between two pointers of equal dtype and blocksize, and
    ``<`` compares by it; ``==`` compares thread and address. ``p[i]`` and ``p[i:j]`` read and
    write the elements i, and i up to j, from here, so a negative index goes back. Reads are
    copies. Accesses beyond the allocation raise IndexError, in a freed one ValueError.

    Pointers come from ``xupc.alloc``, ``xupc.global_alloc`` and ``array + i``. They pickle.
    """

    __slots__ = ()

    __array_ufunc__ = None  # so that np.int64(3) + p comes to __radd__
    __iter__ = None  # a pointer has no end
    __contains__ = None

    # --- arithmetic

    def _moved(self, n: int) -> SharedPointer:
        allocation, dtype, blocksize = self._allocation, self._dtype, self._blocksize
        rank, phase, addr = advance(
            self._rank,
            self._phase,
            self._addr,
            n,
            blocksize,
            dtype.itemsize,
            len(allocation.members),
        )
        return SharedPointer(allocation, rank, phase, addr, blocksize, dtype)

    def __add__(self, n: SupportsIndex) -> SharedPointer:
        if not is_integer(n):
            return NotImplemented
        return self._moved(operator.index(n))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, SharedReference):
            return _distance(self, other._start)
        if not is_integer(other):
            return NotImplemented
        return self._moved(-operator.index(other))

    def __rsub__(self, other: Any) -> int:
        if not isinstance(other, SharedReference):
            return NotImplemented
        return _distance(other._start, self)

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0 if isinstance(other, SharedReference) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._order(other) <= 0 if isinstance(other, SharedReference) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._order(other) > 0 if isinstance(other, SharedReference) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._order(other) >= 0 if isinstance(other, SharedReference) else NotImplemented

    def _order(self, other: SharedReference) -> int:
        return _distance(self, other._start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedPointer):
            return NotImplemented
        return self._addr == other._addr and self.thread == other.thread

    def __hash__(self) -> int:
        return hash((self.thread, self._addr))

    # --- other views of the same address

    def cast(self, dtype: DTypeLike | None = None, blocksize: int | None = None) -> SharedPointer:
        """Return a pointer to the same address with another dtype or blocksize.

        Parameters
        ----------
        dtype : dtype, optional
            None keeps the dtype.
        blocksize : int, optional
            0 makes it indefinite; None keeps the blocksize.

        Returns
        -------
        SharedPointer
            With phase 0 if blocksize or item size change.

        Raises
        ------
        TypeError
            If `dtype` cannot be shared, or `blocksize` is no integer.
        ValueError
            If the address is not aligned for `dtype`, or `blocksize` is negative.
        """
        old, block = self._dtype, self._blocksize
        new = old if dtype is None else check_dtype(dtype, "p.cast")
        if self._addr % new.alignment:
            raise ValueError(
                f"p.cast: dtype is {new!r}: p.addr is {self._addr}: "
                f"expected a multiple of {new.alignment}"
            )
        if blocksize is not None:
            block = integer(blocksize, "p.cast", "blocksize")
            if block < 0:
                raise ValueError(
                    f"p.cast: blocksize is {show(blocksize)}: expected an int >= 0 or None"
                )
        kept = block == self._blocksize and new.itemsize == old.itemsize
        phase = self._phase if kept else 0
        return SharedPointer(self._allocation, self._rank, phase, self._addr, block, new)

    def resetphase(self) -> SharedPointer:
        """Return a pointer to the same address with phase 0 (UPC language, 7.2.3)."""
        return SharedPointer(
            self._allocation, self._rank, 0, self._addr, self._blocksize, self._dtype
        )

    def local(self, n: SupportsIndex) -> NDArray[Any] | None:
        """Return a view, no copy, of the `n` elements that follow in this thread's own memory.

        Returns
        -------
        ndarray or None
            None if the thread is on another node.

        Raises
        ------
        ValueError
            If `n` is negative, or the memory was freed.
        IndexError
            If they do not all lie in the thread's part of the allocation.
        """
        allocation, thread = self._usable("p.local(n)"), self.thread
        count = at_least_0(n, "p.local", "n")
        nbytes = count * self._dtype.itemsize
        if not allocation.holds(thread, self._addr, nbytes):
            out_of_range(f"p.local({show(count)})", allocation, thread, self._addr, nbytes)
        view = allocation.reach(thread, self._addr, nbytes)
        return None if view is None else view.view(self._dtype)

    # --- access

    def __getitem__(self, key: Any) -> Any:
        allocation = self._usable("p[i]")
        if isinstance(key, slice):
            items = slice_items(key)
            return by_value(allocation, read_items(self, items, runs_within(self, items)))
        thread, addr = self._place(key)
        value = load(allocation, thread, addr, self._dtype)
        return value if self._dtype.kind != "V" else from_entry(allocation, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        allocation = self._usable("p[i] = v")
        if isinstance(key, slice):
            items = slice_items(key)
            write_items(self, items, runs_within(self, items), value)
            return
        thread, addr = self._place(key)
        if self._dtype.kind == "V":
            value = converted(value, self._dtype)
        store(allocation, thread, addr, self._dtype, value)

    def _usable(self, call: str) -> Allocation:
        allocation = self._allocation
        allocation.memory.check()
        if not allocation.live:
            allocation.check_live(call, "p")
        return allocation

    def _place(self, key: Any) -> tuple[int, int]:
        """Return thread and address of ``p[key]``; IndexError if out of range."""
        i = integer(key, "p[i]", "i")
        allocation, size, members = self._allocation, self._dtype.itemsize, self._allocation.members
        rank, _, addr = advance(
            self._rank, self._phase, self._addr, i, self._blocksize, size, len(members)
        )
        thread = members[rank]
        if not allocation.holds(thread, addr, size):
            out_of_range(f"p[{show(i)}]", allocation, thread, addr, size)
        return thread, addr

    # --- the rest

    def __reduce__(self) -> tuple[Any, ...]:
        allocation = self._allocation
        members = None if allocation.of_world else tuple(allocation.members)
        record = record_of(self, whole=True)
        return _unpickle, (tuple(record), members, self._phase, self._blocksize, self._dtype)

    def __copy__(self) -> SharedPointer:
        return self

    def __deepcopy__(self, memo: object) -> SharedPointer:
        return self

    def __dir__(self) -> list[str]:
        return public_names(self, "allocation")

    def __repr__(self) -> str:
        return (
            f"SharedPointer(thread={self.thread}, phase={self._phase}, addr={self._addr}, "
            f"blocksize={self._blocksize}, dtype={self._dtype})"
        )


def _distance(p: PointerFields, q: PointerFields) -> int:
    """Return the number of elements from `q` to `p`; TypeError if none can be counted."""
    blocksize, mine, others = p._blocksize, p._allocation.members, q._allocation.members
    if p._dtype != q._dtype or blocksize != q._blocksize:
        raise TypeError(f"p - q: p is {p!r}, q is {q!r}: expected equal dtype and blocksize")
    if blocksize and mine is not others and mine != others:
        raise TypeError(f"p - q: p is {p!r}, q is {q!r}: expected one team")
    to = (p._rank, p._phase, p._addr)
    start = (q._rank, q._phase, q._addr)
    if not blocksize:  # ranks of two teams: compare the threads
        to, start = (p.thread, 0, p._addr), (q.thread, 0, q._addr)
    return distance(to, start, blocksize, p._dtype.itemsize, len(mine))


def pointer_to(allocation: Allocation) -> SharedPointer:
    """Return the pointer to element 0 of `allocation`, with its own dtype and blocksize."""
    rank = allocation.rank_of(allocation.first)
    assert rank is not None, "element 0 lies on a member"
    return SharedPointer(
        allocation, rank, 0, allocation.offset, allocation.blocksize, allocation.dtype
    )


# --- pointers as elements -------------------------------------------------------------------------


def from_entry(allocation: Allocation, value: Any) -> Any:
    """Return the value of an element of dtype kind "V": a pointer, or a copy of the scalar."""
    if is_pointer_dtype(value.dtype):
        return decode(allocation.memory, value.item())
    return value.copy()  # a void scalar is a view of its array


def by_value(allocation: Allocation, values: NDArray[Any]) -> NDArray[Any] | list[Any]:
    """Return the value of a slice: the array, or a list if the elements are pointers."""
    if not is_pointer_dtype(values.dtype):
        return values
    return [decode(allocation.memory, record) for record in values.tolist()]


def _restore(
    record: PointerRecord, allocation: Allocation, phase: int, blocksize: int, dtype: np.dtype[Any]
) -> SharedPointer:
    rank = allocation.rank_of(record.thread)
    if rank is None:
        raise ValueError(f"pointer to thread {record.thread}: not a thread of {allocation!r}")
    return SharedPointer(allocation, rank, phase, record.addr, blocksize, dtype)


def _unpickle(
    numbers: tuple[int, ...],
    members: tuple[int, ...] | None,
    phase: int,
    blocksize: int,
    dtype: np.dtype[Any],
) -> SharedPointer:
    record = PointerRecord(*numbers)
    allocation = allocation_of(current_memory(), record, members)
    return _restore(record, allocation, phase, blocksize, dtype)


def decode(memory: Memory, numbers: tuple[int, ...]) -> SharedPointer | None:
    """Return the pointer that an element of a `pointer_dtype` array holds."""
    record = PointerRecord(*numbers)
    if record.kind == 0:
        return None
    check_record(record, memory)
    return _restore(record, allocation_of(memory, record, None), 0, 0, np.dtype(np.uint8))


def to_pointer(record: np.void) -> SharedPointer | None:
    """Return the pointer that an element of a `pointer_dtype` array holds, None for null.

    ValueError if it holds none.
    """
    numbers: Any = record.item()
    return decode(current_memory(), numbers)
