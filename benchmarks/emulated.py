"""Emulated clusters of `scripts/cluster` (Linux, root), for the programs that measure on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Cluster", "cluster"]

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "cluster"


class Cluster:
    """A cluster that is there, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(
        self, options: Sequence[str], program: Sequence[str], *, seconds: float,
        python: str = sys.executable, environment: Mapping[str, str] | None = None,
        captured: bool = True,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a program on the cluster, and return its exit status and what it printed.

        Parameters
        ----------
        options
            Of `scripts/cluster run`, such as the number of threads.
        program
            The arguments of the interpreter.
        seconds
            After them the job is killed.
        python
            The interpreter, of an environment with an MPI.
        environment
            Variables of all threads.
        captured
            False: the output goes to the terminal.
        """
        variables = [w for k, v in (environment or {}).items() for w in ("--env", f"{k}={v}")]
        words = [
            "run", "--name", self.name, "--python", python, "--timeout", f"{seconds:.0f}",
            *options, *variables, "--", python, *program,
        ]  # fmt: skip
        return _script(words, captured=captured)


@contextmanager
def cluster(name: str, nodes: int, *options: str) -> Iterator[Cluster]:
    """Make a cluster of so many nodes, and remove it at the end.

    Parameters
    ----------
    options
        Of `scripts/cluster up`, such as the rate of its links.

    Raises
    ------
    SystemExit
        It cannot be made; `scripts/cluster` has printed why.
    """
    try:
        made = _script(["up", "--name", name, "--nodes", str(nodes), *options])
        print(made.stdout, end="", file=sys.stderr)
        if made.returncode:
            raise SystemExit(made.returncode)
        yield Cluster(name)
    finally:
        print(_script(["down", "--name", name]).stdout, end="", file=sys.stderr)


def _script(words: Sequence[str], *, captured: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `scripts/cluster`; its errors go to the terminal."""
    output = subprocess.PIPE if captured else None
    return subprocess.run([sys.executable, str(SCRIPT), *words], check=False, text=True,
                          stdout=output)  # fmt: skip
