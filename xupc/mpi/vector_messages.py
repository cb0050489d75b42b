"""Messages with a block for each thread, as programs describe them to mpi4py's v forms.

As in `messages`, each block gets the same form: contiguous bytes. A block is the program's memory
where that is contiguous, else a copy. What lies between blocks is never written.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from .messages import InBlocks, Message, as_block, bytes_of_buffer, datatype_of, size_of

__all__ = ["Vector"]


class Vector(InBlocks):
    """The blocks of a message.

    Attributes
    ----------
    sizes
        Bytes of each.
    memory
        The program's memory that they are in; empty if they are copies.
    """

    __slots__ = ("memory", "sizes")

    def __init__(self, described: Any, blocks: int, *, writes: bool) -> None:
        """Read a description.

        Raises
        ------
        Exception
            If mpi4py raises for it, too.
        """
        buffer, counts, places, given = _parts(described)
        absolute = buffer is None or buffer is MPI.BOTTOM
        if absolute and given is None:
            raise ValueError("BOTTOM needs a datatype")
        if not (given is None or isinstance(given, MPI.Datatype | str)):
            raise TypeError("expected a datatype")
        datatype = datatype_of(described)
        memory = None if absolute else bytes_of_buffer(buffer, typed=given is not None)
        if writes and memory is not None and not memory.flags.writeable:
            raise ValueError("the buffer is read-only")
        total = 0 if memory is None else memory.size
        extent = datatype.Get_extent()[1]
        numbers = _counts(counts, blocks, total, extent)
        at = [place * extent for place in _places(places, numbers)]
        size = size_of(datatype)
        self.sizes = [number * (size or datatype.Get_size()) for number in numbers]
        self.memory = np.empty(0, np.uint8)
        if memory is not None and size and _inside(at, self.sizes, total):
            self.memory = memory
            self._blocks = [
                Message(memory[begin : begin + n]) for begin, n in zip(at, self.sizes, strict=True)
            ]
        else:
            base = 0 if memory is None else memory.ctypes.data
            self._blocks = [
                as_block(base + begin, number, datatype, writes=writes)
                for begin, number in zip(at, numbers, strict=True)
            ]


def _parts(described: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatype as given."""
    if not isinstance(described, list | tuple):
        return described, None, None, None
    if not 2 <= len(described) <= 4:
        raise ValueError("message: expected 2 to 4 items")
    if len(described) == 4:
        return described[0], described[1], described[2], described[3]
    buffer, counts, *rest = described
    given = rest[0] if rest else None
    if not rest and isinstance(counts, MPI.Datatype | str):
        counts, given = None, counts
    if isinstance(counts, tuple):
        counts, places = counts
        return buffer, counts, places, given
    return buffer, counts, None, given


def _counts(given: Any, blocks: int, total: int, extent: int) -> list[int]:
    """Return the elements of each block; those of a buffer without counts are dealt evenly."""
    if given is None:
        if extent <= 0 or total % extent:
            raise ValueError("the buffer is no whole number of elements")
        each, more = divmod(total // extent, blocks)
        return [each + (i < more) for i in range(blocks)]
    numbers = _integers(given, blocks) or [operator.index(given)] * blocks
    if min(numbers) < 0:
        raise ValueError("a count is negative")
    return numbers


def _places(given: Any, counts: Sequence[int]) -> list[int]:
    """Return the first element of each block; one number is the distance between blocks."""
    if given is None:
        return list(accumulate(counts[:-1], initial=0))
    return _integers(given, len(counts)) or [operator.index(given) * i for i in range(len(counts))]


def _integers(given: Any, blocks: int) -> list[int] | None:
    """Return a sequence of so many integers; None if it is a single one."""
    if not hasattr(given, "__len__"):
        return None
    found = [operator.index(x) for x in given]
    if len(found) != blocks:
        raise ValueError(f"expected {blocks} items, got {len(found)}")
    return found


def _inside(at: Sequence[int], sizes: Sequence[int], total: int) -> bool:
    """Return True if no block reaches beyond the buffer, as MPI allows."""
    return all(n == 0 or 0 <= begin <= total - n for begin, n in zip(at, sizes, strict=True))
