"""Reductions by functions against the built-in operation: ratios of medians, in one run.

    xupc run -n 2 benchmarks/functions.py

Each form sums float64 with ADD, with the ufunc np.add, which is ADD, and with a function marked
vectorized and pure; and finds the maximum with MAX and with the ufunc np.fmax, which the core does
not have.
"""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

SIZES = [8, 1 << 10, 1 << 16, 1 << 20, 8 << 20]
FORMS = ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all", "prefix_reduce", "suffix_reduce")


@xupc.vectorized(pure=True)
def add(a: Any, b: Any) -> Any:
    """Return the sum of two arrays."""
    return a + b


def shown(nbytes: int) -> str:
    """Return a size in its unit."""
    return f"{nbytes >> 10} KiB" if nbytes >> 10 else f"{nbytes} B"


def measure(calls: list[Callable[[], None]], repetitions: int) -> list[float]:
    """Return the median of each call in ns, of the maximum over threads; calls take turns."""
    times: list[list[int]] = [[] for _ in calls]
    gc.disable()
    for _ in range(repetitions):
        for call, mine in zip(calls, times, strict=True):
            xupc.barrier()
            begin = time.perf_counter_ns()
            call()
            mine.append(time.perf_counter_ns() - begin)
    gc.enable()
    longest = np.empty((len(calls), repetitions), np.int64)
    MPI.COMM_WORLD.Allreduce(np.array(times, np.int64), longest, MPI.MAX)
    return [statistics.median(row.tolist()) for row in longest]


def main() -> None:
    """Print a table."""
    with xupc.init() as team:
        if team.rank == 0:
            print("| float64, bytes per thread | ADD | np.add / ADD | vectorized / ADD | "
                  "np.fmax / MAX |")
            print("| --- | ---: | ---: | ---: | ---: |")
        for nbytes in SIZES:
            n, threads = nbytes // 8, team.size
            src = xupc.all_alloc(n * threads, np.float64, n)
            dst = xupc.all_alloc(n * threads, np.float64, n)
            src.local[:] = np.random.default_rng(team.rank).random(n)
            for form in FORMS:
                call = functools.partial(getattr(xupc, f"all_{form}"), dst, src)
                by = functools.partial(call, xupc.FUNC)
                ways = [
                    functools.partial(call, xupc.ADD),
                    functools.partial(by, func=np.add),
                    functools.partial(by, func=add),
                    functools.partial(call, xupc.MAX),
                    functools.partial(by, func=np.fmax),
                ]
                measure(ways, 2)
                repetitions = min(2000, max(15, 200 * 65536 // nbytes))
                built_in, *sums, most, fmax = measure(ways, repetitions)
                if team.rank == 0:
                    ratios = " | ".join(f"{t / built_in:.2f}" for t in sums)
                    print(f"| {form} {shown(nbytes)} | {built_in / 1e3:.1f} µs | {ratios} | "
                          f"{fmax / most:.2f} |")
            xupc.all_free(src)
            xupc.all_free(dst)


if __name__ == "__main__":
    main()
