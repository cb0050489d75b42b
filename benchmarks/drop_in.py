"""Measure short calls of the drop-in communicator beside mpi4py's, in one job.

    XUPC_COMM=force mpiexec -n 2 python benchmarks/drop_in.py

The two take turns, eight times a hundred calls each. A time is the third shortest of the eight, in
microseconds per call on thread 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

TURNS, BATCH, KEPT = 8, 100, 2
PLAIN = MPI.COMM_WORLD


def calls(nbytes: int) -> dict[str, Callable[[Any], None]]:
    """Return the methods to call, with arrays of so many bytes."""
    n = nbytes // 8
    x, y = np.ones(n), np.zeros(n)
    many, all_of = np.ones(n * PLAIN.size), np.zeros(n * PLAIN.size)
    return {
        "Barrier": lambda comm: comm.Barrier(),
        "Bcast": lambda comm: comm.Bcast(x),
        "Gather": lambda comm: comm.Gather(x, all_of),
        "Scatter": lambda comm: comm.Scatter(many, y),
        "Allgather": lambda comm: comm.Allgather(x, all_of),
        "Alltoall": lambda comm: comm.Alltoall(many, all_of),
        "Reduce": lambda comm: comm.Reduce(x, y),
        "Allreduce": lambda comm: comm.Allreduce(x, y),
        "Scan": lambda comm: comm.Scan(x, y),
        "Reduce_scatter_block": lambda comm: comm.Reduce_scatter_block(many, y),
    }


def batch(call: Callable[[Any], None], comm: Any) -> float:
    """Return the microseconds of a call, from a batch of them."""
    for _ in range(3):
        call(comm)
    PLAIN.Barrier()
    begin = time.perf_counter()
    for _ in range(BATCH):
        call(comm)
    return (time.perf_counter() - begin) / BATCH * 1e6


def main() -> None:
    """Print a row for each method and size."""
    drop_in = xupc.Comm(PLAIN)
    for nbytes in (8, 1024):
        for name, call in calls(nbytes).items():
            turns = [(batch(call, PLAIN), batch(call, drop_in)) for _ in range(TURNS)]
            plain, ours = (sorted(times)[KEPT] for times in zip(*turns, strict=True))
            if PLAIN.rank == 0:
                row = f"{nbytes:6} {name:22} mpi4py {plain:8.2f} xupc {ours:8.2f}"
                print(f"{row}  {ours / plain:.2f}", flush=True)


main()
