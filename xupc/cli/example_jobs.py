"""Run an example of the project as a job, and keep what it prints."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .launcher import job_command, job_environment, run_job, thread_command
from .mpi import find_mpi
from .outcome import Outcome

__all__ = ["TIME_LIMIT", "Ran", "example", "run_example"]

_HERE = Path(__file__).parent / "examples"
_CHECKOUT = Path(__file__).parents[2] / "examples"
TIME_LIMIT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Ran:
    """Hold the end of an example's job, and what its threads have printed."""

    outcome: Outcome
    stdout: str
    stderr: str


def example(name: str) -> Path:
    """Return the file of an example: of the installed package, or of the sources beside it."""
    return next(path for path in (_HERE / name, _CHECKOUT / name) if path.exists())


def run_example(
    name: str, threads: int, nodes: str, words: Sequence[str] = (), time_limit: float = TIME_LIMIT
) -> Ran:
    """Run an example; LaunchError if there is no launcher."""
    mpi = find_mpi()
    environment = job_environment(os.environ, mpi.family, tag=uuid.uuid4().hex, nodes=nodes)
    program = thread_command([sys.executable, str(example(name)), *words])
    command = job_command(mpi, threads, program, environment=environment)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        outcome = run_job(
            command, environment, time_limit=time_limit, forward=True, stdout=out, stderr=err
        )
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ran(outcome, *texts)
