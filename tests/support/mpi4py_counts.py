"""Print the table of mpi4py's own tests: ``mpi4py_counts.py FILE``.

FILE is what `tests/live/test_mpi4py_suite.py` wrote, a line of JSON for each module of a job. Of
equal modules in equal jobs the last counts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Lines = dict[tuple[str, str], dict[str, Any]]  # by module and job


def column(line: dict[str, Any]) -> str:
    """Return the name of the job that a line is of."""
    family = {"mpich": "MPICH", "openmpi": "Open MPI"}[line["mpi"]]
    return f"{family} {line['n']}" + (f" on {line['nodes']}" if line["nodes"] else "")


def cell(line: dict[str, Any] | None) -> str:
    """Return counts as text: passed, of those that are not skipped, and those of plain mpi4py."""
    if line is None:
        return ""
    ours, plain = (_passed(line[name]) for name in ("xupc", "mpi4py"))
    worse = f", worse: {', '.join(line['worse'])}" if line["worse"] else ""
    return f"{ours}{worse}" if plain in (ours, "0/0") else f"{ours}, mpi4py {plain}{worse}"


def _passed(counts: dict[str, int]) -> str:
    good = counts.get("ok", 0)
    return f"{good}/{good + counts.get('failed', 0)}"


def table(lines: Lines) -> list[str]:
    """Return the rows of a table with a column for each job."""
    jobs = sorted({job for _, job in lines})
    rows = [f"| module | {' | '.join(jobs)} |", "|---" * (len(jobs) + 1) + "|"]
    for module in sorted({module for module, _ in lines}):
        found = [cell(lines.get((module, job))) for job in jobs]
        rows.append(f"| {module.removeprefix('test_')} | {' | '.join(found)} |")
    return rows


if __name__ == "__main__":
    read = map(json.loads, Path(sys.argv[1]).read_text().splitlines())
    print("\n".join(table({(line["module"], column(line)): line for line in read})))
