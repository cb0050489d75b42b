"""No notice about a call outlives the communicator that it was sent on.

A thread is so late that the others send it questions about its call, which it need not read. MPI
may give the number of a freed communicator to the next one, where a notice that stayed would match
a receive of the program, or seem to be about a later call of xupc.

Argument: on which communicator, "world" or "team".
"""

from __future__ import annotations

import sys
import time

from mpi4py import MPI
from support.checked_calls import ALGORITHMS, SYNC

import xupc

LATE = 0.8  # seconds; questions are sent after half a second
COMMUNICATORS = 8  # more than xupc has freed


def late_call(team: xupc.Team | None) -> None:
    """Make a call of each algorithm that thread 0 begins late."""
    dst, src = (xupc.all_alloc(8 * xupc.THREADS, "i8", 8, team=team) for _ in range(2))
    for algorithm in ALGORITHMS.values():
        src.local[:] = algorithm
        xupc.barrier()
        if xupc.MYTHREAD == 0:
            time.sleep(LATE)
        xupc.all_broadcast(dst, src, 64, SYNC["NOSYNC", "NOSYNC"] | algorithm, team=team)
        xupc.barrier()
        assert (dst.local == algorithm).all()


def see_nothing() -> None:
    """Look for messages on new communicators."""
    new = [MPI.COMM_WORLD.Dup() for _ in range(COMMUNICATORS)]
    MPI.COMM_WORLD.Barrier()
    left = [comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG) for comm in new]
    for comm in new:
        comm.Free()
    assert not any(left), left


world = xupc.init()
if sys.argv[1] == "team":
    part = world.split(0)
    assert part is not None
    late_call(part)
    part.free()
    see_nothing()
    xupc.finalize()
else:
    late_call(None)
    xupc.finalize()
    see_nothing()
print("done")
