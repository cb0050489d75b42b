"""Move blocks of different sizes by calls of xupc that move blocks of one size.

A plan is made for one size, which takes about 2 ms. The sizes of objects and of vectors change
from call to call. So a block travels in a place of one of few sizes (`size_class`), or in pieces
whose sizes are powers of two. A call then finds its plan in the cache.

Blocks are one-dimensional arrays of bytes. In each function all threads pass the same sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import numpy as np

from ..api.private_arrays import (
    allav_broadcast,
    allav_exchange,
    allav_gather,
    allav_gather_all,
    allav_scatter,
)

__all__ = [
    "SLOT", "Array", "broadcast", "empty", "exchange", "exchange_slots", "gather",
    "gather_all_slots", "rounds", "scatter", "scatter_slots", "size_class", "slot", "spread",
    "wasteful",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[np.uint8]]

SLOT = 512  # bytes: a header and a short message, for which one call is enough
_PIECE = 1 << 16  # a shorter rest is copied into a place
_LONGEST = 1 << 26
_PLACES = 1 << 24  # bytes of all places of a thread in one round
_PER_CALL = 1 << 14  # bytes whose two copies take as long as a call


def empty(nbytes: int) -> Array:
    """Return a new block."""
    return np.empty(nbytes, np.uint8)


def size_class(nbytes: int) -> int:
    """Return the bytes of a place for a block: at most a quarter more than the block."""
    step = 1 << max(6, (nbytes - 1).bit_length() - 3)
    return max(step, -(-nbytes // step) * step)


# --- known sizes ---------------------------------------------------------------------------------


def broadcast(team: Any, block: Array, root: int) -> None:
    """Copy the root's block to the blocks of all threads."""
    begin = 0
    while (left := block.size - begin) >= _PIECE:
        size = min(_LONGEST, 1 << left.bit_length() - 1)
        allav_broadcast(block[begin : begin + size], root, 0, team)
        begin += size
    if left:
        place = empty(size_class(left))
        if team.rank == root:
            place[:left] = block[begin:]
        allav_broadcast(place, root, 0, team)
        if team.rank != root:
            block[begin:] = place[:left]


def spread(team: Any, blocks: Sequence[Array]) -> None:
    """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
    most = max(block.size for block in blocks)
    each, threads = size_class(most), team.size
    worth = 2 * sum(block.size for block in blocks) + threads * _PER_CALL
    if each * threads <= min(worth, _PLACES):
        _spread_in_places(team, blocks, each)
        return
    for root, block in enumerate(blocks):
        broadcast(team, block, root)


def _spread_in_places(team: Any, blocks: Sequence[Array], each: int) -> None:
    mine, every = empty(each), empty(each * team.size)
    own = blocks[team.rank]
    mine[: own.size] = own
    allav_gather_all(every, mine, 0, team)
    for i, block in enumerate(blocks):
        if i != team.rank:
            block[...] = every[i * each : i * each + block.size]


def rounds(most: int, threads: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, size) of the part of each block, at most `most` bytes long, in each round."""
    longest = max(_PIECE, 1 << (_PLACES // threads).bit_length() - 1)
    for begin in range(0, most, longest):
        yield begin, min(longest, size_class(most - begin))


def gather(team: Any, mine: Array, into: Sequence[Array] | None, root: int, most: int) -> None:
    """Copy the block of thread i to ``into[i]`` of the root; no block is longer than `most`."""
    for begin, size in rounds(most, team.size):
        places = None if into is None else empty(size * team.size)
        allav_gather(places, _in_place_of(mine, begin, size), root, 0, team)
        if into is not None and places is not None:
            _take(into, places, begin, size)


def scatter(team: Any, blocks: Sequence[Array] | None, into: Array, root: int, most: int) -> None:
    """Copy ``blocks[i]`` of the root to thread i; no block is longer than `most`."""
    for begin, size in rounds(most, team.size):
        places = None if blocks is None else _in_places_of(blocks, begin, size)
        place = empty(size)
        allav_scatter(place, places, root, 0, team)
        _take([into], place, begin, size)


def exchange(team: Any, blocks: Sequence[Array], into: Sequence[Array], most: int) -> None:
    """Copy ``blocks[i]`` of thread j to ``into[j]`` of thread i."""
    for begin, size in rounds(most, team.size):
        places = empty(size * team.size)
        allav_exchange(places, _in_places_of(blocks, begin, size), 0, team)
        _take(into, places, begin, size)


def wasteful(most: int, total: int, blocks: int) -> bool:
    """Return True if places would be much larger than what is in them."""
    return most > _PER_CALL and most * blocks > 2 * total


def _in_place_of(block: Array, begin: int, size: int) -> Array:
    """Return a part of a block in a place: the block's own memory if it fills the place."""
    part = block[begin : begin + size]
    if part.size == size:
        return part
    place = empty(size)
    place[: part.size] = part
    return place


def _in_places_of(blocks: Sequence[Array], begin: int, size: int) -> Array:
    places = empty(size * len(blocks))
    for i, block in enumerate(blocks):
        part = block[begin : begin + size]
        places[i * size : i * size + part.size] = part
    return places


def _take(into: Sequence[Array], places: Array, begin: int, size: int) -> None:
    for i, block in enumerate(into):
        part = block[begin : begin + size]
        part[...] = places[i * size : i * size + part.size]


# --- sizes that differ between threads -----------------------------------------------------------


def slot(head: Struct, data: Any, *numbers: int) -> bytes:
    """Return a slot: numbers, and as much of the data as there is room for."""
    start: bytes = head.pack(*numbers) + data[: SLOT - head.size]
    return start.ljust(SLOT, b"\0")


def gather_all_slots(team: Any, mine: bytes) -> list[memoryview]:
    """Return the slots of all threads."""
    every = empty(SLOT * team.size)
    allav_gather_all(every, np.frombuffer(mine, np.uint8), 0, team)
    return _slots(every)


def scatter_slots(team: Any, slots: Sequence[bytes] | None, root: int) -> memoryview:
    """Return the slot that the root has for this thread."""
    mine = empty(SLOT)
    allav_scatter(mine, None if slots is None else _joined(slots), root, 0, team)
    return mine.data


def exchange_slots(team: Any, slots: Sequence[bytes]) -> list[memoryview]:
    """Return the slots that all threads have for this one."""
    every = empty(SLOT * team.size)
    allav_exchange(every, _joined(slots), 0, team)
    return _slots(every)


def _joined(slots: Sequence[bytes]) -> Array:
    return np.frombuffer(b"".join(slots), np.uint8)


def _slots(every: Array) -> list[memoryview]:
    view = every.data
    return [view[at : at + SLOT] for at in range(0, len(view), SLOT)]
