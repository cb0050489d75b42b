"""Collectives called some dozens of times in a row, beside mpi4py's: a quick look across nodes.

    scripts/cluster run -n 16 -- PY benchmarks/in_a_row.py reduce_mpi:65536 exchange:16384

For each COLLECTIVE:BYTES (of a block) a line: ms per call of xupc and of mpi4py, medians of five
rows each. To compare two sizes of `XUPC_TUNING` or two versions let jobs of either take turns. MPI
does not wait for others where it need not, so its calls in a row overlap; `xupc bench` compares
single calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

ROWS = 5
WORK = 1 << 21  # about so many bytes of blocks in a row
Pair = tuple[Callable[[], object], Callable[[], object]]
ALL_TO_ALL = "scatter", "gather", "gather_all", "exchange"


def calls(collective: str, nbytes: int, dst: Any, src: Any) -> Pair:
    """Return xupc's call and mpi4py's for the same work; `dst` and `src` are of bytes."""
    comm, n, threads = MPI.COMM_WORLD, nbytes // 8, xupc.THREADS
    room = nbytes * (threads if collective in ALL_TO_ALL else 1)
    out, into = np.zeros(room, np.uint8), np.zeros(room, np.uint8)
    block, total = out[:nbytes], into[:nbytes]
    floats, sums = block.view(float), total.view(float)
    to, of = ((x + 0).cast(float, n) for x in (dst, src))
    pairs: dict[str, Pair] = {
        "broadcast": (lambda: xupc.all_broadcast(dst, src, nbytes), lambda: comm.Bcast(block)),
        "scatter": (
            lambda: xupc.all_scatter(dst, src, nbytes), lambda: comm.Scatter(out, total)
        ),
        "gather": (lambda: xupc.all_gather(dst, src, nbytes), lambda: comm.Gather(block, into)),
        "gather_all": (
            lambda: xupc.all_gather_all(dst, src, nbytes), lambda: comm.Allgather(block, into)
        ),
        "exchange": (
            lambda: xupc.all_exchange(dst, src, nbytes), lambda: comm.Alltoall(out, into)
        ),
        "reduce_mpi": (
            lambda: xupc.all_reduce_mpi(to, of, xupc.ADD, n * threads, n),
            lambda: comm.Reduce(floats, sums),
        ),
        "reduce_mpi_all": (
            lambda: xupc.all_reduce_mpi_all(to, of, xupc.ADD, n * threads, n),
            lambda: comm.Allreduce(floats, sums),
        ),
        "prefix_reduce": (
            lambda: xupc.all_prefix_reduce(to, of, xupc.ADD, n * threads, n),
            lambda: comm.Scan(floats, sums),
        ),
        "allav_broadcast": (lambda: xupc.allav_broadcast(floats, 0), lambda: comm.Bcast(floats)),
        "allav_reduce": (
            lambda: xupc.allav_reduce(sums, floats, xupc.ADD, 0),
            lambda: comm.Reduce(floats, sums),
        ),
        "allav_reduce_all": (
            lambda: xupc.allav_reduce_all(sums, floats, xupc.ADD),
            lambda: comm.Allreduce(floats, sums),
        ),
    }  # fmt: skip
    return pairs[collective]


def in_a_row(call: Callable[[], object], times: int) -> float:
    """Return the seconds of one of some calls in a row, until all threads are done."""
    comm = MPI.COMM_WORLD
    for _ in range(3):
        call()
    found = []
    for _ in range(ROWS):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(times):
            call()
        comm.Barrier()
        found.append((time.perf_counter() - start) / times)
    return statistics.median(found)


def main() -> None:
    """Measure the COLLECTIVE:BYTES that the arguments name, one after the other."""
    with xupc.init():
        for what in sys.argv[1:]:
            collective, _, size = what.partition(":")
            nbytes = int(size)
            room = nbytes * (xupc.THREADS if collective in ALL_TO_ALL else 1)
            dst, src = (xupc.all_alloc(xupc.THREADS * room, np.uint8, room) for _ in range(2))
            times = max(4, min(60, WORK // nbytes))
            ours, theirs = (in_a_row(f, times) for f in calls(collective, nbytes, dst, src))
            if xupc.MYTHREAD == 0:
                print(f"{what:24} xupc {ours * 1e3:9.3f}   mpi4py {theirs * 1e3:9.3f}", flush=True)
            for array in (dst, src):
                xupc.all_free(array)


if __name__ == "__main__":
    main()
