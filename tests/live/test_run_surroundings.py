"""What is around `xupc run`: a batch system's variables, other jobs, a small /dev/shm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launch import PROJECT, mpi_family
from support.xupc_run import PROGRAM, Running, running, words

from xupc.cli.binding import YIELD
from xupc.cli.launcher import job_command
from xupc.cli.mpi import find_mpi

HELLO = "hello"
TWO = ["hello 2 0", "hello 2 1"]

SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_NODELIST": "elsewhere",
    "SLURM_JOB_NODELIST": "elsewhere", "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1",
    "SLURM_TASKS_PER_NODE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "2",
}  # fmt: skip
TWO_NODES = {
    **SLURM, "SLURM_NODELIST": "other[1-2]", "SLURM_JOB_NODELIST": "other[1-2]",
    "SLURM_NNODES": "2", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip
PBS = {"PBS_JOBID": "7", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": "/nowhere"}
LEFT_BY_MPI = {
    "PMI_RANK": "3", "PMI_SIZE": "8", "PMI_FD": "77", "PMI_PORT": "elsewhere:1", "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "x", "PMIX_SERVER_URI4": "x;tcp4://127.0.0.1:1", "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8", "PRTE_JOB_ID": "x", "HYDI_CONTROL_FD": "78",
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("srun") is not None, reason="Slurm is here")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


@pytest.mark.parametrize("left", [SLURM, LEFT_BY_MPI])
def test_what_is_left_in_the_environment_does_no_harm(job: Running, left: dict[str, str]) -> None:
    job.start(HELLO, env=left)
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "hello") == TWO


@pytest.mark.parametrize(
    ("left", "text"),
    [(TWO_NODES, "unset SLURM_JOB_ID SLURM_JOBID"), (PBS, "to use this machine alone, unset PBS_")],
)
def test_what_cannot_work_is_one_sentence(job: Running, left: dict[str, str], text: str) -> None:
    job.start(HELLO, env=left)
    assert job.wait() == 4, job.said()
    said = (job.folder / "out").read_text()
    assert text in said
    assert said.count("\n") == 1
    info = subprocess.run(
        [sys.executable, "-m", "xupc", "info"], env={**job.environment, **left}, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert text in info.stdout, info.stdout + info.stderr
    # the remedy helps
    without = said.partition("unset ")[2].split()
    job.start(HELLO, env={name: value for name, value in left.items() if name not in without})
    assert job.wait() == 0, job.said()


def test_machines_that_the_user_chooses_are_not_judged(job: Running) -> None:
    chosen = {
        "mpich": {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"},
        "openmpi": {"PRTE_MCA_ras": "^slurm", "PRTE_MCA_plm": "^slurm"},
    }[mpi_family()]
    job.start(HELLO, env={**TWO_NODES, **chosen})
    assert job.wait() == 0, job.said()


def test_a_job_within_a_job(job: Running) -> None:
    job.start("runs", "2", HELLO)
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "inner") == ["inner 0 0", "inner 0 1"]
    assert words(job.notes(), "hello") == sorted(TWO * 2)


def test_the_inner_job_ends_with_the_outer_one(job: Running) -> None:
    job.start("runs", "1", "naps", n=1)
    job.wait_for_count("up", 1)
    os.kill(job.pid, 9)
    job.wait()
    assert job.left(10.0) == []  # one after the other


@pytest.mark.parametrize("by", ["launcher", "shell"])
def test_xupc_run_under_mpiexec(job: Running, by: str) -> None:
    """Copies that a launcher starts are refused; one in a shell of a thread is its own job."""
    run = [sys.executable, "-m", "xupc", "run", "-n", "2", PROGRAM, HELLO]
    inner = run if by == "launcher" else ["sh", "-c", '"$@"; exit $?', "sh", *run]
    command = job_command(find_mpi(), 2, inner, environment=job.environment, recover=False)
    done = subprocess.run(
        command, env=job.environment, cwd=PROJECT, check=False, timeout=120, capture_output=True,
        text=True,
    )  # fmt: skip
    refused = by == "launcher"
    assert bool(done.returncode) == refused, done.stderr
    assert done.stderr.count("expected one copy of it, got 2") == refused
    assert words(job.notes(), "hello") == ([] if refused else sorted(TWO * 2))


def test_mpiexec_within_a_thread(job: Running) -> None:
    command = job_command(
        find_mpi(), 2, [sys.executable, PROGRAM, HELLO], environment=job.environment, recover=False
    )
    job.start("executes_on_thread_0", json.dumps(command))
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "inner") == ["inner 0 0"]
    assert words(job.notes(), "hello") == TWO


@pytest.mark.skipif(mpi_family() != "openmpi", reason="MPICH's waits yield")
@pytest.mark.parametrize("own", [None, "0"])
def test_open_mpi_yields_on_fewer_cores_than_threads(
    job: Running, own: str | None, tmp_path: Path
) -> None:
    """Each thread has the setting, unless the user's own is another."""
    program = tmp_path / "program.py"
    program.write_text(f"import os; print(os.environ.get('{YIELD}'))")
    one = {min(os.sched_getaffinity(0))}
    environment = job.environment | ({} if own is None else {YIELD: own})
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "run", "-n", "2", str(program)], env=environment,
        cwd=PROJECT, check=False, timeout=120, capture_output=True, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, one),
    )  # fmt: skip
    assert done.stdout.split() == [own or "1"] * 2, done.stderr


def test_a_small_dev_shm_is_named(job: Running) -> None:
    script = 'mount -t tmpfs -o size=1m xupc-test /dev/shm && exec "$@"'
    unshare = ["unshare", "-m", "sh", "-c", script, "sh"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    run = [sys.executable, "-m", "xupc", "run", "-n", "2", PROGRAM, HELLO]
    done = subprocess.run(
        [*unshare, *run], env=job.environment, cwd=PROJECT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    if mpi_family() == "openmpi":  # it goes on with less
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode != 0
    assert "only 1 MiB of shared memory are free on /dev/shm" in done.stderr, done.stderr
