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

__all__ = ["LAUNCHERS", "Job", "script"]

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
# Slurm signals this shell 60 s before the time is up (--signal). The benchmark is told, keeps what
# it has measured and ends; the report is made of that.
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
  python -m xupc report "$result" || status=$((status ? status : $?))
fi
exit "$status"
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What a script asks for.

    Attributes
    ----------
    nodes, threads_per_node
        The job's shape.
    minutes
        Its time limit.
    mpi
        A key of `LAUNCHERS`.
    environment
        Folder of the Python environment; None: the one that runs this.
    bench
        Arguments of `xupc bench`.
    launches
        How often the benchmark is started; their results are joined.
    seconds
        For all launches; None: each takes what it needs.
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
    """Return the text of the script; `command` is what it says it was written by."""
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
