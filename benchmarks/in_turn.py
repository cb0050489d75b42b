"""Jobs with the sources of several checkouts, in turn, so that the machine's state favours none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from emulated import Cluster

__all__ = ["HERE", "figures", "sides", "turns"]

HERE = Path(__file__).resolve().parent.parent
SECONDS = 120  # of a job


def sides(before: Path | None) -> dict[str, Path]:
    """Return the folders of sources to compare: `before`, if one is given, and this checkout."""
    return ({"before": before.resolve()} if before is not None else {}) | {"now": HERE}


def turns(folders: Mapping[str, Path], launches: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the number of the launch and the side of each job; every second launch turns back."""
    for number in range(first, launches):
        for side in list(folders)[:: 1 if number % 2 else -1]:
            yield number, side


def figures(
    folder: Path, job: Sequence[str], options: Sequence[str], cluster: Cluster | None = None,
    **environment: str,
) -> dict[str, float]:  # fmt: skip
    """Run a job with the sources in `folder`; return its figures by name.

    `job` is a program and its arguments. Thread 0 prints ``["name", figure]`` in a line for each.
    `options` are those of `xupc run`, or of `scripts/cluster run` on an emulated cluster.
    """
    environment["PYTHONPATH"] = str(folder)
    if cluster is not None:
        done = cluster.run(options, job, seconds=SECONDS - 10, environment=environment)
        done.check_returncode()
    else:
        done = subprocess.run(
            [sys.executable, "-m", "xupc", "run", *options, *job],
            env=os.environ | environment, cwd="/", check=True, stdout=subprocess.PIPE, text=True,
            timeout=SECONDS,
        )  # fmt: skip
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
