"""Random objects of many kinds and sizes, and whether two objects are equal in all their parts."""

from __future__ import annotations

import datetime
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["KINDS", "Marked", "Sub", "draw", "same"]

Draw = Callable[[random.Random, int], Any]


class Sub(np.ndarray[Any, Any]):
    """An array whose class is the program's, with an attribute that goes along."""

    label = ""

    def __reduce__(self) -> Any:
        found: Any = super().__reduce__()
        make, arguments, state = found
        return make, arguments, (*state, self.label)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[:-1])
        self.label = state[-1]


class Marked:
    """An object with a dict and a slot, one of them in the state that it gives itself."""

    __slots__ = ("__dict__", "data")

    def __init__(self, data: Any) -> None:
        self.data = data
        self.size = 3

    def __getstate__(self) -> Any:
        return {"size": self.size, "data": self.data}

    def __setstate__(self, state: Any) -> None:
        self.size, self.data = state["size"], state["data"]


class _Word(str):
    """Text of the program's own class."""

    note: int


def same(a: Any, b: Any) -> bool:
    """Return whether two objects are equal, in types, memory layout and shared parts, too."""
    return _same(a, b, {})


def _same(a: Any, b: Any, seen: dict[int, int]) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple | dict | np.ndarray | bytearray | Marked):
        if id(a) in seen:
            return seen[id(a)] == id(b)
        seen[id(a)] = id(b)
    if isinstance(a, np.ma.MaskedArray):
        parts = [(np.array(x.data), np.array(x.mask)) for x in (a, b)]
        return same(*parts)
    if isinstance(a, np.ndarray):
        return _same_arrays(a, b, seen)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_same(x, y, seen) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[k], b[k], seen) for k in a)
    if isinstance(a, Marked):
        return a.size == b.size and _same(a.data, b.data, seen)
    if isinstance(a, _Word):
        return str(a) == str(b) and getattr(a, "note", None) == getattr(b, "note", None)
    return bool(a == b or (a != a and b != b))


def _same_arrays(a: Any, b: Any, seen: dict[int, int]) -> bool:
    flags = [(x.flags.writeable, x.flags.f_contiguous, x.dtype, x.shape) for x in (a, b)]
    if flags[0] != flags[1] or getattr(a, "label", "") != getattr(b, "label", ""):
        return False
    if a.dtype == object:
        return all(_same(x, y, seen) for x, y in zip(a.flat, b.flat, strict=True))
    return bool(a.tobytes() == b.tobytes())


def _array(r: random.Random, n: int, dtype: str | None = None) -> Any:
    kind = np.dtype(dtype or r.choice(["f8", "i4", "u1", "c16", "?", "f4", ">i2", "M8[s]", "S5"]))
    whole = max(n, 0) // kind.itemsize * kind.itemsize
    x = np.resize(np.frombuffer(r.randbytes(4096), np.uint8), whole)
    return (x & 1 if kind.kind == "b" else x).view(kind)


def _table(r: random.Random, n: int) -> Any:
    x = _array(r, n, "f4")
    return x[: x.size // 4 * 4].reshape(4, -1, order=r.choice("CF"))


def _read_only(r: random.Random, n: int) -> Any:
    x = _array(r, n)
    x.flags.writeable = False
    return x


def _sub(r: random.Random, n: int) -> Any:
    x = _array(r, n, "i4").view(Sub)
    x.label = f"of {n}"
    return x


def _twice(r: random.Random, n: int) -> Any:
    x = _array(r, n // 2)
    return {"first": x, "again": [x, (x,)], "other": x.copy()}


def _cycle(r: random.Random, n: int) -> Any:
    x: list[Any] = [_array(r, n), "in"]
    x.append(x)
    return x


def _nested(r: random.Random, n: int) -> Any:
    parts = r.randint(1, 6)
    return [draw(r, n // parts, depth=1) for _ in range(parts)]


def _word(r: random.Random, n: int) -> Any:
    x = _Word("w" * n)
    x.note = n
    return x


KINDS: dict[str, Draw] = {
    "none": lambda r, n: None,
    "number": lambda r, n: r.choice([r.random(), r.getrandbits(min(n, 9000)), True, 1j * n, -1]),
    "text": lambda r, n: "\N{GREEK SMALL LETTER ALPHA}" * (n // 2) + "x",
    "word": _word,
    "bytes": lambda r, n: r.randbytes(min(n, 99)) + bytes(n),
    "bytearray": lambda r, n: bytearray(n),
    "buffer of bytes": lambda r, n: pickle.PickleBuffer(bytes(n)),
    "buffer of a bytearray": lambda r, n: pickle.PickleBuffer(bytearray(n)),
    "array": _array,
    "empty array": lambda r, n: np.zeros((0, 3), "f4"),
    "number of numpy": lambda r, n: r.choice([np.float64(n), np.int16(3), np.bool_(True)]),
    "array without dimensions": lambda r, n: np.array(n),
    "table": _table,
    "every second": lambda r, n: _array(r, 2 * n, "f8")[::2],
    "backwards": lambda r, n: _array(r, n)[::-1],
    "spread": lambda r, n: np.broadcast_to(np.arange(3.0), (max(n // 24, 1), 3)),
    "read-only": _read_only,
    "fields": lambda r, n: _array(r, n // 12 * 12, "u1").view("i4,f8") if n >= 12 else None,
    "objects": lambda r, n: np.array([n, "text", _array(r, n), None], object),
    "subclass": _sub,
    "matrix": lambda r, n: np.ones((2, max(n // 16, 1))).view(np.matrix),
    "masked": lambda r, n: np.ma.masked_greater(np.arange(n // 8), 3),
    "record": lambda r, n: np.rec.array([(n, b"a")], dtype="i4,S4"),
    "twice": _twice,
    "cycle": _cycle,
    "state": lambda r, n: Marked(_array(r, n)),
    "nested": _nested,
    "dict": lambda r, n: {r.random(): _array(r, n), "b": {"c": (n,)}},
    "set": lambda r, n: {n, "a", None},
    "many": lambda r, n: [_array(r, n // 64, "u1") for _ in range(64)],
    "date": lambda r, n: datetime.datetime(2020, 2, 2, tzinfo=datetime.UTC),
    "function": lambda r, n: same,
}  # fmt: skip
"""``(random numbers, bytes) -> an object of about so many bytes`` by kind."""
_FLAT = [kind for kind in KINDS if kind not in ("nested", "many")]


def draw(r: random.Random, nbytes: int, *, depth: int = 0) -> Any:
    """Return a random object of about so many bytes, where its kind has a size."""
    return KINDS[r.choice(_FLAT if depth else list(KINDS))](r, nbytes)
