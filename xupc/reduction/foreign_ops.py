"""Operations of numpy and of mpi4py that mean one of xupc's."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from ..ops import Op
from .builtin_kernels import UFUNCS

__all__ = ["as_op", "mpi_name_of"]

_OF_NUMPY = {ufunc: op for op, ufunc in UFUNCS.items()}

# by MPI's names (MPI 4.1, 6.9.2)
_OF_MPI = {
    "SUM": Op.ADD, "PROD": Op.MULT, "MIN": Op.MIN, "MAX": Op.MAX,
    "BAND": Op.AND, "BOR": Op.OR, "BXOR": Op.XOR, "LAND": Op.LOGAND, "LOR": Op.LOGOR,
    "MINLOC": Op.MINLOC, "MAXLOC": Op.MAXLOC,
}  # fmt: skip


def as_op(op: Any) -> Any:
    """Return the `Op` that an operation of numpy or of mpi4py stands for, else `op` itself.

    Raise nothing: a call checks its arguments where it can report an error to all threads.
    """
    kind = type(op)  # isinstance would ask the object, which may be a dead proxy
    if issubclass(kind, Op):
        return op
    if issubclass(kind, np.ufunc):
        return _OF_NUMPY.get(op, op)
    mpi = sys.modules.get("mpi4py.MPI")  # loaded where there is an operation of it
    if mpi is not None and issubclass(kind, mpi.Op):
        return _of_mpi().get(mpi._handleof(op), op)
    return op


def mpi_name_of(op: Op) -> str:
    """Return MPI's name of an operation, such as SUM; xupc's own where MPI has none."""
    return next((name for name, each in _OF_MPI.items() if each == op), op.name)


@cache
def _of_mpi() -> dict[int, Op]:
    mpi: Any = sys.modules["mpi4py.MPI"]
    return {mpi._handleof(getattr(mpi, name)): op for name, op in _OF_MPI.items()}
