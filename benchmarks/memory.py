"""What a node's memory holds: a table on each thread against one per node, and exchange in place.

Run under mpiexec: ``mpiexec -n 4 python benchmarks/memory.py WHAT BYTES``, WHAT one of ``private``,
``node_array``, ``node_broadcast``, ``exchange``, ``exchange_in_place``. Thread 0 prints a line of
JSON: each thread's proportional set size (PSS: a page that k processes map counts 1/k for each)
before and with the data, from ``/proc/self/smaps_rollup``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import xupc


def pss() -> int:
    """Return my proportional set size in bytes."""
    with open("/proc/self/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise OSError("no Pss in smaps_rollup")


def values(nbytes: int) -> np.ndarray[Any, Any]:
    """Return a table of so many bytes, whose every page is written."""
    return np.arange(nbytes // 8, dtype=np.float64)


def private(nbytes: int) -> Any:
    """Copy thread 0's table to every thread, as a program without shared memory does."""
    from mpi4py import MPI

    table = values(nbytes) if xupc.MYTHREAD == 0 else np.empty(nbytes // 8)
    MPI.COMM_WORLD.Bcast(table)
    return table


def node_array(nbytes: int) -> Any:
    """Make one table for the node; each thread writes its part of it."""
    table = xupc.node_array(nbytes // 8, np.float64)
    mine = slice(*(nbytes // 8 * (xupc.MYTHREAD + k) // xupc.THREADS for k in (0, 1)))
    table[mine] = np.arange(mine.start, mine.stop)
    return table


def node_broadcast(nbytes: int) -> Any:
    """Deliver thread 0's table once per node; thread 0 keeps no private copy."""
    return xupc.node_broadcast(values(nbytes) if xupc.MYTHREAD == 0 else None)


def exchange(nbytes: int) -> Any:
    """Exchange `nbytes` bytes of each thread into a second array."""
    a, b = (xupc.all_alloc(xupc.THREADS * nbytes, "u1", "*") for _ in range(2))
    a.local[:] = xupc.MYTHREAD
    xupc.all_exchange(b, a, nbytes // xupc.THREADS)
    return b, a


def exchange_in_place(nbytes: int) -> Any:
    """Exchange the same bytes in the array that they are in."""
    a = xupc.all_alloc(xupc.THREADS * nbytes, "u1", "*")
    a.local[:] = xupc.MYTHREAD
    xupc.all_exchange(a, None, nbytes // xupc.THREADS)
    return a, None


def check(what: str, data: Any, nbytes: int) -> None:
    """Assert that the data is right, which reads every page."""
    if what.startswith("exchange"):
        blocks = data[0].local.reshape(xupc.THREADS, -1)
        assert (blocks == np.arange(xupc.THREADS)[:, None]).all()
    else:
        assert np.array_equal(data, np.arange(nbytes // 8))


WHAT = {f.__name__: f for f in (private, node_array, node_broadcast, exchange, exchange_in_place)}


def main() -> int:
    """Measure what the arguments name, and print a line of JSON; return 2 if they are wrong."""
    if len(sys.argv) != 3 or sys.argv[1] not in WHAT:
        print(f"usage: memory.py {'|'.join(WHAT)} BYTES", file=sys.stderr)
        return 2
    what, nbytes = sys.argv[1], int(sys.argv[2])
    xupc.init()
    xupc.barrier()
    before = pss()
    xupc.barrier()
    data = WHAT[what](nbytes)
    xupc.barrier()
    check(what, data, nbytes)
    xupc.barrier()
    after = pss()
    xupc.barrier()
    rows = xupc.all_alloc(2 * xupc.THREADS, "i8", 2)
    rows.local[:] = before, after
    xupc.barrier()
    if xupc.MYTHREAD == 0:
        found = np.asarray(rows).reshape(-1, 2)
        grown = int((found[:, 1] - found[:, 0]).sum())
        line = {"what": what, "bytes": nbytes, "threads": xupc.THREADS, "pss": found.tolist()}
        print(json.dumps({**line, "grown": grown, "times": round(grown / nbytes, 3)}))
    xupc.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
