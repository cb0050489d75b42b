"""The file of ``xupc run --trace``: checked before the job, joined after it if the job did not."""

from __future__ import annotations

from pathlib import Path

import click

from ..call_trace.layout import folder_of
from .common import check_outputs

__all__ = ["check_trace", "join_trace"]


def check_trace(trace: Path | None, *, replace: bool) -> None:
    """Raise UsageError if the trace or the folder of its parts cannot be made."""
    check_outputs([("--trace", trace)], replace=replace)
    if trace is None:
        return
    folder = folder_of(trace)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise click.UsageError(f"--trace: {folder}, which is for its parts, is no directory")


def join_trace(trace: Path, drop_in: bool) -> None:
    """Join the parts of a trace that the job has left, because it did not come to its end."""
    from ..call_trace.file import join_parts  # slower to import than all else here

    if trace.exists():
        return
    if not folder_of(trace).is_dir():
        why = "no thread called xupc.init"
        if drop_in:
            why = "no communicator opened a team of xupc (XUPC_COMM=force has no warm-up)"
        click.echo(f"xupc run: --trace: nothing was recorded: {why}", err=True)
        return
    try:
        join_parts(trace)
    except (OSError, ValueError) as error:
        click.echo(f"xupc run: --trace: {error}", err=True)
        return
    click.echo(f"xupc run: {trace} has the calls up to the end of each thread", err=True)
