"""Reduction operations (UPC 1.3, section 7.4.3, and UPC Language 7.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from .errors import show

__all__ = ["Op", "vectorized"]

_F = TypeVar("_F", bound=Callable[..., object])


class Op(IntEnum):
    """The operation of a computational collective (UPC 1.3, 7.4.3.1)."""

    ADD = 0
    MULT = 1
    AND = 2
    OR = 3
    XOR = 4
    LOGAND = 5
    LOGOR = 6
    MIN = 7
    MAX = 8
    FUNC = 9
    NONCOMM_FUNC = 10


def vectorized(func: _F) -> _F:
    """Mark ``func(a, b)`` as taking and returning whole arrays.

    Parameters
    ----------
    func : callable
        Of two arrays of one shape and dtype, which it must leave as they are, and not keep: they
        are other threads' memory, there for the call. It returns one like them, element by
        element.

    Raises
    ------
    TypeError
        If `func` can carry no mark.
    """
    try:
        func.xupc_vectorized = True  # type: ignore[attr-defined]
    except AttributeError:
        raise TypeError(f"vectorized: expected a function, got {show(func)}") from None
    return func
