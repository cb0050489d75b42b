"""Descriptions of messages, read as mpi4py reads them.

Objects of the program may return something else at each use, or raise an error. So each list is
read once, in mpi4py's order, and what it has is kept as exact types. If xupc refused an object that
mpi4py takes, this thread alone would enter MPI.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from typing import Any

import numpy as np
from mpi4py import MPI

__all__ = ["as_rank", "code_of", "integers", "is_integral", "is_list", "items_of", "read"]


def is_list(given: Any) -> bool:
    """Return whether an object is a list or a tuple: `isinstance` would believe a proxy, too."""
    return issubclass(type(given), list | tuple)


def items_of(given: Any) -> list[Any]:
    """Return the items of an object that has 2 to 4 of them."""
    n = len(given)
    if not 2 <= n <= 4:
        raise ValueError("message: expected 2 to 4 items")
    found = [*given]
    if len(found) != n:
        raise ValueError(f"message: expected {n} items, got {len(found)}")
    return found


def read(described: Any) -> Any:
    """Return a description of one message: a list of a known form, or the buffer alone.

    The list has a buffer, a count or ``(count, displacement)``, and a datatype: without a datatype
    or without a count if it is not given. Numbers are of type int.
    """
    if type(described) is np.ndarray or not is_list(described):
        return described
    buffer, *rest = items_of(described)
    count = place = datatype = None
    if len(rest) == 1 and isinstance(rest[0], MPI.Datatype | str):
        (datatype,) = rest
    elif len(rest) == 3:
        count, place, datatype = rest
    else:
        count, *more = rest
        datatype = more[0] if more else None
        if is_list(count):
            count, place = count
    place = None if place is None else operator.index(place)
    count = None if count is None else operator.index(count)
    number = [(count, place)] if place is not None else [] if count is None else [count]
    if datatype is None:
        return [buffer, *(number or [(None, None)])]
    return [buffer, *number, datatype]


def as_rank(given: Any) -> int:
    """Return a number of a thread, taken from any object that mpi4py takes for one."""
    if type(given) is int:
        return given
    status = MPI.Status()  # mpi4py itself makes it an int of C
    status.source = given
    return status.source


# --- numbers for each block ---------------------------------------------------------------------


def is_integral(given: Any) -> bool:
    """Return whether an object is one number for all blocks."""
    kind = type(given)
    if not hasattr(kind, "__index__"):
        return False
    if not hasattr(kind, "__getitem__"):
        return True
    try:
        len(given)
    except Exception:  # an array without dimensions
        return _has_index(given)
    return False


def _has_index(given: Any) -> bool:
    try:
        operator.index(given)
    except Exception:
        return False
    return True


def integers(given: Any, blocks: int) -> list[int]:
    """Return a number for each block; ValueError if there are more or fewer."""
    n = len(given)
    if n != blocks:
        raise ValueError(f"expected {blocks} items, got {n}")
    if type(given) is list or type(given) is tuple:
        return [operator.index(number) for number in given]
    return [operator.index(given[i]) for i in range(n)]


# --- types of elements --------------------------------------------------------------------------


def code_of(buffer: Any) -> str:
    """Return mpi4py's code for the elements of any buffer; "": bytes without a type."""
    try:
        code = memoryview(buffer).format
    except Exception:  # an array of another library
        if (found := _of_dlpack(buffer)) is not None or (found := _of_cuda(buffer)) is not None:
            return found
        raise
    return code[1:] if code[0] in "@<" else code


def _of_dlpack(buffer: Any) -> str | None:
    """Return the code of an array's elements by DLPack; numpy itself cannot read long doubles."""
    make, device = getattr(buffer, "__dlpack__", None), getattr(buffer, "__dlpack_device__", None)
    if make is None or device is None:
        return None
    stream = {} if device()[0] == _HOST else {"stream": -1}
    name, at = b"dltensor_versioned", 32  # behind a version, two addresses and flags
    try:
        capsule = make(**stream, max_version=(1, 0), copy=False)
    except TypeError:
        capsule = make(**stream)
        name, at = b"dltensor", 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    about = pointer(capsule, name) + at + 20  # behind an address, a device and the dimensions
    kind, bits, lanes = struct.unpack("BBH", ctypes.string_at(about, 4))
    if lanes != 1:  # mpi4py takes two floats for a complex number, anything else for bytes
        return _code("c", bits // 4) if (kind, lanes) == (2, 2) else ""
    return _code(_DLPACK.get(kind, ""), bits // 8)


_HOST = 1
_DLPACK = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


def _of_cuda(buffer: Any) -> str | None:
    about = getattr(buffer, "__cuda_array_interface__", None)
    if about is None:
        return None
    typestr = about["typestr"]
    return _code(typestr[1:2], int(typestr[2:]))


def _code(kind: str, nbytes: int) -> str:
    """Return the code of numbers of a kind of numpy's; "" if it has none of this size."""
    try:
        return str(np.dtype(f"{kind}{nbytes}").char) if kind in _KINDS else ""
    except TypeError:
        return ""


_KINDS = frozenset("iufcb")
