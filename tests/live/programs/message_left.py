"""No notice about a call outlives the communicator that it was sent on.

A thread is so late that the others send it questions about its call, which it need not read. MPI
may give the number of a freed communicator to the next one, where a notice that stayed would match
a receive of the program, or seem to be about a later call of xupc.

Argument: on which communicator, "world" or "team"; or "in each call", that a thread which is late
in each call, and so never waits, has no more notices in the end than there are other threads.
"""

from __future__ import annotations

import sys
import time

from support.checked_calls import ALGORITHMS, SYNC
from support.spare_communicators import messages_left

import xupc
from xupc.backends import wait
from xupc.comm.tags import STALL

LATE = 0.8  # seconds; questions are sent after half a second


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


def late_in_each_call() -> None:
    """Be late ten times, for longer than the others wait before they look for a mismatch."""
    dst, src = (xupc.all_alloc(8 * xupc.THREADS, "i8", 8) for _ in range(2))
    stalls, wait.STALL_NS = wait.STALL_NS, 1
    for _ in range(10):
        xupc.barrier()
        if xupc.MYTHREAD == 0:
            time.sleep(0.1)
        xupc.all_broadcast(dst, src, 64, SYNC["NOSYNC", "NOSYNC"] | xupc.PUSH)
    xupc.barrier()
    wait.STALL_NS = stalls
    left = 0
    while world.job.link.take_any(STALL) is not None:
        left += 1
    assert left < xupc.THREADS, f"{left} notices on thread {xupc.MYTHREAD}"


world = xupc.init()
if sys.argv[1] == "in each call":
    late_in_each_call()
    xupc.finalize()
elif sys.argv[1] == "team":
    part = world.split(0)
    assert part is not None
    late_call(part)
    part.free()
    assert messages_left(8) == []
    xupc.finalize()
else:
    late_call(None)
    xupc.finalize()
    assert messages_left(8) == []
print("done")
