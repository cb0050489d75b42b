"""What collectives ask of single arguments, and how they name them."""

from __future__ import annotations

import operator
from typing import Any

from .shared import as_address

__all__ = ["as_integer", "describe"]


def as_integer(value: Any, call: str, argument: str) -> int:
    """Return an integer argument as an int.

    Raises
    ------
    TypeError
        If it is none; a bool is none.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{call}: {argument}: expected an int, got {value!r}")


def describe(x: Any) -> str:
    """Return an operand as text, the same on every thread."""
    try:
        allocation, thread, offset = as_address(x)
    except TypeError:
        return repr(x)
    return f"thread {thread} offset {offset} ({allocation.nelems} x {allocation.dtype})"
