"""Ranks that use mpi4py alone: ``mpi_ranks.py CASE [ARGUMENT]``."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import numpy as np
from host_names import host_id
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def places() -> None:
    """Print, as JSON, where each rank is."""
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    found = WORLD.gather((socket.gethostname(), host_id(), node.size, os.getcwd()))
    if WORLD.rank == 0:
        print(json.dumps(found))


def transfer(nbytes: str) -> None:
    """Print the seconds for a message and its answer."""
    data = np.zeros(int(nbytes), "u1")
    WORLD.Barrier()
    begin = time.perf_counter()
    if WORLD.rank == 0:
        WORLD.Send(data, 1)
        WORLD.recv(source=1)
        print(time.perf_counter() - begin)
    else:
        WORLD.Recv(data, 0)
        WORLD.send(None, 0)


def status() -> None:
    MPI.Finalize()
    sys.exit(7)


def stubborn() -> None:
    """Ignore polite signals, each rank with a child in a session of its own."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    WORLD.Barrier()
    if os.fork() == 0:
        os.setsid()
    elif WORLD.rank == 0:
        print("hanging", flush=True)
    time.sleep(1000)


CASES: dict[str, Callable[..., None]] = {
    "places": places, "transfer": transfer, "status": status, "stubborn": stubborn,
}
CASES[sys.argv[1]](*sys.argv[2:])
