"""The types of mpi4py's objects, for annotations: only a type checker imports mpi4py here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py.MPI import Datatype, Intracomm, Op, Request, Win

__all__ = ["BufferSpec", "Datatype", "Intracomm", "Op", "Request", "Win"]

BufferSpec = list[Any]
"""A buffer, a count and a datatype, as mpi4py takes them: of any type, hence Any."""
