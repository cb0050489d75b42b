"""`MPI.COMM_WORLD` as mpi4py made it, and the communicator that can replace it.

mpi4py pickles a constant by its name in ``mpi4py.MPI``. After a replacement the name leads to
another object, so both objects pickle as a call of a function in this module.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

__all__ = ["is_replacement", "keep", "plain", "reduced", "replacement"]

NAME = "COMM_WORLD"

_plain: MPI.Intracomm = MPI.COMM_WORLD
_replacement: MPI.Intracomm | None = None


def plain() -> MPI.Intracomm:
    """Return the communicator that mpi4py made."""
    return _plain


def replacement() -> MPI.Intracomm:
    """Return the communicator that is now ``MPI.COMM_WORLD``."""
    return _plain if _replacement is None else _replacement


def is_replacement(comm: object) -> bool:
    """Return whether `comm` is the object that has replaced ``MPI.COMM_WORLD``."""
    return comm is not None and comm is _replacement


def keep(comm: MPI.Intracomm) -> None:
    """Note that `comm` replaces ``MPI.COMM_WORLD``; both can be pickled from now on."""
    global _replacement
    _replacement = comm
    copyreg.pickle(MPI.Intracomm, _reduce)


def reduced(comm: MPI.Intracomm) -> tuple[Callable[[], Any], tuple[()]] | None:
    """Return how to pickle one of the two objects; None for any other communicator."""
    if is_replacement(comm):
        return replacement, ()
    return (plain, ()) if comm is _plain and _replacement is not None else None


def _reduce(comm: MPI.Intracomm) -> Any:
    """Pickle an object of mpi4py's class.

    Types are compared by equality in `copyreg.dispatch_table`, so objects of `Comm` come here too.
    """
    return reduced(comm) or comm.__reduce__()
