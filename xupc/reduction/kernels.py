"""Find the kernel of an operation on a type, or say why there is none.

Results on the eleven UPC types, and on records of two of them, are those of the C kernels, bit for
bit; the header of `kernels.h` defines them. Only Python has float16, complex types and functions of
the user.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from ..errors import show
from ..flags import Flags, flag_names
from ..ops import Op
from .builtin_kernels import ORDER, UFUNCS, Exact, Written
from .kernel_base import Binary, Kernel, function_name
from .record_kernels import Located
from .structured_dtypes import Pair, longest
from .user_kernels import Scalar, ScalarOnRecords, Vectorized, VectorizedOnRecords

__all__ = ["find"]

# The core's number of a type by kind and item size: int64 has two numpy types. Where long double
# is double, double counts.
_TYPES: dict[tuple[str, int], int] = {
    ("f", np.dtype(np.longdouble).itemsize): 10,
    **{(kind, 1 << i): 2 * i + (kind == "u") for i in range(4) for kind in "iu"},
    ("b", 1): 11,
    ("f", 4): 8,
    ("f", 8): 9,
}
_BITWISE = (Op.AND, Op.OR, Op.XOR)
_USER = (Op.FUNC, Op.NONCOMM_FUNC)
_LOCATED = (Op.MINLOC, Op.MAXLOC)
_OF_TIMES = {"m": (Op.ADD, *ORDER), "M": ORDER}  # NaT as an operand gives NaT

# Ufuncs that equal an operation on every type of the core, except that NaN has one value there.
_SAME = {ufunc: op for op, ufunc in UFUNCS.items()}


def find(dtype: DTypeLike, op: Op, func: Binary | None = None, call: str = "all_reduce") -> Kernel:
    """Return the kernel of `op` on `dtype`; error messages begin with `call`.

    Raises
    ------
    TypeError
        `op` is no Op, there is no such operation on this type, or `func` cannot be called.
    ValueError
        FUNC or NONCOMM_FUNC without `func`, or another operation with one.
    """
    if not isinstance(op, Op):
        hint = ": a function is func=, with xupc.FUNC" if callable(op) else ""
        known = "an xupc.Op such as xupc.ADD, or what stands for one, such as np.add or MPI.SUM"
        raise TypeError(f"{call}: op: expected {known}, got {show(op)}{hint}")
    dtype = np.dtype(dtype)
    if dtype.fields is not None:
        return _of_records(dtype, op, func, call)
    if op in _LOCATED:
        raise TypeError(f"{call}: op: {op.name} on dtype {dtype}: {_PAIRS}")
    if dtype.kind not in "biufcmM" or not dtype.isnative:
        raise TypeError(
            f"{call}: op: {op.name} on dtype {dtype}: expected a boolean, integer, floating or "
            "complex dtype in native byte order, one of times, or a structured one"
        )
    if op in _USER:
        return _of_user(dtype, op, func, call)
    _expect_no_function(op, func, call)
    if op in _BITWISE and dtype.kind in "fc":
        raise TypeError(f"{call}: op: {op.name} is for integers, not for dtype {dtype}")
    if dtype.kind in _OF_TIMES and op not in _OF_TIMES[dtype.kind]:
        raise TypeError(f"{call}: op: {op.name} is not for times, dtype {dtype}")
    if op in ORDER and dtype.kind == "c":
        raise TypeError(f"{call}: op: {op.name} needs an order, dtype {dtype} has none")

    number = _TYPES.get((dtype.kind, dtype.itemsize))
    code = None if number is None else (number, int(op))
    written = op in (Op.ADD, Op.MULT) and dtype.kind in "fc"
    return (Written if written else Exact)(dtype, op, None, code)


_PAIRS = (
    "expected records of two numbers, a value that has an order and an integer index, such as "
    "np.dtype([('value', np.float64), ('index', np.int64)])"
)


def _of_records(dtype: np.dtype[Any], op: Op, func: Binary | None, call: str) -> Kernel:
    """Return the kernel on a structured dtype, as `find` does."""
    what = f"{call}: op: {op.name} on dtype {dtype}"
    if dtype.hasobject:
        raise TypeError(f"{what}: expected records without Python objects")
    if not dtype.isnative:
        raise TypeError(f"{what}: expected fields in native byte order")
    if not 0 < dtype.itemsize <= longest:
        raise TypeError(f"{what}: expected records of 1 to {longest} bytes, got {dtype.itemsize}")
    if op in _USER:
        return _of_user(dtype, op, func, call)
    if op not in _LOCATED:
        raise TypeError(
            f"{what}: records have MINLOC and MAXLOC, of a value and an index, and functions of "
            "your own: FUNC or NONCOMM_FUNC with func="
        )
    _expect_no_function(op, func, call)
    pair = Pair.of(dtype)
    if pair is None:
        raise TypeError(f"{what}: {_PAIRS}")
    return Located(dtype, op, pair, _located_code(dtype, op, pair))


def _located_code(dtype: np.dtype[Any], op: Op, pair: Pair) -> tuple[int, ...] | None:
    number = _TYPES.get((pair.value.kind, pair.value.itemsize))
    if number is None:
        return None
    index = pair.index.itemsize, int(pair.index.kind == "i")
    return (number, int(op), dtype.itemsize, pair.value_at, pair.index_at, *index)


def _expect_no_function(op: Op, func: Binary | None, call: str) -> None:
    if issubclass(type(func), Flags):  # isinstance would ask the object
        names = flag_names(cast(Flags, func))
        raise TypeError(f"{call}: func: got {names}, a flag: pass it as flags=")
    if func is not None:
        raise ValueError(f"{call}: func: expected None with {op.name}, got {function_name(func)}")


def _of_user(dtype: np.dtype[Any], op: Op, func: Binary | None, call: str) -> Kernel:
    if func is None:
        raise ValueError(f"{call}: func: {op.name} needs a function, got None")
    if not callable(func):
        raise TypeError(f"{call}: func: expected a callable of two operands, got {show(func)}")
    records = dtype.fields is not None
    whole: type[Vectorized] = VectorizedOnRecords if records else Vectorized
    scalar: type[Scalar] = ScalarOnRecords if records else Scalar
    if isinstance(func, np.ufunc):
        if (func.nin, func.nout) != (2, 1):
            raise TypeError(f"{call}: func: expected two operands and one result, got {show(func)}")
        if dtype.fields is not None and not _takes_records(func, dtype):
            raise TypeError(
                f"{call}: func: {function_name(func)} is not for records, dtype {dtype}: "
                "expected a function of two records"
            )
        return _built_in(dtype, op, func) or whole(dtype, op, func, call)
    vectorized = getattr(func, "xupc_vectorized", False)
    return (whole if vectorized else scalar)(dtype, op, func, call)


def _takes_records(func: np.ufunc, dtype: np.dtype[Any]) -> bool:
    """Return whether a ufunc has a loop for records: those of `np.frompyfunc` take anything."""
    try:
        func(np.zeros(0, dtype), np.zeros(0, dtype))
    except TypeError:
        return False
    return True


def _built_in(dtype: np.dtype[Any], op: Op, func: np.ufunc) -> Kernel | None:
    """Return the kernel of the operation that equals a commutative ufunc, if the core has it."""
    same = _SAME.get(func)
    if op != Op.FUNC or same is None or (same in _BITWISE and dtype.kind == "f"):
        return None
    number = _TYPES.get((dtype.kind, dtype.itemsize))
    return None if number is None else find(dtype, same)
