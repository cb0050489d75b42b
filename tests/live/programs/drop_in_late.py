"""Correct programs with late threads: no difference may be found. ``drop_in_late.py SEED CALLS``.

The comparisons of calls that wait (`xupc.health.crossed_calls`, `calls_elsewhere`) run after 10 ms
here, in place of 200 and 700. ``XUPC_TUNING`` names a table that gives some calls to MPI.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.as_machines import set_machine

import xupc
from xupc.health import calls_elsewhere, crossed_calls, failure_detector

crossed_calls.STALLED = 0.01
calls_elsewhere.LONG = 10_000_000
failure_detector.TICK = failure_detector.BUSY_TICK = 0.01

everywhere = random.Random(int(sys.argv[1]))  # the same on all threads
comm = xupc.Comm(MPI.COMM_WORLD)
size, me = comm.size, comm.rank
set_machine(me)
mine = random.Random(f"{sys.argv[1]} {me}")
x, y = np.full(8, 1.0), np.zeros(8)
long, into = np.full(8000, 1.0), np.zeros(8000)


class Refuses:
    """An object that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError


class RefusesLate(Refuses):
    """The same, but it takes a while to find that."""

    def __reduce__(self) -> Any:
        time.sleep(mine.random() * 0.15)
        raise ValueError


class Number:
    """A number of a class of the program's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


def late() -> None:
    """Be late at random."""
    if mine.random() < 0.2:
        time.sleep(mine.random() * 0.15)


def barriers(on: Any) -> None:
    """`Barrier` and `barrier` are the same call of MPI."""
    on.Barrier()


def blocks(on: Any) -> None:
    root = everywhere.randrange(on.size)
    on.Bcast(y, root)
    late()
    on.Bcast(into, root)
    late()
    on.bcast(me, root)


def gathers(on: Any) -> None:
    root = everywhere.randrange(on.size)
    room = np.zeros(8000 * on.size) if on.rank == root else None
    on.Gather(long, room, root)
    late()
    assert on.gather(on.rank, root=root) == (list(range(on.size)) if on.rank == root else None)


def sums(on: Any) -> None:
    on.Allreduce(x, y)
    late()
    on.Allreduce(long, into)
    assert y[0] == into[0] == on.size, (y[0], into[0])


def in_any_order(on: Any) -> None:
    """Nonblocking calls on two communicators may begin in another order on each thread."""
    both = [(on, y), (comm if on is pairs else pairs, into)]
    mine.shuffle(both)
    requests = []
    for each, result in both:
        requests.append(each.Iallreduce(x if result is y else long, result))
        late()
    MPI.Request.Waitall(requests)


def wrong_on_all(on: Any) -> None:
    """Errors before a call meets the others, on all threads or with another try on one."""
    with contextlib.suppress(Exception):
        on.Bcast(y, root=on.size + 3)
    objects = [Refuses()] if me == 0 else []
    for each in [*objects, me]:
        with contextlib.suppress(ValueError):
            on.allgather(each)
            late()


def refused_late(on: Any) -> None:
    """Objects of all threads cannot be pickled: no thread reaches MPI's call, at other times."""
    made = on.Dup()  # MPI carries its first calls
    for _ in range(2):
        with contextlib.suppress(ValueError):
            made.allgather(RefusesLate())
        made.Barrier()
    made.Free()


def described_in_another_way(on: Any) -> None:
    """Roots and sizes are the same, though the threads give them in other forms."""
    made = on.Dup()  # MPI carries its first calls
    root = everywhere.randrange(on.size)
    forms = [root, np.int64(root), np.uint8(root), Number(root)]
    if root < 2:
        forms.append(bool(root))
    at = mine.choice(forms)
    messages = [x, [x, 8, MPI.DOUBLE], [long, 8, MPI.DOUBLE], x.data]
    made.Bcast(mine.choice([y, [into, 8, MPI.DOUBLE]]), at)
    late()
    room = into if on.rank != root else mine.choice([y, [into, 8, MPI.DOUBLE]])
    made.Reduce(mine.choice(messages), room, root=at)
    late()
    made.Allreduce(*mine.choice([(mine.choice(messages), y), (MPI.IN_PLACE, y), (None, y)]))
    late()
    made.bcast(1, **{mine.choice(["root", "".join(["ro", "ot"])]): at})
    made.Barrier()
    made.Free()


def of_some(on: Any) -> None:
    """Communicators of some threads, which the others do not have."""
    color = everywhere.randrange(3)
    half = on.Split(color if on.rank else MPI.UNDEFINED)
    if half:
        half.Barrier()
        late()
        half.allreduce(1)
        half.Free()
    group = on.Get_group()
    alone = group.Incl([0])
    if on.rank == 0:
        made = on.Create_group(alone)
        made.Barrier()
        made.Free()
    made = on.Create_group(group, tag=everywhere.randrange(2))
    made.Barrier()
    late()
    copy, request = made.Idup()
    made.allreduce(1)
    request.Wait()
    copy.Barrier()
    copy.Free()
    made.Free()
    alone.Free()
    group.Free()
    again = on.Dup()
    again.Barrier()
    late()
    again.Allreduce(x, y)
    again.Free()


def messages(on: Any) -> None:
    """A thread waits for a message, and the others in a call."""
    if on.size > 1 and on.rank < 2:
        if on.rank == 0:
            late()
        on.sendrecv(me, 1 - on.rank)
    on.Barrier()


def differ(on: Any) -> None:
    """A difference that all threads catch: they go on with other numbers of calls."""
    if on is not comm:
        return
    with contextlib.suppress(xupc.CollectiveMismatchError):
        if me == 0:
            comm.Bcast(y)
        comm.Allreduce(x, y)
        comm.Allreduce(x, y)


SUMS: list[Callable[[Any], None]] = [
    barriers, blocks, gathers, sums, in_any_order, wrong_on_all, of_some, messages, differ,
    refused_late, described_in_another_way,
]  # fmt: skip
pairs = comm.Dup()
for _ in range(70):
    comm.Allreduce(x, y)
for _ in range(int(sys.argv[2])):
    on = everywhere.choice([comm, comm, pairs])
    act = everywhere.choice(SUMS)
    late()
    act(on)
print("done")
