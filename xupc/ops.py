"""Reduction operations (UPC 1.3, section 7.4.3, and UPC Language 7.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from .errors import show

__all__ = ["Op", "vectorized"]

_F = TypeVar("_F", bound=Callable[..., object])


class Op(IntEnum):
    """The operation of a computational collective (UPC 1.3, 7.4.3.1).

    MINLOC and MAXLOC are ours: of records of a value and an index, the one with the least or
    the greatest value, of equal values that with the lowest index:

    >>> pair = np.dtype([("value", np.float64), ("index", np.int64)])           # doctest: +SKIP
    >>> mine = np.array((error, xupc.MYTHREAD), pair)[()]                       # doctest: +SKIP
    >>> worst = xupc.allv_reduce_all(mine, xupc.MAXLOC)["index"]                # doctest: +SKIP
    """

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
    MINLOC = 11
    MAXLOC = 12


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
