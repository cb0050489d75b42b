"""A program on `xupc.Comm` where xupc cannot have memory: MPI carries its calls, with a warning.

``drop_in_lacking.py CALLS``: the calls before a team is opened.
"""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

import xupc
from xupc.runtime.job import Job

starts: list[str] = []


def _no_heap(job: Any) -> Any:
    starts.append(job.who)
    raise xupc.HeapError("init: 5 bytes do not fit")


Job._make_heap = _no_heap  # type: ignore[method-assign, assignment]
comm = xupc.Comm(MPI.COMM_WORLD)
second = comm.Dup()
for each in (comm, second):
    for _ in range(int(sys.argv[1]) + 3):
        assert each.allreduce(1) == comm.size
    assert "no team: init: 5 bytes do not fit" in str(each.explain()), each.explain()
assert len(starts) == 1, starts  # a start that failed is not tried for each communicator
xupc.finalize()
print("done", flush=True)
