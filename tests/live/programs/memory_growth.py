"""Memory and teams, taken and given back over and over: nothing grows.

Arguments: how many cycles, and of what if not of all.
Views of freed arrays and of freed teams stay alive for some cycles, and keep what they hold.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections import deque
from typing import Any

import numpy as np
from mpi4py import MPI
from support.checked_calls import Usable, done

import xupc

WARM = 60  # cycles at the least, and a tenth, before anything is compared
MIB = 1 << 20
STACKS = 2 * 7  # maps: glibc keeps five stacks of ended threads, the rest are those at work
ARENAS = 8  # maps: the interpreter's own may come and go


class Kept:
    """Some views of what was freed, and what they have to hold."""

    def __init__(self) -> None:
        self.views: deque[tuple[Any, int]] = deque()

    def add(self, view: Any, value: int) -> None:
        view[:] = value
        self.views.append((view, value))

    def check(self, most: int) -> None:
        while len(self.views) > most:
            view, value = self.views.popleft()
            assert (view == value).all(), "a view of freed memory has changed"


def memory(k: int, kept: Kept) -> None:
    """Collective, individual and global memory of other sizes each time."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    n = 1 + k * 7919 % 60_000
    A = xupc.all_alloc(n * T, "u1", n)
    B = xupc.all_alloc(1 + n // 3, "f8", (1, 4, "*", 0)[k % 4])
    assert not A.local.any()
    assert not B.local.any()
    A.local[:] = 255
    B.local[:] = 1
    p = xupc.alloc(n // 4)
    p.local(n // 4)[:] = 255
    q = xupc.global_alloc(1 + n // 2, "i2") if k % T == me else None
    if k % 5 == me:
        kept.add(A.local[: n // 2], k % 250)
    x = xupc.node_array((n,), "u1")
    x[n - 1] = 1
    xupc.all_free(A)
    xupc.free(p)
    if q is not None:
        q[n // 2] = 1
        xupc.free(q)
    xupc.all_free(B)


def teams(k: int, kept: Kept) -> None:
    """A team with memory of its own; its last views live longer than it does."""
    team = xupc.init().split(xupc.MYTHREAD * (k % 2) % 2, -xupc.MYTHREAD)
    assert team is not None
    A = xupc.all_alloc(16 * team.size, "i4", 16, team=team)
    A.local[:] = 1
    B = xupc.all_alloc(team.size, "i4", 1, team=team)
    xupc.all_reduce_all(B, A, xupc.ADD, 16 * team.size, team=team)
    assert B.local[0] == 16 * team.size
    if k % 7 == xupc.MYTHREAD:
        kept.add(A.local, k)
    team.free()


class Owner:
    """In a reference cycle, with a team."""

    def __init__(self, team: Any) -> None:
        self.team = team
        self.me = self


alive: list[Any] = []  # of `dropped`


def dropped(k: int, kept: Kept) -> None:
    """Make teams that are not freed: each thread drops them in an order of its own.

    The first thread has no collector of garbage, the last one needs it.
    """
    world, me, T = xupc.init(), xupc.MYTHREAD, xupc.THREADS
    if me == 0:
        gc.disable()
    if k % 4 == 0:
        np.random.default_rng(k * T + me).shuffle(alive)
        while alive:
            alive.pop()
        if me == T - 1 and k % 20 == 0:
            gc.collect()
    team = world.split(me * (k % 2) % 2, -me)
    A = xupc.all_alloc(16 * team.size, "i4", 16, team=team)
    A.local[:] = 1
    B = xupc.all_alloc(team.size, "i4", 1, team=team)
    xupc.all_reduce_all(B, A, xupc.ADD, 16 * team.size, team=team)
    assert B.local[0] == 16 * team.size
    assert xupc.allv_reduce_all(1, xupc.ADD, team=team) == team.size
    to = [A + 16 * i for i in range(team.size)]
    xupc.all_broadcast_x(to, B, 4, xupc.ASYNC * (k % 2), team=team)
    team.node.barrier()
    if k % 3 == 0:
        plan = xupc.all_reduce_all.plan(B, A, xupc.ADD, 16 * team.size, team=team)
        plan()
        alive.append(plan)
    if k % 2 == 0 and k % 7 == me:  # else the posted broadcast may still write there
        kept.add(A.local, k)
    alive.append(Owner(team) if me == T - 1 and T > 1 else team)
    inner = team.split(0)
    if k % 5 == 0:
        inner.free()
    else:
        alive.append(inner)


def use() -> dict[str, int]:
    """What this process has now: RSS, PSS, descriptors, maps, pages of its shared-memory files.

    The PSS is that of memory, without files: of libraries each process has a smaller part while
    more of them run, those of other jobs included.
    """
    gc.collect()
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        found = dict(re.findall(r"^(\w+):\s+(\d+) kB", file.read(), re.MULTILINE))
    with open("/proc/self/maps", encoding="ascii") as file:
        maps = sum(1 for _ in file)
    numbers = os.listdir("/proc/self/fd")
    shared = 0
    where = os.stat(os.environ.get("XUPC_SHM_DIR", "/dev/shm")).st_dev
    for number in numbers:
        try:
            status = os.fstat(int(number))
        except OSError:  # the listing's own
            continue
        if status.st_dev == where:
            shared += status.st_blocks * 512
    rss, anonymous, shm = (1024 * int(found[name]) for name in ("Rss", "Pss_Anon", "Pss_Shmem"))
    teams = len(xupc.init().job.teams)
    return {
        "teams": teams, "rss": rss, "pss": anonymous + shm, "files": len(numbers), "maps": maps,
        "shared": shared,
    }  # fmt: skip


def flat(what: Any, cycles: int) -> str:
    """Run the cycles; what they have added."""
    kept = Kept()
    most = 10
    for k in range(max(WARM, cycles // 10)):
        what(k, kept)
        kept.check(most)
    kept.check(0)
    what(WARM, kept)
    kept.check(0)
    before = use()
    for k in range(cycles):
        what(k, kept)
        kept.check(most)
    kept.check(0)
    what(WARM, kept)
    kept.check(0)
    after = use()
    grown = {name: after[name] - before[name] for name in before}
    print(f"thread {xupc.MYTHREAD}: {what.__name__}: before {before}, grown {grown}", flush=True)
    assert grown["rss"] < 3 * MIB + cycles * 20, grown
    assert grown["pss"] < 2 * MIB + cycles * 20, grown
    assert grown["files"] <= 0, grown
    assert after["teams"] <= 10, after
    assert grown["maps"] <= STACKS + ARENAS, grown
    assert grown["shared"] <= MIB // 4, grown
    return f"{what.__name__} +{grown['pss'] // 1024} KiB PSS, {grown['files']:+} files"


def main() -> None:
    cycles, names = int(sys.argv[1]), sys.argv[2:]
    kinds = [what for what in (memory, teams, dropped) if what.__name__ in names or not names]
    xupc.init(timeout=60)
    usable = Usable()
    warnings.filterwarnings("ignore", "the handle of .* was abandoned")
    found = [flat(what, cycles) for what in kinds]
    np.testing.assert_equal(len(MPI.COMM_WORLD.allgather(0)), xupc.THREADS)
    usable("cycles")
    if xupc.MYTHREAD == 0:
        print("grown:", "; ".join(found))
    done(cycles)


main()
