"""Shared arrays with several axes, against numpy's arrays of the same shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.test_shared import FakeMemory

from xupc.pgas.shape import DEALT, Shape, as_shape, block_of_rows, selection
from xupc.pgas.shared_array import SharedArray

THREADS = 3
CALL = "all_alloc"


def made(shape: Shape, blocksize: Any = DEALT, me: int = 0) -> SharedArray:
    """Return an array with this layout in a fake heap, which holds 0, 1, 2 ..."""
    block = block_of_rows(shape, blocksize, THREADS, CALL)
    A = SharedArray(FakeMemory(THREADS, me).allocate(prod(shape), np.int32, block), shape)
    A[...] = np.arange(prod(shape)).reshape(shape)
    return A


def like(shape: Shape) -> Any:
    return np.arange(prod(shape), dtype=np.int32).reshape(shape)


SHAPES = st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple)


@st.composite
def keys(draw: st.DrawFn) -> tuple[Shape, Any]:
    """A shape and an index of what is in one piece."""
    shape = draw(SHAPES.filter(lambda s: all(s)))
    count = draw(st.integers(0, len(shape)))
    key: list[Any] = [draw(st.integers(-shape[k], shape[k] - 1)) for k in range(count)]
    if count < len(shape) and (not count or draw(st.booleans())):
        ends = st.none() | st.integers(-7, 7)
        key.append(slice(draw(ends), draw(ends)))
        key += [slice(None)] * draw(st.integers(0, len(shape) - len(key)))
    return shape, tuple(key) if len(key) != 1 or draw(st.booleans()) else key[0]


@given(keys(), st.sampled_from([DEALT, "*", None, 0]))
def test_reads_and_writes(drawn: tuple[Shape, Any], blocksize: Any) -> None:
    """An index selects what it selects of numpy's array, and a write changes no other element."""
    shape, key = drawn
    A, oracle = made(shape, blocksize), like(shape)
    found = A[key]
    assert np.array_equal(found, oracle[key])
    assert np.shape(found) == oracle[key].shape
    A[key] = -np.asarray(oracle[key]) - 1
    oracle[key] = -oracle[key] - 1
    assert np.array_equal(A[...], oracle)
    A[key] = 7
    oracle[key] = 7
    assert np.array_equal(np.asarray(A), oracle)


@given(SHAPES)
def test_parts_are_whole_rows(shape: Shape) -> None:
    """Parts of all threads, one after the other, are the array."""
    parts = [made(shape, me=me).local for me in range(THREADS)]
    assert all(part.shape[1:] == shape[1:] for part in parts)
    if prod(shape):
        assert np.array_equal(np.concatenate(parts), like(shape))
        rows = -(-shape[0] // THREADS)
        assert [len(part) for part in parts] == [
            max(0, min(rows, shape[0] - rows * me)) for me in range(THREADS)
        ]
    A = made(shape, None)
    assert A.local.shape == (shape if prod(shape[1:]) else (0, *shape[1:]))
    view = A.local_view(1)
    assert view is not None
    assert view.shape == (0, *shape[1:])


def test_what_numpy_users_expect() -> None:
    A = made((3, 4))
    assert (A.shape, len(A), A.nelems, A.blocksize) == ((3, 4), 3, 12, 4)
    assert repr(A) == "SharedArray(shape=(3, 4), dtype=int32, blocksize=4, threads=3)"
    assert [row.tolist() for row in A] == like((3, 4)).tolist()
    assert type(A[2, 3]) is np.int32
    assert (A + 5)[0] == A[1, 1]
    A.local += 100
    assert A[0].tolist() == [100, 101, 102, 103]
    flat = FakeMemory(THREADS).array(12, np.int32, 1)
    assert (flat.shape, len(flat)) == ((12,), 12)


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        ((3, 0), IndexError, "index 0 is 3: out of range for a SharedArray of shape (3, 4)"),
        ((0, -5), IndexError, "index 1 is -5: out of range"),
        ((0, 0, 0), IndexError, "expected at most 2 indices, got 3"),
        ((slice(None), 1), IndexError, "at most one slice of step 1"),
        (slice(None, None, 2), IndexError, "at most one slice of step 1"),
        ((Ellipsis, 1), IndexError, "take a copy first"),
        (None, IndexError, "take a copy first"),
        ("a", TypeError, "index 0 is 'a': expected an integer"),
        ([0, 1], TypeError, "expected an integer"),
        ((1.0, 2), TypeError, "index 0 is 1.0: expected an integer"),
    ],
)
def test_other_indices(key: Any, error: type[Exception], words: str) -> None:
    """An error says what there is."""
    A = made((3, 4))
    for access in (lambda: A[key], lambda: A.__setitem__(key, 0)):
        with pytest.raises(error) as found:
            access()
        assert words in str(found.value)
    assert np.array_equal(A[...], like((3, 4)))


@pytest.mark.parametrize("blocksize", [1, 2, 6, 3])
def test_layouts_without_rows_are_refused(blocksize: int) -> None:
    """Of a shape (4, 4): blocks that cut a row, and several blocks of a thread."""
    with pytest.raises(ValueError, match="whole rows"):
        block_of_rows((4, 4), blocksize, THREADS, CALL)
    assert block_of_rows((4, 4), 8, THREADS, CALL) == 8
    assert block_of_rows((4, 4), DEALT, THREADS, CALL) == 8


def test_shapes() -> None:
    assert as_shape(12, CALL) is None
    assert as_shape([3, np.int64(4)], CALL) == (3, 4)
    for wrong, error in (((), ValueError), ((3, -1), ValueError), ((3, 2.5), TypeError)):
        with pytest.raises(error, match="nelems"):
            as_shape(wrong, CALL)
    assert selection(Ellipsis, (2, 3), "A") == (range(6), (2, 3))
