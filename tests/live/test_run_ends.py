"""The end of `xupc run`: by any signal, of any program; nothing of the job is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.xupc_run import Running, running, state, wait_until, words

ALL_GONE = 5.0  # seconds after the death of `xupc run`

HANDLES = """
def handler(number, frame):
    note("handled", number)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, handler)
note("up", os.getpid())
while True:
    time.sleep(60)
"""

IGNORES = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
note("up", os.getpid())
while True:
    time.sleep(60)
"""

HAS_DAEMONS = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
nap = "import signal, time; signal.signal(15, 1); time.sleep(600)"
other = subprocess.Popen([sys.executable, "-I", "-c", nap], env={}, start_new_session=True)
note("other", other.pid)
note("up", os.getpid())
while True:
    time.sleep(60)
"""

ENDS_WELL = """
def handler(number, frame):
    raise SystemExit(0)
signal.signal(signal.SIGTERM, handler)
note("up", os.getpid())
try:
    time.sleep(600)
finally:
    time.sleep(1.5)  # longer than Open MPI's launcher leaves a thread after SIGTERM
    note("finally")
"""

INTERRUPTED = """
note("up", os.getpid())
try:
    time.sleep(600)
finally:
    time.sleep(1.5)
    note("finally")
"""

USR1 = """
def handler(number, frame):
    note("handled", number)
    raise SystemExit(0)
signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGUSR2, handler)
note("up", os.getpid())
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


def up(job: Running, text: str, n: int = 2) -> list[int]:
    """Start a program and wait until all threads are up; return their process ids."""
    job.start(text, n=n)
    wait_until(lambda: len(job.pids()) == n, job.said)
    return job.pids()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("text", [HANDLES, IGNORES, HAS_DAEMONS])
def test_nothing_outlives_a_killed_launcher(job: Running, text: str) -> None:
    up(job, text)
    os.kill(job.pid, signal.SIGKILL)
    began = time.monotonic()
    job.wait()
    assert job.left(ALL_GONE) == []
    for pid in job.pids("other"):  # its environment is not the job's
        wait_until(lambda pid=pid: not state(pid), patience=began + ALL_GONE - time.monotonic())
    if text is HANDLES:  # SIGTERM comes first
        assert words(job.notes(), "handled") == ["handled 15 0", "handled 15 1"]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGALRM, signal.SIGABRT])
@pytest.mark.once
def test_nothing_outlives_a_launcher_that_dies_of_another_signal(job: Running, number: int) -> None:
    up(job, IGNORES)
    os.kill(job.pid, number)
    assert job.wait() == -number
    assert job.left(ALL_GONE) == []


@pytest.mark.parametrize("also", ["threads", "wrappers", "launcher"])
def test_stopped_processes_do_not_outlive_it(job: Running, also: str) -> None:
    threads = up(job, IGNORES)
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
    job.start(IGNORES)
    wait_until(lambda: list((job.folder / "tmp").glob("xupc-job-*")), job.said)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert job.left(ALL_GONE) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_gives_handlers_their_chance(job: Running, number: int) -> None:
    up(job, ENDS_WELL)  # SIGHUP is SIGTERM to them
    os.kill(job.pid, number)
    assert job.wait() == 128 + number, job.said()
    assert words(job.notes(), "finally") == ["finally 0", "finally 1"]
    assert job.left(0.5) == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGQUIT, marks=pytest.mark.once)]
)
def test_threads_that_go_on_are_killed(job: Running, number: int) -> None:
    up(job, IGNORES)
    began = time.monotonic()
    os.kill(job.pid, number)
    status = job.wait(20)
    assert 4.9 < time.monotonic() - began < 12
    assert status == (-2 if number == signal.SIGINT else 128 + number), job.said()
    assert job.left(0.5) == []


def test_a_signal_that_comes_again_kills_them_at_once(job: Running) -> None:
    up(job, HANDLES)
    began = time.monotonic()
    os.kill(job.pid, signal.SIGINT)
    job.wait_for("handled 2 0", "handled 2 1")
    while job.process is not None and job.process.poll() is None:
        assert time.monotonic() - began < 4.5
        os.kill(job.pid, signal.SIGINT)  # those within a second are the same one
        time.sleep(0.05)
    assert job.left(0.5) == []


def test_ctrl_c_runs_finally(job: Running) -> None:
    up(job, INTERRUPTED)
    os.kill(job.pid, signal.SIGINT)
    assert job.wait() == -signal.SIGINT, job.said()  # a shell's 130, which ends its loop, too
    assert words(job.notes(), "finally") == ["finally 0", "finally 1"]
    assert job.left(0.5) == []


def test_sigquit_ends_the_job_and_leaves_nothing(job: Running) -> None:
    up(job, "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + INTERRUPTED)
    os.kill(job.pid, signal.SIGQUIT)
    assert job.wait() == 128 + signal.SIGQUIT, job.said()
    assert job.left(0.5) == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_users_signal_is_passed_on(job: Running, number: int) -> None:
    up(job, USR1)
    os.kill(job.pid, number)
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "handled") == [f"handled {int(number)} {i}" for i in (0, 1)]
