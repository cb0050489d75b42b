"""The harness of the live tests, with programs that use mpi4py alone."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from support.launch import launch, leftovers, mpi_family, shared_files

pytestmark = pytest.mark.once

HELLO = """
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    print(f"thread {comm.rank} of {comm.allreduce(1)}")
"""

HANG = """
    import time
    from mpi4py import MPI
    print("before")
    if MPI.COMM_WORLD.rank == 1:
        time.sleep(600)
    MPI.COMM_WORLD.Barrier()
    print("after")
"""

DIE = """
    import os, sys, time
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 1:
        how = sys.argv[1]
        if how.startswith("signal"):
            os.kill(os.getpid(), int(how.removeprefix("signal ")))
        if how == "abort":
            MPI.COMM_WORLD.Abort(5)
        os._exit(int(how))
    time.sleep(0.3)
    os._exit(0)
"""

EARLY = """
    import os, sys
    if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
        sys.exit(7)
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
"""

DAEMON = """
    import os, time
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 0 and os.fork() == 0:
        os.setsid()
        os.closerange(0, 256)
        time.sleep(600)
        os._exit(0)
"""

VIA = pytest.mark.parametrize("via", ["mpiexec", "xupc run"])


@VIA
def test_hello(via: str) -> None:
    result = launch(3, HELLO, via=via)
    assert result.returncode == 0, result.report()
    assert result.clean, result.report()
    assert sorted(result.stdout.splitlines()) == [f"thread {i} of 3" for i in range(3)]


def test_files_arguments_and_variables(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nprint(sys.argv[1:], os.environ['A'], 'B' in os.environ)\n")
    env = {"A": "a b", "B": None}
    result = launch(1, program, args=["-n", "x y"], env=env, via="xupc run")
    assert result.stdout == "['-n', 'x y'] a b False\n", result.report()


@VIA
def test_nodes_reach_the_program(via: str) -> None:
    result = launch(2, "import os; print(os.environ['XUPC_NODES'])", nodes="2x1", via=via)
    assert result.stdout.split() == ["2x1", "2x1"], result.report()


@VIA
def test_a_hanging_job_is_killed_whole(via: str) -> None:
    began = time.monotonic()
    result = launch(3, HANG, timeout=10, via=via)  # to start takes seconds on a busy machine
    assert result.timed_out
    assert time.monotonic() - began < 17
    assert result.leftovers == ()
    # What it had said is in the report.
    assert result.stdout.split() == ["before"] * 3
    assert "before" in result.report()
    # So is the place where each thread was.
    assert result.stacks.count('program.py", line 6 in') == 1
    assert result.stacks.count('program.py", line 7 in') == 2
    assert "time was up" in result.report()


def test_a_process_left_behind_is_reported_and_killed() -> None:
    result = launch(2, DAEMON, grace=0.5)
    assert not result.clean
    assert "killed" in result.report()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for /dev/shm, where tests that run at the same time have jobs of their own."""
    monkeypatch.setattr("support.launch.SHARED", tmp_path)
    return tmp_path


def test_a_file_left_behind_is_reported(folder: Path) -> None:
    file = folder / "xupc-test-of-the-harness"
    result = launch(1, f"open({str(file)!r}, 'w').close()", grace=0.1)
    assert result.leftovers == (f"file {file}",)
    assert shared_files() == {file.name}
    # The next job is not blamed for it.
    assert launch(1, "pass", grace=0.1).clean


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
    result = launch(3, DIE, args=[how], via="xupc run")
    assert result.returncode == status, result.report()
    assert result.clean, result.report()
    assert words in result.stderr


@pytest.mark.slow
def test_xupc_run_ends_threads_that_wait_for_one_that_never_started_mpi() -> None:
    result = launch(3, EARLY, via="xupc run")
    assert result.returncode == 7, result.report()
    assert result.clean, result.report()
    assert "thread 1 exited with status 7" in result.stderr


def test_xupc_run_time_limit() -> None:
    result = launch(2, HANG, via="xupc run", launcher_args=["--time-limit", "1.5"])
    assert result.returncode == 3, result.report()
    assert result.clean, result.report()
    assert "not finished after 1.5 s" in result.stderr


INTERRUPTED = """
    import os, signal, subprocess, sys, time

    program = "import time; from mpi4py import MPI; print('up'); time.sleep(600)"
    with open(sys.argv[0] + ".job.py", "w") as file:
        file.write(program)
    run = [sys.executable, "-m", "xupc", "run", "-n", "3", file.name]
    # A shell may have had us ignore SIGINT, as it does for background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        job.stdout.readline()
    began = time.monotonic()
    job.send_signal(int(sys.argv[1]))
    print(job.wait(), time.monotonic() - began < 4)
    if int(sys.argv[1]) == signal.SIGKILL:
        time.sleep(1)  # the kernel has told the launcher, which ends the job
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_xupc_run_ends_the_job(number: int) -> None:
    # One "thread": a program that starts `xupc run`, sends it the signal and looks at its status.
    result = launch(1, INTERRUPTED, args=[str(int(number))], timeout=30)
    status = -number if number in (signal.SIGKILL, signal.SIGINT) else 128 + number
    assert result.stdout.split() == [str(status), "True"], result.report()
    assert result.clean, result.report()


@pytest.mark.skipif(sys.platform != "linux", reason="knows the threads' ends on Linux only")
def test_xupc_run_does_not_add_up_the_statuses() -> None:
    # hydra would say 3 | 4 = 7.
    program = """
        import os, sys, time
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.rank
        MPI.Finalize()
        time.sleep(0.2 * rank)
        os._exit((3, 4)[rank])
    """
    assert launch(2, program, via="xupc run").returncode == 3


def test_family() -> None:
    assert mpi_family() in ("mpich", "openmpi")
