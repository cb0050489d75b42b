"""Move blocks of different sizes by calls that move blocks of one size.

A plan is made for one size, which takes about 2 ms. The sizes of vectors and of objects change
from call to call. So a block travels in a place of one of few sizes (`size_class`), or in pieces
whose sizes are powers of two. A call then finds its plan in the cache.

Blocks are one-dimensional arrays of bytes. Each function yields calls (`Move`), one after the
other, and continues when the call is complete. All threads pass the same sizes, except where a
function says otherwise, and so they make the same calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = [
    "Array", "Move", "Moves", "broadcast", "empty", "exchange", "gather", "rounds", "scatter",
    "shifts", "size_class", "spread", "wasteful",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[np.uint8]]
Move = tuple[str, tuple[Any, ...]]
"""A collective on private arrays (``"gather"``), and its arguments before the flags."""
Moves = Iterator[Move]

_PIECE = 1 << 16  # a shorter rest is copied into a place
_LONGEST = 1 << 26
_PLACES = 1 << 24  # bytes of all places of a thread in one round
_PER_CALL = 1 << 14  # bytes whose two copies take as long as a call


def empty(nbytes: int) -> Array:
    """Return a new block."""
    return np.empty(nbytes, np.uint8)


def size_class(nbytes: int) -> int:
    """Return the bytes of a place for a block: at most a quarter, or 64 bytes, more."""
    step = 1 << max(6, (nbytes - 1).bit_length() - 3)
    return max(step, -(-nbytes // step) * step)


def wasteful(most: int, total: int, blocks: int) -> bool:
    """Return True if places would be much larger than what is in them."""
    return most > _PER_CALL and most * blocks > 2 * total


def broadcast(me: int, block: Array, root: int) -> Moves:
    """Copy the root's block to the blocks of all threads."""
    begin = 0
    while (left := block.size - begin) >= _PIECE:
        size = min(_LONGEST, 1 << left.bit_length() - 1)
        yield "broadcast", (block[begin : begin + size], root)
        begin += size
    if left:
        place = empty(size_class(left))
        if me == root:
            place[:left] = block[begin:]
        yield "broadcast", (place, root)
        if me != root:
            block[begin:] = place[:left]


def spread(me: int, blocks: Sequence[Array]) -> Moves:
    """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
    most = max(block.size for block in blocks)
    if not most:
        return
    each, threads = size_class(most), len(blocks)
    worth = 2 * sum(block.size for block in blocks) + threads * _PER_CALL
    if each * threads <= min(worth, _PLACES):
        yield from _spread_in_places(me, blocks, each)
        return
    for root, block in enumerate(blocks):
        yield from broadcast(me, block, root)


def _spread_in_places(me: int, blocks: Sequence[Array], each: int) -> Moves:
    mine, every = empty(each), empty(each * len(blocks))
    own = blocks[me]
    mine[: own.size] = own
    yield "gather_all", (every, mine)
    for i, block in enumerate(blocks):
        if i != me:
            block[...] = every[i * each : i * each + block.size]


def rounds(most: int, threads: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, size) of the part of each block, at most `most` bytes long, in each round."""
    longest = max(_PIECE, 1 << (_PLACES // threads).bit_length() - 1)
    for begin in range(0, most, longest):
        yield begin, min(longest, size_class(most - begin))


def gather(threads: int, mine: Array, into: Sequence[Array] | None, root: int, most: int) -> Moves:
    """Copy the block of thread i to ``into[i]`` of the root; no block is longer than `most`."""
    for begin, size in rounds(most, threads):
        places = None if into is None else empty(size * threads)
        yield "gather", (places, _in_place_of(mine, begin, size), root)
        if into is not None and places is not None:
            _take(into, places, begin, size)


def scatter(
    threads: int, blocks: Sequence[Array] | None, into: Array, root: int, most: int
) -> Moves:
    """Copy ``blocks[i]`` of the root to thread i; no block is longer than `most`."""
    for begin, size in rounds(most, threads):
        places = None if blocks is None else _in_places_of(blocks, begin, size)
        place = empty(size)
        yield "scatter", (place, places, root)
        _take([into], place, begin, size)


def exchange(threads: int, blocks: Sequence[Array], into: Sequence[Array], most: int) -> Moves:
    """Copy ``blocks[i]`` of thread j to ``into[j]`` of thread i; none is longer than `most`."""
    for begin, size in rounds(most, threads):
        places = empty(size * threads)
        yield "exchange", (places, _in_places_of(blocks, begin, size))
        _take(into, places, begin, size)


def shifts(
    me: int, blocks: Sequence[Array], into: Sequence[Array], longest: Sequence[int]
) -> Moves:
    """Copy as `exchange`, in turn to the threads 0, 1, ... places after this one.

    `longest`: by distance, the longest block of any thread. One long block then takes room on the
    threads of its round only.
    """
    threads = len(blocks)
    for distance in range(1, threads):
        to, of = (me + distance) % threads, (me - distance) % threads
        for begin in range(0, longest[distance], _PLACES):
            size = min(_PLACES, size_class(longest[distance] - begin))
            place = empty(size)
            yield "permute", (place, _in_place_of(blocks[to], begin, size), to)
            _take([into[of]], place, begin, size)
    into[me][...] = blocks[me]


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
