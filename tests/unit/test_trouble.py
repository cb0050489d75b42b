"""Diagnostics name each thing that ruins runs, its price and a remedy, and nothing else.

The facts are literals.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from xupc.cli import diagnostics, info
from xupc.cli.facts import Facts, Heap, Thread
from xupc.cli.mpi import Mpi, Probe
from xupc.topology import host
from xupc.topology.machine import describe

MPICH = Mpi("mpich", "5.0.2", Path("/env/bin/mpiexec"), "package mpich 5.0.2")
STALE = Mpi("openmpi", "4.1.4", Path("/usr/bin/mpiexec"), "on PATH")


def thread(cores: str, host: str = "here", **more: Any) -> Thread:
    return Thread(host, frozenset(int(core) for core in cores.split()), **more)


FOUR = thread("0 1 2 3")
GOOD = Facts(
    versions={
        "xupc": "0.1.0",
        "numpy": "2.1.0",
        "mpi4py": "4.1.0",
        "psutil": "6.0.0",
        "click": "8.2.0",
        "jinja2": "3.1.6",
    },
    probe=Probe("Open MPI v5.0.11", thread_level="multiple"),
    mpi=Mpi("openmpi", "5.0.11", Path("/env/bin/mpiexec"), "package openmpi 5.0.11"),
    core="/x/_core.so",
    heap=Heap("/dev/shm", 8 << 30, 16 << 30, True),
    cpus=4,
    cpus_allowed=4,
    hostname="here",
)


def found(**change: Any) -> list[str]:
    return info.problems(dataclasses.replace(GOOD, **change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"threads": (FOUR,) * 4},
        {"threads": (thread("0"), thread("1"), thread("2"), thread("3"))},
        {"threads": (thread("0"),)},
        {"threads": (thread("0"), thread("0", "there"))},
        {"threads": (thread("0 1"), thread("0 1"), thread("2"))},
        {"threads": (FOUR, FOUR), "launched": 2},
        {"threads": (thread("0 1 2 3", limit=2.5),) * 2},
        {"cpus": 1, "cpus_allowed": 1},
        {"load": 1.9},
        {"load": 0.9, "threads": (FOUR,) * 4},
        {"load": 9.0, "cpus": 64, "threads": (FOUR,) * 4},
        {"governors": ("performance", "schedutil")},
        {"on_path": dataclasses.replace(GOOD.mpi, mpiexec=Path("/elsewhere/mpiexec"))},
        {"on_path": Mpi("unknown", "", Path("/opt/site/mpiexec"), "on PATH")},
    ],
)
def test_nothing_is_said_of_what_is_good(change: dict[str, Any]) -> None:
    assert found(**change) == []


@pytest.mark.parametrize(
    ("change", "wrong", "remedy"),
    [
        ({"threads": (FOUR,) * 5}, "5 threads share 4 cores:", "no more threads than cores"),
        ({"threads": (thread("0 1", limit=1.5),) * 2}, "2 threads share 1 core (cgroup", "ask for"),
        (
            {"threads": (FOUR, *(thread("4 5", "there"),) * 3)},
            "3 threads on there share 2 cores:",
            "ask for more cores",
        ),
        ({"threads": (thread("2"),) * 2}, "2 threads are bound to the same core, 2:", "--bind-to"),
        (
            {"threads": (*(thread("0"), thread("1")) * 2, thread("2"))},
            "2 threads are bound to the same core, 0 (and so on 1 more):",
            "xupc run",
        ),
        ({"cpus_allowed": 1}, "may use one of 4 cores", "--cpus-per-task"),
        ({"heap": Heap("/dev/shm", 64 << 20, 64 << 20, True)}, "only 64 MiB", "--shm-size"),
        ({"on_path": STALE}, "/usr/bin/mpiexec, belongs to Open MPI 4.1.4", "/env/bin/mpiexec"),
        ({"threads": (FOUR,), "launched": 4}, "started 4 processes", "xupc run or /env/bin"),
        ({"load": 3.0}, "load average is 3.0 on 4 cores", "--exclusive"),
        ({"load": 1.0, "threads": (FOUR,) * 4}, "load average is 1.0", "--exclusive"),
        ({"load": 3.0}, "load average is 3.0", "; OMPI_MCA_mpi_yield_when_idle=1 shortens"),
        ({"governors": ("performance", "powersave")}, "governor is powersave", "cpupower"),
        ({"measure_error": "the job exited with status 1"}, "the job exited with status 1", ""),
    ],
)
def test_what_is_wrong_is_one_line_with_a_remedy(
    change: dict[str, Any], wrong: str, remedy: str
) -> None:
    said = found(**change)
    assert len(said) == 1
    assert wrong in said[0]
    assert remedy in said[0]
    assert "\n" not in said[0]


def test_a_loaded_machine_has_no_advice_about_another_mpi() -> None:
    mpich = Probe("MPICH Version: 5.0.2", thread_level="serialized")
    (said,) = found(load=3.0, probe=mpich, mpi=MPICH)
    assert said.endswith("(Slurm: --exclusive)")


def test_shared_memory_must_do_for_all_threads_here() -> None:
    heap = Heap("/dev/shm", 100 << 20, 1 << 30, True)
    many = (thread(" ".join(map(str, range(16)))),) * 16
    assert "only 100 MiB" in found(heap=heap, threads=many)[0]
    assert found(heap=heap, threads=many[:4], cpus=16) == []


def test_a_job_whose_processes_do_not_find_each_other_is_unusable() -> None:
    facts = dataclasses.replace(GOOD, threads=(FOUR,), launched=4)
    assert len(info.unusable(facts)) == 1


def test_choices_that_have_a_price() -> None:
    assert list(diagnostics.remarks(GOOD)) == []
    mpich = Probe("MPICH Version: 5.0.2", thread_level="multiple")
    facts = dataclasses.replace(GOOD, probe=mpich, mpi=MPICH)
    (said,) = diagnostics.remarks(facts)
    assert "MPI4PY_RC_THREAD_LEVEL=serialized" in said
    assert "do not go on while threads compute" in said
    serialized = dataclasses.replace(mpich, thread_level="serialized")
    assert list(diagnostics.remarks(dataclasses.replace(facts, probe=serialized))) == []


def test_threads_that_may_leave_their_memory() -> None:
    (said,) = diagnostics.remarks(dataclasses.replace(GOOD, numa_nodes=2))
    assert "2 NUMA nodes" in said
    bound = dataclasses.replace(GOOD, numa_nodes=2, threads=(thread("0"), thread("1")))
    assert list(diagnostics.remarks(bound)) == []
    wide = dataclasses.replace(GOOD, threads=(thread("0"), thread("1 2", numa=2)))
    assert len(list(diagnostics.remarks(wide))) == 1


UNBOUND = "the node alone: threads are not bound to different cores"


@pytest.mark.parametrize(
    ("threads", "variables", "row"),
    [
        (("0", "1", "4"), {}, "node (1 domain), socket (2 domains)"),
        (("0", "1", "2", "4"), {}, "node (1 domain), socket (2 domains), l3 (3 domains)"),
        (("0 1", "0 1"), {}, f"{UNBOUND}\n"),
        (
            ("0 1 2 3 4 5 6 7",) * 4,
            {},
            f"{UNBOUND}; xupc run --bind auto binds them, so that calls "
            "know node (1 domain), socket (2 domains)\n",
        ),
        (("8 9",) * 2, {}, f"{UNBOUND}\n"),
        (("0", "4"), {}, "the node alone"),
        (("0 1",) * 8, {"XUPC_TOPOLOGY": "2x2x2"}, "node (1 domain), socket (2 domains), l3 (4 d"),
    ],
)
def test_levels_of_a_job(threads: tuple[str, ...], variables: dict[str, str], row: str) -> None:
    machine = describe("2x2x2")
    job = tuple(map(thread, threads))
    facts = dataclasses.replace(GOOD, threads=job, machine=machine, variables=variables)
    lines = info.render(facts).splitlines()
    (levels,) = (line for line in lines if line.startswith("levels"))
    assert f"{levels[15:]}\n".startswith(row)
    described = " (XUPC_TOPOLOGY)" if variables else ""
    assert f"machine        2 sockets, 4 L3 domains, 8 cores{described}" in lines


def test_memory_that_nobody_else_may_read(tmp_path: Path) -> None:
    (said,) = diagnostics.remarks(dataclasses.replace(GOOD, memory_closed=True))
    assert "copied twice" in said
    assert "kernel.yama.ptrace_scope=0" in said
    assert list(diagnostics.remarks(dataclasses.replace(GOOD, memory_closed=True, core=""))) == []
    scope, status = tmp_path / "ptrace_scope", tmp_path / "status"
    for text, capabilities, closed in (
        ("1\n", "0000000000000000", True),
        ("1\n", f"{1 << 19:016x}", False),
        ("3\n", f"{1 << 18:016x}", True),
        ("0\n", "0000000000000000", False),
    ):
        scope.write_text(text)
        status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        assert host.memory_closed(scope, tmp_path) is closed
    assert not host.memory_closed(tmp_path / "none", tmp_path)
