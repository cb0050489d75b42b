"""Properties of structured dtypes for reductions: bytes, padding, records of two numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.steps import OP_SCRATCH_BYTES
from ..records import record

__all__ = ["Pair", "gaps", "longest", "name", "raw"]

Array = NDArray[Any]

longest = OP_SCRATCH_BYTES // 4
"""Bytes of the longest record that can be reduced: any scratch has room for four of them."""


def name(dtype: np.dtype[Any]) -> str:
    """Return a text that only equal dtypes have."""
    return dtype.str if dtype.fields is None else repr(dtype)


def raw(x: Array) -> Array:
    """Return the same memory as elements without fields: numpy copies no padding of records."""
    return x if x.dtype.fields is None else x.view(f"V{x.dtype.itemsize}")


def gaps(dtype: np.dtype[Any]) -> NDArray[np.intp]:
    """Return the positions of padding bytes in an element."""
    return np.flatnonzero(~_used(dtype))


def _used(dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    used = np.zeros(dtype.itemsize, bool)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used(base), int(np.prod(shape)))
    if dtype.fields is not None:
        for field, offset, *_ in dtype.fields.values():
            used[offset : offset + field.itemsize] |= _used(field)
        return used
    used[:] = True
    part = np.zeros(1, dtype).real.dtype  # complex: of both parts
    if part.kind == "f" and part.itemsize > 10 and np.finfo(part).nmant == 63:  # x87
        used.reshape(-1, part.itemsize)[:, 10:] = False
    return used


@record
class Pair:
    """The two numbers of a record: their names, types and offsets."""

    names: tuple[str, str]
    value: np.dtype[Any]
    index: np.dtype[Any]
    value_at: int
    index_at: int

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> Pair | None:
        """Return the pair of a dtype if it has an ordered value and an integer, else None."""
        if dtype.fields is None or dtype.names is None or len(dtype.names) != 2:
            return None
        (value, at), (index, behind) = (dtype.fields[x][:2] for x in dtype.names)
        first, second = sorted(((at, value.itemsize), (behind, index.itemsize)))
        if value.kind not in "biufmM" or index.kind not in "iu" or sum(first) > second[0]:
            return None
        a, b = dtype.names
        return cls((a, b), value, index, at, behind)
