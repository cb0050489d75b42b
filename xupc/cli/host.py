"""Facts about this machine and the limits of this process, read from the system.

Reading only: nothing here creates, starts or changes anything. The cgroup functions take the roots
of the file systems they read, so that tests can feed them small trees.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_cores", "c_compiler", "cpu_limit", "cpus_allowed", "memory_limit"]

_CGROUPS = Path("/sys/fs/cgroup")
_PROC_SELF = Path("/proc/self")
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as a huge number of pages


def cpus_allowed() -> int:
    """Return how many processors the affinity mask allows."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_limit(cgroups: Path = _CGROUPS, proc_self: Path = _PROC_SELF) -> float | None:
    """Return the smallest processor quota of this process's cgroups, in processors, or None."""
    limits = []
    for group in _groups("cpu", cgroups, proc_self):
        quota, period = _quota(group)
        if quota is not None and quota > 0 and period:
            limits.append(quota / period)
    return min(limits, default=None)


def _quota(group: Path) -> tuple[int | None, int | None]:
    text = _read(group / "cpu.max")  # version 2: "max 100000" or "200000 100000"
    if text is not None:
        quota, _, period = text.partition(" ")
        return _number(quota), _number(period or "100000")
    return (
        _number(_read(group / "cpu.cfs_quota_us")),
        _number(_read(group / "cpu.cfs_period_us")),
    )


def memory_limit(cgroups: Path = _CGROUPS, proc_self: Path = _PROC_SELF) -> int | None:
    """Return the smallest memory limit of this process's cgroups, in bytes, or None."""
    limits = []
    for group in _groups("memory", cgroups, proc_self):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(_read(group / name))
            if limit is not None and limit < _NO_LIMIT:
                limits.append(limit)
    return min(limits, default=None)


def _groups(controller: str, cgroups: Path, proc_self: Path) -> Iterator[Path]:
    """Yield the directories of this process's cgroup and of all those above it."""
    for line in (_read(proc_self / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount = cgroups
        elif controller in controllers.split(","):
            mount = cgroups / controller
        else:
            continue
        # Inside a container the path may be the host's: then only the mount itself is there.
        relative = Path(path.lstrip("/"))
        for group in (relative, *relative.parents):
            if (mount / group).is_dir():
                yield mount / group


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def available_cores() -> int:
    """Return how many threads can run at once: affinity mask and quota together, at least 1."""
    limit = cpu_limit()
    allowed = cpus_allowed()
    return max(1, allowed if limit is None else min(allowed, int(limit)))


def c_compiler() -> str | None:
    """Return the C compiler that a build would use, or None."""
    names = (os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang")
    return next((found for name in names if name and (found := shutil.which(name))), None)
