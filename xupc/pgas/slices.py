"""Slices of shared arrays and pointers: cut into runs, read as arrays, written from any value.

Every slice goes one way: a pointer and a range of element offsets from it are cut into runs, each
a strided copy with one thread's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import show
from .access import Run, cut_into_runs, out_of_range, read_run, write_run
from .integer_arguments import integer
from .pointer_record import (
    is_pointer_dtype,
    to_entries,
)
from .private_memory import check_readable
from .shared_reference import PointerFields

__all__ = [
    "extent",
    "read_elements",
    "read_items",
    "runs_of",
    "runs_within",
    "slice_items",
    "write_items",
]


def runs_of(p: PointerFields, items: range) -> Iterator[Run]:
    """Cut ``p[items]`` into runs, unchecked."""
    position, size = (p._rank, p._phase, p._addr), p._dtype.itemsize
    return cut_into_runs(p._allocation.members, position, p._blocksize, size, items)


def runs_within(p: PointerFields, items: range) -> list[Run]:
    """Return the runs of ``p[items]``; IndexError if one leaves the allocation."""
    allocation, size = p._allocation, p._dtype.itemsize
    call = f"p[{show(items.start)}:{show(items.stop)}:{show(items.step)}]"
    # More items than the allocation has elements cannot fit: refuse them before counting.
    if items and abs(items.stop - items.start) > abs(items.step) * (allocation.nbytes // size):
        raise IndexError(
            f"{call}: out of range: reaches beyond the array, which has {allocation.nelems} "
            f"{allocation.dtype}"
        )
    runs = list(runs_of(p, items))
    for run in runs:
        addr, nbytes = run.cover(size)
        if not allocation.holds(run.thread, addr, nbytes):
            out_of_range(call, allocation, run.thread, addr, nbytes)
    return runs


def slice_items(key: slice) -> range:
    """Return the element offsets of ``p[key]``; a pointer has no end to count from."""
    if key.stop is None:
        raise ValueError("p[i:j]: j is missing: a pointer has no end")
    step = 1 if key.step is None else integer(key.step, "p[i:j:k]", "k")
    if step == 0:
        raise ValueError("p[i:j:k]: k is 0: slice step cannot be zero")
    start = 0 if key.start is None else integer(key.start, "p[i:j]", "i")
    return range(start, integer(key.stop, "p[i:j]", "j"), step)


def read_items(p: PointerFields, items: range, runs: Iterable[Run]) -> NDArray[Any]:
    """Return the elements ``p[items]``, cut into runs before, as an array."""
    out = np.empty(len(items), p._dtype)
    for run in runs:
        read_run(p._allocation, run, out[run.items])
    return out


def write_items(p: PointerFields, items: range, runs: Iterable[Run], value: Any) -> None:
    """Write the elements ``p[items]``, cut into runs before."""
    data = _staged(value, len(items), p._dtype)
    for run in runs:
        write_run(p._allocation, run, data[run.items])


def extent(p: PointerFields, n: int) -> list[tuple[int, int, int]]:
    """Return (thread, address, bytes) of each range that holds elements of ``p[0:n]``.

    IndexError if one leaves the allocation.
    """
    size = p._dtype.itemsize
    return [(run.thread, *run.cover(size)) for run in runs_within(p, range(n))]


def read_elements(p: PointerFields, n: int) -> NDArray[Any]:
    """Return elements ``p[0:n]`` as an array; IndexError if they leave the allocation."""
    return read_items(p, range(n), runs_within(p, range(n)))


def _staged(value: Any, nelems: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `value` as `nelems` elements, converted and broadcast as by numpy's assignment."""
    check_readable(value, "A[i:j] = v: v")
    if is_pointer_dtype(dtype):
        value = to_entries(value)
    if isinstance(value, int | float | complex | str | bytes | np.generic):
        one = np.empty((), dtype)
        one[...] = value
        return np.broadcast_to(one, (nelems,))
    staged: NDArray[Any]
    if _is_plain(value) and value.dtype == dtype and value.shape == (nelems,):
        staged = value
        return staged
    if isinstance(value, range) and len(value) not in (1, nelems):  # as an array it may be huge
        raise ValueError(f"A[i:j] = v: v: expected {nelems} elements, got {len(value)}")
    staged = np.empty(nelems, dtype)
    staged[...] = value
    return staged


def _is_plain(value: Any) -> bool:
    """Return True for an array with its own memory; a view may be of the memory to write."""
    return type(value) is np.ndarray and value.base is None
