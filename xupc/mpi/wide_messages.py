"""Messages with a block and a datatype for each neighbour, as mpi4py's w forms take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .descriptions import integers, items_of
from .messages import Array, InBlocks, Message, as_block, bytes_of_buffer, size_of

__all__ = ["Wide"]

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
        if len(types) != blocks:
            raise ValueError(f"expected {blocks} items, got {len(types)}")
        given = [types[i] for i in range(blocks)]
        each = zip(integers(counts, blocks), integers(places, blocks), given, strict=True)
        self._blocks = [_block(memory, *one, writes=writes) for one in each]
        copied = memory is None or any(block.array.base is None for block in self._blocks)
        self.memory: Array = np.empty(0, np.uint8) if copied or memory is None else memory


def _block(
    memory: Array | None, count: int, at: int, datatype: Any, *, writes: bool
) -> Message:
    """Return one block: the program's memory if it is contiguous there, else a copy."""
    kind = MPI.Datatype.fromcode(datatype) if isinstance(datatype, str) else datatype
    if count < 0:
        raise MPI.Exception(MPI.ERR_COUNT)
    size = size_of(kind)
    if memory is not None and size and 0 <= at <= memory.size - count * size:
        return Message(memory[at : at + count * size])
    return as_block(memory, at, count, kind, writes=writes)


def _parts(described: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatypes as given."""
    items = items_of(described)
    if len(items) == 2:
        return items[0], None, None, items[1]
    if len(items) == 3:
        counts, places = items[1]
        return items[0], counts, places, items[2]
    return items[0], items[1], items[2], items[3]
