"""The selection table that a job reads, or cannot read: ``tuning_tables.py CASE``."""

from __future__ import annotations

import os
import sys
from typing import Any

from support.cases import case, run_case

import xupc


@case
def chosen() -> None:
    """Print what the table chooses; only thread 0's variable counts."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank():
        os.environ["XUPC_TUNING"] = "/nowhere"
    team = xupc.init()
    a, b = (xupc.all_alloc(8 * team.size, "u1", 8) for _ in range(2))
    plans = [xupc.all_broadcast.plan(b, a, n).algorithm for n in (4, 8)]
    nothing: Any = None
    plans.append(xupc.all_exchange.plan(b, nothing, 1).algorithm)
    table = team.table
    assert table is not None
    flags = [plan.partition(":")[0] for plan in plans]
    sys.stdout.write(f"{flags} {team.tuning['few_nodes_max']} {table.name}\n")
    xupc.all_broadcast(b, a, 4)
    xupc.finalize()


@case
def figures() -> None:
    """Print sizes that follow from the figures of the host."""
    team = xupc.init()
    sizes = team.tuning["direct_min"], min(team.tuning["direct_reduce_max"], 1 << 22)
    sys.stdout.write(f"{sizes[0]} {sizes[1]} {team.state._past_the_cache()}\n")


@case
def bad() -> None:
    """Print the error of init, then the table of an init without one."""
    try:
        xupc.init()
    except ValueError as e:
        sys.stdout.write(f"{e}\n")
    os.environ["XUPC_TUNING"] = ""
    team = xupc.init()
    xupc.barrier()
    table = team.table
    assert table is not None
    sys.stdout.write(f"{table.name}\n")


@case
def init() -> None:
    xupc.init()


run_case()
