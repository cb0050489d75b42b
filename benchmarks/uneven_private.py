"""Measure the `_v` calls on private arrays beside mpi4py's, in one job.

    XUPC_COMM=off xupc run -n 2 benchmarks/uneven_private.py

Blocks have half of the bytes in the row to one and a half, by thread. The ways take turns, eight
times up to a hundred calls each: mpi4py's method, the `_v` call, its plan, and the call for equal
blocks of that many bytes. A time is the third shortest of the eight, in microseconds per call on
thread 0; the last column is the median over the turns of mpi4py's time by the call's.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from batches import batch
from mpi4py import MPI

import xupc

TURNS, KEPT = 8, 2
COMM = MPI.COMM_WORLD
SIZES = (8, 64 << 10, 1 << 20)
Ways = dict[str, Callable[[], Any]]


def ways(nbytes: int, threads: int, me: int) -> dict[str, Ways]:
    """Return for each method the calls that take turns."""
    counts = [nbytes // 2 + nbytes * i // max(1, threads - 1) for i in range(threads)]
    row, other = (np.ones(sum(counts), np.uint8) for _ in range(2))
    mine = np.ones(counts[me], np.uint8)
    even, many, more = (np.ones(n, np.uint8) for n in (nbytes, nbytes * threads, nbytes * threads))
    own = [counts[me]] * threads  # thread i gives each thread a block of counts[i] bytes
    out = np.ones(sum(own), np.uint8)
    root: Any = me == 0 or None
    gather = (root and row, mine, root and counts, 0)
    scatter = (mine, root and row, root and counts, 0)
    gather_all, exchange = (row, mine, counts), (other, out, counts, own)
    u1 = MPI.BYTE
    return {
        "Gatherv": {
            "mpi4py": lambda: COMM.Gatherv([mine, u1], [row, counts, u1], 0),
            "call": lambda: xupc.allav_gather_v(*gather),
            "plan": xupc.allav_gather_v.plan(*gather),
            "equal blocks": lambda: xupc.allav_gather(many, even, 0),
        },
        "Scatterv": {
            "mpi4py": lambda: COMM.Scatterv([row, counts, u1], [mine, u1], 0),
            "call": lambda: xupc.allav_scatter_v(*scatter),
            "plan": xupc.allav_scatter_v.plan(*scatter),
            "equal blocks": lambda: xupc.allav_scatter(even, many, 0),
        },
        "Allgatherv": {
            "mpi4py": lambda: COMM.Allgatherv([mine, u1], [row, counts, u1]),
            "call": lambda: xupc.allav_gather_all_v(*gather_all),
            "plan": xupc.allav_gather_all_v.plan(*gather_all),
            "equal blocks": lambda: xupc.allav_gather_all(many, even),
        },
        "Alltoallv": {
            "mpi4py": lambda: COMM.Alltoallv([out, own, u1], [other, counts, u1]),
            "call": lambda: xupc.allav_exchange_v(*exchange),
            "plan": xupc.allav_exchange_v.plan(*exchange),
            "equal blocks": lambda: xupc.allav_exchange(many, more),
        },
    }


def main() -> None:
    """Print a row of a table for each method and size."""
    with xupc.init() as team:
        for nbytes in SIZES:
            for method, calls in ways(nbytes, team.size, team.rank).items():
                count = max(5, min(100, (4 << 20) // nbytes))
                turns = [
                    [batch(call, count, COMM) for call in calls.values()] for _ in range(TURNS)
                ]
                best = [sorted(times)[KEPT] for times in zip(*turns, strict=True)]
                ratio = statistics.median(theirs / ours for theirs, ours, *_ in turns)
                if team.rank:
                    continue
                if (nbytes, method) == (SIZES[0], "Gatherv"):
                    print(f"load {os.getloadavg()[0]:.1f}\n")
                    print(f"| method | bytes | {' | '.join(calls)} | mpi4py / call |")
                    print(f"|{'---|' * (3 + len(calls))}")
                cells = " | ".join(f"{t:.2f}" for t in best)
                print(f"| {method} | {nbytes} | {cells} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
