"""A program on `xupc.Comm` where xupc cannot have memory: MPI carries its calls, with a warning.

``drop_in_lacking.py CALLS``: the calls before a team is opened.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpi4py import MPI
from support.polling import until

import xupc
from xupc.backends.own_threads import GUARD
from xupc.pgas.segment import shm_dir
from xupc.runtime.job import Job

starts: list[str] = []


def _no_heap(job: Any) -> Any:
    starts.append(job.who)
    raise xupc.HeapError("init: 5 bytes do not fit")


def mapped() -> str:
    """Return what is mapped, without objects that refer to each other alone."""
    gc.collect()
    return Path("/proc/self/maps").read_text()


def descriptors() -> Iterator[str]:
    """Yield the files that this process has open."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{name}")


Job._make_heap = _no_heap  # type: ignore[method-assign, assignment]
comm = xupc.Comm(MPI.COMM_WORLD)
second = comm.Dup()
for each in (comm, second):
    for _ in range(int(sys.argv[1]) + 3):
        assert each.allreduce(1) == comm.size
    assert "no team: init: 5 bytes do not fit" in str(each.explain()), each.explain()
assert len(starts) == 1, starts  # a start that failed is not tried for each communicator
# nor does it keep memory, or the descriptor of its locks
held = f"{shm_dir()}/#"
until(lambda: held not in mapped(), "the memory is returned")
until(lambda: not any(held in name for name in descriptors()), "the segments are closed")
until(lambda: GUARD not in [t.name for t in threading.enumerate()], "the detector ends")
xupc.finalize()
print("done", flush=True)
