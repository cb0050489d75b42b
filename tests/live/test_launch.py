"""The harness of the live tests, with programs that use mpi4py alone."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from support.launch import BUSY, launch, leftovers, mpi_family, one_in_time, shared_files

pytestmark = pytest.mark.once

PROGRAM = "tests/live/programs/mpi_jobs.py"
AT_ONCE = 4.0  # seconds; the launcher would wait for 5 until it ends threads that go on
VIA = pytest.mark.parametrize("via", ["mpiexec", "xupc run"])


@VIA
def test_hello(via: str) -> None:
    result = launch(3, PROGRAM, args=["hello"], via=via)
    assert result.returncode == 0, result.report()
    assert result.clean, result.report()
    assert sorted(result.stdout.splitlines()) == [f"thread {i} of 3" for i in range(3)]


def test_files_arguments_and_variables() -> None:
    args = ["prints_its_surroundings", "-n", "x y"]
    env = {"A": "a b", "B": None}
    result = launch(1, PROGRAM, args=args, env=env, via="xupc run")
    assert result.stdout == "['-n', 'x y'] a b False\n", result.report()


@VIA
def test_nodes_reach_the_program(via: str) -> None:
    result = launch(2, PROGRAM, args=["prints_its_nodes"], nodes="2x1", via=via)
    assert result.stdout.split() == ["2x1", "2x1"], result.report()


@VIA
def test_a_hanging_job_is_killed_whole(via: str) -> None:
    for limit in (10, BUSY * 10):  # to start takes seconds on a busy machine
        began = time.monotonic()
        result = launch(3, PROGRAM, args=["hangs"], timeout=limit, via=via)
        assert result.timed_out
        assert time.monotonic() - began < 2 * limit
        assert result.leftovers == ()
        if result.stacks.count(" in sleeps\n") + result.stacks.count(" in waits\n") == 3:
            break
    # What it had said is in the report.
    assert result.stdout.split() == ["before"] * 3
    assert "before" in result.report()
    # So is the place where each thread was.
    assert result.stacks.count(" in sleeps\n") == 1
    assert result.stacks.count(" in waits\n") == 2
    assert "time was up" in result.report()


def test_a_process_left_behind_is_reported_and_killed() -> None:
    result = launch(2, PROGRAM, args=["leaves_a_daemon"], grace=0.5)
    assert not result.clean
    assert "killed" in result.report()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for /dev/shm, where tests that run at the same time have jobs of their own."""
    monkeypatch.setattr("support.launch.SHARED", tmp_path)
    return tmp_path


def test_a_file_left_behind_is_reported(folder: Path) -> None:
    file = folder / "xupc-test-of-the-harness"
    result = launch(1, PROGRAM, args=["makes_a_file", str(file)], grace=0.1)
    assert result.leftovers == (f"file {file}",)
    assert shared_files() == {file.name}
    # The next job is not blamed for it.
    assert launch(1, PROGRAM, args=["does_nothing"], grace=0.1).clean


def test_leftovers_of_nobody(folder: Path) -> None:
    (folder / "xupc-of-an-earlier-job").touch()
    assert leftovers("no such job", files_before=shared_files()) == []
    assert leftovers("no such job") == [f"file {folder / 'xupc-of-an-earlier-job'}"]


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("3", 3, "thread 1 exited with status 3"),
        ("signal 9", 128 + 9, "thread 1 was killed by SIGKILL"),
        ("signal 11", 128 + 11, "thread 1 was killed by SIGSEGV"),
        ("signal 15", 128 + 15, "thread 1 was killed by SIGTERM"),
        ("abort", 5, "status 5"),
    ],
)
def test_xupc_run_gives_the_status_of_the_first_thread_to_fail(
    how: str, status: int, words: str
) -> None:
    result = launch(3, PROGRAM, args=["dies", how], via="xupc run")
    assert result.returncode == status, result.report()
    assert result.clean, result.report()
    assert words in result.stderr


@pytest.mark.slow
def test_xupc_run_ends_threads_that_wait_for_one_that_never_started_mpi() -> None:
    result = launch(3, PROGRAM, args=["exits_before_mpi"], via="xupc run")
    assert result.returncode == 7, result.report()
    assert result.clean, result.report()
    assert "thread 1 exited with status 7" in result.stderr


def test_xupc_run_time_limit() -> None:
    limit = ["--time-limit", "1.5"]
    result = launch(2, PROGRAM, args=["hangs"], via="xupc run", launcher_args=limit)
    assert result.returncode == 3, result.report()
    assert result.clean, result.report()
    assert "not finished after 1.5 s" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_xupc_run_ends_the_job(number: int) -> None:
    # One "thread": a program that starts `xupc run`, sends it the signal and looks at its status.
    args = ["sends_a_signal_to_a_job", str(int(number))]
    status = -number if number in (signal.SIGKILL, signal.SIGINT) else 128 + number

    def seconds_of_a_run() -> tuple[float, str]:
        result = launch(1, PROGRAM, args=args, timeout=BUSY * 30)
        assert result.clean, result.report()
        found, seconds = result.stdout.split()
        assert found == str(status), result.report()
        return float(seconds), "" if float(seconds) < AT_ONCE else result.report()

    one_in_time(seconds_of_a_run)


@pytest.mark.skipif(sys.platform != "linux", reason="knows the threads' ends on Linux only")
def test_xupc_run_does_not_add_up_the_statuses() -> None:
    # hydra would say 3 | 4 = 7.
    assert launch(2, PROGRAM, args=["exits_one_after_the_other"], via="xupc run").returncode == 3


def test_family() -> None:
    assert mpi_family() in ("mpich", "openmpi")
