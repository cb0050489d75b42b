"""Time calls in a batch, with one barrier before it."""

from __future__ import annotations

import time
from collections.abc import Callable

from mpi4py import MPI

__all__ = ["batch"]


def batch(call: Callable[[], object], count: int, comm: MPI.Comm) -> float:
    """Return the microseconds of a call: of a batch, after three calls and a barrier."""
    for _ in range(3):
        call()
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6
