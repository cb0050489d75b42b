"""The facts that `xupc info` collects about this machine, its MPI and a job, as plain records."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..topology.machine import Machine
from ..tuning.host_figures import HostFigures
from .mpi import Mpi, Probe

__all__ = ["SHM_DEFAULT", "Facts", "Heap", "Thread"]

SHM_DEFAULT = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Heap:
    """Describe the file system of shared segments."""

    directory: str
    free: int | None = None
    size: int | None = None
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """Describe the cores on which one thread may run.

    Attributes
    ----------
    host
        The name of its machine.
    cores
        The processors of its affinity mask.
    limit
        The processors that its cgroup grants, None without a quota.
    numa
        The number of NUMA nodes of its processors.
    """

    host: str
    cores: frozenset[int]
    limit: float | None = None
    numa: int = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold everything that `xupc info` reports.

    Attributes
    ----------
    on_path
        The MPI of the first mpiexec on PATH, if it is not `mpi`.
    numa_nodes
        The number of NUMA nodes of this process's processors.
    load
        The number of processes that were ready to run in the last minute.
    threads
        The threads of the job in question; empty if there is none.
    mpi_shm
        The bytes that are free in the place of MPI's own shared memory.
    batch
        Why no job can start here: a batch system's variables without its tools.
    batch_remark
        The effect of a batch system's variables on a job otherwise.
    launched
        The number of processes that the launcher of this job reports.
    figures, figures_source
        The figures of this host that a job would use, and the table that has them.
    machine
        This machine's sockets, caches and cores, or those of ``XUPC_TOPOLOGY``; None if unknown.
    measured
        As `Job.bounds` in `xupc.bench.results`; empty if nothing was measured, for the
        reason in `measure_error` if a measurement failed.
    """

    python: str = platform.python_version()
    executable: str = sys.executable
    versions: Mapping[str, str | None] = field(default_factory=dict)
    probe: Probe = field(default_factory=Probe)
    mpi: Mpi | None = None
    mpi_error: str = ""
    on_path: Mpi | None = None
    core: str = ""
    core_error: str = ""
    compiler: str | None = None
    heap: Heap = field(default_factory=lambda: Heap(SHM_DEFAULT))
    mpi_shm: int | None = None
    memory_limit: int | None = None
    cpus: int = 1
    cpus_allowed: int = 1
    cpu_limit: float | None = None
    numa_nodes: int = 1
    memory_closed: bool = False
    governors: tuple[str, ...] = ()
    load: float = 0.0
    tuning: str = "built-in"
    tuning_error: str = ""
    figures: HostFigures | None = None
    figures_source: str = ""
    settings_error: str = ""
    hostname: str = ""
    hostid: int | None = None
    hostid_notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[Thread, ...] = ()
    batch: str = ""
    batch_remark: str = ""
    launched: int | None = None
    machine: Machine | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    measure_error: str = ""
