"""The size of a message as a program describes it to mpi4py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

__all__ = ["bytes_of"]


def bytes_of(arguments: Sequence[Any]) -> int:
    """Return the bytes of the first argument that describes a message; 0 if none does."""
    return next((size for argument in arguments[:2] if (size := _bytes(argument))), 0)


def _bytes(message: Any) -> int:
    if isinstance(message, list | tuple) and message:
        return _described(message[0], message[1:])
    try:
        return memoryview(message).nbytes
    except (TypeError, ValueError, BufferError):
        return 0


def _described(buffer: Any, rest: Sequence[Any]) -> int:
    """Return the bytes of a buffer with a count, a datatype or both."""
    count = next((x for x in rest if isinstance(x, int)), None)
    datatype = next((x for x in rest if isinstance(x, MPI.Datatype)), None)
    if count is not None and datatype is not None:
        return count * datatype.Get_size()
    return _bytes(buffer)
