"""Bind the threads of a job to cores, by the options of the launcher.

The launcher of each machine chooses the cores there. Only the kind of domain over which it spreads
threads follows from this machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..topology.machine import Machine

__all__ = ["POLICIES", "bind_options", "binds"]

POLICIES = ("auto", "spread", "close", "none")

_OBJECTS = {  # a level: what it is for MPICH, for Open MPI
    "socket": ("socket", "package"),
    "numa": ("numa", "numa"),
    "l3": ("l3cache", "l3cache"),
    "l2": ("l2cache", "l2cache"),
}
_OWN = {"-bind-to", "--bind-to", "-map-by", "--map-by", "-rankfile", "--rankfile", "-cpu-set"}


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
