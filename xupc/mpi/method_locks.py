"""The locks that mpi4py keeps for a communicator, one for each method on objects.

mpi4py makes a lock while it holds another one, which `Free` needs, too. If Python's collector runs
at that point and frees a communicator, the thread waits for itself. So xupc has each lock made
before a call needs it, and without the collector.
"""

from __future__ import annotations

import gc

from mpi4py import MPI

__all__ = ["METHODS", "have_lock"]

METHODS = frozenset(("bcast", "gather", "scatter", "allgather", "alltoall"))
"""Methods for which mpi4py has a lock of their names. Programs can see it."""


def have_lock(comm: MPI.Comm, method: str) -> None:
    """Have mpi4py make the lock of a method, unless it is there."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        MPI._comm_lock(comm, method)
    finally:
        if enabled:
            gc.enable()
