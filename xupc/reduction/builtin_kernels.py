"""Kernels of the built-in operations on plain types, with the results of `kernels.h`, bit for bit.

They also cover float16, complex types and times, which C does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import Op
from .kernel_base import Array, Binary, Kernel
from .whole_arrays import Associative

__all__ = ["ORDER", "UFUNCS", "Exact", "Written"]

ORDER = (Op.MIN, Op.MAX)

UFUNCS: dict[Op, Binary] = {
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
# The operations on bool that numpy's are. Any byte but 0 is true.
_OF_BOOL = {
    Op.ADD: Op.LOGOR,
    Op.MULT: Op.LOGAND,
    Op.AND: Op.LOGAND,
    Op.OR: Op.LOGOR,
    Op.MIN: Op.LOGAND,
    Op.MAX: Op.LOGOR,
}

_ROW = 16  # accumulators of the written order
_ROWS = 1024  # rows per call of numpy


class Written(Kernel):
    """ADD and MULT of inexact types, where the order determines the result."""

    @np.errstate(all="ignore")
    def _apply(self, a: Array, b: Array) -> Array:
        if self._is_complex_product:
            return np.asarray(self._scan(np.stack([a, b]))[1])
        return np.asarray(UFUNCS[self.op](a, b))

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
        """Scan along the first axis, one after the other; both operations commute."""
        if not self._is_complex_product:
            ufunc: Any = UFUNCS[self.op]
            return np.asarray(ufunc.accumulate(x, axis=0, dtype=self.dtype))
        # numpy's complex product depends on the loop, and on fused multiply-add in the machine.
        y = x.copy()
        re, im = y.real, y.imag
        for i in range(1, len(y)):
            a, b, c, d = re[i - 1], im[i - 1], re[i], im[i]
            re[i], im[i] = a * c - b * d, a * d + b * c
        return y

    @property
    def _is_complex_product(self) -> bool:
        return self.op == Op.MULT and self.dtype.kind == "c"


class Exact(Associative):
    """Operations for which every order gives the same bits."""

    @np.errstate(all="ignore")
    def _apply(self, a: Array, b: Array) -> Array:
        op = _OF_BOOL.get(self.op, self.op) if self.dtype.kind == "b" else self.op
        if op in ORDER and self.dtype.kind == "f":
            before = a < b if op == Op.MIN else a > b
            tie = (a == b) & (np.signbit(a) == (op == Op.MIN))
            return np.where(before | tie | np.isnan(a), a, b)
        return np.asarray(UFUNCS[op](a, b)).astype(self.dtype, copy=False)
