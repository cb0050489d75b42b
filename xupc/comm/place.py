"""The place of this process in MPI's world, without an import of mpi4py."""

from __future__ import annotations

import sys

__all__ = ["place_in_mpi"]


def place_in_mpi() -> tuple[int, int]:
    """Return (rank, size) in MPI's world; (0, 1) before MPI has started and after its end."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return 0, 1
    return module.COMM_WORLD.Get_rank(), module.COMM_WORLD.Get_size()
