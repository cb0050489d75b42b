"""Invalid arguments: made anew for each call, equal on all threads where they have a value."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from public_api import BLOCK, PART, World

import xupc

__all__ = ["BAD", "Evil", "is_evil", "random_value"]


class Evil(Exception):
    """The error that a user's object raises when any of its methods is called."""


def _raise(*_: Any, **__: Any) -> Any:
    raise Evil("asked")


_ASKED = (
    "__array__", "__array_interface__", "__bool__", "__bytes__", "__call__", "__complex__",
    "__contains__", "__eq__", "__float__", "__format__", "__ge__", "__getitem__", "__gt__",
    "__hash__", "__index__", "__int__", "__iter__", "__le__", "__len__", "__lt__", "__ne__",
    "__repr__", "__str__", "__add__", "__radd__", "__sub__", "__rsub__", "__and__", "__rand__",
)  # fmt: skip


def _evil(*names: str, base: type = object) -> Any:
    """An object that raises when one of these methods is called."""
    return type("EvilObject", (base,), {"evil": True, **dict.fromkeys(names, _raise)})


class Lazy:
    """Raises on access to any attribute."""

    evil = True

    def __getattr__(self, name: str) -> Any:
        raise Evil(name)


class OddIndex:
    """An index that is none."""

    evil = True

    def __index__(self) -> Any:
        return "1"


class Grows(list[Any]):
    """A list that reports a greater length than it has."""

    evil = True

    def __len__(self) -> int:
        return 1 << 20


class NotThere(list[Any]):
    """A list of a length that cannot be walked through."""

    evil = True

    def __iter__(self) -> Iterator[Any]:
        raise Evil("walked")


def _recursive() -> list[Any]:
    x: list[Any] = []
    x += [x, x]
    return x


def _frozen(n: int) -> Any:
    x = np.arange(n, dtype="i8")
    x.flags.writeable = False
    return x


def _misaligned() -> Any:
    return np.zeros(8 * BLOCK + 1, "u1")[1:].view("i8")


def _failing(a: Any, b: Any) -> Any:
    raise Evil("func")


_failing.evil = True  # type: ignore[attr-defined]

_SWAPPED = ">i8" if np.little_endian else "<i8"
_PLAIN: dict[str, Any] = {
    repr(x): x
    for x in (
        None, True, False, 0, -1, 1, 2, 7, 255, 256, -(1 << 31), (1 << 31) - 1, 1 << 31,
        (1 << 32) - 1, 1 << 32, 1 << 44, 1 << 46, 1 << 60, (1 << 63) - 1, 1 << 63, -(1 << 63),
        1 << 64, -(1 << 64), 1 << 200, 0.0, 1.0, 1.5, -1.0, float("nan"), float("inf"),
        -float("inf"), 1e308, 1j, "", "0", "8", "*", "dst", "i4", b"", b"8", (), (1,), (0, 1), [],
        [0], [None], [[0], [1]], {}, {"i4": 1}, set(), frozenset({1}), Ellipsis, NotImplemented,
        slice(None), slice(0, 1 << 70), slice(-1, None, -1), slice(None, None, 0),
        slice("a", "b"), range(0), range(2), range(1 << 40), range(1 << 70), int, object, len,
        "O", ">i4", "i4,f8", "V0", "S0", "S5", "M8[s]", "(2,3)i4", "nope",
    )
}  # fmt: skip
BAD: dict[str, Callable[[World], Any]] = {
    **{name: lambda w, x=x: x for name, x in _PLAIN.items()},
    "10**5000": lambda w: 10**5000,
    "-(10**5000)": lambda w: -(10**5000),
    "[10**5000]": lambda w: [10**5000] * w.team.size,
    "a long text": lambda w: "x" * 100_000,
    "text with a surrogate": lambda w: "\udcff\0",
    "a long list": lambda w: list(range(100_000)),
    "bytearray": lambda w: bytearray(8),
    "memoryview": lambda w: memoryview(bytes(64)),
    "object()": lambda w: type("Plain", (), {"__repr__": lambda self: "plain"})(),
    "a function": lambda w: lambda a, b: a,
    "a generator": lambda w: (i for i in range(w.team.size)),
    "a recursive list": lambda w: _recursive(),
    # numpy
    "int8": lambda w: np.int8(3),
    "uint64": lambda w: np.uint64((1 << 64) - 1),
    "float64 nan": lambda w: np.float64("nan"),
    "bool_": lambda w: np.bool_(True),
    "str_": lambda w: np.str_("8"),
    "datetime64": lambda w: np.datetime64("2020-01-01"),
    "void": lambda w: np.zeros((), "i4,f8")[()],
    "0-d": lambda w: np.array(3),
    "0-d float": lambda w: np.array(3.0),
    "empty": lambda w: np.array([]),
    "one": lambda w: np.array([1]),
    "floats": lambda w: np.full(BLOCK, np.nan),
    "2-d": lambda w: np.zeros((2, 2), "i8"),
    "strings": lambda w: np.array(["a", "bc"] * 4),
    "objects": lambda w: np.array([None] * BLOCK, object),
    "structured": lambda w: np.zeros(BLOCK, "i4,f8"),
    "pairs": lambda w: np.zeros(BLOCK, "f8,i4"),
    "a pair": lambda w: np.zeros((), "f8,i4")[()],
    "long records": lambda w: np.zeros(BLOCK, "300u1,i4"),
    "nested objects": lambda w: np.zeros(BLOCK, [("a", "O"), ("b", "i4")]),
    "swapped": lambda w: np.zeros(BLOCK, _SWAPPED),
    "read-only": lambda w: _frozen(BLOCK),
    "read-only, T blocks": lambda w: _frozen(BLOCK * w.team.size),
    "misaligned": lambda w: _misaligned(),
    "broadcast": lambda w: np.broadcast_to(np.int64(3), (BLOCK,)),
    "strided": lambda w: np.arange(2 * BLOCK)[::2],
    "negative strides": lambda w: np.arange(BLOCK)[::-1],
    "overlapping itself": lambda w: np.lib.stride_tricks.as_strided(np.zeros(8), (8,), (4,)),
    "zero size": lambda w: np.zeros((0, 5)),
    "zero itemsize": lambda w: np.zeros(BLOCK, "V0"),
    "huge shape": lambda w: np.broadcast_to(np.int8(1), (1 << 40,)),
    "datetimes": lambda w: np.zeros(BLOCK, "M8[s]"),
    "matrix": lambda w: np.zeros((BLOCK, 1), "i8"),
    "masked": lambda w: np.ma.masked_array(np.arange(BLOCK), mask=True),
    "dtype object": lambda w: np.dtype(object),
    "dtype swapped": lambda w: np.dtype(_SWAPPED),
    "dtype padded": lambda w: np.dtype([("a", "u1"), ("b", "f8")], align=True),
    "dtype subarray": lambda w: np.dtype(("i4", (2,))),
    "pointer_dtype": lambda w: xupc.pointer_dtype,
    "my values": lambda w: w.values,
    "my result": lambda w: w.result,
    "part of my result": lambda w: w.result[1 : BLOCK + 1],
    # shared
    "A": lambda w: w.A,
    "B": lambda w: w.B,
    "A + 1": lambda w: w.A + 1,
    "A's end": lambda w: w.A + len(w.A),
    "before A": lambda w: (w.A + 0).cast("u1", 0) - (1 << 40),
    "far beyond A": lambda w: (w.A + 0).cast("u1", 0) + (1 << 70),
    "nearly beyond A": lambda w: (w.A + PART - 4).cast("u1", 0),
    "A on the last": lambda w: w.A + PART * (w.team.size - 1) + 5,
    "A as i8": lambda w: w.A.cast("i8", 3) + 2,
    "A as pointers": lambda w: w.A.cast(xupc.pointer_dtype, 0),
    "freed": lambda w: w.freed,
    "freed pointer": lambda w: w.freed_pointer,
    "indefinite": lambda w: w.one,
    "empty shared": lambda w: w.none,
    "my own": lambda w: w.own,
    "a freed own": lambda w: w.freed_own,
    "null pointers": lambda w: w.pointers,
    "broken pointers": lambda w: w.broken,
    "a list of pointers": lambda w: [w.A + 1] * w.team.size,
    "a list of freed": lambda w: [w.freed_pointer] * w.team.size,
    "a list with None": lambda w: [None] * w.team.size,
    "the world": lambda w: w.team,
    "a team": lambda w: w.part,
    "a freed team": lambda w: w.freed_team,
    "a handle": lambda w: w.handle,
    "a list of handles": lambda w: [w.handle, None],
    "Flags.ASYNC": lambda w: xupc.ASYNC,
    "Flags.IN_PLACE": lambda w: xupc.IN_PLACE,
    "NOSYNC": lambda w: xupc.IN_NOSYNC | xupc.OUT_NOSYNC,
    "MYSYNC": lambda w: xupc.IN_MYSYNC | xupc.OUT_MYSYNC,
    "two algorithms": lambda w: xupc.PULL | xupc.PUSH,
    "ASYNC and in place": lambda w: xupc.ASYNC | xupc.IN_PLACE | xupc.PUSH,
    "no flag": lambda w: 1 << 13,
    "Op.FUNC": lambda w: xupc.FUNC,
    "Op.XOR": lambda w: xupc.XOR,
    "Op.MINLOC": lambda w: xupc.MINLOC,
    "no op": lambda w: 99,
    "a wrong permutation": lambda w: [0] * w.team.size,
    "too many sizes": lambda w: [1] * (w.team.size**2 + 1),
    "negative sizes": lambda w: [-1] * w.team.size,
    "negative sizes, T * T": lambda w: [-1] * w.team.size**2,
    "huge sizes": lambda w: [1 << 43] * w.team.size,
    "huge sizes, T * T": lambda w: [(1 << 44) - 1] * w.team.size**2,
    "sizes beyond 64 bits": lambda w: [1 << 64] * w.team.size,
    "sizes of nan": lambda w: [float("nan")] * w.team.size,
    "sizes as array": lambda w: np.full(w.team.size, 1 << 62),
    "sizes as uint64": lambda w: np.full(w.team.size, (1 << 64) - 1, "u8"),
    # of the user's own making
    **{f"evil {n}": lambda w, n=n: _evil(n)() for n in _ASKED},
    **{f"evil list {n}": lambda w, n=n: _evil(n, base=list)([0] * w.team.size)
       for n in ("__len__", "__iter__", "__getitem__", "__eq__", "__repr__")},
    **{f"evil int {n}": lambda w, n=n: _evil(n, base=int)(BLOCK)
       for n in ("__eq__", "__index__", "__int__", "__repr__", "__hash__", "__lt__", "__and__")},
    "evil str": lambda w: _evil("__eq__", "__repr__", "__hash__", base=str)("i4"),
    "evil array": lambda w: np.zeros(8, "i8").view(_evil("__eq__", "__repr__", base=np.ndarray)),
    "evil in a list": lambda w: [_evil("__index__", "__repr__")()] * w.team.size,
    "evil in objects": lambda w: np.array([_evil("__index__")()] * w.team.size, object),
    "evil everything": lambda w: _evil(*_ASKED)(),
    "evil attributes": lambda w: Lazy(),
    "evil index": lambda w: OddIndex(),
    "a list that grows": lambda w: Grows([0]),
    "a list not there": lambda w: NotThere([0] * w.team.size),
    "a failing function": lambda w: _failing,
}  # fmt: skip


def is_evil(value: Any) -> bool:
    """Return whether the value raises arbitrary errors when it is used."""
    if type(value) is list or (type(value) is np.ndarray and value.dtype == object):
        return any(is_evil(v) for v in list(value)[:1] if v is not value)
    return "evil" in dir(type(value)) or (callable(value) and hasattr(value, "evil"))


def random_value(rng: random.Random) -> tuple[str, Callable[[World], Any]]:
    """Make a random number, text or list, which no list of cases contains."""
    kind = rng.randrange(6)
    if kind == 0:
        n = rng.choice((-1, 1)) * (rng.getrandbits(rng.randrange(1, 72)) + rng.randrange(-2, 3))
        return f"{n}", lambda w: n
    if kind == 1:
        flags = rng.randrange(1 << 13)
        return f"flags {flags}", lambda w: flags
    if kind == 2:
        shift, dtype = rng.randrange(-PART, 3 * PART), rng.choice(("u1", "i4", "f8", "V3"))
        block = rng.randrange(5)

        def pointer(w: World) -> Any:
            try:
                return w.A.cast(dtype, block) + shift
            except ValueError:
                return w.A.cast("u1", block) + shift

        return f"A.cast({dtype!r}, {block}) + {shift}", pointer
    if kind == 3:
        numbers = [rng.randrange(-PART, PART) for _ in range(16)]
        power = rng.choice((1, 2))
        return f"list {numbers} {power}", lambda w: numbers[: w.team.size**power]
    if kind == 4:
        dtype = rng.choice(("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", "g", "S3", "V5"))
        n = rng.randrange(40)
        return f"zeros({n}, {dtype})", lambda w: np.zeros(n, dtype)
    text = "".join(chr(rng.randrange(1, 0x250)) for _ in range(rng.randrange(8)))
    return repr(text), lambda w: text
