"""Shapes of shared arrays with several axes: their layout, and the elements that an index means.

Elements are in C order. A thread has whole rows (all elements of one index of the first axis), so
that its part is an array of the same number of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from ..errors import show
from .integer_arguments import at_least_0, integer
from .pointer import resolve_blocksize

__all__ = ["DEALT", "Shape", "as_shape", "block_of_rows", "part_shape", "selection"]

Shape = tuple[int, ...]


class _Default(int):
    """The default of blocksize: one element for a number of elements, all rows for a shape."""


DEALT: Final[int] = _Default(1)


def as_shape(nelems: Any, call: str) -> Shape | None:
    """Return a tuple or list of integers as a shape; None for anything else."""
    if not isinstance(nelems, tuple | list):
        return None
    shape = tuple(at_least_0(n, call, f"nelems[{i}]") for i, n in enumerate(nelems))
    if not shape:
        raise ValueError(f"{call}: nelems: expected a number, or a shape of at least one axis")
    return shape


def block_of_rows(shape: Shape, blocksize: Any, threads: int, call: str) -> int:
    """Return the blocksize of an array with several axes.

    Raises
    ------
    TypeError, ValueError
        If it is none, or deals several blocks to a thread, or cuts a row.
    """
    row, nelems = prod(shape[1:]), prod(shape)
    if blocksize is DEALT or blocksize == "*":
        return max(1, -(-shape[0] // threads) * row)
    block = resolve_blocksize(blocksize, nelems, threads, call)
    if block and (block * threads < nelems or (row and block % row)):
        raise ValueError(
            f"{call}: blocksize is {show(blocksize)}: expected '*', None, or whole rows (of {row} "
            f"elements) in at most one block for each thread, for the shape {shape}: give the "
            "number of elements for other layouts"
        )
    return block


def part_shape(shape: Shape, nelems: int) -> Shape:
    """Return the shape of a thread's part, which has so many elements."""
    row = prod(shape[1:])
    return (nelems // row if row else 0, *shape[1:])


def selection(key: Any, shape: Shape, call: str) -> tuple[range | int, Shape]:
    """Return the elements that an index means: one, or a range and its shape.

    Raises
    ------
    TypeError, IndexError
        If they are not in one piece, or out of range.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if keys == (Ellipsis,):
        return range(prod(shape)), shape
    while keys and isinstance(keys[-1], slice) and keys[-1] == slice(None) and len(keys) > 1:
        keys = keys[:-1]
    if len(keys) > len(shape):
        raise IndexError(f"{call}: expected at most {len(shape)} indices, got {len(keys)}")
    *before, last = keys
    first = _offset(before, shape, call)
    axis, rest = len(before), shape[len(keys) :]
    step = prod(rest)
    if isinstance(last, slice):
        items = range(shape[axis])[last]
        if items.step != 1 and len(items) > 1:
            raise _scattered(key, call)
        begin = first + items.start * step
        return range(begin, begin + len(items) * step), (len(items), *rest)
    begin = first + _index(last, shape, axis, call, key) * step
    return (begin, ()) if not rest else (range(begin, begin + step), rest)


def _offset(before: Sequence[Any], shape: Shape, call: str) -> int:
    """Return the first element of what leading integers select."""
    return sum(
        _index(i, shape, axis, call, before) * prod(shape[axis + 1 :])
        for axis, i in enumerate(before)
    )


def _index(key: Any, shape: Shape, axis: int, call: str, whole: Any) -> int:
    if isinstance(key, slice) or key is Ellipsis or key is None:
        raise _scattered(whole, call)
    i = integer(key, call, f"index {axis}")
    if not -shape[axis] <= i < shape[axis]:
        raise IndexError(
            f"{call}: index {axis} is {show(i)}: out of range for a SharedArray of shape {shape}"
        )
    return i if i >= 0 else i + shape[axis]


def _scattered(key: Any, call: str) -> IndexError:
    return IndexError(
        f"{call}: expected integers, then at most one slice of step 1, got {show(key)}: take a "
        "copy first, A[...]"
    )
