"""Objects that are almost good arguments: they change, never end, lie, or are gone."""

from __future__ import annotations

import enum
import mmap
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from public_api import BLOCK

__all__ = [
    "Bits",
    "Buffer",
    "Changing",
    "Counts",
    "Endless",
    "GrowsAsRead",
    "Interface",
    "Names",
    "Numbers",
    "Says",
    "Shrinks",
    "Tensor",
    "closed",
    "gone",
    "nested",
    "object_of",
    "released",
    "with_itself",
]


class Counts:
    """An index that is another one each time."""

    def __init__(self) -> None:
        self.n = 0

    def __index__(self) -> int:
        self.n += 3
        return self.n


class Shrinks(list[Any]):
    """A list that has fewer items each time it is walked through."""

    def __iter__(self) -> Iterator[Any]:
        del self[-1:]
        return super().__iter__()


class GrowsAsRead(list[Any]):
    """A list that has another item after each that is read."""

    def __iter__(self) -> Iterator[Any]:
        yield from range(1000)


class Endless:
    """An object that Python walks through by its indexes, without an end."""

    def __getitem__(self, key: Any) -> int:
        return BLOCK


class Says:
    """An object that says that it is of another class, as mocks do; it has none of its names."""

    evil = True

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind


class Changing:
    """An array of another shape each time."""

    def __init__(self) -> None:
        self.n = 0

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.n += 1
        return np.zeros((1,) * (self.n % 3) + (self.n,), ("i8", "f4", "O")[self.n % 3])


class Interface:
    """An array by ``__array_interface__``, which says what it should not."""

    def __init__(self, **wrong: Any) -> None:
        self.values = np.arange(BLOCK)
        self.__array_interface__ = {**self.values.__array_interface__, **wrong}


class Tensor:
    """A tensor of another library, with a capsule that is none."""

    def __init__(self, device: Any, capsule: Any) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device


class Buffer:
    """A buffer of Python's, which gives another one each time (from Python 3.12 on)."""

    n = 0

    def __buffer__(self, _: int) -> memoryview:
        self.n += 1
        return memoryview(bytearray(8 * self.n))


class Numbers(enum.IntEnum):
    TWO = 2


class Names(enum.StrEnum):
    I4 = "i4"


class Bits(enum.IntFlag):
    ONE = 1


def released() -> memoryview:
    found = memoryview(bytearray(64))
    found.release()
    return found


def closed() -> mmap.mmap:
    found = mmap.mmap(-1, 64)
    found.close()
    return found


def gone() -> Any:
    """A proxy of an object that there is no more."""
    return weakref.proxy(type("Gone", (), {})())


def nested(levels: int) -> list[Any]:
    found: list[Any] = [1]
    for _ in range(levels):
        found = [found]
    return found


def with_itself() -> list[Any]:
    found: list[Any] = [None]
    found[0] = found
    return found


def object_of(value: Any) -> Any:
    """An array of no dimension that holds an object."""
    found = np.empty((), object)
    found[()] = value
    return found
