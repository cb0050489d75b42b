"""Checks and constants for several commands."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from xupc.topology.node_spec import parse_nodes

from ..call_trace.layout import MOST_THREADS
from ..json_text import DAMAGED
from ..report import formatting
from ..topology.host import available_cores
from ..tuning.host_figures import HostFigures
from .launcher import EXIT_ENVIRONMENT, EXIT_USAGE
from .rank_wrapper import RANK_VARIABLES

__all__ = [
    "BudgetProblem", "EnvironmentProblem", "began", "blamed_on", "check_crowd", "check_nodes",
    "check_outputs", "check_writable", "examples", "figures_text", "in_job", "plain",
]  # fmt: skip

PER_CORE = 64  # most threads per core that a command accepts
_ELSEWHERE = "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE"


class EnvironmentProblem(click.ClickException):
    """Something is missing on this machine; nothing was wrong with the command."""

    exit_code = EXIT_ENVIRONMENT


class BudgetProblem(click.ClickException):
    """The budget is too short, which one line says: the command is used as it should be."""

    exit_code = EXIT_USAGE


def examples(*lines: str) -> str:
    """Return the end of a help page: commands to copy."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def plain(value: Any) -> Any:
    """Return records, sets and paths as objects, sorted lists and text, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(each) for each in value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    names = getattr(value, "__match_args__", ())  # of a dataclass, and of a record
    return {name: plain(getattr(value, name)) for name in names} if names else str(value)


@contextlib.contextmanager
def blamed_on(name: str) -> Iterator[None]:
    """Raise UsageError for an error in showing a file: its figures may be impossible."""
    try:
        yield
    except DAMAGED as e:
        raise click.UsageError(f"{name}: it cannot be shown: {type(e).__name__}: {e}") from None


def began() -> float:
    """Return the time of the monotonic clock at which the command began, its imports included."""
    found: float = click.get_current_context().meta.get("xupc.began", time.monotonic())
    return found


def in_job() -> bool:
    """Return True if a launcher has started this process as a thread of a job."""
    return any(name in os.environ for name in RANK_VARIABLES)


def check_writable(path: Path | None, *, make: bool = False) -> None:
    """Raise UsageError if a file cannot be written: better before an hour of measuring.

    With `make` its directories need not exist yet.
    """
    if path is None or str(path) == "-":
        return
    path = Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError for a loop of links
    folder = path.parent
    while make and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise click.UsageError(f"there is no directory {folder}")
    special = path.exists() and not path.is_file()  # others are replaced by a new one beside them
    if path.is_dir() or not os.access(path if special else folder, os.W_OK):
        raise click.UsageError(f"{path} cannot be written")
    if special:
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise click.UsageError(f"{path} cannot be written")
    try:  # the system may permit root to write where no file can be made, as in /sys
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None


def _refuse_existing(targets: Sequence[tuple[str, Path | None]]) -> None:
    """Raise UsageError if a file would be replaced; devices and - are no files."""
    for option, path in targets:
        if path is not None and str(path) != "-" and path.is_file():
            raise click.UsageError(
                f"{option} {path}: expected a new file, but it exists; name another one, or "
                "replace it with --force"
            )


def check_outputs(targets: Sequence[tuple[str, Path | None]], *, replace: bool) -> None:
    """Raise UsageError if one of the files cannot be written, or would be replaced."""
    for _, path in targets:
        check_writable(path)
    if not replace:
        _refuse_existing(targets)


def check_crowd(threads: int, extra: Sequence[str]) -> None:
    """Raise UsageError if so many threads on this machine would use up its memory.

    Any number is right where other machines may be meant: those of a batch system, a file of hosts
    or options for mpiexec.
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
    """Raise UsageError if so many threads cannot be split into these nodes, or are no job's."""
    if threads > MOST_THREADS:
        raise click.BadParameter(
            f"{threads} threads: expected at most {MOST_THREADS}",
            param_hint="-n" if nodes is None else "--nodes",
        )
    if nodes is not None:
        try:
            parse_nodes(nodes, threads)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--nodes") from None


def figures_text(figures: HostFigures) -> str:
    """Return the figures of a host in words."""
    least, pair = (formatting.size(n) for n in (figures.direct_min, figures.direct_min_pair))
    words = [f"direct access from {least} on", f"from {pair} where two threads exchange blocks"]
    if figures.direct_reduce:
        words.append("reductions of any length")
    limit = figures.nt_store_min
    past = f"from {formatting.size(limit)} per core on" if limit else "never"
    return f"{', '.join(words)}; copies past the cache {past}"
