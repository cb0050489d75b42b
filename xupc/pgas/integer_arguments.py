"""Check integer arguments: those of shared memory, and those of calls in which all take part."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from ..errors import show
from ..flags import Flags, flag_names
from ..ops import Op

__all__ = [
    "as_int64",
    "as_integer",
    "at_least_0",
    "integer",
    "is_integer",
]

_BITS = 256  # of an int argument: enough for a message to say what it is


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


def as_integer(value: Any, call: str, argument: str) -> int:
    """Return the integer argument of a collective as an int.

    Raises
    ------
    TypeError
        If it is no integer, or a bool, an operation, or a flag where no flags are expected.
    ValueError
        If it has more than 256 bits.
    """
    kind = type(value)  # isinstance would ask the object, which may be a dead proxy
    if issubclass(kind, Flags) and argument != "flags":
        raise TypeError(f"{call}: {argument}: got {flag_names(value)}, a flag: pass it as flags=")
    if issubclass(kind, Op):
        raise TypeError(f"{call}: {argument}: expected an int, got {value.name}, an operation")
    try:
        if not issubclass(kind, bool | np.bool_):
            number = operator.index(value)
            if number.bit_length() > _BITS:  # Python refuses to print the longest ones
                raise ValueError(f"{call}: {argument}: expected 64 bits, got {show(number)}")
            return number
    except (TypeError, ReferenceError):
        pass
    raise TypeError(f"{call}: {argument}: expected an int, got {show(value)}")


def as_int64(value: object, call: str, argument: str) -> int:
    """Return the integer argument of a collective; ValueError if it has more than 64 bits."""
    number = as_integer(value, call, argument)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{call}: {argument}: expected 64 bits, got {number}")
    return number
