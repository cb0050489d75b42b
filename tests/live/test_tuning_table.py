"""The selection table in a job: one thread reads it, all use it, and all raise on a bad one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.launch import SLOW_ENGINE, launch

from xupc.topology.host import available_cores
from xupc.tuning.selection import Place
from xupc.tuning.selection_file import built_in, load, read

ONE_NODE = Place.of([2], "mpich", "shm", False)
PROGRAM = "tests/live/programs/tuning_tables.py"
PLACES = [
    pytest.param(1, None, "native", marks=pytest.mark.once),
    pytest.param(3, None, "python", marks=pytest.mark.once),
    (3, "2,1", "native"),
    pytest.param(3, "2,1", "python", marks=pytest.mark.once),
]

TABLE = """
version = 1
[tuning.default]
few_nodes_max = 47
[[choose]]
collective = "all_broadcast"
shape = "{shape}"
max_bytes = 4
algorithm = "pull"
[[choose]]
collective = "all_exchange_in_place"
algorithm = "push"
"""

FIGURES = """
version = 1
[host.elsewhere]
direct_min = 99
[host."{}"]
direct_min = 70000
direct_reduce = 1
nt_store_min = 16777216
[host."*"]
direct_min = 8
direct_reduce = 0
"""


@pytest.mark.parametrize(("threads", "nodes", "engine"), PLACES)
def test_all_threads_use_what_thread_0_reads(
    live: Callable[..., Any], tmp_path: Path, threads: int, nodes: str | None, engine: str
) -> None:
    table = tmp_path / "t.toml"
    table.write_text(TABLE.format(shape=nodes or threads))
    env = {"XUPC_TUNING": str(table), "XUPC_ENGINE": engine}
    done = live(threads, PROGRAM, args=["chosen"], nodes=nodes, env=env)
    assert done.stdout.splitlines() == [f"['pull', 'multicore', 'push'] 47 {table}"] * threads


@pytest.mark.parametrize(("threads", "nodes", "engine"), PLACES)
def test_a_bad_one_raises_on_every_thread_and_init_can_be_called_again(
    live: Callable[..., Any], tmp_path: Path, threads: int, nodes: str | None, engine: str
) -> None:
    table = tmp_path / "t.toml"
    table.write_text("version = 1\n[tuning.default]\nfew_nodes_max = 'x'\n")
    env = {"XUPC_TUNING": str(table), "XUPC_ENGINE": engine, "XDG_CONFIG_HOME": str(tmp_path)}
    done = live(threads, PROGRAM, args=["bad"], nodes=nodes, env=env)
    problem = f"init: tuning table {table}: [tuning.default]: few_nodes_max: expected an int from 0"
    lines = done.stdout.splitlines()
    assert sum(line.startswith(problem) for line in lines) == threads
    assert lines.count("built-in") == threads


@pytest.mark.once
def test_nobody_catches_it(live: Callable[..., Any]) -> None:
    env = {"XUPC_TUNING": "/nowhere"}
    done = live(3, PROGRAM, args=["init"], expect="failure", env=env)
    assert "ValueError: init: tuning table /nowhere: XUPC_TUNING names it, but it" in done.stderr


@pytest.mark.once
@pytest.mark.parametrize("threads", [2, 3])
def test_plans_do_not_vary_from_run_to_run(threads: int) -> None:
    """Each launch has a clock that runs at random: nothing that is timed decides on a plan."""
    program = "tests/live/programs/plans_of_a_start.py"
    runs = [launch(threads, program, args=[str(seed)]) for seed in range(3)]
    for run in runs:
        assert run.returncode == 0, run.report()
    first, *others = (sorted(run.stdout.splitlines()) for run in runs)
    assert len([line for line in first if line.startswith("thread ")]) == threads
    assert all(other == first for other in others)


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_figures_of_the_host_are_used(live: Callable[..., Any], tmp_path: Path) -> None:
    """Those of the first pattern that fits; other hosts' are not."""
    table = tmp_path / "t.toml"
    table.write_text(FIGURES.format(socket.gethostname()))
    done = live(2, PROGRAM, args=["figures"], env={"XUPC_TUNING": str(table)})
    past_the_cache = 16777216 * min(2, available_cores())  # a quota may leave one core
    assert done.stdout.splitlines() == [f"70000 4194304 {past_the_cache}"] * 2


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_tune_measures_this_host_and_jobs_use_it(live: Callable[..., Any], tmp_path: Path) -> None:
    """The jobs that measure are real ones; they may decide anything, also nothing.

    Three launches are the fewest that decide; there are up to seven if there is time.
    """
    if len(os.sched_getaffinity(0)) < 2 or SLOW_ENGINE:
        pytest.skip("two cores and the native core measure")
    table = tmp_path / "t.toml"
    code = "from xupc.cli import main, tune_host as t; t.HOST_LAUNCHES = t.LEAST_LAUNCHES; main()"
    command = [sys.executable, "-c", code, "tune", "--host-only", "-n", "2", "-o", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"host {socket.gethostname()}: direct access from " in done.stdout
    if not table.exists():
        assert "nothing was decided" in done.stdout
        return
    found = load(read(table))
    assert found.source_of(socket.gethostname()) == str(table)
    figures = found.figures_of(socket.gethostname())
    used = live(2, PROGRAM, args=["figures"], env={"XUPC_TUNING": str(table)})
    expected = figures.within(built_in().tuning(ONE_NODE), 2)["direct_min"]
    assert {line.split()[0] for line in used.stdout.splitlines()} == {str(expected)}


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_two_threads_measure_their_machine(live: Callable[..., Any]) -> None:
    if len(os.sched_getaffinity(0)) < 2 or SLOW_ENGINE:
        pytest.skip("two cores and the native core measure")
    live(3, "tests/live/programs/host_figures.py")


@pytest.mark.once
def test_tune_measures_the_drop_in_beside_mpi4py(tmp_path: Path) -> None:
    """One launch, of methods of all kinds: it measures each, and decides nothing."""
    methods = ["Barrier", "Bcast", "Ireduce", "Alltoallv", "Neighbor_alltoallw", "bcast", "scan"]
    command = [sys.executable, "-m", "xupc", "tune", "--drop-in", *methods, "-n", "2", "-m", "8"]
    table = tmp_path / "t.toml"
    command += ["--launches", "1", "--budget", "60", "-o", str(table), "-v"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines if "as before: too few" in line} == set(methods)
    assert lines[-1] == f"nothing was decided: {table} is not written"
