"""Descriptors or address space run short on one thread: ``resource_limits.py CASE ..``."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

import numpy as np
from support.cases import case, run_case

import xupc

LARGE = 60 << 20
MOST = [resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def limit(what: str, more: int) -> None:
    """Allow so much more on this thread."""
    if what == "descriptors":
        used = os.open("/dev/null", os.O_RDONLY)
        os.close(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, MOST[0][1]))
    else:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        size = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (size, MOST[1][1]))


def unlimit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, MOST[0])
    resource.setrlimit(resource.RLIMIT_AS, MOST[1])


def again() -> None:
    xupc.barrier()
    print("done: again", flush=True)


@case
def one_call(name: str, victim: str, what: str, more: str) -> None:
    """A call is refused on all threads while one is limited, and works after that."""
    team = xupc.init(heap_size="1MiB", timeout=20)
    me = xupc.MYTHREAD
    calls: dict[str, Callable[[], object]] = {
        "growth": lambda: xupc.all_alloc(LARGE, "u1", "*"),
        "split": lambda: team.split(0),
        "array": lambda: xupc.node_array(LARGE, "u1"),
        "broadcast": lambda: xupc.node_broadcast(np.ones(LARGE, "u1") if me == 0 else None),
    }
    xupc.barrier()
    before = descriptors()
    if me == int(victim):
        limit(what, int(more))
    try:
        calls[name]()
    except xupc.HeapError as e:
        print("refused: " + str(e), flush=True)
    finally:
        unlimit()
    xupc.barrier()
    assert descriptors() <= before, (descriptors(), before)
    calls[name]()
    again()


@case
def many_teams() -> None:
    """Make teams until there is no descriptor left, free one and make another."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, MOST[0][1]))
    team = xupc.init(heap_size="256KiB", timeout=30)
    teams: list[xupc.Team] = []
    try:
        while len(teams) < 200:
            part = team.split(0)
            assert part is not None
            teams.append(part)
    except xupc.HeapError as e:
        print("refused: " + str(e), flush=True)
    xupc.barrier()
    teams.pop().free()
    array = xupc.all_alloc(3, "u1", 1, team=team.split(0))
    again()
    del array


run_case()
