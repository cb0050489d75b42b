"""The program's own MPI work while a thread waits in xupc: all of it needs that thread's progress.

``mpi_beside.py WORK WAIT``: thread 0 starts WORK with thread 1, or with all threads, and waits in a
call of xupc; the others finish the work before they make the same call. With ``MPI.Barrier`` in the
place of the call all of this passes, since a thread that waits inside MPI makes MPI's progress.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import xupc

Finish = Callable[[], None]

MESSAGES, BYTES = 4000, 4096
LONG = 1 << 20  # doubles of a strided message
REDUCED = 1 << 18  # doubles: 2 MiB
ACCUMULATED, TURNS = 1 << 14, 20
TAG = 5

comm = MPI.COMM_WORLD
me = comm.rank


def nothing() -> None:
    """Finish no work."""


def many_sends() -> tuple[Finish, Finish]:
    """More sends than MPI can hand over before the receiver takes them."""
    data = np.full(BYTES, 7, np.uint8)
    if me == 0:
        requests = [comm.Isend(data, 1, TAG) for _ in range(MESSAGES)]
        return nothing, lambda: MPI.Request.Waitall(requests)

    def receive() -> None:
        room = np.zeros(BYTES, np.uint8)
        for _ in range(MESSAGES):
            comm.Recv(room, 0, TAG)
        assert (room == 7).all()

    return (receive if me == 1 else nothing), nothing


def strided_send() -> tuple[Finish, Finish]:
    """One long send of a derived type, which the sender has to pack piece by piece."""
    every_other = MPI.DOUBLE.Create_vector(LONG, 1, 2).Commit()
    if me == 0:
        data = np.arange(2 * LONG, dtype=np.float64)
        request = comm.Isend([data, 1, every_other], 1, TAG)
        return nothing, request.Wait

    def receive() -> None:
        room = np.zeros(LONG)
        comm.Recv(room, 0, TAG)
        assert (room == np.arange(0, 2 * LONG, 2)).all()

    return (receive if me == 1 else nothing), nothing


def synchronous_send() -> tuple[Finish, Finish]:
    """Long synchronous sends from all threads to thread 0's neighbour, none received yet."""
    data = np.full(LONG, float(me))
    to, of = (me + 1) % comm.size, (me - 1) % comm.size
    request = comm.Issend(data, to, TAG)
    room = np.zeros(LONG)
    arriving = comm.Irecv(room, of, TAG)

    def finish() -> None:
        arriving.Wait()
        request.Wait()
        assert (room == of).all()

    return (nothing, finish) if me == 0 else (finish, nothing)


def late_allreduce() -> tuple[Finish, Finish]:
    """A nonblocking collective that thread 0 starts now and waits for after the call."""
    data, total = np.ones(REDUCED), np.zeros(REDUCED)
    request = comm.Iallreduce(data, total)

    def finish() -> None:
        request.Wait()
        assert (total == comm.size * data).all()  # which also keeps the data until here

    return (nothing, finish) if me == 0 else (finish, nothing)


def accumulates() -> tuple[Finish, Finish]:
    """One-sided accumulates into thread 0's window, which some MPIs carry out at the target."""
    window_memory = np.zeros(ACCUMULATED)
    window = MPI.Win.Create(window_memory, 8, comm=comm)
    ones = np.ones(ACCUMULATED)

    def accumulate() -> None:
        window.Lock(0, MPI.LOCK_SHARED)
        for _ in range(TURNS):
            window.Accumulate(ones, 0)
            window.Flush(0)
        window.Unlock(0)

    def close() -> None:
        window.Fence()
        assert me or (window_memory == TURNS * (comm.size - 1)).all()
        window.Free()

    return (accumulate if me else nothing), close


WORK = {
    work.__name__: work
    for work in (many_sends, strided_send, synchronous_send, late_allreduce, accumulates)
}


def waits() -> dict[str, Callable[[], object]]:
    """Return the calls in which a thread may wait, by name."""
    team = xupc.init()
    size = team.size
    a, b = (xupc.all_alloc(size * size * 8, np.uint8, size * 8) for _ in range(2))
    half = team.split(0, key=-me)  # all threads, in another order

    def split_phase() -> None:
        xupc.notify()
        xupc.wait()

    def posted() -> None:
        xupc.all_gather_all(b, a, 8, xupc.ASYNC).wait()

    def posted_and_blocking() -> None:
        handle = xupc.all_gather_all(b, a, 8, xupc.ASYNC, team=half)
        xupc.barrier()
        handle.wait()

    def growing() -> None:
        xupc.all_free(xupc.all_alloc(size << 23, np.uint8, 1 << 23))

    return {
        "barrier": xupc.barrier,
        "split_phase": split_phase,
        "posted": posted,
        "posted_and_blocking": posted_and_blocking,
        "team": half.barrier,
        "broadcast": lambda: xupc.all_broadcast(b, a, 8),
        "value": lambda: xupc.allv_reduce_all(1.0, xupc.ADD),
        "growing": growing,
        "free": half.free,
        "splitting": lambda: team.split(0),
        "finalize": xupc.finalize,
    }


def main(work: str, wait: str) -> None:
    """Do one scenario; ``init`` as the call in which thread 0 waits comes before all others."""
    call = xupc.init if wait == "init" else waits()[wait]
    comm.Barrier()
    before, after = WORK[work]()
    before()
    call()
    after()
    print("done", me, flush=True)
    comm.Barrier()  # as in MPI_Finalize: thread 0's sends may need the receiver's progress yet


main(*sys.argv[1:])
