"""Runs a program as real threads under mpiexec, with a time limit and no leftovers.

Each job carries a mark in its environment, ``XUPC_TEST_JOB``; MPICH's threads are in sessions of
their own, and the mark is how all of them are found when the job has to be killed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from support.speed import SLOW

from xupc.backends.native.native_core import core
from xupc.cli.binding import YIELD
from xupc.cli.launcher import job_command, run_job
from xupc.cli.mpi import Mpi, clean_environment, find_mpi, identify
from xupc.cli.processes import tagged

__all__ = [
    "BUSY", "LIMIT", "RUNS", "SLOW_ENGINE", "SOON", "TEST_TAG", "Result", "import_path",
    "job_environment_of_a_test", "launch", "leftovers", "mpi_family", "one_in_time",
    "program_file", "shared_files",
]  # fmt: skip

T = TypeVar("T")
TEST_TAG = "XUPC_TEST_JOB"
PROJECT = Path(__file__).resolve().parents[2]
SITE = PROJECT / "tests" / "site"
GRACE = 5.0
SHARED = Path("/dev/shm")
LIMIT = 60.0
"""Seconds that a program has, unless its test says otherwise."""
BUSY = 3 * SLOW
"""How many times as long a program may take, as other tests run beside it."""
SOON = BUSY * 15.0
"""Seconds in which a job ends, its start included, if a failure is detected at once: programs whose
threads never come wait longer."""
RUNS = 3
"""A loaded machine disturbs the times of a run or two; a fault of xupc shows in so many."""
SLOW_ENGINE = core is None or os.environ.get("XUPC_ENGINE") == "python"
"""Whether jobs run without the native core, hence fewer cases."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a job and its output.

    Attributes
    ----------
    returncode : int
        The launcher's exit status; 128 + signal if a signal ended it.
    stdout, stderr : str
        Everything the job wrote until its end.
    timed_out : bool
        Whether it was killed after `timeout` seconds.
    seconds : float
        How long it ran.
    leftovers : tuple of str
        What was still there some seconds after its end: processes and shared-memory files.
    stacks : str
        Where each thread was shortly before its time was up.
    command : tuple of str
        What was executed.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
    leftovers: tuple[str, ...] = ()
    stacks: str = ""
    command: tuple[str, ...] = field(default=(), repr=False)

    @property
    def clean(self) -> bool:
        """True if the job ended by itself and left nothing."""
        return not self.timed_out and not self.leftovers

    def report(self) -> str:
        """Return all that is known, for a failure's message."""
        end = "killed, its time was up" if self.timed_out else f"exit status {self.returncode}"
        lines = [f"{end} after {self.seconds:.1f} s: {shlex.join(self.command)}"]
        lines += [f"left behind: {leftover}" for leftover in self.leftovers]
        said = {"stdout": self.stdout, "stderr": self.stderr, "stacks": self.stacks}
        for name, text in said.items():
            lines += [f"--- {name}", text.rstrip()] if text.strip() else [f"--- {name}: empty"]
        return "\n".join(lines)


@cache
def _mpi(python: str) -> Mpi:
    """Return the MPI of a Python environment; the one that runs the tests is asked in full."""
    if python == sys.executable:
        return find_mpi()
    mpiexec = Path(python).parent / "mpiexec"
    family, version = identify(mpiexec)
    return Mpi(family, version, mpiexec, "beside python")


def one_in_time(run: Callable[[], tuple[T, str]]) -> T:
    """Return the result of the first run that was in time, of at most `RUNS`.

    `run` returns its result, and what to report if it was too late, otherwise "".
    """
    reports = []
    for _ in range(RUNS):
        result, report = run()
        if not report:
            return result
        reports.append(report)
    raise AssertionError("\n".join(reports))


def mpi_family() -> str:
    """Return "mpich" or "openmpi": the MPI under this Python environment."""
    return _mpi(sys.executable).family


def shared_files() -> set[str]:
    """Return the names of xupc's shared-memory files on this machine."""
    return {file.name for file in SHARED.glob("xupc-*")}


def leftovers(tag: str, *, grace: float = 0.0, files_before: set[str] | None = None) -> list[str]:
    """Return what a job left behind, after giving it `grace` seconds to go away.

    Parameters
    ----------
    tag : str
        The job's value of ``XUPC_TEST_JOB``.
    grace : float
        Seconds to wait for processes and files to disappear.
    files_before : set of str, optional
        Shared-memory files that were there before the job and do not count as its own.
    """
    deadline = time.monotonic() + grace
    while True:
        found = [f"process {pid}: {_command_line(pid)}" for pid in tagged(TEST_TAG, tag)]
        found += [
            f"file {SHARED / name}" for name in sorted(shared_files() - (files_before or set()))
        ]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.02)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "ended meanwhile"


def launch(
    n: int,
    program: str | Path,
    *,
    nodes: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout: float = LIMIT,
    args: Sequence[str] = (),
    launcher_args: Sequence[str] = (),
    python: str = sys.executable,
    via: str = "mpiexec",
    grace: float = GRACE,
) -> Result:
    """Run a program as `n` threads and wait for its end.

    Parameters
    ----------
    n : int
        Number of threads.
    program : str or Path
        A file; a relative path begins at the project. Programs of tests are in programs/.
    nodes : str, optional
        ``XUPC_NODES``, or ``--nodes`` of `xupc run`.
    env : mapping, optional
        More variables; None removes one.
    timeout : float
        Seconds after which the whole job is killed.
    args : sequence of str
        The program's arguments.
    launcher_args : sequence of str
        More options for mpiexec, or for `xupc run`.
    python : str
        The interpreter; mpiexec is the one of its environment.
    via : {"mpiexec", "xupc run"}
        The plain launcher, as users without our command line start it, or our command line.
    grace : float
        Seconds that leftovers have to go away after the job's end.
    """
    tag = uuid.uuid4().hex
    mpi = _mpi(python)
    environment = _environment(mpi.family, tag, timeout, env)
    with tempfile.TemporaryDirectory(prefix="xupc-test-") as directory:
        environment["XUPC_TEST_STACKS"] = directory
        file = program_file(program)
        threads = [python, str(file), *args]
        if via == "mpiexec":
            if nodes is not None:
                environment["XUPC_NODES"] = nodes
            command = job_command(
                mpi, n, threads, extra=launcher_args, environment=environment, recover=False
            )
        elif via == "xupc run":
            chosen = [] if nodes is None else ["--nodes", nodes]
            run = [python, "-m", "xupc", "run", "-n", str(n), *chosen, *launcher_args]
            command = [*run, *threads[1:]]
        else:
            raise ValueError(f'via is {via!r}, expected "mpiexec" or "xupc run"')
        return _run(command, environment, tag, timeout, grace, Path(directory))


def _environment(
    family: str, tag: str, timeout: float, env: Mapping[str, str | None] | None
) -> dict[str, str]:
    environment = job_environment_of_a_test(tag, family)
    environment["XUPC_TEST_DUMP_AT"] = str(time.monotonic() + timeout - max(0.1 * timeout, 0.7))
    for name, value in (env or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def job_environment_of_a_test(tag: str, family: str = "") -> dict[str, str]:
    """Return the variables that each job of a test has, for the MPI under this Python or another.

    `tag` is the job's value of ``XUPC_TEST_JOB``.
    """
    environment = clean_environment(os.environ, family or mpi_family())
    environment[TEST_TAG] = tag
    environment.setdefault(YIELD, "1")  # other tests run beside it
    environment["PYTHONPATH"] = import_path(SITE, inherited=environment.get("PYTHONPATH", ""))
    environment["PYTHONFAULTHANDLER"] = "1"
    environment["XDG_CONFIG_HOME"] = str(SITE)  # the user may have a tuned table
    environment.pop("PYTHONUNBUFFERED", None)
    return environment


def import_path(*folders: Path, inherited: str | None = None) -> str:
    """Return ``PYTHONPATH`` for a program of a test: these folders, tests/, what is inherited."""
    if inherited is None:
        inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, [*map(str, folders), str(PROJECT / "tests"), inherited]))


def program_file(program: str | Path) -> Path:
    """Return the file of a program; ValueError if there is none."""
    file = PROJECT / program
    if not file.is_file():
        raise ValueError(f"launch: program: expected a file, from {PROJECT} on, got {program!r}")
    return file


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    tag: str,
    timeout: float,
    grace: float,
    directory: Path,
) -> Result:
    before = shared_files()
    out, err = directory / "stdout", directory / "stderr"
    # Files, not pipes: a process that outlives its launcher could hold a pipe open for ever.
    with out.open("wb") as stdout, err.open("wb") as stderr:
        outcome = run_job(
            command,
            environment,
            time_limit=timeout,
            watched=False,
            tag_name=TEST_TAG,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=PROJECT,
            grace=grace,
        )
    left = []
    if outcome.survivors and not outcome.timed_out:
        left.append(f"{outcome.survivors} processes that had to be killed")
    left += leftovers(tag, grace=grace, files_before=before)
    return Result(
        returncode=outcome.launcher_status,
        stdout=out.read_text(encoding="utf-8", errors="replace"),
        stderr=err.read_text(encoding="utf-8", errors="replace"),
        timed_out=outcome.timed_out,
        seconds=outcome.seconds,
        leftovers=tuple(left),
        stacks="".join(file.read_text() for file in sorted(directory.glob("stacks.*"))),
        command=tuple(command),
    )
