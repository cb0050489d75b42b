"""Check the integer arguments of shared arrays, pointers and copies."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from ..errors import show
from ..flags import Flags
from ..ops import Op

__all__ = [
    "at_least_0",
    "integer",
    "is_integer",
]


def is_integer(value: object) -> bool:
    """Return True for an integer, also for an integer array without a dimension.

    A bool, a flag and an operation are no integers here.
    """
    if type(value) is int:
        return True
    if not isinstance(value, SupportsIndex) or isinstance(value, bool | np.bool_ | Flags | Op):
        return False
    return not isinstance(value, np.ndarray) or (value.ndim == 0 and value.dtype.kind in "iu")


def integer(value: Any, call: str, argument: str) -> int:
    """Return `value` as an int; TypeError if it is no integer."""
    if not is_integer(value):
        raise TypeError(f"{call}: {argument} is {show(value)}: expected an integer")
    return operator.index(value)


def at_least_0(value: Any, call: str, argument: str) -> int:
    """Return `value` as an int; ValueError if it is negative."""
    number = integer(value, call, argument)
    if number < 0:
        raise ValueError(f"{call}: {argument} is {show(number)}: expected at least 0")
    return number
