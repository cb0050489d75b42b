"""Threads that wait in calls of MPI that are no collectives of xupc: ``message_hangs.py CASE``.

In the cases of `HANGS` all threads wait for ever; in those of `LEGAL` each of them gets its message
in the end, after a longer time than the limit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from support.as_machines import set_machine
from support.speed import SLOW

import xupc
from xupc.backends.native.native_core import core
from xupc.health import failure_detector, hang_of_all, message_waits

world = MPI.COMM_WORLD
size, me = world.size, world.rank
left, right = (me - 1) % size, (me + 1) % size
x = np.zeros(4)
large, into = np.zeros(1 << 20), np.zeros(1 << 20)


def receive_first() -> None:
    """Each thread receives before it sends."""
    world.Recv(x, left)
    world.Send(x, right)


def wait_all() -> None:
    """A tag is wrong on one thread."""
    requests = [world.Irecv(x, left, 1), world.Isend(np.ones(4), right, 2 if me == 0 else 1)]
    MPI.Request.Waitall(requests)
    world.recv(source=right, tag=9)


def head_on() -> None:
    """All send long messages, and none receives."""
    world.Send(large, right)
    world.Recv(into, left)


def collectives() -> None:
    """The calls of plain mpi4py differ."""
    world.Bcast(x, size - 1) if me == 0 else world.Barrier()


def objects() -> None:
    """One thread is in `probe`, the others in `recv`."""
    if me == 0:
        world.probe(right, 3)
    world.recv(source=left, tag=4)


def warned() -> None:
    """All wait without a limit, until the core ends them."""
    core.end_in(8.0 * SLOW, b"")
    receive_first()


def drop_in() -> None:
    """The communicator is xupc's."""
    comm = xupc.Comm(world)
    comm.Allreduce(x, np.zeros(4))
    comm.Recv(x, left)


def sends_late() -> None:
    """Thread 0 computes, then sends to the others."""
    if me == 0:
        time.sleep(LONG)
        for other in range(1, size):
            world.Send(x, other)
    else:
        world.Recv(x, 0)


def send_to_all() -> None:
    for other in range(size):
        world.Send(np.ones(4), other)


def sends_from_a_thread() -> None:
    """All wait, and another Python thread of thread 0 sends."""
    if me == 0:
        threading.Timer(LONG, send_to_all).start()
    world.Recv(x, 0)


def slow_ring() -> None:
    """A message goes around; each wait is shorter than the limit, all together are not."""
    pause = LONG / 12
    for _ in range(24 // size):
        if me == 0:
            time.sleep(pause)
            world.Send(x, right)
            world.Recv(x, left)
        else:
            world.Recv(x, left)
            time.sleep(pause)
            world.Send(x, right)


def many_short_calls() -> None:
    """All are in the same line for long, in another call each time."""
    end = time.monotonic() + LONG
    while world.bcast(time.monotonic() < end):
        pass


def with_another_job() -> None:
    """All wait for messages of a job that they have spawned."""
    other = world.Spawn(sys.executable, [__file__, "child", str(LONG)], 1)
    other.Irecv(x, 0).Wait()
    other.Disconnect()


def child(seconds: float) -> None:
    """Send a message to each thread of the parent after some seconds."""
    parent = MPI.Comm.Get_parent()
    time.sleep(seconds)
    for thread in range(parent.remote_size):
        parent.Send(x, thread)
    parent.Disconnect()


HANGS: list[Callable[[], None]] = [
    receive_first, wait_all, head_on, collectives, objects, warned, drop_in,
]  # fmt: skip
LEGAL: list[Callable[[], None]] = [
    sends_late, sends_from_a_thread, slow_ring, many_short_calls, with_another_job,
]  # fmt: skip
CASES = {case.__name__: case for case in HANGS + LEGAL}

if sys.argv[1] == "child":
    child(float(sys.argv[2]))
    sys.exit()
set_machine(me)
message_waits.LEAST, hang_of_all.CONFIRMED = 0.5, 0.5
failure_detector.WARN_AFTER = 0.5
team = xupc.init()
LONG = float(os.environ.get("XUPC_TIMEOUT", "0")) + 3.0  # a hang is found before that
CASES[sys.argv[1]]()
print("done", flush=True)
team.barrier()
xupc.finalize()
