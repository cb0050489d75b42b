"""Read and write elements of an allocation: single ones, and runs of evenly spaced ones.

A run lies in one thread's memory. Where load and store reach that memory, an access is a numpy
copy, else a get or put. A write never touches bytes between the elements that it names, since
another thread may write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from .allocation import Allocation, Bytes
from .pointer import Position, slice_pieces
from .private_memory import check_readable

__all__ = [
    "CHUNK",
    "Run",
    "cut_into_runs",
    "load",
    "out_of_range",
    "read_run",
    "store",
    "write_run",
]


# Bytes of private memory that a remote copy may take at a time; it bounds memory, not time.
CHUNK: Final = 1 << 20


def load(allocation: Allocation, thread: int, addr: int, dtype: np.dtype[Any]) -> Any:
    """Return the element at an address, of dtype kind "V" as a view."""
    cell = allocation.reach(thread, addr, dtype.itemsize)
    if cell is None:
        cell = np.empty(dtype.itemsize, np.uint8)
        allocation.memory.get(thread, addr, cell)
    return cell.view(dtype)[0]


def store(allocation: Allocation, thread: int, addr: int, dtype: np.dtype[Any], value: Any) -> None:
    """Write the element at an address, converted as numpy's assignment does it."""
    check_readable(value, "A[i] = v: v")
    cell = allocation.reach(thread, addr, dtype.itemsize)
    if cell is not None:
        cell.view(dtype)[0] = value
        return
    cell = np.zeros(dtype.itemsize, np.uint8)
    cell.view(dtype)[0] = value
    allocation.memory.put(thread, addr, cell)


class Run(NamedTuple):
    """Items of a slice, evenly spaced in one thread's memory: item k is at ``addr + k*stride``."""

    thread: int
    addr: int
    stride: int
    nelems: int
    items: slice

    def cover(self, itemsize: int) -> tuple[int, int]:
        """Return address and bytes of the shortest range that holds all items."""
        reach = (self.nelems - 1) * self.stride
        return self.addr + min(reach, 0), abs(reach) + itemsize

    def chunks(self, size: int) -> Iterator[Run]:
        """Yield the same items, at most `size` of them at a time, from item 0."""
        for k in range(0, self.nelems, size):
            n = min(size, self.nelems - k)
            yield Run(self.thread, self.addr + k * self.stride, self.stride, n, slice(k, k + n))


def cut_into_runs(
    members: Sequence[int], start: Position, blocksize: int, itemsize: int, items: range
) -> Iterator[Run]:
    """Cut the elements at offsets `items` from a pointer's position into runs.

    The pieces are those of an array whose block 0 is the row of the pointer on rank 0. In that
    array the pointer is element `ahead`.
    """
    rank, phase, addr = start
    ahead = rank * blocksize + phase
    base = addr - phase * itemsize
    first, stop = items.start + ahead, items.stop + ahead
    for piece in slice_pieces(first, stop, items.step, blocksize, len(members)):
        last = piece.item + (piece.nelems - 1) * piece.item_step
        yield Run(
            members[piece.thread if blocksize else rank],
            base + piece.local * itemsize,
            piece.local_step * itemsize,
            piece.nelems,
            slice(piece.item, last + 1, piece.item_step),
        )


def read_run(allocation: Allocation, run: Run, out: NDArray[Any]) -> None:
    """Read the items of a run into `out`, by load and store or by gets of covering ranges."""
    dtype, size = out.dtype, out.dtype.itemsize
    view = allocation.reach(run.thread, *run.cover(size))
    if view is not None:
        out[...] = _spaced(view, dtype, run.stride)
    elif run.stride == size and out.flags.c_contiguous:
        allocation.memory.get(run.thread, run.addr, out.view(np.uint8))
    else:
        for chunk in run.chunks(max(1, CHUNK // abs(run.stride))):
            addr, nbytes = chunk.cover(size)
            cover = np.empty(nbytes, np.uint8)
            allocation.memory.get(run.thread, addr, cover)
            out[chunk.items] = _spaced(cover, dtype, run.stride)


def write_run(allocation: Allocation, run: Run, data: NDArray[Any]) -> None:
    """Write the items of a run, by load and store or by puts.

    A put covers no byte between the items: another thread may write it.
    """
    dtype, size = data.dtype, data.dtype.itemsize
    view = allocation.reach(run.thread, *run.cover(size))
    if view is not None:
        _spaced(view, dtype, run.stride)[...] = data
        return
    adjacent = abs(run.stride) == size
    for chunk in run.chunks(max(1, CHUNK // size) if adjacent else 1):
        step = 1 if run.stride > 0 else -1
        block = np.array(data[chunk.items][::step])  # contiguous, in address order
        allocation.memory.put(run.thread, chunk.cover(size)[0], block.view(np.uint8))


def _spaced(cover: Bytes, dtype: np.dtype[Any], stride: int) -> NDArray[Any]:
    """Return the items of a covering range; with a negative stride they start at its end."""
    return cover.view(dtype)[:: stride // dtype.itemsize]


def out_of_range(
    call: str, allocation: Allocation, thread: int, addr: int, nbytes: int
) -> NoReturn:
    """Raise IndexError for a range that is not in the thread's part of the allocation."""
    raise IndexError(f"{call}: out of range: {allocation.beyond(thread, addr, nbytes)}")
