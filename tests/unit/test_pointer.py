"""Pointer and layout arithmetic against blocks that are dealt one element at a time."""

from __future__ import annotations

import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dealing import deal

from xupc.pgas.pointer import (
    AffinityIndices,
    Piece,
    Position,
    advance,
    affinity_indices,
    distance,
    local_count,
    local_to_global,
    locate,
    resolve_blocksize,
    slice_pieces,
)


def positions(
    nelems: int, blocksize: int, itemsize: int, threads: int, base: int
) -> list[Position]:
    """All positions a pointer can walk through, in order."""
    return [
        (thread, phase, base + local * itemsize)
        for thread, phase, local in deal(nelems, blocksize, threads)
    ]


threads_strategy = st.integers(1, 7)
blocksize_strategy = st.integers(0, 6)
itemsize_strategy = st.sampled_from([1, 2, 3, 4, 8, 16, 24])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Position], int, int, int]:
    """A walk's positions, with blocksize, itemsize and threads."""
    blocksize = draw(blocksize_strategy)
    itemsize = draw(itemsize_strategy)
    threads = draw(threads_strategy)
    base = draw(st.integers(-50, 50))  # a pointer made by a cast starts anywhere
    row = max(blocksize, 1) * threads
    nelems = draw(st.integers(1, 6 * row))
    return positions(nelems, blocksize, itemsize, threads, base), blocksize, itemsize, threads


@given(worlds(), st.data())
def test_programs(world: tuple[list[Position], int, int, int], data: st.DataObject) -> None:
    places, *layout = world
    indices = st.integers(0, len(places) - 1)
    at = data.draw(indices, "start")
    pointer = places[at]
    visited = [(at, pointer)]
    for target in data.draw(st.lists(indices, min_size=1, max_size=12), "targets"):
        pointer = advance(*pointer, target - at, *layout)
        assert pointer == places[target]
        for index, other in visited:
            gap = distance(pointer, other, *layout)
            assert gap == target - index
            assert gap == -distance(other, pointer, *layout)
            assert (gap < 0) == (index > target)
            assert (gap == 0) == (pointer == other)
        at = target
        visited.append((at, pointer))


@given(worlds())
def test_every_step_by_one(world: tuple[list[Position], int, int, int]) -> None:
    places, *layout = world
    for here, after in pairwise(places):
        assert advance(*here, 1, *layout) == after
        assert advance(*after, -1, *layout) == here


@given(worlds(), st.integers(-(10**30), 10**30))
def test_far_steps_return(world: tuple[list[Position], int, int, int], far: int) -> None:
    places, *layout = world
    there = advance(*places[0], far, *layout)
    assert 0 <= there[0] < layout[2]
    assert 0 <= there[1] < max(layout[0], 1)
    assert distance(there, places[0], *layout) == far
    assert advance(*there, -far, *layout) == places[0]


def test_indefinite_pointer_stays_on_its_thread() -> None:
    assert advance(2, 0, 64, 5, 0, 8, 4) == (2, 0, 104)
    assert advance(2, 0, 64, -9, 0, 8, 4) == (2, 0, -8)
    assert distance((2, 0, 104), (2, 0, 64), 0, 8, 4) == 5


@pytest.mark.parametrize(
    ("start", "n", "layout", "end"),
    [
        # From API.md's formula, by hand: blocksize, itemsize, threads.
        ((0, 0, 0), 7, (3, 4, 2), (0, 1, 16)),
        ((1, 2, 8), 1, (3, 4, 2), (0, 0, 12)),
        ((0, 0, 12), -1, (3, 4, 2), (1, 2, 8)),
        ((0, 0, 0), -1, (3, 4, 2), (1, 2, -4)),
        ((0, 0, 100), 4, (1, 8, 4), (0, 0, 108)),
        ((3, 0, 100), 1, (1, 8, 4), (0, 0, 108)),
        ((0, 0, 100), 3, (2, 1, 1), (0, 1, 103)),
    ],
)
def test_advance_by_hand(
    start: Position, n: int, layout: tuple[int, int, int], end: Position
) -> None:
    assert advance(*start, n, *layout) == end
    assert distance(end, start, *layout) == n


@pytest.mark.parametrize(
    ("p", "q", "layout", "reason"),
    [
        ((0, 0, 4), (0, 0, 0), (1, 8, 2), "multiple of 8 bytes"),
        ((0, 0, 3), (0, 0, 0), (0, 2, 2), "multiple of 2 bytes"),
        ((1, 0, 0), (0, 0, 0), (0, 8, 2), "one thread"),
        ((0, 0, 8), (0, 0, 0), (2, 8, 2), "blocks of 2"),
        ((1, 1, 16), (0, 0, 0), (2, 8, 2), "blocks of 2"),
        ((1, 2, 8), (0, 0, 0), (3, 8, 2), "blocks of 3"),
    ],
)
def test_distance_refuses(
    p: Position, q: Position, layout: tuple[int, int, int], reason: str
) -> None:
    for first, second in ((p, q), (q, p)):
        with pytest.raises(ValueError, match=reason):
            distance(first, second, *layout)


@given(worlds(), st.integers(1, 23), st.data())
def test_a_byte_off_is_refused(
    world: tuple[list[Position], int, int, int], shift: int, data: st.DataObject
) -> None:
    places, blocksize, itemsize, threads = world
    thread, phase, addr = data.draw(st.sampled_from(places))
    if shift % itemsize:
        with pytest.raises(ValueError, match="bytes apart"):
            distance((thread, phase, addr + shift), places[0], blocksize, itemsize, threads)


# --- layouts


@given(st.integers(0, 100), blocksize_strategy, threads_strategy)
def test_layout_against_dealing(nelems: int, blocksize: int, threads: int) -> None:
    places = deal(nelems, blocksize, threads)
    for i, (thread, phase, local) in enumerate(places):
        expected_phase = phase if blocksize else 0
        assert locate(i, blocksize, threads) == (thread, expected_phase, local)
        assert local_to_global(thread, local, blocksize, threads) == i
    for thread in range(threads):
        held = sum(place[0] == thread for place in places)
        assert local_count(thread, nelems, blocksize, threads) == held


@pytest.mark.parametrize(
    ("blocksize", "nelems", "threads", "expected"),
    [
        (None, 10, 4, 0),
        (0, 10, 4, 0),
        (1, 10, 4, 1),
        (100, 10, 4, 100),
        ("*", 10, 4, 3),
        ("*", 8, 4, 2),
        ("*", 9, 4, 3),
        ("*", 1, 4, 1),
        ("*", 0, 4, 1),
        ("*", 7, 1, 7),
        (np.int64(5), 10, 4, 5),
        (np.uint8(5), 10, 4, 5),
    ],
)
def test_resolve_blocksize(blocksize: object, nelems: int, threads: int, expected: int) -> None:
    resolved = resolve_blocksize(blocksize, nelems, threads, "all_alloc")
    assert resolved == expected
    assert type(resolved) is int


@pytest.mark.parametrize(
    ("blocksize", "error"),
    [
        (-1, ValueError),
        (np.int8(-3), ValueError),
        ("", ValueError),
        ("4", ValueError),
        ("**", ValueError),
        (1.0, TypeError),
        (True, TypeError),
        (b"*", TypeError),
        ([2], TypeError),
        (np.float64(2), TypeError),
    ],
)
def test_resolve_blocksize_refuses(blocksize: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^all_alloc: blocksize is "):
        resolve_blocksize(blocksize, 10, 4, "all_alloc")


def test_what_a_blocksize_raises_itself_is_passed_on() -> None:
    problem = UnicodeDecodeError("ascii", b"\xff", 0, 1, "not in range")

    class Odd:
        def __index__(self) -> int:
            raise problem

    with pytest.raises(UnicodeDecodeError) as caught:
        resolve_blocksize(Odd(), 10, 4, "all_alloc")
    assert caught.value is problem


# --- slices


@st.composite
def slices(draw: st.DrawFn) -> tuple[int, slice, int, int]:
    """An array's length, a slice of it, blocksize and threads."""
    nelems = draw(st.integers(0, 120))
    bound = st.none() | st.integers(-nelems - 3, nelems + 3)
    step = draw(st.integers(-40, 40).filter(bool))
    chosen = slice(draw(bound), draw(bound), step)
    return nelems, chosen, draw(blocksize_strategy), draw(threads_strategy)


def pieces_of(nelems: int, chosen: slice, blocksize: int, threads: int) -> list[Piece]:
    return list(slice_pieces(*chosen.indices(nelems), blocksize, threads))


@given(slices())
def test_pieces_copy_the_slice(case: tuple[int, slice, int, int]) -> None:
    nelems, chosen, blocksize, threads = case
    parts: list[list[int]] = [[] for _ in range(threads)]
    for i, (thread, _, _) in enumerate(deal(nelems, blocksize, threads)):
        parts[thread].append(i)
    expected = list(range(nelems))[chosen]
    copied: list[int | None] = [None] * len(expected)
    for thread, local, local_step, count, item, item_step in pieces_of(*case):
        assert count > 0
        for k in range(count):
            assert local + k * local_step >= 0
            assert copied[item + k * item_step] is None
            copied[item + k * item_step] = parts[thread][local + k * local_step]
    assert copied == expected


@given(slices())
def test_pieces_are_never_more_than_blocks_crossed(case: tuple[int, slice, int, int]) -> None:
    nelems, chosen, blocksize, threads = case
    chosen_elements = list(range(nelems))[chosen]
    crossed = len({i // blocksize if blocksize else 0 for i in chosen_elements})
    assert len(pieces_of(nelems, chosen, blocksize, threads)) <= crossed


@pytest.mark.parametrize(
    ("chosen", "blocksize", "threads", "pieces"),
    [
        # blocksize 1: a strided piece per thread
        (slice(None), 1, 4, 4),
        (slice(1, 999), 1, 4, 4),
        (slice(None, None, -1), 1, 4, 4),
        (slice(None, None, 2), 1, 4, 2),
        (slice(None, None, 4), 1, 4, 1),
        (slice(3, None, 8), 1, 4, 1),
        (slice(None, None, 3), 1, 4, 4),
        (slice(10, 12), 1, 4, 2),
        # small blocks, many of them: a piece per phase and thread
        (slice(None), 2, 4, 8),
        (slice(None, None, 2), 2, 4, 4),
        # few large blocks: a piece per block
        (slice(None), 250, 4, 4),
        (slice(None), 125, 4, 8),
        (slice(100, 300), 125, 4, 3),
        (slice(None, None, 100), 250, 4, 4),
        # all on one thread
        (slice(None), 0, 4, 1),
        (slice(None, None, 7), 0, 4, 1),
        (slice(None, None, -7), 3, 1, 1),
        # nothing
        (slice(5, 5), 3, 4, 0),
        (slice(5, 2), 3, 4, 0),
    ],
)
def test_piece_counts(chosen: slice, blocksize: int, threads: int, pieces: int) -> None:
    assert len(pieces_of(1000, chosen, blocksize, threads)) == pieces


def test_pieces_by_hand() -> None:
    assert pieces_of(10, slice(1, 10), 1, 4) == [
        Piece(thread=1, local=0, local_step=1, nelems=3, item=0, item_step=4),
        Piece(thread=2, local=0, local_step=1, nelems=2, item=1, item_step=4),
        Piece(thread=3, local=0, local_step=1, nelems=2, item=2, item_step=4),
        Piece(thread=0, local=1, local_step=1, nelems=2, item=3, item_step=4),
    ]
    assert pieces_of(10, slice(8, 1, -1), 4, 2) == [
        Piece(thread=0, local=4, local_step=-1, nelems=1, item=0, item_step=1),
        Piece(thread=1, local=3, local_step=-1, nelems=4, item=1, item_step=1),
        Piece(thread=0, local=3, local_step=-1, nelems=2, item=5, item_step=1),
    ]


def test_pieces_are_lazy() -> None:
    pieces = slice_pieces(0, 10**15, 1, 10**6, 10**9)
    assert next(pieces) == Piece(0, 0, 1, 10**6, 0, 1)


# --- forall


@given(st.integers(-2, 120), blocksize_strategy, threads_strategy)
def test_affinity_indices(n: int, blocksize: int, threads: int) -> None:
    places = deal(n, blocksize, threads)
    for thread in range(threads):
        expected = [i for i, place in enumerate(places) if place[0] == thread]
        indices = affinity_indices(n, thread, blocksize, threads)
        assert list(indices) == expected
        assert len(indices) == len(expected)
        assert [indices[k] for k in range(len(expected))] == expected
        assert [i in indices for i in range(-1, n + 1)] == [i in expected for i in range(-1, n + 1)]
        assert list(reversed(indices)) == expected[::-1]


def test_affinity_indices_index_like_a_list() -> None:
    indices = affinity_indices(20, 1, 2, 3)
    assert isinstance(indices, AffinityIndices)
    assert list(indices) == [2, 3, 8, 9, 14, 15]
    assert indices[-1] == 15
    assert list(indices[1:5:2]) == [3, 9]
    assert np.int64(9) in indices
    assert not indices.__contains__("9")
    assert np.asarray(indices).tolist() == [2, 3, 8, 9, 14, 15]
    assert repr(indices) == "AffinityIndices(n=20, thread=1, blocksize=2, threads=3)"
    for k in (6, -7):
        with pytest.raises(IndexError):
            indices[k]


def test_affinity_indices_take_constant_memory() -> None:
    indices = affinity_indices(10**15, 3, 10, 7)
    assert sys.getsizeof(indices) < 200
    assert len(pickle.dumps(indices)) < 300
    assert next(iter(indices)) == 30
    assert indices[10**12] == 7 * 10**12 + 30
