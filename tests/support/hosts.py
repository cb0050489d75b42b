"""Jobs of the pool on the hosts of an emulated cluster: `tests/cluster` runs programs in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from support.launch import PROJECT, SITE, TEST_TAG, import_path, job_environment_of_a_test
from support.pool import RANK, ThisMachine

from xupc.cli.mpi import identify

__all__ = ["HOSTS", "OnHosts"]

HOSTS = [3, 1, 0, 2]
"""Threads on each host."""
SESSION = 3600.0  # the most seconds of a job
PASSED = (
    TEST_TAG, "PYTHONFAULTHANDLER", "PYTHONPATH", "XDG_CONFIG_HOME", "XUPC_TEST_RANK_SOCKET",
    "XUPC_TEST_SLOW",
)  # fmt: skip


class OnHosts(ThisMachine):
    """Where a pool has its jobs: on `HOSTS` of a cluster, by the MPI under a Python."""

    def __init__(self, cluster: Any, python: str) -> None:
        self.cluster = cluster
        self.python = python
        self.family, _ = identify(Path(python).parent / "mpiexec")

    def environment(self, tag: str) -> dict[str, str]:
        """Return the variables of a job; the other Python may have xupc from elsewhere."""
        found = job_environment_of_a_test(tag, self.family)
        return {**found, "PYTHONPATH": import_path(SITE, PROJECT)}

    def command(self, threads: int, words: Sequence[str]) -> list[str]:
        """Return what runs a program in a job of its own, on a cluster that is up."""
        hosts = ",".join(map(str, HOSTS))
        run = ["scripts/cluster", "run", "--python", self.python, "--hosts", hosts]
        return [*run, "--", self.python, *words]

    def run(
        self, threads: int, environment: Mapping[str, str], out: BinaryIO, err: BinaryIO
    ) -> int:
        """Run a job of ranks until its end; return the exit status."""
        done = self.cluster.run(
            threads, [self.python, str(RANK)], timeout=SESSION, hosts=HOSTS, python=self.python,
            env={name: environment[name] for name in PASSED},
        )  # fmt: skip
        out.write(done.stdout.encode())
        err.write(done.stderr.encode())
        return int(done.returncode)
