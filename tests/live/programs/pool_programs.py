"""Programs that leave, change, fail or wait, for the pool of ranks: ``pool_programs.py CASE ..``"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any

import numpy as np
from support.cases import case, run_case

import xupc

# It is longer if the globals of an earlier program are there.
seen: list[int] = [*globals().setdefault("seen", []), 1]


@case
def plain(*_: str) -> None:
    """Print what a program of a new process must find."""
    atexit.register(lambda: print("exit", os.environ.get("XUPC_TEST_WORD")))
    atexit.register(lambda: print("initialized", hasattr(xupc, "THREADS")))
    xupc.init()
    print("program", __name__, sys.argv[2:], len(seen), xupc.THREADS)
    os.environ["XUPC_TEST_WORD"] = "changed"
    sys.path.append("/nowhere")


@case
def leaves_a_descriptor() -> None:
    globals()["kept"] = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)


@case
def patches_the_library() -> None:
    xupc.init()
    from xupc.comm import datatypes

    types: Any = datatypes.TYPES
    print(types)
    datatypes.TYPES = 5


@case
def logs_everything() -> None:
    """Print what xupc logs, as a program does that sets this up."""
    import logging

    print("handlers", len(logging.root.handlers))
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s")
    logging.getLogger("xupc").disabled = False
    xupc.init()


@case
def writes_behind(when: str) -> None:
    """Write behind the bytes of two allocations, which are freed or not."""
    team = xupc.init()
    heap = team.job.heap
    A, p = xupc.all_alloc(5 * team.size, np.uint8, 5), xupc.alloc(70)
    for allocation, nbytes in ((A.allocation, 5), (p.allocation, 70)):
        s = heap.segment_of(allocation.offset)
        at = heap.local * s.size + allocation.offset - s.start + nbytes
        s.segment.array[at + 9] = 1
    if when == "freed":
        xupc.all_free(A)
        xupc.free(p)


@case
def fails() -> None:
    with xupc.init() as team:
        if team.rank == 1:
            raise RuntimeError("the program's own mistake")
        xupc.barrier()


def waits_here() -> None:
    time.sleep(60)


@case
def waits() -> None:
    xupc.init()
    print("waits")
    waits_here()


run_case()
