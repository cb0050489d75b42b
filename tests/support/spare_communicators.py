"""Look at communicators that are not in use: how many MPI has, what was left on earlier ones.

MPICH has some 2,000, Open MPI any number.
"""

from __future__ import annotations

import contextlib

from mpi4py import MPI

__all__ = ["messages_left", "spare"]

MOST = 3000


def spare() -> int:
    """Return how many more communicators MPI has on this thread, at most `MOST`."""
    made: list[MPI.Intracomm] = []
    with contextlib.suppress(MPI.Exception):
        while len(made) < MOST:
            made.append(MPI.COMM_SELF.Dup())
    for comm in made:
        comm.Free()
    return len(made)


def messages_left(freed: int) -> list[str]:
    """Name the messages that were not received on the last `freed` communicators that are free.

    All threads call it. It looks at new ones, which have the numbers of those before on MPICH.
    """
    new = [MPI.COMM_WORLD.Dup() for _ in range(freed)]
    MPI.COMM_WORLD.Barrier()
    status = MPI.Status()
    found = [
        f"a message of rank {status.source} with tag {status.tag} on a freed communicator"
        for comm in new
        if comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
    ]
    for comm in new:
        comm.Free()
    return found
