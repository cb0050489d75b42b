"""Starting the worker: which MPI, in which configuration, how often."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xupc.cli.launcher import JOB_TAG, job_command, job_environment, run_job
from xupc.cli.mpi import Mpi, identify

__all__ = [
    "CONFIGURATIONS",
    "Configuration",
    "LaunchFailed",
    "command_line",
    "forget",
    "launch",
    "read",
    "revision",
    "stored",
]

BENCHMARKS = Path(__file__).resolve().parent
WORKER = BENCHMARKS / "worker.py"
HANG = 120.0  # seconds after which xupc itself reports a hang


class LaunchFailed(Exception):
    """A launch ended with an error or did not end in time."""


@dataclass(frozen=True)
class Configuration:
    """A peer: an MPI and how it is started.

    Attributes
    ----------
    mpi
        ``"mpich"`` or ``"openmpi"``: which of the two interpreters.
    options, environment
        What is added to the launcher's command line and to the environment.
    """

    name: str
    mpi: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


CONFIGURATIONS = (
    Configuration("mpich", "mpich"),
    Configuration("mpich-serialized", "mpich", ("-bind-to", "core"),
                  {"MPI4PY_RC_THREAD_LEVEL": "serialized"}),
    Configuration("openmpi", "openmpi"),
    Configuration("openmpi-sm90", "openmpi", ("--mca", "coll_sm_priority", "90")),
)


def launch(
    configuration: Configuration,
    python: str,
    threads: int,
    out: Path,
    words: Sequence[str],
    time_limit: float,
) -> dict[str, Any]:
    """Run the worker once on this machine and return what it wrote.

    Parameters
    ----------
    python
        The interpreter whose environment has this configuration's MPI.
    words
        More arguments for the worker.
    time_limit
        Seconds after which the launch is killed.
    """
    mpiexec = Path(python).parent / "mpiexec"
    family, version = identify(mpiexec)
    if family != configuration.mpi:
        raise LaunchFailed(f"{mpiexec} is of {family}, expected {configuration.mpi}")
    mpi = Mpi(family, version, mpiexec, "beside the interpreter")
    program = [python, str(WORKER), "--out", str(out), "--label", configuration.name, *words]
    base = {**os.environ, **configuration.environment}
    environment = job_environment(base, family, tag=uuid.uuid4().hex, timeout=HANG)
    command = job_command(
        mpi, threads, program, extra=configuration.options, environment=environment, recover=False
    )
    out.unlink(missing_ok=True)
    outcome = run_job(
        command, environment, time_limit=time_limit, watched=False, forward=True, tag_name=JOB_TAG)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.status or not out.exists():
        raise LaunchFailed(f"{configuration.name}: {outcome.explain(time_limit) or 'no result'}")
    return read(out)


def read(path: Path) -> dict[str, Any]:
    """A worker's file."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def forget(folder: Path) -> None:
    """Remove what earlier launches left in a folder, so that nothing old is merged."""
    for path in folder.glob("*.json.gz"):
        path.unlink()


def stored(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What earlier launches left in a folder, by configuration."""
    reports: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        reports.setdefault(path.name.partition(".")[0], []).append(read(path))
    return reports


def command_line() -> str:
    """The command that is running, without the directories of this machine's interpreters."""
    words = [f"benchmarks/{Path(sys.argv[0]).name}"]
    for word in sys.argv[1:]:
        path = Path(word)
        words.append(f"{path.parent.parent.name}/bin/{path.name}" if path.is_absolute()
                     and path.parent.name == "bin" else word)
    return "python " + " ".join(words)


def revision() -> str:
    """The commit that was measured, with a plus if files differ from it; empty if unknown."""
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(BENCHMARKS), *words], check=False,
                              capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../xupc")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
