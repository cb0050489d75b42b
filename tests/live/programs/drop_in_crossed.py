"""Calls of `xupc.Comm` that never meet, since MPI carries one of them: ``drop_in_crossed.py CASE``.

`SOME_BY_MPI` gives barriers and blocks from 5,000 bytes on to MPI. The last thread is the one that
differs.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.as_machines import set_machine

import xupc

comm = xupc.Comm(MPI.COMM_WORLD)
size, me = comm.size, comm.rank
set_machine(me)
odd = me == size - 1
second, third = comm.Dup(), comm.Split(0)
x, y = np.zeros(8), np.zeros(8)
long, into = np.zeros(8000), np.zeros(8000)


class Refuses:
    """An object that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("not this one")


def short() -> None:
    """Make a call that xupc carries."""
    comm.Allreduce(x, y)


def boundary() -> None:
    """The sizes differ, so that the table gives the call of one thread to MPI."""
    comm.Allreduce(long if odd else x, into if odd else y)


def method() -> None:
    """One thread is in a barrier, which MPI carries."""
    comm.Barrier() if odd else short()


def both_by_mpi() -> None:
    """The methods differ, and MPI carries both."""
    comm.Barrier() if odd else comm.Allreduce(long, into)


def one_more() -> None:
    """One thread makes a call more than the others, which do not wait in the next one."""
    if odd:
        comm.Allreduce(long, into)
    comm.Bcast(x)
    comm.Barrier()


def order() -> None:
    """The order of two communicators differs; MPI carries the calls on one of them."""
    for each in (second, comm) if odd else (comm, second):
        each.Allreduce(x, y)


def order_by_mpi() -> None:
    """The order of two communicators differs; MPI carries the calls on both."""
    for each in (second, third) if odd else (third, second):
        each.allgather(me)


def order_by_xupc() -> None:
    """The order of two communicators differs; xupc carries the calls on both."""
    for each in 70 * [second, third]:
        each.Allreduce(x, y)
    for each in (second, third) if odd else (third, second):
        each.Allreduce(x, y)


def first_order() -> None:
    """The order differs of the calls that open the teams of two communicators."""
    for each in 64 * [second, third]:
        each.Allreduce(x, y)
    for each in (second, third) if odd else (third, second):
        each.Allreduce(x, y)


def split() -> None:
    """One thread makes a communicator."""
    comm.Split(0) if odd else short()


def of_group() -> None:
    """The methods differ on communicators that only their threads make, between some of others."""
    whole = comm.Get_group()
    mine, all_but_one = whole.Incl([me]), whole.Incl(range(1, size))
    for k in range(me + 1):
        comm.Create_group(mine, tag=k).Free()
    made = comm.Create_group(whole)
    if me:
        comm.Create_group(all_but_one)
    made = comm.Create_group(whole)
    made.Barrier() if odd else made.Allreduce(long, into)


def of_copy() -> None:
    """The methods differ on a copy that is made while other calls go on."""
    made, request = comm.Idup()
    comm.Dup()
    request.Wait()
    made.Barrier() if odd else made.Allreduce(long, into)


def root() -> None:
    """The roots of calls that MPI carries differ: each thread waits for the other."""
    comm.Gather(long, np.zeros(8000 * size), root=0 if odd else size - 1)
    comm.Barrier()


def left_root() -> None:
    """The roots of short calls that MPI carries differ: all threads leave them, and wait later."""
    third.Bcast(x, root=size - 1 if odd else 0)
    third.Bcast(x)
    (second if odd else third).Barrier()


def left_size() -> None:
    """The sizes of a reduction that MPI carries differ, and all threads leave it."""
    third.Reduce(x[:4] if odd else x, y, root=0)
    (second if odd else third).Barrier()


def refused() -> None:
    """The object of one thread cannot be pickled: it goes on, and the others wait for it."""
    with contextlib.suppress(ValueError):
        second.allgather(Refuses() if odd else me)
    if odd:
        second.barrier()


def caught() -> None:
    """The program catches the error, and goes on for a moment."""
    try:
        method()
    except xupc.CollectiveMismatchError as error:
        assert isinstance(error, MPI.Exception), error
        print("caught", flush=True)
        time.sleep(0.1)
        with contextlib.suppress(xupc.XupcError):
            short()
            print("went on", flush=True)


def late() -> None:
    """One thread does not come to a call that MPI carries."""
    if odd:
        time.sleep(600)
    comm.Allreduce(long, into)


def message() -> None:
    """One thread waits for a message in place of the call."""
    if odd:
        comm.Recv(x, 0)
    comm.Allreduce(long, into)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        boundary, method, both_by_mpi, one_more, order, order_by_mpi, order_by_xupc,
        first_order, split, of_group, of_copy, root, left_root,
        left_size, refused, caught, late, message,
    )
}  # fmt: skip

if __name__ == "__main__":
    for _ in range(70):
        short()
    CASES[sys.argv[1]]()
    print("no error", flush=True)
