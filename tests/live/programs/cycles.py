"""Allocate and free over and over: nothing grows. Argument: how many cycles."""

from __future__ import annotations

import os
import sys

import psutil
from common import Usable, done

import xupc

WARM = 100


def cycle(k: int) -> None:
    T, me = xupc.THREADS, xupc.MYTHREAD
    n = 1 + k * 7919 % 60_000
    A = xupc.all_alloc(n * T, "u1", n)
    B = xupc.all_alloc(1 + n // 3, "f8", (1, 4, "*", 0)[k % 4])
    assert not A.local.any()
    assert not B.local.any()
    A.local[:] = 255
    B.local[:] = 1
    view = A.local if k % T == me else None
    p = xupc.alloc(n // 4)
    p.local(n // 4)[:] = 255
    q = xupc.global_alloc(1 + n // 2, "i2") if k % T == me else None
    xupc.all_free(A)
    xupc.free(p)
    if q is not None:
        q[n // 2] = 1
        xupc.free(q)
    if view is not None:
        assert view[-1] == 255
    xupc.all_free(B)


def use(process: psutil.Process) -> tuple[int, int, int]:
    """(mappings, descriptors, resident bytes)."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = len(file.readlines())
    return maps, process.num_fds(), process.memory_info().rss


def main() -> None:
    cycles = int(sys.argv[1])
    xupc.init(timeout=30)
    usable = Usable()
    process = psutil.Process(os.getpid())
    for k in range(WARM):
        cycle(k)
    before = use(process)
    for k in range(cycles):
        cycle(k)
    after = use(process)
    # The interpreter's own arenas may come and go.
    assert after[0] <= before[0] + 8, ("mappings", before[0], after[0])
    assert after[1] == before[1], ("descriptors", before[1], after[1])
    assert after[2] <= before[2] + (3 << 20), ("resident bytes", before[2], after[2])
    usable("cycles")
    done(cycles)


main()
