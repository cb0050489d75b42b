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

from .descriptions import integers, is_integral, is_list, items_of
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
        datatype = datatype_of(buffer if given is None else [buffer, given])
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
            self._blocks = [
                as_block(memory, begin, number, datatype, writes=writes)
                for begin, number in zip(at, numbers, strict=True)
            ]


def _parts(described: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatype as given."""
    if not is_list(described):
        return described, None, None, None
    items = items_of(described)
    if len(items) == 4:
        return items[0], items[1], items[2], items[3]
    buffer, counts, *rest = items
    given = rest[0] if rest else None
    if not rest and isinstance(counts, MPI.Datatype | str):
        counts, given = None, counts
    if issubclass(type(counts), tuple):
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
    numbers = [operator.index(given)] * blocks if is_integral(given) else integers(given, blocks)
    if min(numbers, default=0) < 0:
        raise MPI.Exception(MPI.ERR_COUNT)  # Open MPI itself would wait for the other threads
    return numbers


def _places(given: Any, counts: Sequence[int]) -> list[int]:
    """Return the first element of each block; one number is the distance between blocks."""
    if given is None:
        return list(accumulate(counts[:-1], initial=0))
    if is_integral(given):
        return [operator.index(given) * i for i in range(len(counts))]
    return integers(given, len(counts))


def _inside(at: Sequence[int], sizes: Sequence[int], total: int) -> bool:
    """Return True if no block reaches beyond the buffer, as MPI allows."""
    return all(n == 0 or 0 <= begin <= total - n for begin, n in zip(at, sizes, strict=True))
