"""Jobs with the sources of several checkouts, in turn, so that the machine's state favours none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["HERE", "emulated", "figures", "sides", "turns"]

HERE = Path(__file__).resolve().parent.parent
CLUSTER = sys.executable, str(HERE / "scripts" / "cluster")
SECONDS = 120  # of a job


def sides(before: Path | None) -> dict[str, Path]:
    """Return the folders of sources to compare: `before`, if one is given, and this checkout."""
    return ({"before": before.resolve()} if before is not None else {}) | {"now": HERE}


def turns(folders: Mapping[str, Path], launches: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the number of the launch and the side of each job; every second launch turns back."""
    for number in range(first, launches):
        for side in list(folders)[:: 1 if number % 2 else -1]:
            yield number, side


@contextmanager
def emulated(nodes: int, name: str) -> Iterator[str]:
    """Make an emulated cluster of so many nodes (Linux, root) and remove it at the end."""
    subprocess.run([*CLUSTER, "up", "--name", name, "--nodes", str(nodes)], check=True,
                   stdout=sys.stderr)  # fmt: skip
    try:
        yield name
    finally:
        subprocess.run([*CLUSTER, "down", "--name", name], check=True, stdout=sys.stderr)


def figures(
    folder: Path, job: Sequence[str], options: Sequence[str], cluster: str = "", **environment: str
) -> dict[str, float]:
    """Run a job with the sources in `folder`; return its figures by name.

    `job` is a program and its arguments. Thread 0 prints ``["name", figure]`` in a line for each.
    `options` are those of `xupc run`, or of `scripts/cluster run` on an emulated `cluster`.
    """
    environment["PYTHONPATH"] = str(folder)
    if cluster:
        variables = [word for pair in environment.items() for word in ("--env", "=".join(pair))]
        command = [
            *CLUSTER, "run", "--name", cluster, "--python", sys.executable,
            "--timeout", str(SECONDS - 10), *options, *variables, "--", sys.executable, *job,
        ]  # fmt: skip
    else:
        command = [sys.executable, "-m", "xupc", "run", *options, *job]
    done = subprocess.run(
        command, env=os.environ | environment, cwd="/", check=True, stdout=subprocess.PIPE,
        text=True, timeout=SECONDS,
    )  # fmt: skip
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
