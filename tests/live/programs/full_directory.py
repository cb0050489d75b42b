"""A directory of segments that is full, or has gone: ``full_directory.py CASE [ARGUMENT]``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from support.cases import case, run_case

import xupc

FOLDER = os.environ["XUPC_SHM_DIR"]
FILLER = f"{FOLDER}/full"


def fill(pages: int) -> None:
    """Fill the directory, but for so many pages."""
    xupc.barrier()
    if xupc.MYTHREAD == 0:
        seen: list[int] = []  # the kernel gives back what init has used some time after it
        while len(seen) < 5 or len(set(seen[-5:])) > 1:
            time.sleep(0.02)
            seen.append(os.statvfs(FOLDER).f_bavail)
        with open(FILLER, "wb", buffering=0) as file:
            stat = os.statvfs(FOLDER)
            size = (stat.f_bavail - pages) * stat.f_frsize
            if size > 0:
                os.posix_fallocate(file.fileno(), 0, size)
    xupc.barrier()


def empty() -> None:
    """Make room again."""
    if xupc.MYTHREAD == 0:
        os.unlink(FILLER)
    xupc.barrier()


def refused(call: Callable[[], object]) -> None:
    """Print the HeapError of a call."""
    try:
        call()
    except xupc.HeapError as e:
        print("done: " + str(e), flush=True)


@case
def init() -> None:
    refused(xupc.init)


@case
def freeing(viewed: str) -> None:
    """Free arrays in a full directory, of which threads without a part have no pages."""
    xupc.init(heap_size="64KiB", timeout=20)
    arrays = [xupc.all_alloc(n, "u1", 0) for n in (100, 5000)]
    last = xupc.all_alloc(3, "u1", 1)
    views = [A.local for A in arrays] if viewed == "viewed" else []
    fill(0)
    for A in arrays:
        xupc.all_free(A)
    del views
    xupc.all_free(last)
    empty()
    again = [xupc.all_alloc(3 * n, "u1", "*") for n in (100, 5000)]
    assert not any(A.local.any() for A in again)
    print("done: freed", flush=True)


@case
def pages_for_some(pages: str) -> None:
    """Allocate where there are pages for some threads only, then where there are for all."""
    xupc.init(heap_size="64KiB", timeout=20)
    fill(int(pages))
    refused(lambda: xupc.all_alloc(3 * 40, "u1", "*"))
    xupc.barrier()
    empty()
    assert not xupc.all_alloc(3 * 40, "u1", "*").local.any()


@case
def gone() -> None:
    """Make shared memory of each kind when the directory has been removed."""
    team = xupc.init(heap_size="64KiB", timeout=20)
    xupc.barrier()
    if xupc.MYTHREAD == 0:
        os.rmdir(FOLDER)
    xupc.barrier()
    calls: tuple[Callable[[], object], ...] = (
        lambda: xupc.all_alloc(600, "u1", "*"),
        lambda: xupc.node_array(8, "u1"),
        lambda: team.split(0),
    )
    for call in calls:
        refused(call)
        xupc.barrier()


run_case()
