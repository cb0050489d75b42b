"""Check that a communicator of `xupc.Comm` still works after a call that failed."""

from __future__ import annotations

import numpy as np

import xupc

__all__ = ["check_usable"]


def check_usable(comm: xupc.Comm) -> None:
    """Check the results of some calls of each kind, new and repeated ones, on all threads."""
    a, b = np.full(3, 1.0), np.zeros(3)
    for _ in range(2):
        assert comm.allgather(comm.rank) == list(range(comm.size))
        assert comm.bcast(comm.rank, comm.size - 1) == comm.size - 1
        comm.Allreduce(a, b)
        assert (b == comm.size).all()
        comm.Iallreduce(a, b).Wait()
        assert comm.allreduce(np.full(40_000, 1))[-1] == comm.size
