"""Measure calls of the drop-in communicator beside mpi4py's, in one job.

    XUPC_COMM=force mpiexec -n 2 python benchmarks/drop_in.py [BYTES ...] [METHOD ...]

Bytes are those of a thread's block; without them 8 and 1024. The two communicators take turns,
eight times a batch of calls each. A time is the shortest of the eight, in microseconds per call on
the slowest thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

TURNS, MOST = 8, 100
BATCH = 5e-3  # seconds
PLAIN = MPI.COMM_WORLD
Call = Callable[[Any], Any]


def on_buffers(nbytes: int) -> dict[str, Call]:
    """Return the methods to call, with arrays of so many bytes for each thread."""
    n, size = nbytes // 8, PLAIN.size
    x, y = np.ones(n), np.zeros(n)
    many, all_of = np.ones(n * size), np.zeros(n * size)
    counts = [n] * size
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
        "Exscan": lambda comm: comm.Exscan(x, y),
        "Reduce_scatter_block": lambda comm: comm.Reduce_scatter_block(many, y),
        "Reduce_scatter": lambda comm: comm.Reduce_scatter(many, y, counts),
        "Allgatherv": lambda comm: comm.Allgatherv(x, [all_of, counts, MPI.DOUBLE]),
        "Gatherv": lambda comm: comm.Gatherv(x, [all_of, counts, MPI.DOUBLE]),
        "Scatterv": lambda comm: comm.Scatterv([many, counts, MPI.DOUBLE], y),
        "Alltoallv": lambda comm: comm.Alltoallv(
            [many, counts, MPI.DOUBLE], [all_of, counts, MPI.DOUBLE]
        ),
    }


def on_objects(nbytes: int) -> dict[str, Call]:
    """Return the methods to call, with strings of bytes; reductions have arrays."""
    item, x = bytes(nbytes), np.ones(nbytes // 8)
    items = [item] * PLAIN.size
    return {
        "bcast": lambda comm: comm.bcast(item),
        "gather": lambda comm: comm.gather(item),
        "scatter": lambda comm: comm.scatter(items),
        "allgather": lambda comm: comm.allgather(item),
        "alltoall": lambda comm: comm.alltoall(items),
        "reduce": lambda comm: comm.reduce(x),
        "allreduce": lambda comm: comm.allreduce(x),
        "scan": lambda comm: comm.scan(x),
        "exscan": lambda comm: comm.exscan(x),
    }


def batch(call: Call, comm: Any, calls: int) -> float:
    """Return the microseconds of a call, from a batch of them."""
    PLAIN.Barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call(comm)
    return (time.perf_counter() - begin) / calls * 1e6


def measured(call: Call, drop_in: Any) -> tuple[float, float]:
    """Return the times of mpi4py's call and of xupc's."""
    for comm in (PLAIN, drop_in):
        batch(call, comm, 3)
    guess = PLAIN.allreduce(batch(call, PLAIN, 2), MPI.MAX)
    calls = max(2, min(MOST, int(BATCH * 1e6 / guess)))
    turns = [[batch(call, comm, calls) for comm in (PLAIN, drop_in)] for _ in range(TURNS)]
    slowest = np.empty((TURNS, 2))
    PLAIN.Allreduce(np.array(turns), slowest, MPI.MAX)
    plain, ours = slowest.min(axis=0)
    return float(plain), float(ours)


def main(words: list[str]) -> None:
    """Print a row for each method and size."""
    drop_in = xupc.Comm(PLAIN)
    drop_in.Barrier()
    sizes = [int(word) for word in words if word.isdigit()] or [8, 1024]
    names = [word for word in words if not word.isdigit()]
    for nbytes in sizes:
        for name, call in (on_buffers(nbytes) | on_objects(nbytes)).items():
            if names and name not in names:
                continue
            plain, ours = measured(call, drop_in)
            if PLAIN.rank == 0:
                row = f"{nbytes:8} {name:22} mpi4py {plain:9.2f} xupc {ours:9.2f}"
                print(f"{row}  {ours / plain:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
