"""Many communicators of `xupc.Comm`, made, used and freed: ``drop_in_many.py COUNT``.

Each thread frees them in an order of its own, some by Python's collector. Memory, descriptors,
teams and the files in shared memory stay as they were.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import xupc

COUNT = int(sys.argv[1])
AT_A_TIME = 40
WORLD = xupc.Comm(MPI.COMM_WORLD)


class Owner:
    """A library's object that frees its communicator when it is collected, in a cycle."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.itself = comm, self

    def __del__(self) -> None:
        self.comm.Free()


def use(comm: MPI.Intracomm) -> None:
    """Make calls that xupc carries, one of them in the background."""
    a, b = np.full(50, comm.rank + 1.0), np.zeros(50)
    comm.Allreduce(a, b)
    comm.Barrier()
    request = comm.Iallreduce(a, b)
    assert comm.bcast(comm.rank, 0) == 0
    request.Wait()
    assert (b == comm.size * (comm.size + 1) / 2).all()


def counted() -> tuple[int, int, int]:
    """Return KiB of memory of this process, its descriptors and its open teams."""
    gc.collect()
    memory = next(
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon")
    )
    return memory, len(os.listdir("/proc/self/fd")), len(xupc.init().job.teams)


def work(count: int, mine: random.Random) -> None:
    """Make so many communicators; at most `AT_A_TIME` are open at a time."""
    held: list[MPI.Intracomm | Owner] = []
    for k in range(count):
        comm = WORLD.Dup() if k % 3 else WORLD.Split(WORLD.rank % 2, -WORLD.rank)
        use(comm)
        held.append(Owner(comm) if k % 2 else comm)
        if len(held) == AT_A_TIME:
            mine.shuffle(held)
            while len(held) > AT_A_TIME // 2:
                comm_or_owner = held.pop()
                if not isinstance(comm_or_owner, Owner):
                    comm_or_owner.Free()
            del comm_or_owner
            if mine.random() < 0.5:
                gc.collect()
    while held:
        last = held.pop()
        if not isinstance(last, Owner):
            last.Free()
    del last
    gc.collect()


mine = random.Random(WORLD.rank)
WORLD.Barrier()
work(COUNT // 4, mine)
before = counted()
work(COUNT - COUNT // 4, mine)
after = counted()
if WORLD.rank == 0:
    print(f"KiB, descriptors, teams: {before}, then {after}")
assert after[0] - before[0] < 4096 + COUNT // 4, (before, after)
assert after[1] - before[1] < 2 * AT_A_TIME, (before, after)
assert after[2] < 3 * AT_A_TIME + 64, (before, after)
WORLD.Barrier()
print("done", flush=True)
