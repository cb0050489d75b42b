"""Arguments of the `_v` calls on private arrays: counts, displacements, and their blocks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..errors import OverlapError, show
from ..flags import ASYNC
from ..records import mutable_record, record
from .array_arguments import Array, plain
from .list_arguments import items_of
from .uneven_blocks import Array as Bytes

__all__ = ["UnevenArguments", "UnevenBlocks", "VectorSide", "sizes_of"]


@mutable_record
class UnevenArguments:
    """The arguments of a call by name, as given."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name, 0 if name == "flags" else None)

    @property
    def posted(self) -> bool:
        """True if the call is asynchronous."""
        try:
            return bool(operator.index(self["flags"]) & ASYNC)
        except Exception:  # no number: the check of flags reports it
            return False


@record
class VectorSide:
    """The names of an operand with a block for each thread, and of its counts."""

    array: str
    counts: str
    displs: str
    receives: bool


class UnevenBlocks:
    """An array as blocks of bytes, one for each thread, or one.

    Attributes
    ----------
    array
        The program's.
    counts, places
        Elements of each block, and where it begins.
    memory
        Its bytes: those of the array, or of a copy if it is not contiguous.
    blocks
        Those of `memory`.
    """

    __slots__ = ("array", "blocks", "counts", "memory", "places")

    def __init__(self, array: Array, counts: list[int], places: list[int]) -> None:
        self.array, self.counts, self.places = array, counts, places
        size = self.array.dtype.itemsize
        flat = np.asarray(self.array).reshape(-1)  # a copy if it is not contiguous
        self.memory: Bytes = (flat if plain(flat) else flat.copy()).view(np.uint8)
        self.blocks: list[Bytes] = [
            self.memory[at * size : (at + n) * size]
            for at, n in zip(self.places, self.counts, strict=True)
        ]

    @classmethod
    def whole(cls, array: Array) -> UnevenBlocks:
        """Return an array as one block."""
        return cls(array, [array.size], [0])

    @property
    def copied(self) -> bool:
        """True if the blocks are not in the program's memory."""
        return not np.may_share_memory(self.memory, self.array) and self.array.size > 0

    def fill(self) -> None:
        """Copy the program's values to the blocks of a copy, when a call starts."""
        if self.copied:
            self.memory[:] = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)

    def finish(self) -> None:
        """Copy received blocks to the program's array, if they are in a copy."""
        if not self.copied:
            return
        values = self.memory.view(self.array.dtype)
        for at, n in zip(self.places, self.counts, strict=True):
            self.array.flat[at : at + n] = values[at : at + n]

    @property
    def nbytes(self) -> list[int]:
        """Bytes of each block."""
        return [block.size for block in self.blocks]

    @property
    def offsets(self) -> list[int]:
        """Where each block begins, in bytes."""
        return [at * self.array.dtype.itemsize for at in self.places]


def sizes_of(
    side: VectorSide, array: Array, given: UnevenArguments, threads: int, call: str
) -> UnevenBlocks:
    """Return the blocks that counts and displacements name.

    Raises
    ------
    TypeError, ValueError, OverlapError
        They are no integers, or too many or too few; a block is not inside the array; blocks that
        are received overlap each other.
    """
    counts = _integers(given[side.counts], threads, f"{call}: {side.counts}")
    for rank, n in enumerate(counts):
        if n < 0:
            raise ValueError(f"{call}: {side.counts}[{rank}]: expected at least 0, got {n}")
    if given[side.displs] is None:
        places = list(accumulate(counts[:-1], initial=0))
        if sum(counts) > array.size:
            raise ValueError(
                f"{call}: {side.array}: expected at least {sum(counts)} elements, the sum of "
                f"{side.counts}, got {array.size}"
            )
    else:
        places = _integers(given[side.displs], threads, f"{call}: {side.displs}")
        _check_places(side, counts, places, array.size, call)
    return UnevenBlocks(array, counts, places)


def _check_places(
    side: VectorSide, counts: Sequence[int], places: Sequence[int], size: int, call: str
) -> None:
    for rank, (at, n) in enumerate(zip(places, counts, strict=True)):
        if n and not 0 <= at <= size - n:
            raise ValueError(
                f"{call}: {side.displs}[{rank}]: expected {n} elements inside {side.array}, which "
                f"has {size}, got elements {at} to {at + n - 1}"
            )
    if not side.receives:
        return
    blocks = enumerate(zip(places, counts, strict=True))
    ordered = sorted((at, at + n, rank) for rank, (at, n) in blocks if n)
    for (_, end, one), (begin, _, other) in pairwise(ordered):
        if begin < end:
            raise OverlapError(
                f"{call}: {side.displs}: blocks {one} and {other} of {side.array} overlap at "
                f"element {begin}: give each block a place of its own"
            )


def _integers(given: Any, threads: int, what: str) -> list[int]:
    expected = f"{what}: expected {threads} integers, one for each thread"
    try:
        found = list(map(operator.index, items_of(given, threads, expected)))
    except TypeError:
        raise TypeError(f"{expected}, got {show(given)}") from None
    if len(found) != threads:
        raise ValueError(f"{expected}, got {len(found)}")
    return found
