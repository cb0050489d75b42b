"""Values that random programs compute with, and what the operations do to them: numpy alone.

Sums and products of floating values depend on their order, which the library is free to choose;
what is reduced is therefore chosen so that all results are exact.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Array = Any  # an ndarray

INTS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
FLOATS = ("f4", "f8", "g", "f2")
RECORDS = ("f8,i8", "f4,i8", "i2,u1")
OTHERS = ("?", "c8", "c16", *RECORDS)
OPS = {
    **dict.fromkeys(INTS, ("ADD", "MULT", "AND", "OR", "XOR", "LOGAND", "LOGOR", "MIN", "MAX")),
    **dict.fromkeys(FLOATS, ("ADD", "MULT", "LOGAND", "LOGOR", "MIN", "MAX")),
    "?": ("AND", "OR", "XOR", "LOGAND", "LOGOR", "MIN", "MAX"),
    "c8": ("ADD",),  # the signs of a product's zeros depend on the order
    "c16": ("ADD",),
    **dict.fromkeys(RECORDS, ("MINLOC", "MAXLOC")),
}
FUNCS = ("mix", "mix_rows", "compose", "compose_rows")


def kind_of(dtype: str, op: str) -> str:
    """Return the kind of values that an operation can be tried on."""
    if dtype in INTS:
        return "bytes"
    return {"ADD": "sum", "MULT": "product"}.get(op, "extremes")


def some(kind: str, dtype: str, n: int, *seed: int) -> Array:
    """`n` values. kind: bytes (anything), sum, product (small), extremes (NaN and zeros, too)."""
    number = 0
    for x in seed:
        number = number * 4099 + x
    if dtype in INTS:
        data = random.Random(number).randbytes(n * np.dtype(dtype).itemsize)
        return np.frombuffer(bytearray(data), dtype)
    rng = np.random.default_rng(number)
    if dtype in RECORDS:
        return _records(dtype, n, number, rng)
    if dtype == "?":
        return rng.integers(0, 2, n).astype(bool)
    if kind == "product":
        values = rng.choice([1.0, -1.0], n) * np.where(rng.random(n) < 0.03, 2.0, 1.0)
        values *= np.where(rng.random(n) < 0.03, 0.5, 1.0)
    elif kind == "sum":
        values = rng.integers(-1, 2, n).astype(float) if dtype == "f2" else (
            rng.integers(-8, 9, n).astype(float))  # fmt: skip
    else:
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, 1.5, -3.0, np.nan], n)
        values = np.where(rng.random(n) < 0.1, special, rng.integers(-99, 99, n) / 4)
    if dtype in ("c8", "c16"):
        return (values + 1j * rng.integers(-8, 9, n)).astype(dtype)
    return clean(values.astype(dtype))


def _records(dtype: str, n: int, number: int, rng: Any) -> Array:
    """Many values are the same, and so are some indices."""
    value, out = dtype.split(",")[0], np.zeros(n, dtype)
    out["f0"] = some("extremes", value, n, number) if value in FLOATS else rng.integers(-9, 9, n)
    out["f1"] = rng.integers(0, 100, n)
    return out


def name_of(dtype: Any) -> str:
    """Return the name of a dtype in these programs."""
    if dtype.names:
        return ",".join(name_of(dtype[name]) for name in dtype.names)
    return str(dtype.char if dtype.char in "g?" else dtype.str[1:])


def clean(x: Array) -> Array:
    """Set the padding bytes of long doubles to zero."""
    if x.dtype.char == "g":
        x = np.ascontiguousarray(x)
        x.view(np.uint8).reshape(-1, x.itemsize)[:, 10:] = 0
    return x


def crc(x: Any) -> int:
    """A number for bytes."""
    x = np.ascontiguousarray(x)
    return zlib.crc32(clean(x.copy() if x.dtype.char == "g" else x).view(np.uint8).tobytes())


# --- functions ----------------------------------------------------------------------------------
def _mix(a: Any, b: Any) -> Any:
    """(1 + a) (1 + b) - 1: commutative and associative, wraps."""
    return a + b + a * b


def _compose(a: Any, b: Any, half: Any, mask: Any) -> Any:
    """Two maps x -> m x + c, each packed in one number: first a, then b. Not commutative."""
    m, n = a >> half, b >> half
    return ((m * n & mask) << half) | (n * (a & mask) + (b & mask) & mask)


@cache
def func(name: str, dtype: str) -> Callable[..., Any]:
    """A function of two scalars or, with ``_rows``, of arrays, for an unsigned type."""
    bits = 8 * np.dtype(dtype).itemsize
    whole, half, mask = (1 << bits) - 1, bits // 2, (1 << bits // 2) - 1
    kind = np.dtype(dtype).type

    def mix(a: Any, b: Any) -> Any:
        return _mix(int(a), int(b)) & whole

    def mix_rows(a: Any, b: Any) -> Any:
        return _mix(a, b)

    def compose(a: Any, b: Any) -> Any:
        return _compose(int(a), int(b), half, mask)

    def compose_rows(a: Any, b: Any) -> Any:
        return _compose(a, b, kind(half), kind(mask))

    chosen = {f.__name__: f for f in (mix, mix_rows, compose, compose_rows)}[name]
    if name.endswith("_rows"):
        # as xupc.vectorized(pure=True)
        chosen.xupc_vectorized = True  # type: ignore[attr-defined]
        chosen.xupc_pure = chosen.__code__  # type: ignore[attr-defined]
    return chosen


def _least(a: Array, b: Array, sign: int) -> Array:
    """MIN (sign 1) or MAX; NaN wins, -0.0 is below 0.0."""
    if a.dtype.kind != "f":
        return np.minimum(a, b) if sign > 0 else np.maximum(a, b)
    low = np.where(np.signbit(a), a, b) if sign > 0 else np.where(np.signbit(a), b, a)
    less = np.minimum(a, b) if sign > 0 else np.maximum(a, b)
    out = np.where(a == b, low, less)
    return np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, a.dtype), out).astype(a.dtype)


def _first(a: Array, b: Array, sign: int) -> Array:
    """MINLOC (sign 1) or MAXLOC: what `_least` takes; of equal values the lower index."""
    least = _least(a["f0"], b["f0"], sign)
    here, there = (_bits(x["f0"]) == _bits(least) for x in (a, b))
    lower = a["f1"] <= b["f1"]
    out: Array = np.asarray(np.where(here & (~there | lower), a, b))
    out["f0"] = least
    return out


def _bits(x: Array) -> Array:
    """Values, zeros by their sign, and NaN as one."""
    x = np.array(x)
    if x.dtype.kind == "f":
        x[np.isnan(x)] = np.nan
    return x.view(f"u{x.itemsize}")


def two(op: str, dtype: str, name: str = "") -> Callable[[Array, Array], Array]:
    """Return the function that applies an operation to two arrays."""
    if name:
        rows = func(name.removesuffix("_rows") + "_rows", dtype)
        return lambda a, b: rows(a, b)
    plain: dict[str, Callable[[Array, Array], Array]] = {
        "ADD": np.add, "MULT": np.multiply, "AND": np.bitwise_and, "OR": np.bitwise_or,
        "XOR": np.bitwise_xor,
        "LOGAND": lambda a, b: ((a != 0) & (b != 0)).astype(a.dtype),
        "LOGOR": lambda a, b: ((a != 0) | (b != 0)).astype(a.dtype),
        "MIN": lambda a, b: _least(a, b, 1), "MAX": lambda a, b: _least(a, b, -1),
        "MINLOC": lambda a, b: _first(a, b, 1), "MAXLOC": lambda a, b: _first(a, b, -1),
    }  # fmt: skip
    return plain[op]


def identity(op: str, dtype: str) -> Array:
    """Return the first result of an exclusive scan by a built-in operation, in an array."""
    one = np.zeros(1, dtype)
    if op in ("MINLOC", "MAXLOC"):
        value, index = dtype.split(",")
        one["f0"], one["f1"] = identity(op[:3], value)[0], np.iinfo(index).max
    elif op in ("MIN", "MAX"):
        one[0] = _end(one.dtype, 1 if op == "MIN" else -1)
    elif op in ("MULT", "LOGAND"):
        one[0] = 1
    elif op == "AND":
        one = ~one
    return one


def _end(dtype: Any, sign: int) -> Any:
    """Return the greatest (sign 1) or the least value of a type."""
    if dtype.kind == "f":
        return sign * np.inf
    if dtype.kind == "b":
        return sign > 0
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


def fold(join: Callable[[Array, Array], Array], x: Array) -> Array:
    """All rows of a matrix joined, in order: by halves, which is the same if join associates."""
    while len(x) > 1:
        odd = x[len(x) - len(x) % 2 :]
        x = np.concatenate([join(x[: len(x) - len(odd) : 2], x[1::2][: len(x) // 2]), odd])
    return clean(x[0])


def running(join: Callable[[Array, Array], Array], x: Array, *, back: bool) -> Array:
    """Row i: rows up to i joined; or, `back`, from i on."""
    out = x.copy()
    step = 1
    while step < len(x):  # each row has `step` rows joined: twice as many
        joined = join(out[:-step], out[step:])
        if back:
            out[:-step] = joined
        else:
            out[step:] = joined
        step *= 2
    return clean(out)


def exclusive(rows: Array, first: Array, *, back: bool) -> Array:
    """Return the exclusive results of inclusive ones: `first`, and each row one further."""
    out = np.roll(rows, -1 if back else 1, axis=0)
    out[-1 if back else 0] = first
    return clean(out)
