"""Reductions of large arrays that are objects: combine their numbers, without more pickles.

The first exchange of a call brings the pickles of all threads without their large buffers. If these
are equal, all threads have arrays of one type and shape, and a reduction of the numbers has the
same result as mpi4py's operations on the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops import Op
from ..reduction.foreign_ops import as_op
from ..tuning.selection import Carriers
from .method_calls import call_of
from .pickles import Parcel, load_array
from .slots import Received

__all__ = ["BUFFER_METHODS", "array_of_all", "reduced"]

BUFFER_METHODS = {"allreduce": "Allreduce", "reduce": "Reduce"}
"""Methods on objects that can combine numbers, and those whose rules decide about it."""
_KINDS = {Op.ADD: "iufc", Op.MULT: "iuf", Op.AND: "iu", Op.OR: "iu", Op.XOR: "iu"}
_IN_ANY_ORDER = "iu"  # a sum of integers does not depend on the order of the threads


def array_of_all(
    method: str, op: Any, parcel: Parcel, received: Received, carriers: Carriers | None
) -> Any:
    """Return an array like those that all threads give; None if their numbers are not combined.

    All threads find the same: they have all pickles. MPI has one operation for all of them.
    """
    fits, _, _, numbers, bodies = received
    if method not in BUFFER_METHODS or not fits or not numbers[0] & 1:
        return None
    if any(body != parcel.body for body in bodies):
        return None
    # Objects of the program may be read only when no thread waits for this one any more.
    like = load_array(parcel.body, parcel.buffers)
    if like is None or len(parcel.buffers) != 1 or like.nbytes != parcel.beside:
        return None
    combine, dtype = as_op(op), like.dtype
    kinds = _KINDS.get(combine, "") if isinstance(combine, Op) else ""
    if dtype.kind not in kinds or not dtype.isnative or dtype.metadata:
        return None
    if len(bodies) > 2 and dtype.kind not in _IN_ANY_ORDER:
        return None
    if carriers is not None and carriers.by_mpi(BUFFER_METHODS[method], like.nbytes):
        return None
    return like


def reduced(
    team: Any, method: str, like: Any, op: Any, buffer: Any, root: Sequence[int], *, gets: bool
) -> Any:
    """Reduce arrays like `like`; return the result, or None on a thread that gets none.

    `buffer`: the bytes of this thread's array. `root`: that of the call, if the method has one.
    """
    operands = buffer.view(like.dtype)
    if not operands.flags.aligned:
        operands = operands.copy()
    result = np.empty_like(like, subok=False) if gets else None
    flat = None if result is None else result.ravel(order="K")
    call = call_of(method, "reduce" if root else "reduce_all")
    call(flat, operands, as_op(op), *root, None, 0, team)
    return result
