"""`xupc job-script`: a batch script for Slurm that runs the benchmark and makes its report.

The head is made from the options; the body is the same for all, and works on variables that the
head sets. Written for people to read and change before they submit it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from .common import check_nodes, examples

__all__ = ["LAUNCHERS", "Job", "job_script_command", "script"]

LAUNCHERS = {
    "pmix": "srun --mpi=pmix python -m xupc",
    "pmi2": "srun --mpi=pmi2 python -m xupc",
    "mpiexec": 'python -m xupc run -n "$SLURM_NTASKS" -m xupc',
}
"""What starts the threads, by the name of the option; `xupc run` takes mpi4py's own mpiexec."""

_HEAD = """\
#!/usr/bin/env bash
#SBATCH --job-name=xupc-bench
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={threads}
#SBATCH --cpus-per-task=1
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --time={minutes}
#SBATCH --signal=B:TERM@60
#SBATCH --output=%x-%j.out
#
# {nodes} node{nodes_s}, {threads} thread{threads_s} on each. Submit it with: sbatch FILE
# Written by: {command}
set -euo pipefail

# The Python environment with xupc in it, and what else programs need here (module load ...).
export PATH={path}:"$PATH"

result=xupc-bench-${{SLURM_JOB_ID:-0}}.json
launches={launches} # of the benchmark: one does not say how much they differ
bench=({bench})
each=({each}) # what one of them may take
launch=({launch})
"""

_BODY = """
# Slurm signals this shell 60 s before the time is up (--signal). The trap passes SIGTERM on to the
# benchmark, which keeps what it has measured and ends; the report is made of that.
job=
stopped=
trap 'stopped=yes; [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true' TERM

# What is wrong with this place is said before anything is measured.
"${launch[@]}" info || true

status=0
for _ in $(seq "$launches"); do
  [ -z "$stopped" ] && [ "$status" = 0 ] || break
  "${launch[@]}" bench ${bench[@]+"${bench[@]}"} ${each[@]+"${each[@]}"} \\
    --json "$result" --append &
  job=$!
  wait "$job" || status=$?
  if [ -n "$stopped" ]; then # a signal ends the wait early: wait for the end itself
    status=0
    wait "$job" || status=$?
  fi
  job=
done

if [ -e "$result" ]; then
  python -m xupc report "$result" --force || status=$((status ? status : $?))
fi
exit "$status"
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The job that a script requests.

    Attributes
    ----------
    nodes, threads_per_node
        The job's shape.
    minutes
        Its time limit.
    mpi
        A key of `LAUNCHERS`.
    environment
        Folder of the Python environment; None for the one that runs this.
    bench
        Arguments of `xupc bench`.
    launches
        Number of launches of the benchmark; their results are joined.
    seconds
        Time for all launches; None: each launch takes the time that it needs.
    """

    nodes: int = 2
    threads_per_node: int = 4
    minutes: int = 30
    mpi: str = "pmix"
    environment: str | None = None
    bench: Sequence[str] = ()
    launches: int = 5
    seconds: float | None = None


def script(job: Job, command: Sequence[str]) -> str:
    """Return the text of the script; its header names `command`, which wrote it."""
    if job.environment is None:
        path = str(Path(sys.executable).parent)
    else:
        path = f"{job.environment}/bin"
    hours, minutes = divmod(job.minutes, 60)
    head = _HEAD.format(
        nodes=job.nodes,
        nodes_s="s"[: job.nodes != 1],
        threads=job.threads_per_node,
        threads_s="s"[: job.threads_per_node != 1],
        minutes=f"{hours:02}:{minutes:02}:00",
        command=" ".join(shlex.join(command).splitlines()),
        path=shlex.quote(path),
        bench=shlex.join(job.bench),
        launches=job.launches,
        each="" if job.seconds is None else f"--budget {job.seconds / job.launches:.0f}s",
        launch=LAUNCHERS[job.mpi],
    )
    return head + _BODY


@click.command("job-script", context_settings={"ignore_unknown_options": True}, epilog=examples(
    "xupc job-script --nodes 4 --threads-per-node 16 all_broadcast --budget 10m > job.sbatch",
    "xupc job-script --mpi mpiexec --time 60 Allreduce -m 8:1M --peer > job.sbatch",
))  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(min=1), default=2, show_default=True,
    help="The number of machines that the job asks for.",
)  # fmt: skip
@click.option(
    "--threads-per-node",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="The number of threads on each, one core for each thread.",
)
@click.option(
    "--time",
    "minutes",
    type=click.IntRange(min=3),
    default=30,
    show_default=True,
    metavar="MINUTES",
    help="The job's time limit; a minute before it the benchmark keeps what it has and ends.",
)
@click.option(
    "--mpi",
    type=click.Choice(list(LAUNCHERS)),
    default="pmix",
    show_default=True,
    help="What starts the threads: srun by PMIx or PMI-2, or mpi4py's own mpiexec.",
)
@click.option(
    "--environment",
    metavar="FOLDER",
    help="The Python environment with xupc in it; by default the one that runs this.",
)
@click.option(
    "--launches", type=click.IntRange(1, 100), default=5, show_default=True,
    help="How often the benchmark is started; a --budget is divided among them.",
)  # fmt: skip
@click.argument("bench", nargs=-1, type=click.UNPROCESSED)
def job_script_command(
    nodes: int,
    threads_per_node: int,
    minutes: int,
    mpi: str,
    environment: str | None,
    launches: int,
    bench: tuple[str, ...],
) -> None:
    """Print a Slurm batch script that runs the benchmark and makes its report.

    BENCH is what `xupc bench` is given: names of collectives and options, such as --budget. What
    both commands know, such as --nodes, is the job's.
    """
    from xupc.bench.settings import Shape

    from .bench import check_arguments

    shape = Shape(nodes * threads_per_node, f"{nodes}x{threads_per_node}")
    check_nodes(shape.nodes, shape.threads)
    seconds = check_arguments(bench, shape)
    job = Job(nodes, threads_per_node, minutes, mpi, environment, bench, launches, seconds)
    context = click.get_current_context()
    words = ["xupc", "job-script", *_given(context), *bench]
    click.echo(script(job, words), nl=False)


def _given(context: click.Context) -> list[str]:
    """Return the options that the user gave, as words."""
    return [
        word
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name is not None
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        for word in (option.opts[0], str(context.params[option.name]))
    ]
