"""`xupc info` inside a job: gather the cores of every thread; one thread checks and prints them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from xupc.errors import XupcError
from xupc.pgas.segment import shm_dir
from xupc.topology.host_record import HostRecord, diagnose, read_host_record

from . import info
from .facts import Facts
from .mpi import LaunchError, Probe, find_mpi, probe_mpi
from .rank_wrapper import RANK_VARIABLES

__all__ = ["collect"]

# How many processes the launcher says it has started.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def collect(*, timeout: float, measure: bool) -> Facts | None:
    """Return the facts of this job on the one thread that prints them, None on all others.

    Collective where MPI works. `measure`: also measure what the machine can do.
    """
    first = _from_launcher(RANK_VARIABLES) == 0
    if not _can_start():
        return _of_one_process(timeout) if first else None
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = comm.gather((info.this_process(), read_host_record(shm_dir()).pack()))
    measured, why_not = _measured(MPI) if measure else ({}, "")
    # each is MPI's rank 0 if the launcher belongs to another MPI
    if rows is None or not first:
        return None
    probe = Probe(MPI.Get_library_version().strip("\0 \n"), thread_level=_level(MPI))
    facts = info.collect(probe=lambda **_: probe, timeout=timeout)
    return dataclasses.replace(
        facts,
        threads=tuple(thread for thread, _ in rows),
        launched=_from_launcher(SIZE_VARIABLES),
        hostid_notes=tuple(diagnose([HostRecord.unpack(record) for _, record in rows])),
        measured=measured,
        measure_error=why_not,
    )


def _can_start() -> bool:
    """Return whether MPI can be loaded here, and ends no process that this launcher starts."""
    try:
        family = find_mpi().family
    except LaunchError:  # it may be there all the same, only not its launcher
        return not probe_mpi().error
    return family not in ("mpich", "intelmpi") or "OMPI_COMM_WORLD_RANK" not in os.environ


def _of_one_process(timeout: float) -> Facts:
    """Return the facts of this process alone, and the number of threads that were launched."""
    return dataclasses.replace(
        info.collect(timeout=timeout),
        threads=(info.this_process(),),
        launched=_from_launcher(SIZE_VARIABLES),
    )


def _measured(mpi: Any) -> tuple[dict[str, float], str]:
    """Return what was measured, or why nothing was; collective."""
    import xupc
    from xupc.bench.machine import measure

    try:
        return measure(xupc.init(), mpi.COMM_WORLD), ""
    except XupcError as error:
        return {}, str(error)


def _level(mpi: Any) -> str:
    levels = ("single", "funneled", "serialized", "multiple")
    here = mpi.Query_thread()
    return next(name for name in levels if getattr(mpi, f"THREAD_{name.upper()}") == here)


def _from_launcher(names: tuple[str, ...]) -> int | None:
    """Return the first of some variables that holds a number."""
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdecimal()), None)
