"""Reduction operations (UPC 1.3, section 7.4.3, and UPC Language 7.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar, overload

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


@overload
def vectorized(func: _F, *, pure: bool = False) -> _F: ...
@overload
def vectorized(*, pure: bool = False) -> Callable[[_F], _F]: ...
def vectorized(func: Any = ..., *, pure: Any = False) -> Any:
    """Mark ``func(a, b)`` as taking and returning whole arrays.

    Parameters
    ----------
    func : callable
        A function of two arrays of one shape and dtype, which it must leave as they are, and not
        keep: they are other threads' memory, there for the call. It returns one like them, element
        by element. Without `func` the result is a decorator: ``@xupc.vectorized(pure=True)``.
    pure : bool
        True declares that `func` has no effect besides its result, and that the result depends
        only on the operands, on constants, and on global and enclosed variables. If all its
        operations are ufuncs and `numpy.where`, the native core then runs it without Python.
        Otherwise, and by default, it is called in Python: the same results, slower.

    Raises
    ------
    TypeError
        If `func` can carry no mark, or `pure` is no bool.
    """
    if not isinstance(pure, bool):
        raise TypeError(f"vectorized: pure: expected True or False, got {show(pure)}")
    if func is ...:
        return partial(vectorized, pure=pure)
    try:
        func.xupc_vectorized = True
        # the code: `functools.wraps` copies marks to functions that may do more
        func.xupc_pure = getattr(func, "__code__", None) if pure else None
    except AttributeError:
        raise TypeError(f"vectorized: expected a function, got {show(func)}") from None
    return func
