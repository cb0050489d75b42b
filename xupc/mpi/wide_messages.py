"""Messages with a block and a datatype for each neighbour, as mpi4py's w forms take them."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from .messages import Array, InBlocks, Message, as_block, bytes_of_buffer, size_of

__all__ = ["Wide"]

_T = TypeVar("_T")


class Wide(InBlocks):
    """The blocks of a message.

    Attributes
    ----------
    memory
        The program's memory that all of them are in; empty if one is a copy.

    Parameters
    ----------
    described
        ``[buffer, counts, displacements in bytes, datatypes]``, as mpi4py takes it.
    blocks
        How many there are.
    writes
        Whether they are written.

    Raises
    ------
    Exception
        If mpi4py raises for the description, too.
    """

    __slots__ = ("memory",)

    def __init__(self, described: Any, blocks: int, *, writes: bool) -> None:
        buffer, counts, places, types = _parts(described)
        absolute = buffer is None or buffer is MPI.BOTTOM
        memory = None if absolute else bytes_of_buffer(buffer, typed=True)
        if writes and memory is not None and not memory.flags.writeable:
            raise ValueError("the buffer is read-only")
        if counts is None and places is None:
            counts, places = [1] * blocks, [0] * blocks
        given = _exactly(list(types), blocks)
        each = zip(_integers(counts, blocks), _integers(places, blocks), given, strict=True)
        self._blocks = [_block(memory, *one, writes=writes) for one in each]
        copied = memory is None or any(block.array.base is None for block in self._blocks)
        self.memory: Array = np.empty(0, np.uint8) if copied or memory is None else memory


def _block(
    memory: Array | None, count: int, at: int, datatype: Any, *, writes: bool
) -> Message:
    """Return one block: the program's memory if it is contiguous there, else a copy."""
    kind = MPI.Datatype.fromcode(datatype) if isinstance(datatype, str) else datatype
    if count < 0:
        raise ValueError("a count is negative")
    size = size_of(kind)
    if memory is not None and size and 0 <= at <= memory.size - count * size:
        return Message(memory[at : at + count * size])
    base = 0 if memory is None else memory.ctypes.data
    return as_block(base + at, count, kind, writes=writes)


def _parts(described: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatypes as given."""
    if not isinstance(described, list | tuple):
        raise TypeError("message: expected a list or tuple")
    match described:
        case [buffer, types]:
            return buffer, None, None, types
        case [buffer, [counts, places], types]:
            return buffer, counts, places, types
        case [buffer, counts, places, types]:
            return buffer, counts, places, types
    raise ValueError("message: expected 2 to 4 items")


def _integers(given: Any, blocks: int) -> list[int]:
    return _exactly([operator.index(x) for x in given], blocks)


def _exactly(given: list[_T], blocks: int) -> list[_T]:
    if len(given) != blocks:
        raise ValueError(f"expected {blocks} items, got {len(given)}")
    return given
