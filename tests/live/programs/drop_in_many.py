"""Many communicators of `xupc.Comm`, made, used and freed: ``drop_in_many.py COUNT ALIVE``.

They are of five kinds. Each thread frees them in an order of its own, some by Python's collector,
and thread 0 keeps three times as many as the others. Memory, descriptors, teams, the files in
shared memory and the communicators that MPI still has stay as they were. The program ends while
ALIVE communicators are open.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from support.spare_communicators import spare

import xupc
from xupc.mpi.carrier import TEAMS

COUNT, ALIVE = map(int, sys.argv[1:])
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


def with_leader(k: int) -> MPI.Intracomm:
    """Return the communicator that an intercommunicator of two halves merges to."""
    upper = WORLD.rank >= WORLD.size // 2
    half = WORLD.Split(upper)
    between = half.Create_intercomm(0, WORLD, 0 if upper else WORLD.size // 2, tag=k % 1000)
    gc.disable()  # mpi4py may make a lock here while it holds one that `Free` needs
    total = between.allreduce(1)
    gc.enable()
    assert total == (WORLD.size // 2 if upper else WORLD.size - WORLD.size // 2)
    merged: MPI.Intracomm = xupc.Comm(between.Merge(upper))
    half.Free()
    between.Free()
    return merged


def of_group(k: int) -> MPI.Intracomm:
    """Return a communicator that only its own threads make."""
    group = WORLD.Get_group()
    comm: MPI.Intracomm = WORLD.Create_group(group, tag=k % 1000)
    group.Free()
    return comm


MAKERS = (
    lambda k: WORLD.Dup(), lambda k: WORLD.Split(WORLD.rank % 2, -WORLD.rank), of_group,
    lambda k: WORLD.Create_cart([WORLD.size]), with_leader,
)  # fmt: skip


def counted() -> tuple[int, int, int, int]:
    """Return KiB of memory of this process, its descriptors, its open teams, MPI's spare ones."""
    gc.collect()
    memory = next(
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon")
    )
    return memory, len(os.listdir("/proc/self/fd")), len(xupc.init().job.teams), spare()


def work(count: int, mine: random.Random) -> None:
    """Make so many communicators; at most `most` are open at a time."""
    most = AT_A_TIME * (1 if WORLD.rank else 3)
    held: list[MPI.Intracomm | Owner] = []
    for k in range(count):
        comm = MAKERS[k % len(MAKERS)](k)
        use(comm)
        held.append(Owner(comm) if mine.random() < 0.5 else comm)
        if len(held) == most:
            mine.shuffle(held)
            while len(held) > most // 2:
                free(held.pop())
            if mine.random() < 0.5:
                gc.collect()
    while held:
        free(held.pop())
    gc.collect()


def free(comm_or_owner: MPI.Intracomm | Owner) -> None:
    """Free a communicator; that of an owner is left to Python's collector."""
    if not isinstance(comm_or_owner, Owner):
        comm_or_owner.Free()


mine = random.Random(WORLD.rank)
WORLD.Barrier()
spare()  # MPI keeps memory of it
work(COUNT // 4, mine)
before = counted()
work(COUNT - COUNT // 4, mine)
after = counted()
if WORLD.rank == 0:
    print(f"KiB, descriptors, teams, spare communicators: {before}, then {after}")
of_teams = 100 * max(0, after[2] - before[2])  # KiB of those that are open
assert after[0] - before[0] < 4096 + COUNT // 4 + of_teams, (before, after)
assert after[1] - before[1] < 8 * AT_A_TIME, (before, after)
assert after[2] < 4 * AT_A_TIME + 64, (before, after)
assert before[3] - after[3] < 8 * AT_A_TIME, (before, after)
kept: list[Any] = [MAKERS[k % len(MAKERS)](k) for k in range(ALIVE)]
for comm in kept:
    use(comm)
shared = [comm for comm in kept if comm.size > 1]
carried = sum("xupc" in comm.explain(as_dict=True)["Barrier"]["carried_by"] for comm in shared)
assert carried < TEAMS if len(shared) >= TEAMS else carried == len(shared), (carried, len(shared))
WORLD.Barrier()
print("done", flush=True)
