"""Jobs with the sources of several checkouts, in turn, so that the machine's state favours none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["HERE", "figures", "sides", "turns"]

HERE = Path(__file__).resolve().parent.parent


def sides(before: Path | None) -> dict[str, Path]:
    """Return the folders of sources to compare: `before`, if one is given, and this checkout."""
    return ({"before": before.resolve()} if before is not None else {}) | {"now": HERE}


def turns(folders: Mapping[str, Path], launches: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the number of the launch and the side of each job; every second launch turns back."""
    for number in range(first, launches):
        for side in list(folders)[:: 1 if number % 2 else -1]:
            yield number, side


def figures(
    folder: Path, job: Sequence[str], options: Sequence[str], **environment: str
) -> dict[str, float]:
    """Run a job with the sources in `folder`; return its figures by name.

    `job` is a program and its arguments. Thread 0 prints ``["name", figure]`` in a line for each.
    """
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "run", *options, *job],
        env={**os.environ, "PYTHONPATH": str(folder), **environment}, cwd="/", check=True,
        stdout=subprocess.PIPE, text=True, timeout=120,
    )  # fmt: skip
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
