"""What commonly ruins runs: each in one line that says what it is, what it costs, what to do.

Pure functions of the facts that `xupc.cli.info` collects. A trouble is something wrong; a remark is
a choice that has a price.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from .binding import YIELD
from .facts import Facts, Thread
from .mpi import FAMILY_NAMES, family_of, parse_version

__all__ = ["MPI_SHM", "alone", "mpi_shortage", "others_computed", "remarks", "troubles"]

MIN_FREE = 64 << 20  # shared memory for a start, and what containers have by default
FREE_PER_THREAD = 8 << 20  # what a thread's heap and buffers take at init, and some air
MPI_SHM = "/dev/shm"
MPI_LEAST = 24 << 20  # with less, 2 threads of MPICH 5.0 were killed in MPI_Init
MPICH_LOST = "its own calls inside a node took up to 2.2 times as long in our measurements"


def troubles(facts: Facts) -> Iterator[str]:
    """Yield what is wrong with where and how threads are to run here."""
    yield from _stale(facts)
    yield from _small_memory(facts)
    yield from _bound_to_one_core(facts)
    yield from _too_many(facts)
    yield from _slow_cores(facts)
    yield from _busy(facts)


def remarks(facts: Facts) -> Iterator[str]:
    """Yield what is not wrong but has a price."""
    yield from _thread_level(facts)
    yield from _unbound(facts)
    yield from _closed(facts)
    if facts.batch_remark:
        yield facts.batch_remark


def alone(facts: Facts) -> Iterator[str]:
    """Yield whether the processes of this job do not find each other."""
    if facts.threads and facts.launched is not None and len(facts.threads) < facts.launched:
        yield (
            f"the launcher started {facts.launched} processes, but to mpi4py's MPI each is a job "
            "of its own, or cannot start at all: the launcher belongs to another MPI; start with "
            f"{_launcher(facts)}"
        )


def _launcher(facts: Facts) -> str:
    return "xupc run" if facts.mpi is None else f"xupc run or {facts.mpi.mpiexec}"


def _stale(facts: Facts) -> Iterator[str]:
    found = facts.on_path
    if found is None or found.family == "unknown" or not facts.probe.library:
        return
    used = family_of(facts.probe.library), parse_version(facts.probe.library)
    if (found.family, found.version) != used:
        yield (
            f"the mpiexec on PATH, {found.mpiexec}, belongs to {found}, but mpi4py uses "
            f"{FAMILY_NAMES.get(used[0], used[0])} {used[1]}: a program started with it is many "
            f"jobs of one thread each; start with {_launcher(facts)}"
        )


def _small_memory(facts: Facts) -> Iterator[str]:
    here = sum(thread.host == facts.hostname for thread in facts.threads)
    if _is_short(facts.heap.free, here):
        yield (
            f"only {_mib(facts.heap.free)} of shared memory are free on "
            f"{facts.heap.directory}: all_alloc, or the start already, raises HeapError; give more "
            "(docker run --shm-size=1g), or set XUPC_SHM_DIR to another tmpfs"
        )
    if facts.mpi_shm is not None and facts.mpi_shm < MPI_LEAST:
        yield mpi_shortage(facts.mpi_shm)


def mpi_shortage(free: int | None, threads: int = 0) -> str:
    """Return what is to say about /dev/shm when MPI has so much there, "" if that is enough."""
    if not _is_short(free, threads):
        return ""
    return (
        f"only {_mib(free)} of shared memory are free on {MPI_SHM}, where MPI keeps its own and "
        "ends threads by SIGBUS or SIGSEGV when it is full: give more (docker run --shm-size=1g, "
        f"mount -o remount,size=1g {MPI_SHM}), or remove files of old jobs there"
    )


def _is_short(free: int | None, threads: int) -> TypeGuard[int]:
    return free is not None and free <= max(MIN_FREE, threads * FREE_PER_THREAD)


def _mib(free: int) -> str:
    return f"{free / (1 << 20):.4g} MiB"


# --- cores ----------------------------------------------------------------------------------------


def _hosts(facts: Facts) -> Iterator[tuple[str, list[Thread]]]:
    """Yield each machine, as words for a message, and its threads."""
    names = dict.fromkeys(thread.host for thread in facts.threads)
    for name in names:
        where = f" on {name}" if len(names) > 1 else ""
        yield where, [thread for thread in facts.threads if thread.host == name]


def _collisions(threads: list[Thread]) -> dict[int, int]:
    """Return the cores that more than one thread is bound to, and to no other: how many are."""
    single = Counter(core for thread in threads if len(thread.cores) == 1 for core in thread.cores)
    return {core: count for core, count in sorted(single.items()) if count > 1}


def _bound_to_one_core(facts: Facts) -> Iterator[str]:
    for where, threads in _hosts(facts):
        if crowded := _collisions(threads):
            core, count = next(iter(crowded.items()))
            more = f" (and so on {len(crowded) - 1} more)" if len(crowded) > 1 else ""
            yield (
                f"{count} threads{where} are bound to the same core, {core}{more}: they run in "
                "turns and every call waits for that; start with xupc run, or with --bind-to none "
                "(Open MPI), -bind-to core (MPICH), or more cores of the batch system"
            )
    if not facts.threads and facts.cpus_allowed == 1 < facts.cpus:
        yield (
            f"this process may use one of {facts.cpus} cores (affinity mask): all threads started "
            "from here run in turns on it; start from a shell that is not bound (taskset -p "
            "shows), or ask the batch system for more cores (Slurm: --cpus-per-task)"
        )


def _too_many(facts: Facts) -> Iterator[str]:
    for where, threads in _hosts(facts):
        if _collisions(threads):
            continue
        cores = len(frozenset().union(*(thread.cores for thread in threads)))
        limits = [thread.limit for thread in threads if thread.limit is not None]
        room = max(1, min([cores, *(int(limit) for limit in limits)]))
        if len(threads) > room:
            quota = " (cgroup quota)" if room < cores else ""
            yield (
                f"{len(threads)} threads{where} share {room} core{'s'[: room != 1]}{quota}: those "
                "that wait give theirs away, so a short call takes ten times as long or more; "
                "start no more threads than cores, or ask for more cores"
            )


def _slow_cores(facts: Facts) -> Iterator[str]:
    if "powersave" in facts.governors:
        yield (
            "the CPU frequency governor is powersave: cores may run below their frequency, so "
            "short calls are slower and times vary; cpupower frequency-set -g performance as "
            "root, or --cpu-freq=performance in Slurm"
        )


def is_busy(load: float, threads: float, cores: int) -> bool:
    """Return whether others compute on this machine's cores, or did a minute ago.

    `load`: the load average, read before so many `threads` are started.
    """
    return load >= 1 and load + threads > cores


def others_computed(load: float, threads: int) -> str:
    """Return the remark about measurements beside which others computed, empty if none did.

    `load`: the load average before the command started a process; its own jobs count in a later
    one.
    """
    cores = os.cpu_count() or 1
    if not is_busy(load, threads, cores):
        return ""
    return f"the load average was {load:.1f} on {cores} cores: others computed here"


def _busy(facts: Facts) -> Iterator[str]:
    wanted = sum(thread.host == facts.hostname for thread in facts.threads) or facts.cpus / 2
    if is_busy(facts.load, wanted, facts.cpus):
        openmpi = family_of(facts.probe.library) == "openmpi"
        shared = f"; {YIELD}=1 shortens the waits of Open MPI beside others" if openmpi else ""
        yield (
            f"the load average is {facts.load:.1f} on {facts.cpus} core"
            f"{'s'[: facts.cpus != 1]}: others compute here, or did a minute ago; a call waits for "
            "its slowest thread, so times mean little; wait, or take a machine for yourself "
            f"(Slurm: --exclusive){shared}"
        )


def _unbound(facts: Facts) -> Iterator[str]:
    spread = max((thread.numa for thread in facts.threads), default=facts.numa_nodes)
    if spread > 1:
        yield (
            f"threads are not bound and may move among {spread} NUMA nodes, away from their "
            "memory: long copies then run at the slower rate between nodes; bind them with "
            "xupc run --bind auto, -bind-to core (MPICH) or --bind-to core (Open MPI)"
        )


def _closed(facts: Facts) -> Iterator[str]:
    if facts.memory_closed and facts.core:
        yield (
            "the kernel lets no process read another one's memory (kernel.yama.ptrace_scope): "
            "arrays of values of more than some KiB are copied twice inside a machine, which took "
            "up to 2.3 times as long in our measurements; sysctl kernel.yama.ptrace_scope=0 as "
            "root allows it"
        )


def _thread_level(facts: Facts) -> Iterator[str]:
    if family_of(facts.probe.library) == "mpich" and facts.probe.thread_level == "multiple":
        yield (
            f"MPICH gives up its fast path for thread level multiple: {MPICH_LOST}; "
            "MPI4PY_RC_THREAD_LEVEL=serialized brings it back, but then posted calls and "
            "one-sided accesses between nodes do not go on while threads compute"
        )
