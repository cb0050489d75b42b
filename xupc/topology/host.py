"""Facts about this machine and the limits of this process, read from the system.

Reading only: nothing here creates, starts or changes anything. The functions take the roots of the
file systems they read, so that tests can feed them small trees.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

__all__ = [
    "affinity",
    "available_cores",
    "c_compiler",
    "caches",
    "constant_counter",
    "cpu_limit",
    "cpu_list",
    "cpus_allowed",
    "free_shared_memory",
    "governors",
    "groups",
    "load_average",
    "memory_closed",
    "memory_limit",
    "number",
    "numa_nodes",
    "own_cache",
    "read",
    "siblings",
    "two_cores",
    "within_limit",
]

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_CPUS = Path("/sys/devices/system/cpu")
_NUMA = Path("/sys/devices/system/node")
_CGROUPS = Path("/sys/fs/cgroup")
_PROC_SELF = Path("/proc/self")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_CAP_SYS_PTRACE = 19
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_CPUS = 1 << 16  # 8 times what Linux can be built for; a wrong list must not fill the memory
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as a huge number of pages


def affinity() -> frozenset[int]:
    """Return the processors that the affinity mask allows."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cpus_allowed() -> int:
    """Return how many processors the affinity mask allows."""
    return len(affinity())


def cpu_limit(cgroups: Path = _CGROUPS, proc_self: Path = _PROC_SELF) -> float | None:
    """Return the smallest processor quota of this process's cgroups, in processors, or None."""
    limits = []
    for group in groups("cpu", cgroups, proc_self):
        quota, period = _quota(group)
        if quota is not None and quota > 0 and period:
            limits.append(quota / period)
    return min(limits, default=None)


def _quota(group: Path) -> tuple[int | None, int | None]:
    text = read(group / "cpu.max")  # version 2: "max 100000" or "200000 100000"
    if text is not None:
        quota, _, period = text.partition(" ")
        return number(quota), number(period or "100000")
    return (
        number(read(group / "cpu.cfs_quota_us")),
        number(read(group / "cpu.cfs_period_us")),
    )


def memory_limit(cgroups: Path = _CGROUPS, proc_self: Path = _PROC_SELF) -> int | None:
    """Return the smallest memory limit of this process's cgroups, in bytes, or None."""
    limits = []
    for group in groups("memory", cgroups, proc_self):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = number(read(group / name))
            if limit is not None and limit < _NO_LIMIT:
                limits.append(limit)
    return min(limits, default=None)


def groups(
    controller: str, cgroups: Path = _CGROUPS, proc_self: Path = _PROC_SELF
) -> tuple[Path, ...]:
    """Return the directories of this process's cgroup and of those above it, innermost first."""
    return _directories(controller, cgroups, read(proc_self / "cgroup") or "")


@functools.lru_cache(maxsize=8)
def _directories(controller: str, cgroups: Path, text: str) -> tuple[Path, ...]:
    """Return the directories that are there, of what /proc/self/cgroup says; searched once."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount = cgroups
        elif controller in controllers.split(","):
            mount = cgroups / controller
        else:
            continue
        # Inside a container the path may be the host's: then only the mount itself is there.
        relative = Path(path.lstrip("/"))
        found += [mount / group for group in (relative, *relative.parents)]
    return tuple(group for group in found if group.is_dir())


def read(path: Path) -> str | None:
    """Return what a file of the system says, None where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def number(text: str | None) -> int | None:
    """Return the number that a text is, None for any other."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def cpu_list(text: str | None) -> frozenset[int]:
    """Return the numbers of a list as the kernel writes it: "0-3,8"; none of None and "".

    Raises
    ------
    ValueError
        If the text is no such list, or holds a number above 65535.
    """
    found: set[int] = set()
    for part in (text or "").split(",") if (text or "").strip() else ():
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _MOST_CPUS:
            raise ValueError(f"expected a list of processors like 0-3,8, got {text!r:.80}")
        found.update(range(first, last + 1))
    return frozenset(found)


def siblings(core: int, cpus: Path = _CPUS) -> frozenset[int]:
    """Return the processors that are hardware threads of the same core, itself included."""
    return cpu_list(read(cpus / f"cpu{core}/topology/thread_siblings_list")) | {core}


def two_cores(
    first: frozenset[int], second: frozenset[int], cpus: Path = _CPUS
) -> tuple[int, int] | None:
    """Return a processor for each of two threads, on two cores if that can be; None if one is all.

    Parameters
    ----------
    first, second
        Where either may run.
    """
    pairs = [(a, b) for a in sorted(first) for b in sorted(second) if a != b]
    apart = (pair for pair in pairs if pair[1] not in siblings(pair[0], cpus))
    return next(apart, pairs[0] if pairs else None)


def caches(cpus: Path = _CPUS) -> dict[frozenset[int], int]:
    """Return the last-level caches: the processors that share each, and its size in bytes."""
    found: dict[frozenset[int], int] = {}
    for cpu in cpus.glob("cpu[0-9]*"):
        levels = [_cache(index) for index in cpu.glob("cache/index*")]
        if levels:
            _, size, sharers = max(levels, key=lambda cache: cache[:2])
            found[sharers] = size
    return found


def own_cache(core: int, cpus: Path = _CPUS) -> int | None:
    """Return the bytes of a processor's cache of level 2; None if the system does not say."""
    levels = (_cache(index) for index in cpus.glob(f"cpu{core}/cache/index*"))
    return next((size for level, size, _ in levels if level == 2 and size), None)


def _cache(index: Path) -> tuple[int, int, frozenset[int]]:
    """Return (level, bytes, the processors that share it)."""
    size = read(index / "size") or "0"  # "32768K"
    unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    sharers = cpu_list(read(index / "shared_cpu_list"))
    return number(read(index / "level")) or 0, (number(size.rstrip("KM")) or 0) * unit, sharers


def numa_nodes(cores: frozenset[int], nodes: Path = _NUMA) -> int:
    """Return over how many NUMA nodes some processors are spread; 1 where there are none."""
    lists = (cpu_list(read(node / "cpulist")) for node in nodes.glob("node[0-9]*"))
    return max(1, sum(bool(cores & node) for node in lists))


def memory_closed(scope: Path = _PTRACE_SCOPE, proc_self: Path = _PROC_SELF) -> bool:
    """Return whether the kernel keeps processes of one user from reading each other's memory."""
    if not number(read(scope)):
        return False
    rows = (read(proc_self / "status") or "").splitlines()
    mine = next((row.split()[1] for row in rows if row.startswith("CapEff:")), "0")
    return not int(mine, 16) >> _CAP_SYS_PTRACE & 1


def free_shared_memory(folder: str) -> int | None:
    """Return the free bytes of a file system, None if it is not there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def governors(cpus: Path = _CPUS) -> tuple[str, ...]:
    """Return the frequency governors in use, without repetition; none where there is no choice."""
    files = cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({name for file in files if (name := read(file))}))


def constant_counter(
    cpuinfo: Path = Path("/proc/cpuinfo"), source: Path = _CLOCK_SOURCE, machine: str = ""
) -> bool:
    """Return whether the processor's counter runs at one rate on all cores, as the kernel found.

    Where it does not, the kernel takes its time from elsewhere.
    """
    if (machine or os.uname().machine) == "aarch64":
        return True
    if read(source) not in ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page"):
        return False
    flags = next((line for line in (read(cpuinfo) or "").splitlines() if "flags" in line), "")
    return {"constant_tsc", "nonstop_tsc"} <= set(flags.split())


def load_average() -> float:
    """Return how many processes wanted a processor in the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def available_cores() -> int:
    """Return how many threads can run at once: affinity mask and quota together, at least 1."""
    return within_limit(cpus_allowed())


def within_limit(cores: int) -> int:
    """Return how many of some processors the quota grants, at least 1."""
    limit = cpu_limit()
    return cores if limit is None else max(1, min(cores, int(limit)))


def c_compiler() -> str | None:
    """Return the C compiler that a build would use, or None."""
    names = (os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang")
    import shutil  # costs a start more than all else here

    return next((found for name in names if name and (found := shutil.which(name))), None)
