"""What the reductions compute: `kernels.h` in numpy, and what C does not have.

For the eleven UPC types, and for records of two of them, the results are those of the C kernels,
bit for bit; its header says what they are. Here, and only here, there are also float16, complex
types and functions of the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import show
from ..ops import Op
from .structured_dtypes import Pair, gaps, longest, name, raw

__all__ = ["Kernel", "find"]

Array: TypeAlias = NDArray[Any]
Binary: TypeAlias = Callable[[Any, Any], Any]

# The C type of a kind and item size: int64 has two numpy types. Where long double is double, the
# latter counts.
_TYPES: dict[tuple[str, int], int] = {
    ("f", np.dtype(np.longdouble).itemsize): 10,
    **{(kind, 1 << i): 2 * i + (kind == "u") for i in range(4) for kind in "iu"},
    ("b", 1): 11,
    ("f", 4): 8,
    ("f", 8): 9,
}
_BITWISE = (Op.AND, Op.OR, Op.XOR)
_ORDER = (Op.MIN, Op.MAX)
_USER = (Op.FUNC, Op.NONCOMM_FUNC)
_LOCATED = (Op.MINLOC, Op.MAXLOC)

_UFUNCS: dict[Op, Binary] = {
    Op.ADD: np.add,
    Op.MULT: np.multiply,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.LOGAND: np.logical_and,
    Op.LOGOR: np.logical_or,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
}
_OF_TIMES = {"m": (Op.ADD, *_ORDER), "M": _ORDER}  # NaT as an operand gives NaT
# Of bool, as in numpy. Any byte but 0 is true.
_OF_BOOL = {
    Op.ADD: Op.LOGOR,
    Op.MULT: Op.LOGAND,
    Op.AND: Op.LOGAND,
    Op.OR: Op.LOGOR,
    Op.MIN: Op.LOGAND,
    Op.MAX: Op.LOGOR,
}

# As functions: the same on every type that the core knows, but that NaN is one.
_SAME = {ufunc: op for op, ufunc in _UFUNCS.items()}

_ROW = 16  # accumulators of the written order
_ROWS = 1024  # at a time
# Of functions of whole arrays: bytes at a time. Operands and results stay in cache, and malloc
# gives back no pages after each call, as new arrays of 512 KiB and more make it do.
_BLOCK = 1 << 18
_ROUNDS = 5  # by which neighbours in a block are joined before there is a block of such blocks
_SHORT = 1024  # elements up to which fewer calls count for more than less work


class Kernel:
    """One operation on one type.

    Arrays are one-dimensional, contiguous and of this dtype.

    Attributes
    ----------
    dtype : numpy.dtype
        The type of all operands.
    op : Op
        The operation as asked for.
    func : callable or None
        The user's function, of FUNC and NONCOMM_FUNC.
    code : tuple of int, or None
        Type and operation as the native core counts them, of records also where what is; None:
        this can only run in Python.
    """

    def __init__(
        self, dtype: np.dtype[Any], op: Op, func: Binary | None, code: tuple[int, ...] | None
    ) -> None:
        self.dtype = dtype
        self.op = op
        self.func = func
        self.code = code
        part = np.zeros(1, dtype).real.dtype  # complex: of both parts
        self._padded = part.kind == "f" and part.itemsize > 10 and np.finfo(part).nmant == 63
        self._settles = dtype.kind in "fc" and (func is None or self._padded)

    @property
    def whole(self) -> bool:
        """Whether its function takes whole arrays, so that it may be `traced`."""
        return False

    @property
    def key(self) -> tuple[object, ...]:
        """What plans with it are known by; they keep its function alive, so that its id will do."""
        return self.code or (name(self.dtype), self.op, id(self.func))

    def combine(self, out: Array, a: Array, b: Array) -> None:
        """``out[i] = a[i] op b[i]``; `out` may be `a` or `b`."""
        if len(out):
            self.joining(out, a, b)()

    def joining(self, out: Array, a: Array, b: Array) -> Callable[[], object]:
        """The same to be called again and again."""
        return partial(self._join, out, self._shield(a), self._shield(b))

    def _join(self, out: Array, a: Array, b: Array) -> None:
        out[...] = self._apply(a, b)
        if self._settles:
            self._settle(out)

    def fold(self, x: Array) -> Any:
        """``x[0] op x[1] op ...``, of at least one element, as a numpy scalar."""
        return self._settled_fold(x)[0]

    def fold_to(self, out: Array, x: Array) -> None:
        """The same into ``out[0]``, with nothing else than it in the bytes that it fills."""
        raw(out)[:1] = raw(self._settled_fold(x))

    def _settled_fold(self, x: Array) -> Array:
        return self._settle(self._fold(x)[:1].copy())

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """``dst[i] = carry op src[0] op ... op src[i]``; `dst` may be `src`.

        With `reverse`, ``dst[i] = src[i] op ... op src[-1] op carry``.
        """
        if not len(src):
            return
        x = src[::-1] if reverse else src
        if carry is not None:
            x = np.concatenate([np.asarray(carry, self.dtype).reshape(1), x])
        y = self._scan(x, flip=reverse)[len(x) - len(src) :]
        raw(dst)[...] = raw(self._settle(y[::-1] if reverse else y))

    # What differs between the kinds of kernels. Arrays in, arrays out; the inputs stay as they are.

    def _shield(self, x: Array) -> Array:
        """Return what may be an operand: the same memory, safe from a function of the user's."""
        return x

    def _apply(self, a: Array, b: Array) -> Array:
        """Return `a` op `b`, element by element."""
        raise NotImplementedError

    def _fold(self, x: Array) -> Array:
        """Return an array that begins with the fold of `x`."""
        raise NotImplementedError

    def _scan(self, x: Array, flip: bool = False) -> Array:
        """Return the scan of `x`, an array of its own; `flip`: operands are the wrong way round."""
        raise NotImplementedError

    def _settle(self, x: Array) -> Array:
        """Give NaN, and the padding of `x`, their one value; `x` is nobody else's.

        The NaN of a user's function is his own.
        """
        if not self._settles:
            return x
        x = np.ascontiguousarray(x)
        parts: Array = x.view(x.real.dtype)  # complex: both parts
        if self.func is None:
            parts[np.isnan(parts)] = np.nan
        if self._padded:  # x87 long double
            parts.view(np.uint8).reshape(-1, parts.itemsize)[:, 10:] = 0
        return x


class _Written(Kernel):
    """ADD and MULT of inexact types, whose order is part of the result."""

    @np.errstate(all="ignore")
    def _apply(self, a: Array, b: Array) -> Array:
        if self._is_complex_product:
            return np.asarray(self._scan(np.stack([a, b]))[1])
        return np.asarray(_UFUNCS[self.op](a, b))

    def _fold(self, x: Array) -> Array:
        if len(x) < 2 * _ROW:
            return self._scan(x)[-1:]
        rest = len(x) % _ROW
        rows = x[: len(x) - rest].reshape(-1, _ROW)
        acc = rows[:1]
        for i in range(1, len(rows), _ROWS):
            acc = self._scan(np.concatenate([acc, rows[i : i + _ROWS]]))[-1:]
        acc = acc[0]
        while len(acc) > 1:
            acc = self._apply(acc[0::2], acc[1::2])
        return self._scan(np.concatenate([acc, x[len(x) - rest :]]))[-1:]

    @np.errstate(all="ignore")
    def _scan(self, x: Array, flip: bool = False) -> Array:
        """One after the other along the first axis; both operations commute."""
        if not self._is_complex_product:
            ufunc: Any = _UFUNCS[self.op]
            return np.asarray(ufunc.accumulate(x, axis=0, dtype=self.dtype))
        # numpy's product depends on whether the machine has a fused multiply-add, and on the loop.
        y = x.copy()
        re, im = y.real, y.imag
        for i in range(1, len(y)):
            a, b, c, d = re[i - 1], im[i - 1], re[i], im[i]
            re[i], im[i] = a * c - b * d, a * d + b * c
        return y

    @property
    def _is_complex_product(self) -> bool:
        return self.op == Op.MULT and self.dtype.kind == "c"


class _Associative(Kernel):
    """Called on whole arrays in an order of its own; what order of operands is kept.

    The order is written here; user_functions.h does the same:

    * fold of FUNC: accumulators as long as `_BLOCK`, row after row; of what they hold the part
      beyond a power of two is joined to the beginning, then half to half;
    * fold of NONCOMM_FUNC: neighbours, again and again, a last odd one as it is; the first rounds
      are done in blocks of `_BLOCK`, which changes nothing;
    * scan, in blocks of `_BLOCK`: neighbours in pairs from where it begins, the scan of these
      values, which gives every second result, and the others in one call from those; of few
      elements all with those 1, 2, 4 ... before them.
    """

    def _fold(self, x: Array) -> Array:
        x = self._shield(x)
        if self.op == Op.NONCOMM_FUNC:
            return self._fold_neighbours(x)
        row = _BLOCK // self.dtype.itemsize
        whole = len(x) - len(x) % row or len(x)
        acc = x[:row]
        for i in range(row, whole, row):
            acc = self._apply(acc, x[i : i + row])
        acc = self._onto(acc, x[whole:])
        half = 1 << len(acc).bit_length() - 1
        acc = self._onto(acc[:half], acc[half:])
        while half > 1:
            half //= 2
            acc = self._apply(acc[:half], acc[half:])
        return acc

    def _onto(self, acc: Array, rest: Array) -> Array:
        """`rest` joined to the beginning of `acc`, which is at least as long."""
        n = len(rest)
        if not n:
            return acc
        joined = self._apply(acc[:n], rest)
        return joined if n == len(acc) else np.concatenate([joined, acc[n:]])

    def _fold_neighbours(self, x: Array) -> Array:
        block = _BLOCK // self.dtype.itemsize
        while len(x) > block:
            parts = [x[i : i + block] for i in range(0, len(x), block)]
            x = np.concatenate([self._neighbours(part, _ROUNDS) for part in parts])
        return self._neighbours(x, len(x).bit_length())

    def _neighbours(self, x: Array, rounds: int) -> Array:
        """Joined in pairs so many times, or until one is left."""
        for _ in range(rounds):
            if len(x) == 1:
                break
            even = len(x) - len(x) % 2
            pairs = self._apply(x[0:even:2], x[1:even:2])
            x = pairs if even == len(x) else np.concatenate([pairs, x[even:]])
        return x

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """As `Kernel.scan`."""
        if carry is not None:
            before = np.asarray(carry, self.dtype).reshape(1)
            self._scan_behind(before, dst, src, reverse)
        elif len(src) and reverse:
            dst[-1:] = src[-1:]
            self._scan_behind(dst[-1:], dst[:-1], src[:-1], reverse)
        elif len(src):
            dst[:1] = src[:1]
            self._scan_behind(dst[:1], dst[1:], src[1:], reverse)
        self._settle(dst)

    def _scan_behind(self, before: Array, dst: Array, src: Array, reverse: bool) -> None:
        n, block = len(src), _BLOCK // self.dtype.itemsize
        for done in range(0, n, block):
            begin, end = done, min(done + block, n)
            if reverse:
                begin, end = n - end, n - begin
            out = dst[begin:end]
            self._running(out, self._shield(src[begin:end]), self._shield(before), reverse)
            before = out[:1] if reverse else out[-1:]

    def _running(self, out: Array, x: Array, before: Array, reverse: bool) -> None:
        """Running results of `x` behind the one of `before`, to `out`, which may be `x`."""
        if len(x) <= _SHORT:
            self._running_short(out, x, before, reverse)
            return
        odd = len(x) % 2
        first = odd if reverse else 0  # what is left alone is at the far end
        end = first + len(x) - odd
        pairs = self._apply(x[first:end:2], x[first + 1 : end : 2])
        line = np.empty(len(pairs) + 1, self.dtype)  # `before`, and their running results
        inner = line[:-1] if reverse else line[1:]
        line[-1 if reverse else 0] = before[0]
        self._running(inner, self._shield(pairs), before, reverse)
        past = self._shield(line)
        if reverse:
            out[1 - odd :: 2] = self._apply(x[1 - odd :: 2], past[1 - odd :])
            out[odd::2] = inner
        else:
            out[0::2] = self._apply(past[: len(pairs) + odd], x[0::2])
            out[1::2] = inner

    def _running_short(self, out: Array, x: Array, before: Array, reverse: bool) -> None:
        out[...] = x
        now = self._shield(out)
        if reverse:
            out[-1:] = self._apply(now[-1:], before)
        else:
            out[:1] = self._apply(before, now[:1])
        apart = 1
        while apart < len(out):
            near = out[:-apart] if reverse else out[apart:]
            near[...] = self._apply(now[:-apart], now[apart:])
            apart *= 2


class _Exact(_Associative):
    """Operations for which every order gives the same bits."""

    @np.errstate(all="ignore")
    def _apply(self, a: Array, b: Array) -> Array:
        op = _OF_BOOL.get(self.op, self.op) if self.dtype.kind == "b" else self.op
        if op in _ORDER and self.dtype.kind == "f":
            before = a < b if op == Op.MIN else a > b
            tie = (a == b) & (np.signbit(a) == (op == Op.MIN))
            return np.where(before | tie | np.isnan(a), a, b)
        return np.asarray(_UFUNCS[op](a, b)).astype(self.dtype, copy=False)


class _Records(Kernel):
    """An operation on records, whose padding is zero in what it makes of two.

    What is of one record alone is that record, byte for byte, as where it is only copied.
    """

    def __init__(self, dtype: np.dtype[Any], *rest: Any) -> None:
        super().__init__(dtype, *rest)
        self._gaps = gaps(dtype)
        self._settles = self._settles or bool(self._gaps.size)

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """Scan as `Kernel.scan`; a first record that nothing is joined with stays as it is."""
        end = slice(-1, None) if reverse else slice(1)
        first = raw(src)[end].copy() if carry is None else None
        super().scan(dst, src, carry, reverse)
        if first is not None:
            raw(dst)[end] = first

    def _settle(self, x: Array) -> Array:
        """Set the padding of `x` to zero, in place if it is contiguous."""
        if self._gaps.size:
            x = np.ascontiguousarray(x)
            x.view(np.uint8).reshape(-1, x.itemsize)[:, self._gaps] = 0
        return x

    def _as_records(self, found: Array, func: Any, call: str) -> Array:
        """Return what a function returned as records of this type."""
        if found.dtype == self.dtype:
            return found
        fields = found.dtype.names
        if found.dtype != object and (fields is None or len(fields) != len(self.dtype.names or ())):
            raise TypeError(
                f"{call}: func: {_name(func)} returned {found.dtype}, expected records of "
                f"{self.dtype}"
            )
        return found.astype(self.dtype)


class _Located(_Records, _Exact):
    """MINLOC and MAXLOC."""

    def __init__(self, dtype: np.dtype[Any], op: Op, pair: Pair, code: Any) -> None:
        super().__init__(dtype, op, None, code)
        self._pair = pair
        self._settles = True

    @np.errstate(all="ignore")
    def _apply(self, a: Array, b: Array) -> Array:
        value, index = self._pair.names
        x, y, i, j = self._value(a), self._value(b), a[index], b[index]
        before, behind = (x < y, y < x) if self.op == Op.MINLOC else (x > y, y > x)
        here, there = self._rank(x), self._rank(y)
        tie = (here < there) | ((here == there) & (i <= j))
        first = before | (~behind & tie)
        out = np.zeros(len(a), self.dtype)
        out[value], out[index] = np.where(first, x, y), np.where(first, i, j)
        return out

    def _value(self, x: Array) -> Array:
        values: Array = x[self._pair.names[0]]
        return values.view(np.uint8) != 0 if values.dtype.kind == "b" else values

    def _rank(self, x: Array) -> Array:
        """Rank values neither of which is before the other: NaN, then zeros by their sign."""
        if x.dtype.kind in "mM":
            return np.where(np.isnat(x), 0, 1)
        if x.dtype.kind != "f":
            return np.zeros(len(x), np.int64)
        return np.where(np.isnan(x), 0, 1 + (np.signbit(x) != (self.op == Op.MINLOC)))

    def _settle(self, x: Array) -> Array:
        """As `Kernel._settle`."""
        x = super()._settle(x)
        values = x[self._pair.names[0]]
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        elif values.dtype.kind == "b":
            values.view(np.uint8)[...] = self._value(x)
        return super()._settle(x)


class _Vectorized(_Associative):
    """A function of the user, called on whole arrays."""

    def __init__(self, dtype: np.dtype[Any], op: Op, func: Binary, call: str) -> None:
        super().__init__(dtype, op, func, None)
        self._func = func
        self._call = call
        self._ufunc = _straight(func, dtype)

    @property
    def whole(self) -> bool:
        """As `Kernel.whole`."""
        return not self._settles

    def traced(self) -> Any:
        """What the core can run in its place, or None: `ufunc_capture.trace`."""
        from . import ufunc_capture  # most programs never need it

        return ufunc_capture.trace(self._func, self.dtype, self.op == Op.NONCOMM_FUNC)

    def report(self, function: Any) -> None:
        """Raise, or warn of, the errors of floating point that one of these has met."""
        from . import ufunc_capture

        ufunc_capture.report(function, self._func)

    def joining(self, out: Array, a: Array, b: Array) -> Callable[[], object]:
        """As `Kernel.joining`; ufuncs write straight to `out`."""
        if self._ufunc is None or self._settles:
            return super().joining(out, a, b)
        return partial(self._ufunc, a, b, out)

    def _shield(self, x: Array) -> Array:
        x = x[:]
        x.flags.writeable = False
        return x

    def _apply(self, a: Array, b: Array) -> Array:
        result = self._func(a, b)
        if type(result) is np.ndarray and result.dtype is self.dtype and result.shape == a.shape:
            return result
        result = np.asarray(result)
        if result.shape != a.shape:
            raise ValueError(
                f"{self._call}: func: {_name(self._func)} was called on arrays of shape {a.shape} "
                f"and returned shape {result.shape}; expected the same"
            )
        return self._converted(result)

    def _converted(self, result: Array) -> Array:
        return result.astype(self.dtype, copy=False)


class _VectorizedOnRecords(_Records, _Vectorized):
    """A function of the user, called on whole arrays of records."""

    def _converted(self, result: Array) -> Array:
        return self._as_records(result, self._func, self._call)


def _straight(func: Binary, dtype: np.dtype[Any]) -> np.ufunc | None:
    """A ufunc that makes of two arrays of a type one of the same type; None for all others."""
    if not isinstance(func, np.ufunc) or func.signature is not None:
        return None
    try:
        found = func.resolve_dtypes((dtype, dtype, None))
    except TypeError:
        return None
    return func if found == (dtype, dtype, dtype) else None


class _Scalar(Kernel):
    """A function of the user, called on two scalars at a time, from the left or the right."""

    def __init__(self, dtype: np.dtype[Any], op: Op, func: Binary, call: str) -> None:
        super().__init__(dtype, op, func, None)
        self._func = func
        self._call = call

    def _apply(self, a: Array, b: Array) -> Array:
        out = np.empty_like(a)
        for i in range(len(out)):
            out[i] = self._one(a[i], b[i])
        return out

    def _fold(self, x: Array) -> Array:
        value = x[0]
        for i in range(1, len(x)):
            value = self._one(value, x[i])
        return np.array([value], self.dtype)

    def _scan(self, x: Array, flip: bool = False) -> Array:
        y = x.copy()
        for i in range(1, len(y)):
            y[i] = self._one(y[i], y[i - 1]) if flip else self._one(y[i - 1], y[i])
        return y

    def _one(self, a: Any, b: Any) -> Any:
        result = self._func(a, b)
        if type(result) is self.dtype.type:
            return result
        value = np.asarray(result)
        if value.shape or result is None:
            raise TypeError(
                f"{self._call}: func: {_name(self._func)} returned {show(result)}, "
                f"expected one {self.dtype}"
            )
        return value.astype(self.dtype)[()]


class _ScalarOnRecords(_Records, _Scalar):
    """A function of the user, called on two records; it returns one, or a tuple of its fields.

    The function gets copies: a record of an array is that array's own memory.
    """

    def _one(self, a: Any, b: Any) -> Any:
        result = self._func(a.copy(), b.copy())
        if type(result) is tuple:
            return self._of_tuple(result)
        if not isinstance(result, np.void | np.ndarray) or result.shape:
            self._refuse(result)
        return self._as_records(np.asarray(result), self._func, self._call)[()]

    def _of_tuple(self, result: tuple[Any, ...]) -> Any:
        try:
            return np.array(result, self.dtype)[()]
        except (TypeError, ValueError) as e:
            self._refuse(result, f": {e}")

    def _refuse(self, result: Any, why: str = "") -> NoReturn:
        raise TypeError(
            f"{self._call}: func: {_name(self._func)} returned {show(result)}, expected a record "
            f"of {self.dtype}, or a tuple of its fields{why}"
        )


def find(dtype: DTypeLike, op: Op, func: Binary | None = None, call: str = "all_reduce") -> Kernel:
    """Return the kernel of `op` on `dtype`; `call` is who asks, for messages.

    Raises
    ------
    TypeError
        `op` is no Op, there is no such operation on this type, or `func` cannot be called.
    ValueError
        FUNC or NONCOMM_FUNC without `func`, or another operation with one.
    """
    if not isinstance(op, Op):
        hint = ": a function is func=, with xupc.FUNC" if callable(op) else ""
        raise TypeError(f"{call}: op: expected an xupc.Op such as xupc.ADD, got {show(op)}{hint}")
    dtype = np.dtype(dtype)
    if dtype.fields is not None:
        return _of_records(dtype, op, func, call)
    if op in _LOCATED:
        raise TypeError(f"{call}: op: {op.name} on dtype {dtype}: {_PAIRS}")
    if dtype.kind not in "biufcmM" or not dtype.isnative:
        raise TypeError(
            f"{call}: op: {op.name} on dtype {dtype}: expected a boolean, integer, floating or "
            "complex dtype in native byte order, one of times, or a structured one"
        )
    if op in _USER:
        return _of_user(dtype, op, func, call)
    _expect_no_function(op, func, call)
    if op in _BITWISE and dtype.kind in "fc":
        raise TypeError(f"{call}: op: {op.name} is for integers, not for dtype {dtype}")
    if dtype.kind in _OF_TIMES and op not in _OF_TIMES[dtype.kind]:
        raise TypeError(f"{call}: op: {op.name} is not for times, dtype {dtype}")
    if op in _ORDER and dtype.kind == "c":
        raise TypeError(f"{call}: op: {op.name} needs an order, dtype {dtype} has none")

    number = _TYPES.get((dtype.kind, dtype.itemsize))
    code = None if number is None else (number, int(op))
    written = op in (Op.ADD, Op.MULT) and dtype.kind in "fc"
    return (_Written if written else _Exact)(dtype, op, None, code)


_PAIRS = (
    "expected records of two numbers, a value that has an order and an integer index, such as "
    "np.dtype([('value', np.float64), ('index', np.int64)])"
)


def _of_records(dtype: np.dtype[Any], op: Op, func: Binary | None, call: str) -> Kernel:
    """Return the kernel on a structured dtype, as `find` does."""
    what = f"{call}: op: {op.name} on dtype {dtype}"
    if dtype.hasobject:
        raise TypeError(f"{what}: expected records without objects: they cannot travel")
    if not dtype.isnative:
        raise TypeError(f"{what}: expected fields in native byte order")
    if not 0 < dtype.itemsize <= longest:
        raise TypeError(f"{what}: expected records of 1 to {longest} bytes, got {dtype.itemsize}")
    if op in _USER:
        return _of_user(dtype, op, func, call)
    if op not in _LOCATED:
        raise TypeError(
            f"{what}: records have MINLOC and MAXLOC, of a value and an index, and functions of "
            "your own: FUNC or NONCOMM_FUNC with func="
        )
    _expect_no_function(op, func, call)
    pair = Pair.of(dtype)
    if pair is None:
        raise TypeError(f"{what}: {_PAIRS}")
    return _Located(dtype, op, pair, _located_code(dtype, op, pair))


def _located_code(dtype: np.dtype[Any], op: Op, pair: Pair) -> tuple[int, ...] | None:
    number = _TYPES.get((pair.value.kind, pair.value.itemsize))
    if number is None:
        return None
    index = pair.index.itemsize, int(pair.index.kind == "i")
    return (number, int(op), dtype.itemsize, pair.value_at, pair.index_at, *index)


def _expect_no_function(op: Op, func: Binary | None, call: str) -> None:
    if func is not None:
        raise ValueError(f"{call}: func: expected None with {op.name}, got {_name(func)}")


def _of_user(dtype: np.dtype[Any], op: Op, func: Binary | None, call: str) -> Kernel:
    if func is None:
        raise ValueError(f"{call}: func: {op.name} needs a function, got None")
    if not callable(func):
        raise TypeError(f"{call}: func: expected a callable of two operands, got {show(func)}")
    records = dtype.fields is not None
    whole: type[_Vectorized] = _VectorizedOnRecords if records else _Vectorized
    scalar: type[_Scalar] = _ScalarOnRecords if records else _Scalar
    if isinstance(func, np.ufunc):
        if (func.nin, func.nout) != (2, 1):
            raise TypeError(f"{call}: func: expected two operands and one result, got {show(func)}")
        if dtype.fields is not None and not _takes_records(func, dtype):
            raise TypeError(
                f"{call}: func: {_name(func)} is not for records, dtype {dtype}: expected a "
                "function of two records"
            )
        return _built_in(dtype, op, func) or whole(dtype, op, func, call)
    vectorized = getattr(func, "xupc_vectorized", False)
    return (whole if vectorized else scalar)(dtype, op, func, call)


def _takes_records(func: np.ufunc, dtype: np.dtype[Any]) -> bool:
    """Whether a ufunc has a loop for them: those of `np.frompyfunc` take anything."""
    try:
        func(np.zeros(0, dtype), np.zeros(0, dtype))
    except TypeError:
        return False
    return True


def _built_in(dtype: np.dtype[Any], op: Op, func: np.ufunc) -> Kernel | None:
    """The kernel of the operation that a commutative ufunc is, if the core has it."""
    same = _SAME.get(func)
    if op != Op.FUNC or same is None or (same in _BITWISE and dtype.kind == "f"):
        return None
    number = _TYPES.get((dtype.kind, dtype.itemsize))
    return None if number is None else find(dtype, same)


def _name(func: Any) -> str:
    with contextlib.suppress(Exception):  # of an object of the user's
        return str(getattr(func, "__qualname__", None) or func.__name__)
    return show(func)
