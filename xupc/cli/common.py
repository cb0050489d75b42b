"""Checks and constants for several commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from xupc.topology.node_spec import parse_nodes

from ..topology.host import available_cores
from .launcher import EXIT_ENVIRONMENT
from .rank_wrapper import RANK_VARIABLES

__all__ = ["EnvironmentProblem", "check_crowd", "check_nodes", "check_writable", "in_job"]

PER_CORE = 64  # most threads per core that a command accepts
_ELSEWHERE = "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE"


class EnvironmentProblem(click.ClickException):
    """Something is missing on this machine; nothing was wrong with the command."""

    exit_code = EXIT_ENVIRONMENT


def in_job() -> bool:
    """Return True if a launcher has started this process as a thread of a job."""
    return any(name in os.environ for name in RANK_VARIABLES)


def check_writable(path: Path | None, *, make: bool = False) -> None:
    """UsageError if a file cannot be written there: better said before an hour of measuring.

    With `make` its directories need not exist yet.
    """
    if path is None:
        return
    path = path.resolve()
    folder = path.parent
    while make and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise click.UsageError(f"there is no directory {folder}")
    special = path.exists() and not path.is_file()  # others are replaced by a new one beside them
    if path.is_dir() or not os.access(path if special else folder, os.W_OK):
        raise click.UsageError(f"{path} cannot be written")
    if not special and path.exists() and not os.access(path, os.W_OK):
        raise click.UsageError(f"{path} cannot be written")


def check_crowd(threads: int, extra: Sequence[str]) -> None:
    """UsageError if so many threads on this machine cannot be meant: they would use up its memory.

    Not where others may be meant: a batch system, a file of hosts or options for mpiexec say which.
    """
    cores = available_cores()
    most = PER_CORE * cores
    if threads > most and not extra and not any(name in os.environ for name in _ELSEWHERE):
        raise click.BadParameter(
            f"{threads} threads on this machine's {cores} cores: expected at most {most} (if "
            "you mean other machines, name them with --mpiexec-args)",
            param_hint="-n",
        )


def check_nodes(nodes: str | None, threads: int) -> None:
    """UsageError if so many threads cannot be split into these nodes."""
    if nodes is not None:
        try:
            parse_nodes(nodes, threads)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--nodes") from None
