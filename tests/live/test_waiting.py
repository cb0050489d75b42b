"""A thread that waits leaves its core to others, whatever it waits in and for whom."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from support.launch import Result

from xupc.engine.native_core import core

NATIVE = core is not None and os.environ.get("XUPC_ENGINE", "auto") != "python"

PROGRAM = """
    import json, sys, time
    import numpy as np
    import xupc

    team, late = xupc.init(), int(sys.argv[1])
    n, many = 1 << 13, team.size << 13  # elements
    a, b = (xupc.all_alloc(team.size * many, np.float64, many) for _ in range(2))
    mine, all_of = np.ones(n), np.empty(many)
    calls = {
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
            time.sleep(0.4)
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if team.rank != late:
            print(json.dumps([name, team.rank, round(cpu / wall, 3), round(wall, 3)]))
        xupc.barrier()
    xupc.finalize()
"""


@pytest.mark.parametrize("nodes", [None, "2,2", "1,3"])
@pytest.mark.parametrize("late", [0, 3])
def test_who_waits_gives_its_core_away(
    live: Callable[..., Result], nodes: str | None, late: int
) -> None:
    """It sleeps, but for a look at MPI, or at its handles, now and then if some are under way."""
    result = live(4, PROGRAM, nodes=nodes, args=[str(late)])
    shares = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(shares) == 3 * 9, result.report()
    for name, _, share, _ in shares:
        sleeps = NATIVE and nodes is None and name != "handle"
        assert share < (0.1 if sleeps else 0.5), result.report()
