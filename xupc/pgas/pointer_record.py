"""Pointers-to-shared as plain numbers: in pickles and in `pointer_dtype` arrays.

A record holds the bounds of the pointer's allocation, so that a thread that does not know the
allocation can check accesses, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import show
from .allocation import Allocation, Memory
from .shared_reference import PointerFields, SharedReference

__all__ = [
    "KINDS",
    "NULL",
    "PointerRecord",
    "allocation_of",
    "check_record",
    "converted",
    "is_pointer_dtype",
    "pointer_dtype",
    "record_of",
    "to_entries",
    "to_entry",
    "to_record",
]


class PointerRecord(NamedTuple):
    """A pointer and the bounds of its allocation, as plain numbers."""

    kind: int
    thread: int
    first: int
    itemsize: int
    addr: int
    offset: int
    nelems: int
    blocksize: int
    serial: int


pointer_dtype: Final[np.dtype[Any]] = np.dtype(
    [(name, "i4" if k < 4 else "i8") for k, name in enumerate(PointerRecord._fields)], align=True
)
"""Elements that hold pointers-to-shared; zero bytes are the null pointer."""
KINDS: Final = ("null", "all", "alloc", "global", "foreign")
NULL: Final = PointerRecord(0, 0, 0, 0, 0, 0, 0, 0, 0)


def is_pointer_dtype(dtype: np.dtype[Any]) -> bool:
    """Return True if elements of the type hold pointers."""
    return dtype is pointer_dtype or (dtype.kind == "V" and dtype == pointer_dtype)


def record_of(p: PointerFields, *, whole: bool) -> PointerRecord:
    """Return `p` as a record.

    A record cannot hold the layout of a team's memory. With `whole` the members travel beside
    it; else it holds the bounds of the part that p points into.
    """
    a, thread = p._allocation, p.thread
    if not (whole or a.of_world):
        offset, nbytes = a.part(thread)
        kind = KINDS.index("foreign")
        return PointerRecord(kind, thread, thread, 1, p._addr, offset, nbytes, 0, a.serial)
    return PointerRecord(
        KINDS.index(a.kind),
        thread,
        a.first,
        a.itemsize,
        p._addr,
        a.offset,
        a.nelems,
        a.blocksize,
        a.serial,
    )


def allocation_of(
    memory: Memory, record: PointerRecord, members: Sequence[int] | None
) -> Allocation:
    """Return the allocation of a record: the known object if this thread has one.

    An unknown allocation that this thread would know if it were live was freed.
    """
    memory = memory.home(record.offset)
    known = memory.allocation_at(record.first, record.offset)
    if known is not None and known.serial == record.serial and known.offset == record.offset:
        return known
    kind = KINDS[record.kind]
    return Allocation(
        memory,
        record.serial,
        record.offset,
        record.nelems,
        np.dtype((np.void, record.itemsize)),
        record.blocksize,
        record.first,
        kind,
        members=members,
        live=kind == "global" or (kind == "alloc" and record.first != memory.me),
    )


def check_record(record: PointerRecord, memory: Memory) -> None:
    """Raise ValueError if a record that is not null can be no pointer."""
    in_range = range(memory.threads)
    if (
        not 0 < record.kind < len(KINDS)
        or record.thread not in in_range
        or record.first not in in_range
        or record.itemsize < 1
        or min(record.offset, record.nelems, record.blocksize) < 0
    ):
        raise ValueError(f"the element holds no pointer: {record}")


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return `value` as numpy can assign it to an element of dtype kind "V"."""
    return to_entry(value) if is_pointer_dtype(dtype) else value


def to_entry(value: Any) -> Any:
    """Return `value` as one element of a `pointer_dtype` array."""
    if value is None:
        return NULL
    if isinstance(value, SharedReference):
        record = record_of(value._start, whole=False)
        if abs(record.addr) >> 63:
            raise OverflowError(f"A[i] = v: v: offset {show(record.addr)} is beyond any memory")
        return record
    if isinstance(value, np.void) and is_pointer_dtype(value.dtype):
        return value
    raise TypeError(f"A[i] = v: v is {show(value)}: expected a SharedPointer or None")


def to_entries(value: Any) -> NDArray[Any]:
    """Return `value`, one pointer or several, as an array that numpy can broadcast."""
    gathers = isinstance(value, np.ndarray | SharedReference)
    if gathers and not isinstance(value, PointerFields) and is_pointer_dtype(value.dtype):
        return np.asarray(value)
    if isinstance(value, Iterable) and not isinstance(value, SharedReference | np.void):
        return np.array([to_entry(v) for v in value], pointer_dtype)
    return np.array(to_entry(value), pointer_dtype)


def to_record(value: Any) -> tuple[int, ...]:
    """Return a pointer, or None, as the numbers of a `pointer_dtype` element."""
    entry = to_entry(value)
    return tuple(entry.item() if isinstance(entry, np.void) else entry)
