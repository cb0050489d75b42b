"""The end of `xupc run`: by any signal, of any program; nothing of the job is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launch import one_in_time
from support.soak import WHOLE
from support.speed import SLOW
from support.xupc_run import PATIENCE, PROGRAM, Running, running, state, wait_until, words

ALL_GONE = 5.0 if WHOLE else 15.0  # seconds after its death; without the soak beside other tests
AFTER_A_SIGNAL = 5.0  # seconds until `xupc run` kills threads that go on


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


def up(job: Running, case: str, n: int = 2) -> list[int]:
    """Start a case of noting_jobs.py; return the threads' process ids when all are up."""
    job.start(case, n=n)
    wait_until(lambda: len(job.pids()) == n, job.said)
    return job.pids()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("case", ["handles_signals", "ignores_signals", "has_daemons"])
def test_nothing_outlives_a_killed_launcher(job: Running, case: str) -> None:
    up(job, case)
    os.kill(job.pid, signal.SIGKILL)
    began = time.monotonic()
    job.wait()
    assert job.left(ALL_GONE) == []
    for pid in job.pids("other"):  # its environment is not the job's
        wait_until(
            lambda pid=pid: not state(pid), patience=began + SLOW * ALL_GONE - time.monotonic()
        )
    if case == "handles_signals":  # SIGTERM comes first
        assert words(job.notes(), "handled") == ["handled 15 0", "handled 15 1"]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGALRM, signal.SIGABRT])
@pytest.mark.once
def test_nothing_outlives_a_launcher_that_dies_of_another_signal(job: Running, number: int) -> None:
    up(job, "ignores_signals")
    os.kill(job.pid, number)
    assert job.wait() == -number
    assert job.left(ALL_GONE) == []


@pytest.mark.parametrize("also", ["threads", "wrappers", "launcher"])
def test_stopped_processes_do_not_outlive_it(job: Running, also: str) -> None:
    threads = up(job, "ignores_signals")
    wrappers = [parent(pid) for pid in threads]
    above = [parent(pid) for pid in wrappers]
    stopped = list(threads)
    if also != "threads":
        stopped += wrappers
    if also == "launcher":
        stopped += sorted({*above, *(parent(pid) for pid in above)} - {job.pid})
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state(pid) == "T" for pid in stopped))
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert job.left(ALL_GONE) == []


def test_a_launcher_killed_while_it_starts(job: Running) -> None:
    job.start("ignores_signals")
    wait_until(lambda: list((job.folder / "tmp").glob("xupc-job-*")), job.said)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert job.left(ALL_GONE) == []


KILLS_ITSELF = """
import os, signal, sys, xupc.__main__
make = os.mkdir
def make_and_die(path, *mode, **more):
    make(path, *mode, **more)
    if "xupc-job-" in str(path):
        os.kill(os.getpid(), signal.SIGKILL)
os.mkdir = make_and_die
xupc.__main__.main(["run", "-n", "2", sys.argv[1]])
"""


def test_a_launcher_killed_right_after_it_made_its_folder(job: Running) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF, PROGRAM], env=job.environment, timeout=PATIENCE
    )
    assert ended.returncode == -signal.SIGKILL
    assert job.left(ALL_GONE) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_gives_handlers_their_chance(job: Running, number: int) -> None:
    up(job, "exits_on_sigterm")  # SIGHUP is SIGTERM to them
    os.kill(job.pid, number)
    assert job.wait() == 128 + number, job.said()
    assert words(job.notes(), "finally") == ["finally 0", "finally 1"]
    assert job.left(0.5) == []


@pytest.mark.waits
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGQUIT, marks=pytest.mark.once)]
)
def test_threads_that_go_on_are_killed(job: Running, number: int) -> None:
    up(job, "ignores_signals")
    began = time.monotonic()
    os.kill(job.pid, number)
    status = job.wait()
    assert time.monotonic() - began > AFTER_A_SIGNAL - 0.1
    assert status == (-2 if number == signal.SIGINT else 128 + number), job.said()
    assert job.left(0.5) == []


def test_a_signal_that_comes_again_kills_them_at_once(tmp_path: Path) -> None:
    """Not only `AFTER_A_SIGNAL` seconds after the first one."""

    def seconds_of_a_run() -> tuple[float, str]:
        path = Path(tempfile.mkdtemp(dir=tmp_path))
        with running(path) as job:
            up(job, "handles_signals")
            began = time.monotonic()
            os.kill(job.pid, signal.SIGINT)
            job.wait_for("handled 2 0", "handled 2 1")
            while job.process is not None and job.process.poll() is None:
                os.kill(job.pid, signal.SIGINT)  # those within a second are the same one
                time.sleep(0.05)
            seconds = time.monotonic() - began
            assert job.left(ALL_GONE) == []
        late = seconds >= AFTER_A_SIGNAL - 0.4
        return seconds, f"{seconds:.1f} s after the first signal" if late else ""

    one_in_time(seconds_of_a_run)


def test_ctrl_c_runs_finally(job: Running) -> None:
    up(job, "is_interrupted")
    os.kill(job.pid, signal.SIGINT)
    assert job.wait() == -signal.SIGINT, job.said()  # a shell's 130, which ends its loop, too
    assert words(job.notes(), "finally") == ["finally 0", "finally 1"]
    assert job.left(0.5) == []


def test_sigquit_ends_the_job_and_leaves_nothing(job: Running) -> None:
    up(job, "is_interrupted_without_core_file")
    os.kill(job.pid, signal.SIGQUIT)
    assert job.wait() == 128 + signal.SIGQUIT, job.said()
    assert job.left(0.5) == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_users_signal_is_passed_on(job: Running, number: int) -> None:
    up(job, "exits_on_user_signals")
    os.kill(job.pid, number)
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "handled") == [f"handled {int(number)} {i}" for i in (0, 1)]
