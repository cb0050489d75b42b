"""`forall`: the indices of a loop whose iterations the threads share by affinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from ..errors import show
from .allocation import Allocation, current_memory
from .integer_arguments import integer
from .pointer import affinity_indices, resolve_blocksize
from .shared_array import SharedArray

__all__ = [
    "forall",
]


def forall(
    n: SupportsIndex,
    A: SharedArray | None = None,  # noqa: N803 - arrays are capitals in the API
    *,
    blocksize: int | str | None = None,
) -> Sequence[int]:
    """Return the indices in ``range(n)`` that belong to this thread (UPC language, 6.6.2).

    Parameters
    ----------
    n : int
        End of the range.
    A : SharedArray, optional
        An index belongs to the thread that its element of A has affinity to.
    blocksize : int or "*", optional
        Instead of `A`: the same for an array with this blocksize over all threads.

    Returns
    -------
    sequence of int
        Ascending; it takes constant memory.

    Raises
    ------
    TypeError
        If not exactly one of `A` and `blocksize` is given, or one has the wrong type.
    ValueError
        If `n` is more than the length of A, A was freed, or `blocksize` is negative.
    """
    count = integer(n, "forall", "n")
    if (A is None) == (blocksize is None):
        raise TypeError("forall: expected either A or blocksize")
    if A is None:
        memory = current_memory()
        block = resolve_blocksize(blocksize, max(count, 0), memory.threads, "forall")
        return affinity_indices(count, memory.me, block, memory.threads)
    if not isinstance(A, SharedArray):
        raise TypeError(f"forall: A is {show(A)}: expected a SharedArray")
    allocation = A._usable("forall")
    if count > allocation.nelems:
        raise ValueError(f"forall: n is {show(count)}: A has only {allocation.nelems} elements")
    return _indices_of(allocation, count)


def _indices_of(allocation: Allocation, n: int) -> Sequence[int]:
    """Return the indices below `n` of the elements with affinity to this thread."""
    me = allocation.memory.me
    if allocation.blocksize == 0:
        return range(n if allocation.first == me else 0)
    rank = allocation.rank_of(me)
    if rank is None:
        return range(0)
    return affinity_indices(n, rank, allocation.blocksize, len(allocation.members))
