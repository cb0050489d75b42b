"""Measure calls of the drop-in communicator beside mpi4py's, in one job.

    XUPC_COMM=force mpiexec -n 2 python benchmarks/drop_in.py [BYTES ...] [METHOD ...]

Bytes are those of a thread's block; without them 8 and 1024. Methods on objects, and others whose
size some threads lack, have the smallest, the middle and the largest size. The two communicators
take turns, eight times a batch of calls each. A time is the shortest of the eight, in microseconds
per call on the slowest thread.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.bench.drop_in_calls import Call, near_of, ways
from xupc.bench.drop_in_probe import PLAIN, batch
from xupc.bench.drop_in_tuner import cells_of, methods_named

TURNS, MOST = 8, 100
BATCH = 5e-3  # seconds


def measured(call: Call, plain: Any, drop_in: Any) -> tuple[float, float]:
    """Return the times of mpi4py's call and of xupc's."""
    for comm in (plain, drop_in):
        batch(call, comm, 3)
    guess = PLAIN.allreduce(batch(call, plain, 2), MPI.MAX)
    calls = max(2, min(MOST, int(BATCH * 1e6 / guess)))
    turns = [[batch(call, comm, calls) for comm in (plain, drop_in)] for _ in range(TURNS)]
    slowest = np.empty((TURNS, 2))
    PLAIN.Allreduce(np.array(turns), slowest, MPI.MAX)
    theirs, ours = slowest.min(axis=0)
    return float(theirs), float(ours)


def main(words: list[str]) -> None:
    """Print a row for each method and size."""
    drop_in, near = xupc.Comm(PLAIN), near_of(PLAIN)
    pairs = {False: (PLAIN, drop_in), True: (near, xupc.Comm(near))}
    drop_in.Barrier()
    sizes = sorted(int(word) for word in words if word.isdigit()) or [8, 1024]
    methods = methods_named([word for word in words if not word.isdigit()])
    for name, nbytes in cells_of(methods, sizes):
        pair = pairs[name.startswith("Neighbor")]
        for way, call in ways(name, nbytes, pair[0]).items():
            plain, ours = measured(call, *pair)
            if PLAIN.rank == 0:
                row = f"{nbytes:8} {name:22} {way:8} mpi4py {plain:9.2f} xupc {ours:9.2f}"
                print(f"{row}  {ours / plain:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
