"""The command line: ``xupc``, also ``python -m xupc``.

A command's module is imported when the command is used.

Exit status: 0 good, 1 wrong data or a regression, 2 usage, 3 timeout, 4 environment, 5 a comparison
without a verdict; `run` exits with its program's status.
"""

from __future__ import annotations

import errno
import os
import time
from importlib import import_module
from typing import Any

import click

__all__ = ["main"]

COMMANDS = {  # name: (module, function, its line in `xupc --help`)
    "algorithms": ("algorithms", "algorithms_command",
                   "List the variants of algorithms, and which of them a call gets."),
    "bench": ("bench", "bench_command", "Measure collectives."),
    "calibrate": ("calibrate", "calibrate_command",
                  "Measure what steps cost here, for `xupc predict`."),
    "demo": ("demo", "demo_command", "Show in four steps what xupc does on this machine."),
    "export": ("export", "export_command",
               "Write the plan of a call as a file of another tool."),
    "hang-report": ("hang", "hang_report_command",
                    "Show where the threads of a running job are, without disturbing it."),
    "info": ("jobs", "info_command", "Show what is in use and what is wrong with it."),
    "job-script": ("job_script", "job_script_command",
                   "Print a Slurm batch script that runs the benchmark and makes its report."),
    "predict": ("predict", "predict_command",
                "Model what a call costs on a machine, by each variant."),
    "report": ("report", "report_command", "Show what results of `xupc bench` say."),
    "run": ("jobs", "run_command", "Run a Python program as N threads."),
    "topo": ("jobs", "topo_command", "Draw where threads are: nodes, sockets, caches, cores."),
    "trace": ("trace", "trace_command",
              "Show the lines of a program whose calls take most time, and for which thread they "
              "wait."),
    "tune": ("tune", "tune_command",
             "Find the best algorithm for each size on this machine, for the library to follow."),
}  # fmt: skip
LOCAL_RANK = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


class _Commands(click.Group):
    """The commands of the table above; in a job, one thread of each host reports a usage error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(f".{module}", __name__), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words name; UsageError, with names like it, for another."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            alike = get_close_matches(name.lower(), COMMANDS)
            hint = f"did you mean {' or '.join(alike)}?" if alike else (
                f"there are {', '.join(sorted(COMMANDS))}"
            )  # fmt: skip
            ctx.fail(f"No such command {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's lines, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its time begins before its module is imported.

        What the system refuses is said in one sentence, such as a name that is too long.
        """
        ctx.meta["xupc.began"] = time.monotonic()
        try:
            return super().invoke(ctx)
        except OSError as e:
            if e.errno == errno.EPIPE:  # a reader that has seen enough, which click expects
                raise
            from .launcher import EXIT_ENVIRONMENT  # slower to import than all else here

            click.echo(f"Error: {e}", err=True)
            ctx.exit(EXIT_ENVIRONMENT)
        except click.UsageError as e:
            if any(os.environ.get(name, "0") != "0" for name in LOCAL_RANK):
                time.sleep(1.0)  # a launcher ends all with the first to end
                ctx.exit(e.exit_code)
            raise


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the installed version and end."""
    if asked and not ctx.resilient_parsing:
        click.echo(f"xupc, version {_version()}")
        ctx.exit()


def _version() -> str:
    from importlib import metadata  # takes as long as everything else here

    try:
        return metadata.version("xupc")
    except metadata.PackageNotFoundError:
        return "(not installed)"


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  xupc run -n 4 program.py\n  xupc bench Allreduce -n 4 --peer",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """xupc: a partitioned global address space of numpy data, and collectives over it."""
