"""Arithmetic of shared layouts and pointers-to-shared, on plain ints.

A layout deals the elements of an array in blocks of `blocksize` elements over the threads, round
robin from thread 0::

    blocksize 2, 3 threads          thread 0        thread 1        thread 2
    local element  0  1              0  1            2  3            4  5
                   2  3              6  7            8  9           10 11

Blocksize 0 is indefinite: everything lies on one thread, that of the pointer, or thread 0 for an
array. A pointer's position is (thread, phase, addr): the phase is the element's place within its
block, the address a byte offset in the thread's part of the heap. Two elements of equal local
number have equal addresses on their threads.

Nothing here checks bounds: pointers know their allocation's, this module does not. `blocksize`,
`itemsize` and `threads` are taken to be valid.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import chain
from math import gcd
from typing import NamedTuple, SupportsIndex, TypeAlias, overload

from ..errors import show
from ..flags import Flags

__all__ = [
    "AffinityIndices",
    "Piece",
    "Position",
    "advance",
    "affinity_indices",
    "distance",
    "local_count",
    "local_to_global",
    "locate",
    "resolve_blocksize",
    "slice_pieces",
]

Position: TypeAlias = tuple[int, int, int]
"""Thread, phase and byte address of a pointer-to-shared."""


# --- pointers -------------------------------------------------------------------------------------


def advance(
    thread: int, phase: int, addr: int, n: int, blocksize: int, itemsize: int, threads: int
) -> Position:
    """Return the position `n` elements further on (back, if negative).

    Parameters
    ----------
    thread, phase, addr : int
        The position to start from; `addr` in bytes.
    n : int
        Number of elements.
    blocksize : int
        Elements per block; 0: indefinite, only the address moves.
    itemsize : int
        Bytes per element.
    threads : int
        Number of threads that blocks are dealt over.
    """
    if blocksize == 0:
        return thread, phase, addr + n * itemsize
    blocks, new_phase = divmod(phase + n, blocksize)
    rows, new_thread = divmod(thread + blocks, threads)
    return new_thread, new_phase, addr + (rows * blocksize + new_phase - phase) * itemsize


def distance(p: Position, q: Position, blocksize: int, itemsize: int, threads: int) -> int:
    """Return the number of elements n with ``advance(*q, n, ...) == p``.

    Raises
    ------
    ValueError
        If there is none: with blocksize 0 on different threads, or where the addresses are not
        whole elements (or, after the phases, whole blocks) apart.
    """
    elements, bytes_left = divmod(p[2] - q[2], itemsize)
    if bytes_left:
        _unreachable(p, q, f"their addresses are not a multiple of {itemsize} bytes apart")
    if blocksize == 0:
        if p[0] != q[0]:
            _unreachable(p, q, "with blocksize 0 both must have affinity to one thread")
        return elements
    phases = p[1] - q[1]
    rows, elements_left = divmod(elements - phases, blocksize)
    if elements_left:
        _unreachable(p, q, f"their blocks of {blocksize} are not aligned to each other")
    return (rows * threads + p[0] - q[0]) * blocksize + phases


def _unreachable(p: Position, q: Position, reason: str) -> None:
    raise ValueError(
        f"p - q: p (thread, phase, addr) = {p} cannot be reached from q = {q} by whole elements: "
        f"{reason}"
    )


# --- layouts --------------------------------------------------------------------------------------


def locate(i: int, blocksize: int, threads: int) -> tuple[int, int, int]:
    """Return (thread, phase, local element) of element `i` of an array that starts on thread 0.

    `i` may be the number of elements, and then gives the place just after the last one.
    """
    if blocksize == 0:
        return 0, 0, i
    block, phase = divmod(i, blocksize)
    row, thread = divmod(block, threads)
    return thread, phase, row * blocksize + phase


def local_count(thread: int, nelems: int, blocksize: int, threads: int) -> int:
    """Return how many of `nelems` elements have affinity to `thread`."""
    if blocksize == 0:
        return nelems if thread == 0 else 0
    full_blocks, rest = divmod(nelems, blocksize)
    rows, last_thread = divmod(full_blocks, threads)
    if thread < last_thread:
        return (rows + 1) * blocksize
    return rows * blocksize + (rest if thread == last_thread else 0)


def local_to_global(thread: int, k: int, blocksize: int, threads: int) -> int:
    """Return the index in the array of local element `k` of `thread`; `locate` inverted."""
    if blocksize == 0:
        return k
    row, phase = divmod(k, blocksize)
    return (row * threads + thread) * blocksize + phase


def resolve_blocksize(blocksize: object, nelems: int, threads: int, call: str) -> int:
    """Return a user's `blocksize` as a number.

    Parameters
    ----------
    blocksize : int, None or "*"
        None and 0 are indefinite; ``"*"`` is ``ceil(nelems / threads)``, at least 1.
    nelems, threads : int
        Size of the array and number of threads.
    call : str
        Where errors say that they come from.

    Raises
    ------
    TypeError
        If it is no integer, None or string.
    ValueError
        If it is negative, or a string other than ``"*"``.
    """
    expected = "expected an int >= 0, None or '*'"
    if blocksize is None:
        return 0
    if isinstance(blocksize, str):
        if blocksize != "*":
            raise ValueError(f"{call}: blocksize is {show(blocksize)}: {expected}")
        return max(1, -(-nelems // threads))
    if isinstance(blocksize, bool | Flags) or not isinstance(blocksize, SupportsIndex):
        raise TypeError(f"{call}: blocksize is {show(blocksize)}: {expected}")
    try:
        number = operator.index(blocksize)
    except TypeError as e:  # of an array that is no scalar
        raise TypeError(f"{call}: blocksize is {show(blocksize)}: {expected}") from e
    if number < 0:
        raise ValueError(f"{call}: blocksize is {show(number)}: {expected}")
    return number


# --- slices ---------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Part of a slice that one strided copy can move.

    For k in ``range(nelems)``, item ``item + k * item_step`` of the slice is local element
    ``local + k * local_step`` of `thread`.
    """

    thread: int
    local: int
    local_step: int
    nelems: int
    item: int
    item_step: int


def slice_pieces(start: int, stop: int, step: int, blocksize: int, threads: int) -> Iterator[Piece]:
    """Cut the slice ``A[start:stop:step]`` into pieces, each a strided copy with one thread.

    There are two ways to cut, and the one with fewer pieces is taken:

    - by block: a piece for each block that the slice crosses, contiguous if step is 1;
    - by period: (thread, phase) repeats after P = B * T / gcd(B * T, step) items, and the items a
      whole number of periods apart lie evenly spaced on one thread: P pieces, whatever the length.
      With blocksize 1 and step 1 that is one piece per thread.

    Parameters
    ----------
    start, stop, step : int
        As ``slice.indices(nelems)`` returns them; `step` may be negative.
    blocksize, threads : int
        The array's layout.

    Yields
    ------
    Piece
        Together they hold every item of the slice once, in no promised order.
    """
    items = range(start, stop, step)
    if not items:
        return
    if blocksize == 0 or threads == 1:
        yield Piece(0, start, step, len(items), 0, 1)
        return
    deal = blocksize * threads
    period = deal // gcd(deal, step)
    if period <= _blocks_crossed(items, blocksize):
        yield from _pieces_by_period(items, period, blocksize, threads)
    else:
        yield from _pieces_by_block(items, blocksize, threads)


def _blocks_crossed(items: range, blocksize: int) -> int:
    if abs(items.step) > blocksize:
        return len(items)
    return abs(items[-1] // blocksize - items[0] // blocksize) + 1


def _pieces_by_period(items: range, period: int, blocksize: int, threads: int) -> Iterator[Piece]:
    # A period moves on by whole rows of threads * blocksize elements, blocksize of them local.
    local_step = items.step * period // threads
    for item in range(period):
        thread, _, local = locate(items[item], blocksize, threads)
        nelems = -(-(len(items) - item) // period)
        yield Piece(thread, local, local_step, nelems, item, period)


def _pieces_by_block(items: range, blocksize: int, threads: int) -> Iterator[Piece]:
    step = items.step
    item = 0
    while item < len(items):
        thread, phase, local = locate(items[item], blocksize, threads)
        ahead = blocksize - 1 - phase if step > 0 else phase
        nelems = min(ahead // abs(step) + 1, len(items) - item)
        yield Piece(thread, local, step, nelems, item, 1)
        item += nelems


# --- forall ---------------------------------------------------------------------------------------


def affinity_indices(n: int, thread: int, blocksize: int, threads: int) -> Sequence[int]:
    """Return the indices in ``range(n)`` whose elements have affinity to `thread`, ascending.

    The result takes constant memory: a range where the layout allows, else `AffinityIndices`.
    """
    n = max(n, 0)
    if blocksize == 0:
        return range(n) if thread == 0 else range(0)
    if threads == 1:
        return range(n)
    if blocksize == 1:
        return range(thread, n, threads)
    if n <= blocksize * threads:
        return range(min(thread * blocksize, n), min((thread + 1) * blocksize, n))
    return AffinityIndices(n, thread, blocksize, threads)


class AffinityIndices(Sequence[int]):
    """The indices in ``range(n)`` of one thread's blocks, as an immutable sequence.

    Parameters
    ----------
    n, thread, blocksize, threads : int
        As in `affinity_indices`; blocksize > 0.
    """

    __slots__ = ("_blocksize", "_len", "_n", "_thread", "_threads")

    def __init__(self, n: int, thread: int, blocksize: int, threads: int) -> None:
        self._n = n
        self._thread = thread
        self._blocksize = blocksize
        self._threads = threads
        self._len = local_count(thread, n, blocksize, threads)

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[int]:
        size, n = self._blocksize, self._n
        firsts = range(self._thread * size, n, size * self._threads)
        return chain.from_iterable(range(first, min(first + size, n)) for first in firsts)

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, SupportsIndex):
            return False
        i = operator.index(value)
        return 0 <= i < self._n and locate(i, self._blocksize, self._threads)[0] == self._thread

    @overload
    def __getitem__(self, k: int) -> int: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[int]: ...
    def __getitem__(self, k: int | slice) -> int | Sequence[int]:
        if isinstance(k, slice):
            return [self._at(local) for local in range(*k.indices(self._len))]
        return self._at(range(self._len)[k])

    def _at(self, local: int) -> int:
        return local_to_global(self._thread, local, self._blocksize, self._threads)

    def __repr__(self) -> str:
        return (
            f"AffinityIndices(n={self._n}, thread={self._thread}, "
            f"blocksize={self._blocksize}, threads={self._threads})"
        )
