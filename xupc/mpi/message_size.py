"""The size of a message as a program describes it to mpi4py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

__all__ = ["bytes_of"]


def bytes_of(arguments: Sequence[Any]) -> int | None:
    """Return the bytes of the first argument that describes a message; None if none does.

    It raises no error of the program's objects: mpi4py itself looks at them.
    """
    try:
        sizes = [size for argument in arguments[:2] if (size := _bytes(argument)) is not None]
    except Exception:
        return None
    return next(filter(None, sizes), 0) if sizes else None


def _bytes(message: Any) -> int | None:
    if isinstance(message, list | tuple) and message:
        return _described(message[0], message[1:])
    try:
        return memoryview(message).nbytes
    except (TypeError, ValueError, BufferError):
        return None


def _described(buffer: Any, rest: Sequence[Any]) -> int | None:
    """Return the bytes of a buffer with a count, a datatype or both."""
    count = next((x for x in rest if isinstance(x, int)), None)
    datatype = next((x for x in rest if isinstance(x, MPI.Datatype)), None)
    if count is not None and datatype is not None:
        return count * datatype.Get_size()
    return _bytes(buffer)
