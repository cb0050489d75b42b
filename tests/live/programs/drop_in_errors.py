"""A program written for mpi4py that ends by an error: ``drop_in_errors.py WHAT CALLS``.

It makes so many calls before that. The last line of `fail` that runs is the one that raises it.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
what, calls = sys.argv[1], int(sys.argv[2])
mine, result = np.ones(8), np.empty(8)
for _ in range(calls):
    comm.Allreduce(mine, result)


def fail() -> None:
    """End by an error."""
    if what == "items":
        comm.scatter([1] if comm.rank == 0 else None)
    elif what == "types":
        comm.Allreduce(mine, np.empty(8, np.float32))
    elif what == "posted":
        comm.Iallreduce(mine, np.empty(8, np.float32))
    elif what == "pickle":
        comm.bcast(lambda: 1)
    elif what == "longer":
        ones, twos = [1] * comm.size, [2] * comm.size
        comm.Alltoallv([np.ones(2 * comm.size), twos], [np.ones(comm.size), ones])
    elif what == "own":
        raise KeyError("an error of the program")
    elif what == "differ":
        comm.Allreduce(mine[comm.rank :], result[comm.rank :])
    elif what == "interrupt":
        if comm.rank == 1:
            os.kill(os.getppid(), signal.SIGINT)  # to the program through its wrapper
            signal.pause()
        comm.Barrier()


fail()
