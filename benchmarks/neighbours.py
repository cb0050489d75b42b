"""Measure exchanges between neighbours on a periodic grid beside mpi4py's, in one job.

    XUPC_COMM=force mpiexec -n 2 python benchmarks/neighbours.py

The ways take turns, eight times a hundred calls each (fewer of long blocks): `Neighbor_alltoall` of
mpi4py, the same through `xupc.Comm`, a plan of `allav_neighbour_exchange` on the same arrays, a
plan on shared arrays, and `Neighbor_alltoallv` of the first two. A time is the third shortest of
the eight, in microseconds per call on thread 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from batches import batch
from mpi4py import MPI

import xupc

TURNS, KEPT = 8, 2
PLAIN = MPI.COMM_WORLD
SIZES = (8, 1024, 16 << 10, 256 << 10, 2 << 20)
MYSYNC = xupc.IN_MYSYNC | xupc.OUT_MYSYNC


def ways(nbytes: int, dims: list[int]) -> dict[str, Callable[[], Any]]:
    """Return the calls that take turns, for blocks of so many bytes."""
    plain = PLAIN.Create_cart(dims, [True] * len(dims))
    drop_in = xupc.Comm(plain)
    near, blocks = xupc.cartesian(dims, True), 2 * len(dims)
    dst, src = np.zeros((blocks, nbytes), np.uint8), np.ones((blocks, nbytes), np.uint8)
    one, two = (xupc.all_alloc(blocks * nbytes * PLAIN.size, "u1", "*") for _ in range(2))
    parts = [slice(k * nbytes, (k + 1) * nbytes) for k in range(blocks)]
    sizes = [nbytes] * blocks
    return {
        "mpi4py": lambda: plain.Neighbor_alltoall(src, dst),
        "drop-in": lambda: drop_in.Neighbor_alltoall(src, dst),
        "plan": xupc.allav_neighbour_exchange(near, list(dst), list(src)),
        "shared plan": xupc.all_neighbour_exchange(near, one, two, parts, parts, MYSYNC),
        "mpi4py v": lambda: plain.Neighbor_alltoallv([src, sizes], [dst, sizes]),
        "drop-in v": lambda: drop_in.Neighbor_alltoallv([src, sizes], [dst, sizes]),
    }


def main() -> None:
    """Print a row of a table for each grid and size."""
    xupc.init()
    grids = [[PLAIN.size]]
    if PLAIN.size % 2 == 0 and PLAIN.size > 2:
        grids.append([2, PLAIN.size // 2])
    for dims in grids:
        for nbytes in SIZES:
            calls = ways(nbytes, dims)
            count = max(5, min(100, (4 << 20) // nbytes))
            turns = [[batch(call, count, PLAIN) for call in calls.values()] for _ in range(TURNS)]
            best = [sorted(times)[KEPT] for times in zip(*turns, strict=True)]
            if PLAIN.rank == 0:
                name = "x".join(map(str, dims))
                if nbytes == SIZES[0]:
                    print(f"\n| grid | bytes | {' | '.join(calls)} |\n|{'---|' * (2 + len(calls))}")
                print(f"| {name} | {nbytes} | {' | '.join(f'{t:.2f}' for t in best)} |", flush=True)
    xupc.finalize()


main()
