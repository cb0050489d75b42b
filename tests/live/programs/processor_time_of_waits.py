"""Processor time of threads that wait for a late one, in nine kinds of calls: ``... LATE_THREAD``.

Prints a JSON line of each call and thread: name, thread, share of a core, seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

import xupc


def main(late: int) -> None:
    team = xupc.init()
    n, many = 1 << 13, team.size << 13  # elements
    a, b = (xupc.all_alloc(team.size * many, np.float64, many) for _ in range(2))
    mine, all_of = np.ones(n), np.empty(many)
    calls: dict[str, Callable[[], object]] = {
        "barrier": lambda: xupc.barrier(),
        "broadcast": lambda: xupc.all_broadcast(b, a, 8 * n),
        "broadcast of 8": lambda: xupc.all_broadcast(b, a, 8),
        "gather_all": lambda: xupc.all_gather_all(b, a, 8 * n),
        "exchange": lambda: xupc.all_exchange(b, a, 8 * n),
        "reduce_mpi_all": lambda: xupc.all_reduce_mpi_all(b, a, xupc.ADD, n),
        "values": lambda: xupc.allav_gather_all(all_of, mine),
        "values of 8": lambda: xupc.allv_reduce_all(1.0, xupc.ADD),
        "handle": lambda: xupc.all_gather_all(b, a, 8 * n, xupc.ASYNC).wait(),
    }
    for name, call in calls.items():
        call()
        xupc.barrier()
        if team.rank == late:
            time.sleep(0.4)  # what is measured: the others' processor time in so long a wait
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if team.rank != late:
            print(json.dumps([name, team.rank, round(cpu / wall, 3), round(wall, 3)]))
        xupc.barrier()
    xupc.finalize()


main(int(sys.argv[1]))
