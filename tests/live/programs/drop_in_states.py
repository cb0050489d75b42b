"""Functions on `xupc.Comm` before, between and after starts: ``drop_in_states.py CALLS``.

With few calls MPI carries all of them, with many xupc starts. The program cannot know which.
"""

from __future__ import annotations

import sys

from mpi4py import MPI

import xupc

comm, calls = xupc.Comm(MPI.COMM_WORLD), int(sys.argv[1])
size = comm.size
carried = calls > 64 and size > 1


def described(text: str) -> None:
    """Check what can be asked at any time."""
    assert text in repr(comm), repr(comm)
    assert comm.explain()
    assert isinstance(comm.explain(as_dict=True), dict)


described("no call yet")
for _ in range(calls):
    assert comm.allreduce(1) == size
assert hasattr(xupc, "THREADS") == carried
described("xupc has a team" if carried else "calls by MPI")
for _ in range(2):
    xupc.finalize()
    assert not hasattr(xupc, "THREADS")
    described("xupc was finalized" if carried else "calls by MPI")
assert comm.allreduce(1) == size
with xupc.init() as team:
    assert team.size == size
    assert comm.allreduce(1) == size
    other = comm.Dup()
    for _ in range(calls):
        assert other.allreduce(1) == size
    assert ("xupc has a team" in repr(other)) == carried, repr(other)
xupc.finalize()
MPI.Finalize()
described("calls by MPI")
xupc.finalize()
try:
    xupc.init()
except xupc.XupcError as error:
    assert "MPI has been finalized" in str(error), error
print("done", flush=True)
