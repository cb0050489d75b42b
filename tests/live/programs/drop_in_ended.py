"""A program on `xupc.Comm` that goes on after `xupc.finalize`: ``drop_in_ended.py CALLS``.

It makes so many calls on one communicator before. With few of them MPI has carried all; with many
xupc has started. The program cannot know which, so after both only `xupc.init` starts it again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mpi4py import MPI

import xupc

comm = xupc.Comm(MPI.COMM_WORLD)
second = comm.Dup()


def make(on: Any, calls: int) -> None:
    for _ in range(calls):
        assert on.allreduce(1) == comm.size


make(comm, int(sys.argv[1]))
make(second, 60)
xupc.finalize()
os.environ["XUPC_HEAP_SIZE"] = "64 elephants"  # nothing starts, so nothing reads it
third = comm.Dup()
for each in (second, third):
    make(each, 70)
    assert not hasattr(xupc, "THREADS")
    assert "xupc was finalized" in repr(each), repr(each)
    assert "xupc was finalized" in str(each.explain()), each.explain()
del os.environ["XUPC_HEAP_SIZE"]
with xupc.init():
    make(second, 70)
    assert "xupc has a team" in repr(second), repr(second)
make(second, 600)
assert not hasattr(xupc, "THREADS")
print("done", flush=True)
