"""Types of single values, and the arrays and envelopes in which they travel."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import show
from ..pgas.shared_pointer import SharedPointer

__all__ = ["ENVELOPE", "header", "kind_of", "of_header", "packed", "unpacked"]

Array = NDArray[Any]

_PYTHON: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
_POINTER = "SharedPointer"
ENVELOPE = 512  # bytes: a pointer pickles to some 250


def kind_of(value: Any, call: str) -> tuple[str, np.dtype[Any]]:
    """Return the name of a value's type, and how it travels."""
    dtype = _PYTHON.get(type(value))
    if dtype is not None:
        return type(value).__name__, dtype
    if issubclass(type(value), SharedPointer):  # isinstance would believe a proxy, not to be sent
        return _POINTER, np.dtype((np.void, ENVELOPE))
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"numpy {value.dtype}", value.dtype
    for kind, dtype in _PYTHON.items():  # of a class of the user's: it comes back as a plain one
        if isinstance(value, kind):
            return kind.__name__, dtype
    raise TypeError(
        f"{call}: value: expected an int, float, complex, bool, numpy scalar or "
        f"SharedPointer, got {show(value)}"
    )


def packed(values: Sequence[Any], kind: str, dtype: np.dtype[Any], call: str) -> Array:
    """Return values of one type as an array."""
    if kind != _POINTER:
        try:
            return np.array(values, dtype).reshape(-1)
        except OverflowError:
            given = values if len(values) > 1 else values[0]
            raise OverflowError(
                f"{call}: value: expected an int of at most 64 bits, got {show(given)}"
            ) from None
    out = np.zeros((len(values), ENVELOPE), np.uint8)
    for row, value in zip(out, values, strict=True):
        data = pickle.dumps(value)
        if 4 + len(data) > ENVELOPE:
            raise ValueError(
                f"{call}: value: a pointer of this dtype or team takes {len(data)} bytes, expected "
                f"{ENVELOPE - 4} at most: {show(value)}"
            )
        row[:4].view(np.uint32)[0] = len(data)
        row[4 : 4 + len(data)] = np.frombuffer(data, np.uint8)
    return out.reshape(-1).view(dtype)


def unpacked(array: Array, kind: str) -> list[Any]:
    """Return the values of an array that `packed` made."""
    if kind == _POINTER:
        rows = array.view(np.uint8).reshape(-1, ENVELOPE)
        sizes = [int(row[:4].view(np.uint32)[0]) for row in rows]
        return [pickle.loads(row[4 : 4 + n].tobytes()) for row, n in zip(rows, sizes, strict=True)]
    return list(array) if kind.startswith("numpy") else list(array.tolist())


def header(kind: str, dtype: np.dtype[Any]) -> bytes:
    """Return the header of an envelope: the kind and the dtype of its value."""
    if dtype.fields is not None:  # all others are their `str`
        return pickle.dumps(dtype)
    return f"{kind}\n{dtype.str}\n".encode()


def of_header(data: bytes) -> tuple[str, np.dtype[Any]]:
    """Return the other end of `header`, of more bytes."""
    if data[:1] == pickle.PROTO:
        dtype = pickle.loads(data)
        return f"numpy {dtype}", dtype
    kind, name, _ = data.split(b"\n", 2)
    return kind.decode(), np.dtype(name.decode())
