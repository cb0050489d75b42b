"""The command line and the example, with real threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.launch import PROJECT, Result, import_path, launch

EXAMPLE = "examples/hello_collectives.py"
MPI_JOBS = "tests/live/programs/mpi_jobs.py"
COMMAND_LINE = "tests/live/programs/command_line_in_a_job.py"


@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
@pytest.mark.parametrize(
    ("n", "nodes"),
    [
        pytest.param(1, None, marks=pytest.mark.once),
        (4, "2x2"),
        pytest.param(5, "3,1,1", marks=pytest.mark.once),
    ],
)
def test_the_example(live: Callable[..., Result], via: str, n: int, nodes: str | None) -> None:
    result = live(n, EXAMPLE, args=["1000"], nodes=nodes, via=via)
    assert "all threads have the right data" in result.stdout


@pytest.mark.once
def test_words_that_launchers_have_a_use_for() -> None:
    words = [":", "\\:", "a:b", "", "two words", "-n", "'", "*", "$HOME", "x\ny"]
    run = [sys.executable, "-m", "xupc", "run", "-n", "2", MPI_JOBS, "prints_its_words", *words]
    env = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(
        run, capture_output=True, text=True, timeout=120, check=False, cwd=PROJECT, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == 2 * [ascii(words)]


@pytest.mark.once
def test_topo() -> None:
    topo = [sys.executable, "-m", "xupc", "topo", "-n", "3", "--nodes", "2,1"]
    done = subprocess.run(topo, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "3 threads on 2 nodes"


@pytest.mark.once
def test_topo_inside_a_job_draws_what_it_draws_without_one() -> None:
    """The picture of threads that run on a described machine is that of the description."""
    env = {"XUPC_TOPOLOGY": "2x2x2"}
    result = launch(8, COMMAND_LINE, args=["topo"], nodes="2,6", env=env)
    command = [sys.executable, "-m", "xupc", "topo", "--topology", "2x2x2", "--nodes", "2,6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, done.returncode) == (0, 0), result.report()
    assert result.stdout == done.stdout
    assert "L3 domain 2: threads 5-6, root 5" in done.stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
@pytest.mark.parametrize("policy", ["spread", "close"])
def test_threads_are_bound_on_demand(policy: str) -> None:
    topo = [sys.executable, "-m", "xupc", "topo", "-n", "2", "--bind", policy]
    done = subprocess.run(topo, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 threads on 1 node")
    assert "not bound" not in done.stdout


@pytest.mark.once
def test_topo_inside_a_job_draws_that_job() -> None:
    result = launch(3, COMMAND_LINE, args=["topo", "-n", "8"], nodes="1,2")
    assert result.returncode == 0, result.report()
    assert result.stdout.splitlines()[0] == "3 threads on 2 nodes", result.report()
