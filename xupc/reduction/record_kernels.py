"""Kernels on records (structured dtypes): zero padding in results, and MINLOC and MAXLOC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import Op
from .builtin_kernels import Exact
from .identities import identity
from .kernel_base import Array, Kernel, function_name
from .structured_dtypes import Pair, gaps, raw

__all__ = ["Located", "Records"]


class Records(Kernel):
    """An operation on records; the padding of a record that is made of two is zero.

    A result of one record alone is that record, byte for byte.
    """

    def __init__(self, dtype: np.dtype[Any], *rest: Any) -> None:
        super().__init__(dtype, *rest)
        self._gaps = gaps(dtype)
        self._settles = self._settles or bool(self._gaps.size)

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """Scan as `Kernel.scan`; a first record without a carry keeps its bytes."""
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
        """Convert the result of a function to records of this type."""
        if found.dtype == self.dtype:
            return found
        fields = found.dtype.names
        if found.dtype != object and (fields is None or len(fields) != len(self.dtype.names or ())):
            raise TypeError(
                f"{call}: func: {function_name(func)} returned {found.dtype}, expected records of "
                f"{self.dtype}"
            )
        return found.astype(self.dtype)


class Located(Records, Exact):
    """MINLOC and MAXLOC."""

    def __init__(self, dtype: np.dtype[Any], op: Op, pair: Pair, code: Any) -> None:
        super().__init__(dtype, op, None, code)
        self._pair = pair
        self._settles = True

    def _identity(self) -> Any:
        """Return the value that any other one is before, with the greatest index."""
        value, index = self._pair.names
        one = np.zeros(1, self.dtype)
        order = Op.MIN if self.op == Op.MINLOC else Op.MAX
        one[value] = identity(self._pair.value, order)
        one[index] = np.iinfo(self._pair.index).max
        return one[0]

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
        """Rank values that compare neither less nor greater: NaN, then zeros by their sign."""
        if x.dtype.kind in "mM":
            return np.where(np.isnat(x), 0, 1)
        if x.dtype.kind != "f":
            return np.zeros(len(x), np.int64)
        return np.where(np.isnan(x), 0, 1 + (np.signbit(x) != (self.op == Op.MINLOC)))

    def _settle(self, x: Array) -> Array:
        """Set NaN, bool and the padding to their canonical bits."""
        x = super()._settle(x)
        values = x[self._pair.names[0]]
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        elif values.dtype.kind == "b":
            values.view(np.uint8)[...] = self._value(x)
        return super()._settle(x)
