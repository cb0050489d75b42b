"""One object beyond 2 GiB through `xupc.Comm`: ``drop_in_large.py METHOD KIND BYTES [--plain]``.

The last thread has an array or bytes; a ``bcast`` is from there, a ``gather`` to thread 0. Prints
the peak of a thread's memory and the shared memory in use. ``--plain``: by mpi4py itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

method, kind, nbytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
PLAIN = MPI.COMM_WORLD
COMM = PLAIN if "--plain" in sys.argv else xupc.Comm(PLAIN)
SIZE, RANK = PLAIN.size, PLAIN.rank
STEP = 1 << 26  # bytes between marks, each a number of its own

for _ in range(66):
    COMM.bcast(0, 0)  # so xupc carries calls, also without XUPC_COMM=force


def memory(name: str) -> int:
    """Return a line of this process's status, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"{name}:\s+(\d+)", status)[0]) << 10


def large() -> Any:
    """Return the object, with marks at its beginning, its end and in between."""
    x = np.zeros(nbytes, np.uint8)
    x[::STEP] = np.arange(1, len(x[::STEP]) + 1)
    x[-1] = 99
    return x if kind == "array" else x.tobytes()


def check(found: Any) -> None:
    x = found if kind == "array" else np.frombuffer(found, np.uint8)
    assert type(found) is (np.ndarray if kind == "array" else bytes)
    assert x.size == nbytes
    assert (x[::STEP][:-1] == np.arange(1, len(x[::STEP]))).all()
    assert x[-1] == 99
    assert np.count_nonzero(x) == len(x[::STEP]) + ((nbytes - 1) % STEP != 0)


mine = large() if RANK == SIZE - 1 else None
Path("/proc/self/clear_refs").write_text("5")  # the peak so far does not count
before = memory("VmRSS")
if method == "bcast":
    check(COMM.bcast(mine, SIZE - 1))
else:
    objects = COMM.gather(mine, 0) if method == "gather" else COMM.allgather(mine)
    if objects is not None:
        check(objects.pop())
        assert objects == [None] * (SIZE - 1)
peak = memory("VmHWM") - before
files = sum(path.stat().st_blocks * 512 for path in Path("/dev/shm").iterdir())
lines = PLAIN.gather((peak, memory("RssShmem")), 0)
if lines is not None:
    peaks = [f"{line[0] / nbytes:.2f}" for line in lines]
    shared = [line[1] >> 20 for line in lines]
    print(f"peaks, in objects of {nbytes} bytes: {peaks}; shared {shared} MiB, files {files >> 20}")
PLAIN.Barrier()
print("done", flush=True)
