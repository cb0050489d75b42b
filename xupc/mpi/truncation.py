"""MPI's error for a block that is longer than its place, with the sizes as a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpi4py import MPI

from .journal import array_bytes, messages_of

__all__ = ["note_sizes", "truncated"]


def truncated(text: str) -> MPI.Exception:
    """Return MPI's error, with a note that names the sizes."""
    error = MPI.Exception(MPI.ERR_TRUNCATE)
    error.add_note(f"xupc: {text}")
    return error


def note_sizes(
    error: BaseException, name: str, given: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Add a note with the bytes of this thread's arrays to MPI's error of a call that MPI carried.

    `given`, `named`: the arguments. Without arrays there is no note: the sizes of what else the
    program gives may be known to its code alone.
    """
    if not isinstance(error, MPI.Exception) or error.Get_error_class() != MPI.ERR_TRUNCATE:
        return
    if name[0].islower():  # of objects
        return
    sizes = [(what, array_bytes(message)) for what, message in messages_of(name, given, named)]
    known = ", ".join(f"{what}: {size} bytes" for what, size in sizes if size is not None)
    if known:
        error.add_note(f"xupc: {name}, which MPI carried. Arrays of this thread: {known}")
