"""Capture user functions that consist of numpy's own loops, so that the core can run them.

A function of whole arrays is Python: at 64 KiB a call costs more than its computation, and each
of its operations goes through memory. Many such functions are a few operations of numpy, as
``a + b * scale``. This module analyses such a function once. Then the core runs the same loops of
numpy on pieces that stay in cache (user_functions.h), without Python.

Ufuncs are captured, and functions that the program declares as pure: ``vectorized(pure=True)``. The
function and its capture then differ only in speed:

1. The declaration says that the function has no effect besides its result. So one call with
   stand-ins for arrays shows all its operations: ufuncs, `numpy.where`, and functions of the same
   kind. A stand-in has no length, elements or truth value, so a function that asks for these is
   called in Python.
2. All loops take and return the given types without a conversion, and no loop needs Python.
3. On a sample of unusual values the capture gives the same results, bit for bit.
4. Before each call, the globals and closures that the function uses must be unchanged. A function
   that uses an object with a state, such as a list or an array, is called in Python.
5. Floating-point errors are reported as `numpy.seterr` requires. A function that changes
   `numpy.errstate` itself is called in Python.

Any other function is called in Python, and so is one for which this module is wrong about a new
version of Python or numpy.
"""

from __future__ import annotations

import builtins
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, NoneType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ..backends.native import native_core
from ..errors import warn

__all__ = ["report", "trace"]

OPERANDS: Final = 2
STEPS: Final = 16  # the most steps of a function: XF_STEPS in user_functions.h
CONSTANTS: Final = 16
MOST: Final = 16  # bytes of an element

_NUMBERS: Final = (int, float, complex)
_FIXED: Final = (bool, str, bytes, NoneType, BuiltinFunctionType)
# The objects at import time: a program may assign others to these names later.
_WHERE: Final = np.where
_UFUNCS: Final = {id(found): found for found in vars(np).values() if type(found) is np.ufunc}

Guard = tuple[Any, str | None, Any]
"""(where, name, value): the value that must be found there; without a name: in a cell."""


class _CannotTrace(Exception):
    """Leave the function to Python."""


class Step(NamedTuple):
    """One loop of a captured function.

    Attributes
    ----------
    name
        The name of the ufunc, or "where".
    loop
        numpy's capsule; None for "where".
    inputs
        Values by number: the two operands, the results of steps, then the constants.
    itemsize
        Bytes of an element of the result.
    """

    name: str
    loop: Any
    inputs: tuple[int, ...]
    itemsize: int


def trace(func: Callable[..., object], dtype: np.dtype[Any], ordered: bool) -> Any:
    """Return the core's `Function` that does what `func` does on arrays of a dtype, or None.

    `ordered`: folds and scans keep the order of operands.
    """
    core = native_core.core
    if core is None or dtype.kind not in "biufc" or dtype.itemsize > MOST or not dtype.isnative:
        return None
    found = _Trace()
    try:
        guards = found.follow(func, dtype)
        made = core.Function(dtype.itemsize, ordered, found.steps, found.constants, guards)
        return made if _proves(made, func, dtype) else None
    except Exception:  # any error: nothing has changed, and Python calls the function
        return None


# ---- the names that a function uses --------------------------------------------------------------
class _Reading:
    """Collect the names that a function uses as `guards`; refuse values that may change."""

    def __init__(self, func: FunctionType) -> None:
        self.guards: list[Guard] = []
        self._read: set[FunctionType] = set()
        self.function(func)

    def function(self, func: FunctionType) -> None:
        """Collect the names of a function, and of the functions that it calls."""
        if func in self._read:
            return
        self._read.add(func)
        self._use(func, "__code__", func.__code__)
        self._use(func, "__defaults__", func.__defaults__)
        self._use(func, "__kwdefaults__", func.__kwdefaults__)
        for value in (*(func.__defaults__ or ()), *(func.__kwdefaults__ or {}).values()):
            self.value(value)
        for cell in func.__closure__ or ():
            self._use(cell, None, self.value(cell.cell_contents))
        for name in dict.fromkeys(_names(func.__code__)):
            self._global(func.__globals__, name)

    def _global(self, names: dict[str, Any], name: str) -> None:
        """Guard a name, if it is one of a global or of a builtin: it may be one of an attribute."""
        if name in names:
            self._use(names, name, self.value(names[name]))
        elif hasattr(builtins, name):
            self._use(names, name, None)

    def _use(self, where: Any, name: str | None, value: Any) -> None:
        self.guards.append((where, name, value))

    def value(self, value: Any) -> Any:
        """Return a value that stays the same as long as it is the same object."""
        if type(value) is FunctionType:
            self.function(value)
        elif not (_is_number(value) or _is_fixed(value)):
            raise _CannotTrace
        return value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function and in those inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.number):
        return type(value) is value.dtype.type
    return type(value) in _NUMBERS


def _is_fixed(value: Any) -> bool:
    """Return whether a value is no number, but the same for ever, and so are its attributes."""
    if isinstance(value, type):
        return issubclass(value, np.generic)
    known = any(value is each for each in (np, math, _WHERE))
    return known or type(value) in _FIXED or _is_of_numpy(value)


def _is_of_numpy(value: Any) -> bool:
    """Return whether it is a ufunc of numpy: loops of other ufuncs might raise."""
    return type(value) is np.ufunc and id(value) in _UFUNCS


# ---- the loops of a function ------------------------------------------------------------------
class _Trace:
    """The loops of a function so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: list[NDArray[Any]] = []

    def follow(self, func: Callable[..., object], dtype: np.dtype[Any]) -> list[Guard]:
        """Record the loops of a function; return its guards."""
        a, b = _Value(self, 0, dtype), _Value(self, 1, dtype)
        guards: list[Guard] = []
        if type(func) is FunctionType:
            guards = _Reading(func).guards
        elif not _is_of_numpy(func):
            raise _CannotTrace
        with np.errstate(all="raise"):  # constants alone would warn only once
            result: Any = func(a, b)
        last = OPERANDS + len(self.steps) - 1
        if not self.steps or not isinstance(result, _Value) or result.number != last:
            raise _CannotTrace
        if result.trace is not self or result.dtype != dtype:
            raise _CannotTrace
        return guards

    def call(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> _Value:
        """Record the loop of a ufunc."""
        if ufunc.nout != 1 or len(inputs) != ufunc.nin or ufunc.signature is not None:
            raise _CannotTrace
        if set(np.geterr().values()) != {"raise"}:
            raise _CannotTrace  # the function has its own np.errstate
        u: Any = ufunc  # numpy 1.24 and later: the interface for running its loops
        dtypes, loop = u._resolve_dtypes_and_context((*map(_type_of, inputs), None))
        if ufunc is np.power and dtypes[0].kind in "iu" and isinstance(inputs[1], _Value):
            raise _CannotTrace  # the loop itself raises at a negative exponent
        u._get_strided_loop(loop)
        return self._add(ufunc.__name__, loop, inputs, dtypes)

    def where(self, inputs: tuple[Any, ...]) -> _Value:
        """Record a choice between two values."""
        condition, *rest = inputs
        dtype = np.result_type(*(x.dtype if isinstance(x, _Value) else x for x in rest))
        if len(rest) != 2 or not isinstance(condition, _Value):
            raise _CannotTrace
        return self._add("where", None, inputs, (np.dtype(bool), dtype, dtype, dtype))

    def _add(
        self, name: str, loop: Any, inputs: tuple[Any, ...], dtypes: tuple[np.dtype[Any], ...]
    ) -> _Value:
        *wanted, dtype = dtypes
        numbers = tuple(self._number(x, t) for x, t in zip(inputs, wanted, strict=True))
        if len(self.steps) == STEPS or dtype.itemsize > MOST:
            raise _CannotTrace
        self.steps.append(Step(name, loop, numbers, dtype.itemsize))
        return _Value(self, OPERANDS + len(self.steps) - 1, dtype)

    def _number(self, x: Any, dtype: np.dtype[Any]) -> int:
        """Return the number of an input, if it needs no conversion."""
        if isinstance(x, _Value):
            if x.trace is not self or x.dtype != dtype:
                raise _CannotTrace
            return x.number
        if len(self.constants) == CONSTANTS or not _is_number(x):
            raise _CannotTrace
        self.constants.append(np.array([x], dtype))
        return OPERANDS + STEPS + len(self.constants) - 1


def _type_of(x: Any) -> Any:
    """Return a type for numpy's promotion: Python numbers have a kind, but no size."""
    if isinstance(x, _Value | np.generic):
        return x.dtype
    if type(x) not in _NUMBERS:
        raise _CannotTrace
    return type(x)


class _Value(NDArrayOperatorsMixin):
    """A stand-in for an array: it records operations on itself, or raises."""

    __slots__ = ("dtype", "number", "trace")

    def __init__(self, trace: _Trace, number: int, dtype: np.dtype[Any]) -> None:
        self.trace = trace
        self.number = number
        self.dtype = dtype

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> _Value:
        if method != "__call__" or kwargs:
            raise _CannotTrace
        return self.trace.call(ufunc, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> _Value:
        if func is not _WHERE or kwargs or len(args) != 3:
            raise _CannotTrace
        return self.trace.where(args)

    def __pow__(self, exponent: Any) -> Any:
        if type(exponent) is int and exponent == 2:
            return np.square(self)  # as numpy does
        if type(exponent) in _NUMBERS and exponent in (-1, 0.5, 1, 2):
            raise _CannotTrace  # versions of numpy differ here
        return super().__pow__(exponent)

    def __bool__(self) -> bool:
        raise _CannotTrace


# ---- the comparison on a sample ------------------------------------------------------------------
def _proves(made: Any, func: Callable[..., object], dtype: np.dtype[Any]) -> bool:
    """Return whether the core and the function give the same bits on a sample."""
    a = _sample(dtype)
    b = np.ascontiguousarray(np.roll(a[::-1], len(a) // 3))
    out = np.empty_like(a)
    with np.errstate(all="ignore"):
        expected: Any = func(a, b)
    if type(expected) is not np.ndarray or expected.dtype != dtype or expected.shape != a.shape:
        return False
    ok = bool(made.combine(out.ctypes.data, a.ctypes.data, b.ctypes.data, len(a)))
    made.errors()  # drop the errors of the sample
    return ok and _bits(out) == _bits(expected)


def _bits(x: NDArray[Any]) -> bytes:
    """Return the bits of all values, with one NaN."""
    parts = x.view(x.real.dtype).copy()
    if parts.dtype.kind == "f":
        parts[np.isnan(parts)] = np.nan
    return parts.tobytes()


def _sample(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers of any size and unusual ones, more than two pieces of the core."""
    n = 1100
    bits = np.arange(1, 3 * n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    if dtype.kind == "b":
        return (bits[:n] >> np.uint64(63)).astype(dtype)
    part = np.zeros(1, dtype).real.dtype
    if part.kind in "iu":
        any_size = bits[:n].view(part)[:n].copy()
        any_size[::3] = np.arange(len(any_size[::3])) % 23
        return any_size
    values = bits.view(np.int64)[: 2 * n] / 2.0**60
    values[::5] = np.round(values[::5])
    odd = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, -6e4, 6e-8]
    values[7 : 7 * len(odd) + 7 : 7] = odd
    with np.errstate(all="ignore"):
        parts = values.astype(part)
    return parts.view(dtype)[:n].copy()


# ---- errors of floating point -------------------------------------------------------------
_ERRORS: Final = (
    ("divide", "divide by zero"), ("over", "overflow"), ("under", "underflow"),
    ("invalid", "invalid value"),
)  # fmt: skip


def report(function: Any, func: Callable[..., object]) -> None:
    """Report the errors of the core's `Function`, as numpy does when it runs `func`."""
    modes: dict[str, Any] = {**np.geterr()}
    for name, came_up in function.errors():
        for (kind, text), happened in zip(_ERRORS, came_up, strict=True):
            if happened:
                _say(modes[kind], f"{text} encountered in {name}", came_up, func)


def _say(
    mode: str, text: str, came_up: tuple[bool, ...], func: Callable[..., object]
) -> None:
    if mode == "warn":
        _warn(text, func)
    elif mode == "raise":
        raise FloatingPointError(text)
    elif mode == "print":
        print(f"Warning: {text}", file=sys.stderr)
    elif mode in ("call", "log"):
        handler: Any = np.geterrcall()
        if handler is None:
            raise NameError(f"{mode} specified for {text} but nothing to call or write to")
        flags = sum(happened << i for i, happened in enumerate(came_up))
        if mode == "call":
            handler(text.split(" encountered")[0], flags)
        else:
            handler.write(f"Warning: {text}\n")


def _warn(text: str, func: Callable[..., object]) -> None:
    """Warn with the position of the function, not of a call."""
    if not isinstance(func, FunctionType):
        warn(text)
        return
    seen = func.__globals__.setdefault("__warningregistry__", {})
    code = func.__code__
    warnings.warn_explicit(
        text, RuntimeWarning, code.co_filename, code.co_firstlineno, func.__module__, seen
    )
