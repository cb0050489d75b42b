"""`xupc trace`: sum up recorded calls, and join the parts of a job that did not end."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..call_trace.file import load, write
from ..call_trace.layout import folder_of
from ..call_trace.summary import as_data, rendered
from .common import EnvironmentProblem, blamed_on, check_outputs, examples

__all__ = ["trace_command"]


@click.command("trace", epilog=examples(
    "xupc run -n 4 --trace trace.json program.py",
    "xupc trace trace.json",
    "xupc trace trace.json.parts -o trace.json",
))  # fmt: skip
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print the same as one object of JSON.")
@click.option(
    "--lines", "most", type=click.IntRange(min=1), default=10, show_default=True,
    help="How many lines of the program to show.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="OUT.json",
    help="Join the parts in a folder into a file that Perfetto opens.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def trace_command(trace: Path, as_json: bool, most: int, output: Path | None, force: bool) -> None:
    """Show the lines of a program whose calls take most time, and for which thread they wait.

    TRACE is a file that `xupc run --trace` or XUPC_TRACE has made. Of a job that died it is the
    folder TRACE.parts beside it: what each thread had recorded until then.

    Open the file itself in https://ui.perfetto.dev: one process for each node, one track for each
    thread.
    """
    if not trace.exists() and folder_of(trace).is_dir():
        trace = folder_of(trace)
    if not trace.exists():
        raise click.UsageError(f"there is no trace {trace}")
    if output is not None:
        if not trace.is_dir():
            raise click.UsageError(f"-o: expected a folder of parts, got the file {trace}")
        check_outputs([("-o", output)], replace=force)
    try:
        found = load(trace)
        if output is not None:
            write(found, output)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise EnvironmentProblem(str(error)) from None
    with blamed_on(str(trace)):
        text = json.dumps(as_data(found, most), indent=1) if as_json else (
            "\n".join(rendered(found, most))
        )  # fmt: skip
    click.echo(text)
