"""What the methods that xupc takes over have in common: the decision, and checks of arguments."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from mpi4py import MPI

from .carrier import team_for

__all__ = ["apart", "check_blocks", "in_place", "root_of", "team_of"]

_EMPTY = "no data"


def team_of(comm: Any, method: str, nbytes: int | None, why: str = "") -> Any:
    """Count a call, and return the team that carries it; None if MPI does.

    `nbytes` is None for a call without data, `why` a reason for MPI that all threads have.
    """
    record = comm._counts()
    team = team_for(comm, record)
    if team is None:
        why = record.refused
    elif nbytes == 0:
        why = why or _EMPTY
    record.note(method, nbytes or 0, "MPI" if why else "xupc", why)
    return None if why else team


def root_of(comm: Any, root: Any) -> int:
    """Return a root as an int; ValueError if there is no such thread."""
    rank = operator.index(root)
    if not 0 <= rank < comm.size:
        raise ValueError(f"root: expected 0 <= root < {comm.size}, got {rank}")
    return rank


def check_blocks(whole: int, block: int, blocks: int) -> None:
    """Raise ValueError if `whole` is not so many blocks of so many bytes or elements."""
    if whole != block * blocks:
        raise ValueError(f"expected {blocks} blocks of {block}, got {whole}")


def in_place(described: Any) -> bool:
    """Return whether this is ``MPI.IN_PLACE``, which mpi4py also writes as None."""
    return described is None or described is MPI.IN_PLACE


def apart(src: Any, dst: Any) -> Any:
    """Return `src`, or a copy if it shares memory with `dst`."""
    return src.copy() if src is not None and np.may_share_memory(src, dst) else src
