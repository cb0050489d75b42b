"""Bind the threads of a job to cores, have them yield or survive, by options of the launcher.

The launcher of each machine chooses the cores there. Only the kind of domain over which it spreads
threads follows from this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..topology import host
from ..topology.machine import Machine
from .batch import stays_here

__all__ = ["POLICIES", "YIELD", "bind_options", "binds", "count_options", "yield_options"]

POLICIES = ("auto", "spread", "close", "none")

_OBJECTS = {  # a level: what it is for MPICH, for Open MPI
    "socket": ("socket", "package"),
    "numa": ("numa", "numa"),
    "l3": ("l3cache", "l3cache"),
    "l2": ("l2cache", "l2cache"),
}
_OWN = {"-bind-to", "--bind-to", "-map-by", "--map-by", "-rankfile", "--rankfile", "-cpu-set"}

_RUNTIME = {"--runtime-options", "--rtos"}  # at most once in a command

YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""The variable with which a wait of Open MPI gives its core to other processes."""


def binds(extra: Sequence[str]) -> str:
    """Return the first of the user's own launcher options that binds threads, "" if none does."""
    return next((word for word in extra if word.partition("=")[0] in _OWN), "")


def bind_options(
    policy: str, family: str, machine: Machine | None, threads: int, extra: Sequence[str] = ()
) -> list[str]:
    """Return the launcher's options that bind each thread to a core.

    Parameters
    ----------
    policy : str
        ``spread``: evenly over the domains of L3 caches, else of NUMA nodes, sockets or L2 caches;
        ``close``: one core after the other; ``none``; ``auto``: ``spread`` where this machine has
        several domains and a core for each thread, and `extra` binds nothing, else ``none``.
    family : str
        As in `Mpi`.
    machine : Machine or None
        This machine, as far as this process may use it; None if unknown.
    threads : int
        Number of threads of the job.
    extra : sequence of str
        The user's own launcher options.
    """
    domain = _domain(machine)
    if policy == "auto":
        room = 0 if machine is None else len(machine.cores)
        policy = "spread" if domain and 1 < threads <= room and not binds(extra) else "none"
    if policy == "none":
        return []
    mpich, openmpi = _OBJECTS[domain] if domain and policy == "spread" else ("core", "core")
    if family == "openmpi":
        return ["--bind-to", "core:overload-allowed", "--map-by", f"{openmpi}:oversubscribe"]
    return ["-bind-to", "core", "-map-by", mpich]


def yield_options(
    family: str, threads: int, environment: Mapping[str, str], extra: Sequence[str] = ()
) -> list[str]:
    """Return the options with which waits of Open MPI yield, where threads outnumber the cores.

    Without them a wait keeps its core for a whole time slice, some milliseconds, while the thread
    that it waits for has none. Open MPI yields by itself only if the threads outnumber the cores of
    the machine. It does not compare them with the affinity mask, which a container or a batch
    system may set.
    """
    few = family == "openmpi" and threads > host.cpus_allowed()
    if few and YIELD not in environment and stays_here(environment, extra):
        return ["--mca", "mpi_yield_when_idle", "1"]
    return []


def count_options(
    family: str, version: str, environment: Mapping[str, str], extra: Sequence[str] = ()
) -> list[str]:
    """Return the options with which Open MPI's launcher counts a thread that failed once.

    It counts it twice otherwise. When half of the threads have failed, it takes the job for
    complete and kills the others. With these options it exits with 0 after any failure, so the
    status must come from elsewhere: `rank_wrapper.py` reports it on this machine. Processes that
    the program spawns have no such wrapper, and the options are not for them.
    """
    prterun = family == "openmpi" and version.partition(".")[0] not in ("", "1", "2", "3", "4")
    given = _RUNTIME & {word.partition("=")[0] for word in extra}
    if prterun and not given and stays_here(environment, extra):
        return ["--runtime-options", "error-nonzero-status=0"]
    return []


def _domain(machine: Machine | None) -> str:
    """Return the narrowest level that divides the machine, "" if there is none.

    Caches of the second level count only where nothing else divides it.
    """
    if machine is None:
        return ""
    cores = len(machine.cores)
    levels = [level for level in machine.levels if 1 < len(level.domains) < cores]
    names = [level.name for level in levels if level.name in _OBJECTS]
    return ([name for name in names if name != "l2"] or names or [""])[-1]
