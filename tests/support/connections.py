"""What MPI opens between threads on several hosts, before a program of a test does."""

from __future__ import annotations

import sys

from xupc.comm.mpi import start_mpi

__all__ = ["connect_all"]


def connect_all() -> int:
    """Start MPI, have it connect all threads, and return the number of this one.

    Between hosts MPI opens sockets at the first message of two threads. Without this they would be
    damage that the first program does, and each job would have one program.

    Each program imports the package of this module anew: one that stays would keep the modules of
    a program, and the memory that they use.
    """
    start_mpi()
    from mpi4py import MPI

    world, nothing = MPI.COMM_WORLD, bytearray()
    for k in range(1, world.size):
        to, source = (world.rank + k) % world.size, (world.rank - k) % world.size
        world.Sendrecv(nothing, to, recvbuf=nothing, source=source)
    for name in (__name__, __name__.rpartition(".")[0]):
        del sys.modules[name]
    return world.rank
