"""Messages of the core between nodes, with few types, or without MPI's functions: ``... CASE``."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.cases import case, run_case

import xupc


@case
def few_types() -> None:
    """Messages of exchanges are blocks far apart. MPI is given the types of those back that were
    not used for long, and the core must not use them then, however often a call has run.
    """
    from xupc.comm import datatypes

    datatypes.TYPES = 5
    team = xupc.init()
    T, me, most = team.size, team.rank, 320
    src = xupc.all_alloc(T * T * most, np.int64, T * most)
    dst = xupc.all_alloc(T * T * most, np.int64, T * most)
    for turn in range(4):
        for n in range(200, most, 10):  # too long to be led
            src.local[: T * n] = 1000 * turn + 100 * me + np.repeat(np.arange(T), n)
            xupc.all_exchange(dst, src, 8 * n, xupc.MULTICORE)
            here = 1000 * turn + 100 * np.repeat(np.arange(T), n) + me
            assert (dst.local[: T * n] == here).all(), (turn, n)
    freed = team.job.network.types_freed
    xupc.finalize()
    print("freed" if freed else "kept")


@case
def no_functions() -> None:
    """One thread does not find a function of MPI's."""
    import mpi4py.MPI

    from xupc.comm import mpi

    module: Any = mpi
    if mpi4py.MPI.COMM_WORLD.rank == 1:
        module.FUNCTIONS = (*mpi.FUNCTIONS[1:], "MPI_nothing_of_the_kind")
    team = xupc.init()
    total = xupc.allv_reduce_all(team.rank, xupc.ADD)
    print(team.native, total)
    xupc.finalize()


run_case()
