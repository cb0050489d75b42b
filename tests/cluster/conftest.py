"""An emulated cluster for tests: several nodes with real host ids and a real, shaped link.

`cluster` is up once per session, and once per process of pytest-xdist: 4 nodes at 1 Gbit/s under a
name of its own, so that concurrent test runs and processes do not meet. No test may depend on what
all clusters of a machine share. It goes down when the session ends, however that happens. Where a
cluster cannot be made (not Linux, not root, no iproute2), tests that ask for it skip with the
reason.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from support.hosts import HOSTS, OnHosts
from support.launch import BUSY, LIMIT, Result
from support.pool import OFF, Pool, repeat_command

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"
CLEANING_TIME = 60.0  # the most that scripts/cluster may take beyond a job's own timeout


class EmulatedCluster:
    """One cluster of scripts/cluster: a thin wrapper that captures what commands print."""

    def __init__(
        self, nodes: int, rate: str = "1gbit", shm: str = "default", links: int = 1
    ) -> None:
        self.name = "t" + secrets.token_hex(4)
        self.nodes = nodes
        self.rate = rate
        self.shm = shm
        self.links = links

    def call(
        self, command: str, *words: str, timeout: float = CLEANING_TIME
    ) -> subprocess.CompletedProcess[str]:
        """Run `scripts/cluster COMMAND --name NAME WORDS..`; a hang is a failure, not a hang.

        If this call is killed, the script's guard still ends the job.
        """
        return subprocess.run(
            [sys.executable, str(SCRIPT), command, "--name", self.name, *words],
            check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout,
        )

    def up(self) -> None:
        """Make it, or fail with the script's words."""
        size = ["--nodes", str(self.nodes), "--rate", self.rate, "--shm", self.shm,
                "--links", str(self.links)]
        done = self.call("up", *size)
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        """Remove it; a second time does nothing."""
        done = self.call("down")
        assert done.returncode == 0, done.stderr

    def execute(self, node: int, *words: str) -> str:
        """Run one command in one node and return what it prints."""
        done = self.call("exec", str(node), "--", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self,
        n: int | None,
        program_args: Sequence[str],
        *,
        timeout: float = 60.0,
        hosts: Sequence[int] | None = None,
        env: Mapping[str, str] | None = None,
        python: str | None = None,
        mpiexec_options: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run an MPI program with n threads, in blocks over all nodes or `hosts[i]` on node i.

        `python` is the interpreter whose MPI is used, by default the one that runs the tests; a
        program called "python" is that one too. Output is text. The status is 124 if the program
        outlives `timeout` seconds, else the program's.
        """
        words = ["--timeout", str(timeout), "--python", python or sys.executable]
        words += ["-n", str(n)] if n is not None else []
        words += ["--hosts", ",".join(map(str, hosts))] if hosts is not None else []
        for key, value in (env or {}).items():
            words += ["--env", f"{key}={value}"]
        words += [f"--mpiexec-option={word}" for word in mpiexec_options]
        return self.call("run", *words, "--", *program_args, timeout=timeout + CLEANING_TIME)


@pytest.fixture(scope="session")
def make_cluster() -> Iterator[Callable[..., EmulatedCluster]]:
    """A function that brings up a cluster, which goes down with the session at the latest."""
    probe = subprocess.run([sys.executable, str(SCRIPT), "available"], check=False,
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(probe.stderr.strip())
    made: list[EmulatedCluster] = []

    def make(
        nodes: int, rate: str = "1gbit", shm: str = "default", links: int = 1
    ) -> EmulatedCluster:
        cluster = EmulatedCluster(nodes, rate, shm, links)
        made.append(cluster)
        atexit.register(cluster.down)  # for a session that ends without finalisers
        cluster.up()
        return cluster

    yield make
    for cluster in made:
        cluster.down()
        atexit.unregister(cluster.down)


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[..., EmulatedCluster]) -> EmulatedCluster:
    """Four nodes at 1 Gbit/s."""
    return make_cluster(4, "1gbit")


@pytest.fixture(
    params=[
        pytest.param(sys.executable, id="current"),
        pytest.param(os.environ.get("XUPC_TEST_OMPI_PYTHON"), id="openmpi"),
    ]
)
def mpi_python(request: pytest.FixtureRequest) -> str:
    """The interpreter of each MPI environment at hand."""
    if request.param is None:
        pytest.skip("XUPC_TEST_OMPI_PYTHON does not name an Open MPI environment's python")
    python = str(request.param)
    if not (Path(python).parent / "mpiexec").exists():
        pytest.skip(f"no mpiexec beside {python}")
    return python


@pytest.fixture(scope="session")
def on_hosts(cluster: EmulatedCluster) -> Iterator[Callable[..., Result]]:
    """Return a function that runs a program on `HOSTS`; the program must leave nothing.

    ``on_hosts(python, program, *words, env=None, timeout=LIMIT, expect=0)``; `expect` is the exit
    status, None for any; `timeout` is for a machine that does nothing else, as that of `live` is.
    Each Python has one job, whose ranks run one program after the other (`support/pool.py`): a
    start of MPI on several hosts takes longer than most programs.
    """
    pools: dict[str, Pool] = {}

    def run(
        python: str, program: Path, *words: str, env: Mapping[str, str] | None = None,
        timeout: float = LIMIT, expect: int | None = 0,
    ) -> Result:  # fmt: skip
        if python not in pools:
            pools[python] = Pool(OnHosts(cluster, python))
        result = pools[python].launch(
            sum(HOSTS), program, env=env, timeout=BUSY * timeout, args=words
        )
        if OFF:
            pools[python].close()
        good = expect is None or result.returncode == expect
        assert good, f"{result.report()}\n--- to repeat it\n{repeat_command()}"
        assert result.clean, result.report()
        return result

    yield run
    for pool in pools.values():
        pool.close()
