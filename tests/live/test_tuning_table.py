"""The selection table in a job: one thread reads it, all use it, and all hear of a bad one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PLACES = [
    pytest.param(1, None, "native", marks=pytest.mark.once),
    pytest.param(3, None, "python", marks=pytest.mark.once),
    (3, "2,1", "native"),
    pytest.param(3, "2,1", "python", marks=pytest.mark.once),
]

# Only thread 0's variable counts; the others have none, or one that leads nowhere.
CHOOSE = """
    import os, sys
    from mpi4py import MPI
    if MPI.COMM_WORLD.Get_rank():
        os.environ["XUPC_TUNING"] = "/nowhere"
    import xupc
    team = xupc.init()
    a, b = (xupc.all_alloc(8 * team.size, "u1", 8) for _ in range(2))
    plans = [xupc.all_broadcast.plan(b, a, n).algorithm for n in (4, 8)]
    plans.append(xupc.all_exchange.plan(b, None, 1).algorithm)
    sys.stdout.write(f"{[p.split()[0] for p in plans]} {team.tuning['flat']} {team.table.name}\\n")
    xupc.all_broadcast(b, a, 4)
    xupc.finalize()
"""
TABLE = """
version = 1
[tuning.default]
flat = 47
[[choose]]
collective = "all_broadcast"
shape = "{shape}"
max_bytes = 4
algorithm = "pull"
[[choose]]
collective = "all_exchange_in_place"
algorithm = "push"
"""


@pytest.mark.parametrize(("threads", "nodes", "engine"), PLACES)
def test_all_threads_use_what_thread_0_reads(
    live: Callable[..., Any], tmp_path: Path, threads: int, nodes: str | None, engine: str
) -> None:
    table = tmp_path / "t.toml"
    table.write_text(TABLE.format(shape=nodes or threads))
    env = {"XUPC_TUNING": str(table), "XUPC_ENGINE": engine}
    done = live(threads, CHOOSE, nodes=nodes, env=env)
    assert done.stdout.splitlines() == [f"['pull', 'multicore', 'push'] 47 {table}"] * threads


BAD = """
    import os, sys, xupc
    try:
        xupc.init()
    except ValueError as e:
        sys.stdout.write(f"{e}\\n")
    os.environ["XUPC_TUNING"] = ""
    team = xupc.init()
    xupc.barrier()
    sys.stdout.write(f"{team.table.name}\\n")
"""


@pytest.mark.parametrize(("threads", "nodes", "engine"), PLACES)
def test_a_bad_one_raises_on_every_thread_and_init_can_be_called_again(
    live: Callable[..., Any], tmp_path: Path, threads: int, nodes: str | None, engine: str
) -> None:
    table = tmp_path / "t.toml"
    table.write_text("version = 1\n[tuning.default]\nflat = 'x'\n")
    env = {"XUPC_TUNING": str(table), "XUPC_ENGINE": engine, "XDG_CONFIG_HOME": str(tmp_path)}
    done = live(threads, BAD, nodes=nodes, env=env)
    problem = f"init: tuning table {table}: [tuning.default]: flat: expected an int from 0"
    lines = done.stdout.splitlines()
    assert sum(line.startswith(problem) for line in lines) == threads
    assert lines.count("built-in") == threads


@pytest.mark.once
def test_nobody_catches_it(live: Callable[..., Any]) -> None:
    done = live(3, "import xupc; xupc.init()", expect="failure", env={"XUPC_TUNING": "/nowhere"})
    assert "ValueError: init: tuning table /nowhere: XUPC_TUNING names it, but it" in done.stderr
