"""Objects of MPI and of xupc in exact numbers: ``exact_numbers.py MOST WALKS KIND ...``.

MPICH keeps its objects in blocks, of 32 attributes for example. Where it uses one that it has
freed, and that was the last of a block, it reads a null pointer. So the number of live objects of
each kind goes from 0 to MOST and back. Meanwhile communicators are made, used by calls that xupc
carries, and freed in each way. All results are checked, and nothing grows from the first of two
WALKS to the second. No KIND: all of them together; "each": one after the other.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

import xupc

MOST, WALKS = map(int, sys.argv[1:3])
PLAIN = MPI.COMM_WORLD
WORLD = xupc.Comm(PLAIN)
SIZE = WORLD.size
ROOM = np.zeros(8)
Free = Callable[[], object]


def attribute() -> Free:
    key = MPI.Comm.Create_keyval()
    MPI.COMM_SELF.Set_attr(key, ROOM)

    def free() -> None:
        MPI.COMM_SELF.Delete_attr(key)
        MPI.Comm.Free_keyval(key)

    return free


def key() -> Free:
    made = MPI.Datatype.Create_keyval()
    return lambda: MPI.Datatype.Free_keyval(made)


def receive() -> Free:
    request = MPI.COMM_SELF.Irecv(np.zeros(1), 0, 5)

    def free() -> None:
        request.Cancel()
        request.Wait()

    return free


def persistent() -> Free:
    request = MPI.COMM_SELF.Recv_init(np.zeros(1), 0, 6)
    request.Start()

    def free() -> None:
        request.Cancel()
        request.Wait()
        request.Free()

    return free


def generalized() -> Free:
    request = MPI.Grequest.Start(None, None, None)

    def free() -> None:
        request.Complete()
        request.Wait()

    return free


def carried() -> Free:
    total = np.zeros(8)
    request = WORLD.Iallreduce(np.full(8, 1.0), total)

    def free() -> None:
        request.Wait()
        assert (total == SIZE).all()

    return free


def communicator() -> Free:
    comm = xupc.Comm(MPI.COMM_SELF.Dup())
    return lambda: comm.Free()


def opened() -> Free:
    comm = WORLD.Dup()
    assert comm.allreduce(1) == SIZE
    return lambda: comm.Free()


def grid() -> Free:
    comm = xupc.Comm(MPI.COMM_SELF.Create_cart([1]))
    return lambda: comm.Free()


def team() -> Free:
    made = WORLD_TEAM.split(0)
    assert made is not None
    return made.free


def pointer() -> Free:
    memory = xupc.alloc(64)
    return lambda: xupc.free(memory)


def datatype() -> Free:
    return MPI.DOUBLE.Create_vector(2, 1, 3).Commit().Free


def group() -> Free:
    whole = PLAIN.Get_group()
    part = whole.Incl([0])
    whole.Free()
    return part.Free


def info() -> Free:
    made = MPI.Info.Create()
    made.Set("key", "value")
    return made.Free


def operation() -> Free:
    return MPI.Op.Create(lambda a, b, _type: None).Free


def handler() -> Free:
    return MPI.Comm.Create_errhandler(lambda comm, code: None).Free


def window() -> Free:
    return MPI.Win.Create(np.zeros(1), comm=MPI.COMM_SELF).Free


FEW = {operation: 14, handler: 14}  # mpi4py itself has room for 16
DEAR = {window: 40, team: 40, opened: 40}
KINDS = [
    attribute, key, receive, persistent, generalized, carried, communicator, opened, grid, team,
    pointer, datatype, group, info, operation, handler, window,
]  # fmt: skip


def use(k: int) -> None:
    """Make communicators, make calls on them that xupc carries, and free them."""
    comm = WORLD.Dup()
    a, b = np.full(4, 1.0), np.zeros(4)
    request = comm.Iallreduce(a, b)
    assert comm.allreduce(1) == SIZE
    comm.Allreduce(a, b)
    request.Wait()
    assert (b == SIZE).all()
    grid = comm.Create_cart([SIZE], periods=[True])
    assert comm.bcast(k) == k
    frees = [xupc.Comm.Free, MPI.Comm.Free]
    if k % 4 == 1:
        blocks = np.zeros(2)
        grid.Neighbor_allgather(np.full(1, 1.0), blocks)
        assert (blocks == 1).all()
    half = grid.Split(0)
    assert half.allreduce(k) == k * SIZE
    for each in (grid, half, comm) if k % 3 else (comm, half, grid):
        frees[k % 2](each)
        frees.reverse()
    column = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    request = WORLD.Ibcast([a, 1, column], 0)
    column.Free()
    request.Wait()


def memory() -> tuple[int, int]:
    """Return KiB of memory of this process, and its descriptors."""
    gc.collect()
    text = Path("/proc/self/status").read_text()
    found = next(line.split()[1] for line in text.splitlines() if line.startswith("RssAnon"))
    return int(found), len(os.listdir("/proc/self/fd"))


def walk(kinds: list[Callable[[], Free]]) -> None:
    """Go from no live object of some kinds to so many, and back in another order."""
    live: list[list[Free]] = []
    for k in range(MOST):
        live.append([make() for make in kinds if k < FEW.get(make, DEAR.get(make, MOST))])
        use(k)
    while live:
        for free in live.pop(len(live) // 2):
            free()
        if len(live) % 4 == 0:
            use(len(live))


def check(kinds: list[Callable[[], Free]]) -> None:
    """Walk, and compare the memory after the first time and after the last one."""
    walk(kinds)
    before = memory()
    for _ in range(WALKS - 1):
        walk(kinds)
    after = memory()
    about = [kind.__name__ for kind in kinds], before, after
    assert after[0] - before[0] < 2048, about
    assert after[1] - before[1] <= 4, about


WORLD.Barrier()
MPI.COMM_SELF.Create_cart([1]).Free()  # from now on communicators may have a topology
WORLD_TEAM = xupc.init()
names = sys.argv[3:]
if not names:
    check(KINDS)
for kind in KINDS:
    if names == ["each"] or kind.__name__ in names:
        check([kind])
PLAIN.Barrier()
print("done", flush=True)
