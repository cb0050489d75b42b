"""Invalid arguments: made anew for each call, equal on all threads where they have a value."""

from __future__ import annotations

import array
import collections
import ctypes
import decimal
import fractions
import functools
import io
import itertools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from public_api import BLOCK, PART, World
from strange_objects import (
    Bits,
    Buffer,
    Changing,
    Counts,
    Endless,
    GrowsAsRead,
    Interface,
    Names,
    Numbers,
    Says,
    Shrinks,
    Tensor,
    closed,
    gone,
    nested,
    object_of,
    released,
    with_itself,
)

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
    # numbers that are almost good
    "an enum": lambda w: Numbers.TWO,
    "a flag": lambda w: Bits.ONE,
    "a name": lambda w: Names.I4,
    "an int's own kind": lambda w: type("Int", (int,), {})(BLOCK),
    "a text's own kind": lambda w: type("Text", (str,), {})("i4"),
    "a float's own kind": lambda w: type("Float", (float,), {})(8.0),
    "Fraction 8": lambda w: fractions.Fraction(8),
    "Fraction 1/3": lambda w: fractions.Fraction(1, 3),
    "Decimal 8": lambda w: decimal.Decimal(8),
    "Decimal nan": lambda w: decimal.Decimal("NaN"),
    "Decimal 1e999999": lambda w: decimal.Decimal("1e999999"),
    "Decimal -1e-999999": lambda w: decimal.Decimal("-1e-999999"),
    "least float": lambda w: 5e-324,
    "complex nan": lambda w: complex("nan"),
    "float16": lambda w: np.float16(8),
    "longdouble": lambda w: np.longdouble("1e4000"),
    "clongdouble": lambda w: np.clongdouble(8),
    "timedelta64": lambda w: np.timedelta64(8, "s"),
    "NaT": lambda w: np.datetime64("NaT"),
    "bytes_": lambda w: np.bytes_(b"8"),
    "an index that changes": lambda w: Counts(),
    "T indexes that change": lambda w: [Counts()] * w.team.size,
    "Decimals": lambda w: [decimal.Decimal(8)] * w.team.size,
    "enums": lambda w: [Numbers.TWO] * w.team.size,
    "float sizes": lambda w: [float(BLOCK)] * w.team.size,
    "bools": lambda w: [True] * w.team.size,
    # lists
    "a tuple of lists": lambda w: ([1], [2]),
    "a list of its own": lambda w: with_itself(),
    "a list of 70 levels": lambda w: nested(70),
    "a list of 2000 levels": lambda w: nested(2000),
    "a ragged list": lambda w: [[1, 2], [3]],
    "unequal arrays": lambda w: [np.zeros(2), np.zeros(3)],
    "unequal dtypes": lambda w: [np.zeros(2), np.zeros(2, "M8[s]")],
    "a deque": lambda w: collections.deque([BLOCK] * w.team.size),
    "values of a dict": lambda w: {1: BLOCK}.values(),
    "an iterator": lambda w: iter([BLOCK] * w.team.size),
    "an endless iterator": lambda w: itertools.count(),
    "endlessly the same": lambda w: itertools.repeat(BLOCK),
    "an endless sequence": lambda w: Endless(),
    "a range down": lambda w: range(3, 0, -1),
    "an object's names": lambda w: types.SimpleNamespace(size=3, dtype="i4"),
    "a list that shrinks": lambda w: Shrinks([BLOCK] * w.team.size),
    "a list that grows as read": lambda w: GrowsAsRead([BLOCK] * w.team.size),
    "T lists": lambda w: [[BLOCK]] * w.team.size,
    "T None": lambda w: [None] * w.team.size,
    "T texts": lambda w: ["8"] * w.team.size,
    "T slices": lambda w: [slice(0, 8)] * w.team.size,
    "T slices back": lambda w: [slice(8, 0, -1)] * w.team.size,
    "T slices of all": lambda w: [slice(None)] * w.team.size,
    "T arrays": lambda w: [np.zeros(1)] * w.team.size,
    "T times my result": lambda w: [w.result] * w.team.size,
    # memory
    "array.array": lambda w: array.array("d", [1.0] * BLOCK),
    "array of characters": lambda w: array.array("u", "text"),
    "ctypes array": lambda w: (ctypes.c_int * BLOCK)(),
    "ctypes pointer": lambda w: ctypes.pointer(ctypes.c_int(3)),
    "ctypes records": lambda w: (type("R", (ctypes.Structure,), {
        "_fields_": [("a", ctypes.c_byte), ("b", ctypes.c_double)]}) * 2)(),
    "released memoryview": lambda w: released(),
    "2-d memoryview": lambda w: memoryview(bytearray(64)).cast("B", (8, 8)),
    "memoryview backwards": lambda w: memoryview(bytearray(64))[::-1],
    "memoryview of characters": lambda w: memoryview(bytearray(64)).cast("c"),
    "closed mmap": lambda w: closed(),
    "BytesIO's": lambda w: io.BytesIO(bytes(64)).getbuffer(),
    "a proxy": lambda w: weakref.proxy(w.values),
    "a proxy of a team": lambda w: weakref.proxy(w.team),
    "a dead proxy": lambda w: gone(),
    "T dead proxies": lambda w: [gone()] * w.team.size,
    "an array that changes": lambda w: Changing(),
    "T arrays that change": lambda w: [Changing() for _ in range(w.team.size)],
    "a buffer that changes": lambda w: Buffer(),
    "interface": lambda w: Interface(),
    "interface, negative shape": lambda w: Interface(shape=(-1,)),
    "interface, no tuple": lambda w: Interface(shape=8),
    "interface, huge shape": lambda w: Interface(shape=(1 << 62, 4)),
    "interface, wrong type": lambda w: Interface(typestr="nope"),
    "interface, objects": lambda w: Interface(typestr="|O8"),
    "interface, wrong strides": lambda w: Interface(strides=("a",)),
    "interface, no data": lambda w: Interface(data=None),
    "interface, text": lambda w: Interface(data=("8", False)),
    "interface, version": lambda w: Interface(version="x"),
    "a tensor of nothing": lambda w: Tensor((1, 0), None),
    "a tensor of no device": lambda w: Tensor(None, None),
    "a tensor of a text": lambda w: Tensor(("x", 0), "capsule"),
    "a tensor of a huge device": lambda w: Tensor((1 << 70, 0), None),
    **{f"says it is {kind.__name__}": lambda w, kind=kind: Says(kind) for kind in (
        np.ndarray, int, list, tuple, str, slice, np.dtype, dict, np.generic, xupc.SharedArray,
        xupc.SharedPointer, xupc.Team, xupc.Handle,
    )},
    "T that say they are int": lambda w: [Says(int)] * w.team.size,
    "object of none": lambda w: object_of(None),
    "object of a list": lambda w: object_of([1]),
    "object of itself": lambda w: np.array([np.empty(1, object)], object),
    "recarray": lambda w: np.zeros(BLOCK, "i4,f8").view(np.recarray),
    "np.matrix": lambda w: np.asmatrix(np.zeros((2, 4))),
    "a mask": lambda w: np.arange(PART * w.team.size) % 2 == 0,
    "indexes": lambda w: np.array([1, 2]),
    "indexes as list": lambda w: [1, 2],
    "two slices": lambda w: (slice(0, 1), slice(0, 1)),
    "a slice of floats": lambda w: slice(0.0, 8.0),
    "a slice of numpy's": lambda w: slice(np.int8(0), np.uint64(8)),
    "a slice that changes": lambda w: slice(0, Counts(), 1),
    "a slice of evil": lambda w: slice(_evil("__index__")(), None),
    "newaxis": lambda w: (None, slice(None)),
    # types
    "dtype empty": lambda w: np.dtype([]),
    "dtype V": lambda w: np.dtype(("V", (1 << 31) - 1)),
    "dtype U": lambda w: np.dtype("U3"),
    "dtype of gaps": lambda w: np.dtype(
        {"names": ["a"], "formats": ["i4"], "offsets": [1 << 20], "itemsize": 1 << 21}),
    "dtype overlapping": lambda w: np.dtype(
        {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}),
    "dtype with metadata": lambda w: np.dtype("i4", metadata={"a": object()}),
    "dtype of titles": lambda w: np.dtype([(("title", "name"), "i4")]),
    "dtype's list": lambda w: [("a", "i4"), ("a", "i4")],
    "dtype's dict": lambda w: {"names": ["a"], "formats": []},
    "np.generic": lambda w: np.generic,
    "np.void": lambda w: np.void,
    # operations
    **{f"np.{name}": lambda w, name=name: getattr(np, name) for name in (
        "sin", "divmod", "subtract", "power", "matmul", "add")},
    "frompyfunc": lambda w: np.frompyfunc(lambda a, b: a, 2, 1),
    "of three": lambda w: lambda a, b, c: a,
    "of none": lambda w: lambda: None,
    "partial": lambda w: functools.partial(max, 3),
    "max": lambda w: max,
    **{f"MPI.{name}": lambda w, name=name: getattr(MPI, name) for name in (
        "OP_NULL", "NO_OP", "REPLACE", "SUM", "COMM_NULL", "COMM_SELF", "INT", "BOTTOM",
        "IN_PLACE")},
    "an Op as text": lambda w: "ADD",
}  # fmt: skip


def is_evil(value: Any) -> bool:
    """Return whether the value raises arbitrary errors when it is used."""
    if type(value) is slice:
        value = value.start
    elif type(value) is list:
        value = next(iter(value), None)
    elif type(value) is np.ndarray and value.dtype == object and value.size:
        value = value.item(0)
    if type(value) in weakref.ProxyTypes:
        return True
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
