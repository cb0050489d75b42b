"""Kernels of the user's functions, called on two values or on whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ..errors import show
from ..ops import Op
from .kernel_base import Array, Binary, Kernel, function_name
from .record_kernels import Records
from .whole_arrays import Associative

__all__ = ["Scalar", "ScalarOnRecords", "Vectorized", "VectorizedOnRecords"]


class Vectorized(Associative):
    """A function of the user, called on whole arrays."""

    def __init__(self, dtype: np.dtype[Any], op: Op, func: Binary, call: str) -> None:
        super().__init__(dtype, op, func, None)
        self._func = func
        self._call = call
        self._ufunc = _straight(func, dtype)
        self._pure = isinstance(func, np.ufunc) or _declared_pure(func)

    @property
    def whole(self) -> bool:
        """Return whether the core may run it: it is pure, and results need no canonical bits."""
        return self._pure and not self._settles

    def traced(self) -> Any:
        """Return what the core can run instead (`ufunc_capture.trace`), or None."""
        from . import ufunc_capture  # most programs never need it

        return ufunc_capture.trace(self._func, self.dtype, self.op == Op.NONCOMM_FUNC)

    def report(self, function: Any) -> None:
        """Raise or warn for floating-point errors in a function that the core has run."""
        from . import ufunc_capture

        ufunc_capture.report(function, self._func)

    def joining(self, out: Array, a: Array, b: Array) -> Callable[[], object]:
        """Return the callable of `Kernel.joining`; ufuncs write directly to `out`."""
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
                f"{self._call}: func: {function_name(self._func)} was called on arrays of shape "
                f"{a.shape} and returned shape {result.shape}; expected the same"
            )
        return self._converted(result)

    def _converted(self, result: Array) -> Array:
        return result.astype(self.dtype, copy=False)


class VectorizedOnRecords(Records, Vectorized):
    """A function of the user, called on whole arrays of records."""

    def _converted(self, result: Array) -> Array:
        return self._as_records(result, self._func, self._call)


def _declared_pure(func: Binary) -> bool:
    """Return whether `xupc.vectorized` has marked this very function as pure."""
    return type(func) is FunctionType and getattr(func, "xupc_pure", None) is func.__code__


def _straight(func: Binary, dtype: np.dtype[Any]) -> np.ufunc | None:
    """Return a function that is a ufunc from two arrays of a type to the same type, else None."""
    if not isinstance(func, np.ufunc) or func.signature is not None:
        return None
    try:
        found = func.resolve_dtypes((dtype, dtype, None))
    except TypeError:
        return None
    return func if found == (dtype, dtype, dtype) else None


class Scalar(Kernel):
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
                f"{self._call}: func: {function_name(self._func)} returned {show(result)}, "
                f"expected one {self.dtype}"
            )
        return value.astype(self.dtype)[()]


class ScalarOnRecords(Records, Scalar):
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
            f"{self._call}: func: {function_name(self._func)} returned {show(result)}, expected a "
            f"record of {self.dtype}, or a tuple of its fields{why}"
        )
