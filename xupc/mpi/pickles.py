"""Objects as bytes: what `MPI.pickle` makes of them, with large buffers beside the pickle.

A program can replace the functions of `MPI.pickle`, and does so for its messages too. Large
buffers stay out of the pickle (pickle protocol 5) only with the functions that mpi4py starts with.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Sequence
from struct import Struct, calcsize, pack, unpack_from
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.uneven_blocks import Array

__all__ = ["PICKLING", "Parcel", "dump", "in_band", "load", "load_array", "room", "table"]

_COUNT = Struct("q")
_ALONE = frozenset((int, float, complex, str, bytes, bool))  # they cannot be changed


class Parcel:
    """An object as bytes.

    Attributes
    ----------
    body
        The pickle; with buffers, a table of them is before it.
    buffers
        Memory of the object that is not in the pickle.
    value
        The object, if nothing can tell it from what reading its pickle makes; else None.
    """

    __slots__ = ("body", "buffers", "value")

    def __init__(self, body: bytes, buffers: Sequence[Array] = (), value: Any = None) -> None:
        self.body = body
        self.buffers = buffers
        self.value = value

    @property
    def number(self) -> int:
        """Return the length of the body, and in the lowest bit whether there are buffers."""
        return 2 * len(self.body) + bool(self.buffers)

    @property
    def beside(self) -> int:
        """Return the bytes of the buffers."""
        return sum(buffer.size for buffer in self.buffers)


def in_band(obj: Any) -> bytes:
    """Return an object's pickle with all of its data."""
    data = MPI.pickle.dumps(obj)
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes, {type(data).__name__} found")  # mpi4py's error
    return data


def dump(obj: Any) -> Parcel:
    """Return an object as bytes; its large buffers are the object's own memory.

    Raises
    ------
    Exception
        What the pickling of the object raises.
    """
    short = type(obj) is np.ndarray and obj.nbytes < MPI.pickle.THRESHOLD
    if short or not _standard():
        return Parcel(in_band(obj))
    value = obj if type(obj) in _ALONE else None
    if type(obj) is bytes and len(obj) >= MPI.pickle.THRESHOLD:
        obj = pickle.PickleBuffer(obj)  # read as bytes, but not copied into the pickle
    elif value is not None:
        return Parcel(in_band(obj), value=value)
    try:
        data, found = MPI.pickle.dumps_oob(obj)
    except (BufferError, pickle.PicklingError):  # a buffer that a pickle can hold
        return Parcel(in_band(obj))
    if not found:
        return Parcel(data)
    memory: list[Any] = found
    buffers = [np.frombuffer(buffer, np.uint8) for buffer in memory]
    sizes = [2 * array.size + (not array.flags.writeable) for array in buffers]
    return Parcel(pack(f"{len(sizes) + 1}q", len(sizes), *sizes) + data, buffers, value)


PICKLING = (in_band.__code__, dump.__code__)
"""All errors in these functions are those of an object, or of the program's own pickling."""


def _standard() -> bool:
    """Return True if pickling is by the functions and a protocol that mpi4py starts with."""
    protocol = MPI.pickle.PROTOCOL
    if protocol is None or protocol < 5:
        return False
    found = gc.get_referents(MPI.pickle)
    return pickle.dumps in found and pickle.loads in found


def table(body: Any) -> list[int]:
    """Return the sizes of the buffers beside a pickle, each with the bit of `room`."""
    (count,) = _COUNT.unpack_from(body)
    return list(unpack_from(f"{count}q", body, _COUNT.size))


def room(size: int) -> bytearray:
    """Return memory for a buffer; the lowest bit of `size` is set if it is read-only."""
    return bytearray(size >> 1)


class _OfArrays(pickle.Unpickler):
    """Reads the pickles of arrays, and runs no code of the program."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _OF_ARRAYS:
            raise pickle.UnpicklingError("no array")
        return super().find_class(module, name)


_make: Any = np.zeros(1).__reduce_ex__(5)[0]  # numpy's own function
_OF_ARRAYS = frozenset((kind.__module__, kind.__name__) for kind in (np.dtype, _make))


def load_array(body: bytes, buffers: Sequence[Array]) -> Any:
    """Return the array of numpy of which this is the pickle; None if it is of anything else."""
    data = io.BytesIO(memoryview(body)[calcsize(f"{len(buffers) + 1}q") :])
    try:
        found = _OfArrays(data, buffers=buffers).load()
    except Exception:
        return None
    return found if type(found) is np.ndarray else None


def load(body: Any, buffers: Sequence[Any] | None = None) -> Any:
    """Return an object.

    `buffers` are from `room` for a body with a table, else None. The object's parts are of
    the same types as if its buffers had been in the pickle.
    """
    if not len(body):  # mpi4py takes an empty pickle for None
        return None
    if buffers is None:
        return MPI.pickle.loads(MPI.buffer(body))
    sizes = table(body)
    memory = [
        bytes(buffer) if size & 1 else buffer for buffer, size in zip(buffers, sizes, strict=True)
    ]
    data = memoryview(body)[calcsize(f"{len(sizes) + 1}q") :]
    return MPI.pickle.loads_oob(data, memory)
