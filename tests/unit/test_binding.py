"""`xupc run --bind`: the options that the launchers get."""

from __future__ import annotations

import pytest
from support.machine_files import recorded_machine

from xupc.cli.binding import YIELD, bind_options, binds, yield_options
from xupc.topology import host
from xupc.topology.machine import Machine, describe


def mapped(machine: Machine | None, policy: str, threads: int = 2, *extra: str) -> tuple[str, str]:
    """Return the kinds of domains over which MPICH and Open MPI deal threads, "" for none."""
    mpich = bind_options(policy, "mpich", machine, threads, extra)
    openmpi = bind_options(policy, "openmpi", machine, threads, extra)
    assert mpich[:3] == (["-bind-to", "core", "-map-by"] if mpich else [])
    assert openmpi[:3] == (["--bind-to", "core:overload-allowed", "--map-by"] if openmpi else [])
    ours, theirs = (each[3] if each else "" for each in (mpich, openmpi))
    assert theirs.endswith(":oversubscribe") or not theirs
    return ours, theirs.removesuffix(":oversubscribe")


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("epyc-milan-2p", ("l3cache", "l3cache")),
        ("xeon-snc2", ("numa", "numa")),
        ("grace-superchip", ("l3cache", "l3cache")),
        ("grace-hopper", ("core", "core")),
        ("a64fx", ("numa", "numa")),
        ("kunpeng-920", ("l3cache", "l3cache")),  # where the L3 is the NUMA node
        ("hybrid-laptop", ("l3cache", "l3cache")),
        ("vm-no-caches", ("core", "core")),
    ],
)
def test_threads_are_spread_over_the_narrowest_domains(name: str, domain: tuple[str, str]) -> None:
    assert mapped(recorded_machine(name), "spread") == domain


def test_close_threads_have_one_core_after_the_other() -> None:
    assert mapped(describe("2x4x8"), "close") == ("core", "core")
    assert mapped(None, "close") == mapped(None, "spread") == ("core", "core")


def test_none_binds_nothing() -> None:
    assert mapped(describe("2x4x8"), "none") == ("", "")


def test_auto_spreads_where_levels_can_be() -> None:
    assert mapped(describe("2x4x8"), "auto", 64) == ("l3cache", "l3cache")
    assert mapped(describe("2x4x8"), "auto", 65) == ("", "")
    assert mapped(describe("2x4x8"), "auto", 1) == ("", "")
    assert mapped(describe("1x8"), "auto", 8) == ("", "")
    assert mapped(None, "auto", 8) == ("", "")
    assert mapped(describe("2x4x8"), "auto", 8, "--bind-to", "none") == ("", "")


def test_options_that_bind() -> None:
    assert binds(["-v", "--map-by=core"]) == "--map-by=core"
    assert binds(["-bind-to", "core"]) == "-bind-to"
    assert binds(["-hosts", "a,b"]) == ""


def test_open_mpi_yields_where_threads_outnumber_the_cores_that_they_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "cpus_allowed", lambda: 2)
    yielding = ["--mca", "mpi_yield_when_idle", "1"]
    assert yield_options("openmpi", 2, {}) == []
    assert yield_options("openmpi", 3, {"PATH": "/bin"}, ["--bind-to", "core"]) == yielding
    assert yield_options("mpich", 3, {}) == []


@pytest.mark.parametrize(
    ("environment", "extra"),
    [
        ({YIELD: "0"}, []),  # the user's own choice
        ({}, ["--mca", "mpi_yield_when_idle", "0"]),
        ({}, ["--host", "a:8,b:8"]),  # other machines, whose cores are unknown here
        ({"PRTE_MCA_plm": "ssh"}, []),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"}, []),
        ({"PBS_NODEFILE": "/nodes"}, []),
        ({"LSB_MCPU_HOSTS": "a 8 b 8"}, []),
    ],
)
def test_cores_are_compared_on_this_machine_alone(
    environment: dict[str, str], extra: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cpus_allowed", lambda: 2)
    assert yield_options("openmpi", 3, environment, extra) == []
