"""The identities of the built-in operations on plain types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import Op

__all__ = ["identity"]

_NONZERO = {Op.MULT: 1, Op.AND: -1, Op.LOGAND: 1}


def identity(dtype: np.dtype[Any], op: Op) -> Any:
    """Return the value that leaves any other one as it is; of a sum 0, although -0.0 + 0 is 0.0."""
    if op in (Op.MIN, Op.MAX):
        return _least(dtype) if op == Op.MAX else _greatest(dtype)
    return np.array(_NONZERO.get(op, 0)).astype(dtype)[()]


def _greatest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return dtype.type(np.inf)
    if dtype.kind == "b":
        return np.True_
    return np.array(np.iinfo(_integer(dtype)).max, _integer(dtype)).view(dtype)[()]


def _least(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return dtype.type(-np.inf)
    if dtype.kind == "b":
        return np.False_
    least = np.iinfo(_integer(dtype)).min + (dtype.kind in "mM")  # the least time is NaT
    return np.array(least, _integer(dtype)).view(dtype)[()]


def _integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the integers that the values of an integer or time type are."""
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype
