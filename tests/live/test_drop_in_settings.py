"""Wrong settings of a program on `xupc.Comm`: an error on all threads, never MPI in silence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.failing_jobs import by_thread
from support.launch import BUSY, job_environment_of_a_test, launch

WRONG = "tests/live/programs/drop_in_wrong.py"
STATES = "tests/live/programs/drop_in_states.py"
ENDED = "tests/live/programs/drop_in_ended.py"
LACKING = "tests/live/programs/drop_in_lacking.py"
Live = Callable[..., Any]

WAYS: dict[str, tuple[dict[str, str], int]] = {  # variables, calls before a start
    "auto": ({}, 64), "force": ({"XUPC_COMM": "force"}, 0), "limit": ({"XUPC_TIMEOUT": "60"}, 0),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_all_threads_raise_the_error_of_init(live: Live, way: str) -> None:
    """At each call that would open a team, whether one thread has the wrong value or all."""
    env, calls = WAYS[way]
    result = live(3, WRONG, args=[str(calls)], env=env, own_job=True)
    assert result.stdout.count("done") == 3, result.report()


def test_a_wrong_limit_is_an_error_of_the_first_call(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import xupc\nfrom mpi4py import MPI\nxupc.Comm(MPI.COMM_WORLD).barrier()\n")
    result = launch(3, program, env={"XUPC_TIMEOUT": "0"}, via="xupc run")
    assert result.returncode == 1, result.report()
    words = "ValueError: init: timeout: expected a positive number of seconds, got '0'"
    assert words in result.stderr, result.report()


def test_one_thread_needs_no_settings() -> None:
    """xupc never starts for one thread, so nothing that it would read can be wrong."""
    code = (
        "import xupc; from mpi4py import MPI; c = xupc.Comm(MPI.COMM_WORLD); "
        "[c.barrier() for _ in range(70)]; xupc.finalize(); print('done')"
    )
    env = {"XUPC_COMM": "force", "XUPC_TIMEOUT": "0", "XUPC_NODES": "9x9", "XUPC_TUNING": "/none"}
    result = subprocess.run(
        [sys.executable, "-c", code], env={**job_environment_of_a_test("-"), **env}, text=True,
        capture_output=True, timeout=BUSY * 10, check=False,
    )  # fmt: skip
    assert result.stdout == "done\n", result.stderr


@pytest.mark.parametrize("way", WAYS)
def test_one_thread_warns_where_memory_is_missing(live: Live, way: str) -> None:
    env, calls = WAYS[way]
    result = live(3, LACKING, args=[str(calls)], env=env, own_job=True)
    assert result.stdout.count("done") == 3, result.report()
    words = "xupc.Comm: MPI carries the calls of a communicator: no team: init: 5 bytes do not fit"
    assert result.stderr.count(words) == 1, result.report()
    limit = "; the limit of waits (XUPC_TIMEOUT) does not hold"
    assert (limit in result.stderr) == (way == "limit"), result.report()


def test_a_limit_of_some_threads_alone(tmp_path: Path) -> None:
    """A thread with the limit opens a team, and the others do not: it reports why, in time."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.Get_rank(): del os.environ['XUPC_TIMEOUT']\n"
        "import xupc\ncomm = xupc.Comm(MPI.COMM_WORLD)\n"
        "print(comm.allgather('of the program'), flush=True)\n"
    )
    result = launch(3, program, env={"XUPC_TIMEOUT": "2"}, timeout=BUSY * 20)
    assert result.returncode != 0, result.report()
    assert "of the program" not in result.stdout, result.report()
    assert "HangError: allgather: thread 0 " in by_thread(result.stderr), result.report()
    assert "with the same XUPC_COMM and XUPC_TIMEOUT" in result.stderr, result.report()


@pytest.mark.parametrize("off", [0, 2])
def test_calls_that_go_to_mpi_on_some_threads_alone(tmp_path: Path, off: int) -> None:
    """``XUPC_COMM=off`` on one thread: the others would open a team, and report that in time."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom mpi4py import MPI\n"
        f"if MPI.COMM_WORLD.Get_rank() == {off}: os.environ['XUPC_COMM'] = 'off'\n"
        "import xupc\ncomm = xupc.Comm(MPI.COMM_WORLD)\n"
        "print(comm.allgather('of the program'), flush=True)\n"
    )
    result = launch(3, program, env={"XUPC_TIMEOUT": "2"}, timeout=BUSY * 20)
    assert result.returncode != 0, result.report()
    assert "of the program" not in result.stdout, result.report()
    assert f"HangError: allgather: thread {int(off == 0)} " in by_thread(result.stderr)
    assert "with the same XUPC_COMM and XUPC_TIMEOUT" in result.stderr, result.report()


@pytest.mark.parametrize("calls", [3, 70])
@pytest.mark.parametrize("n", [1, 2])
def test_functions_do_not_depend_on_the_carrier(live: Live, n: int, calls: int) -> None:
    result = live(n, STATES, args=[str(calls)], own_job=True)
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.parametrize("calls", [3, 70])
def test_nothing_starts_xupc_after_finalize_but_init(live: Live, calls: int) -> None:
    result = live(2, ENDED, args=[str(calls)], own_job=True)
    assert result.stdout.count("done") == 2, result.report()


def test_a_program_without_a_trace_says_so(live: Live, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = live(2, STATES, args=["3"], env={"XUPC_TRACE": str(trace)}, own_job=True)
    assert "no trace was written" not in result.stderr, result.report()  # it calls init itself
    program = tmp_path / "program.py"
    program.write_text("import xupc\nfrom mpi4py import MPI\nxupc.Comm(MPI.COMM_WORLD).barrier()\n")
    result = live(2, program, env={"XUPC_TRACE": str(trace)}, own_job=True)
    assert result.stderr.count("XUPC_TRACE: no trace was written: xupc did not start") == 1
