"""Measure the methods of the drop-in communicator beside mpi4py's.

``python -m xupc.bench.drop_in_probe SETTINGS`` is a job that does only this. SETTINGS is an object
of JSON: `cells`, methods and bytes of a block; `seconds` for all of them. Thread 0 prints the place
and the times as JSON. In each cell mpi4py, xupc and mpi4py again take turns; a time is that of the
slowest thread.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.bench.drop_in_calls import Call, near_of, ways
from xupc.tuning.selection import Place

__all__ = ["PLAIN", "batch", "measured"]

PLAIN = MPI.COMM_WORLD
NAMES = "mpi", "xupc", "again"
LEAST_TURNS, TURNS = 3, 9
BATCHES = 24
"""The parts of a cell's time, of which a batch of calls takes one."""
LONGEST = 5e-3  # seconds of a batch
MOST_CALLS = 100
WARM = 3  # calls before the first batch
ROOM = 64 << 20
"""Bytes: a cell whose threads need more than this for one buffer is left out."""


def batch(call: Call, comm: Any, calls: int) -> float:
    """Return the microseconds of a call, from a batch of them."""
    PLAIN.Barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call(comm)
    return (time.perf_counter() - begin) / calls * 1e6


def measured(call: Call, pair: Sequence[Any], seconds: float) -> dict[str, list[float]]:
    """Return the times of mpi4py's call, of xupc's, and of mpi4py's again.

    Parameters
    ----------
    pair
        mpi4py's communicator and the drop-in communicator.
    seconds
        The time for the turns; there are three or more.
    """
    deadline = time.monotonic() + seconds
    for comm in pair:
        batch(call, comm, WARM)
    guess = PLAIN.allreduce(batch(call, pair[0], 2), MPI.MAX)
    calls = max(2, min(MOST_CALLS, int(min(LONGEST, seconds / BATCHES) * 1e6 / guess)))
    turns: list[list[float]] = []
    while len(turns) < TURNS and (len(turns) < LEAST_TURNS or goes_on(deadline)):
        turns.append([batch(call, comm, calls) for comm in (*pair, pair[0])])
    slowest = np.empty((len(turns), len(NAMES)))
    PLAIN.Allreduce(np.array(turns), slowest, MPI.MAX)
    return {name: slowest[:, k].tolist() for k, name in enumerate(NAMES)}


def goes_on(deadline: float) -> bool:
    """Return on all threads whether thread 0 has time left."""
    left = np.array([time.monotonic() < deadline])
    PLAIN.Bcast(left)
    return bool(left[0])


def usable(cells: Sequence[tuple[str, int]], drop_in: Any) -> list[tuple[str, int]]:
    """Return the cells that xupc can carry here, and that have room."""
    nonblocking = not drop_in._counts().no_requests
    return [
        (method, nbytes) for method, nbytes in cells
        if nbytes * PLAIN.size <= ROOM and (nonblocking or not method.startswith("I"))
    ]  # fmt: skip


def main(settings: dict[str, Any]) -> None:
    """Measure the cells in turn until the time is up; print the result on thread 0."""
    os.environ["XUPC_COMM"] = "force"
    drop_in = xupc.Comm(PLAIN)
    drop_in.Barrier()
    record = drop_in._counts()
    if record.team is None:
        raise RuntimeError(f"the communicator has no team of xupc: {record.refused}")
    near = near_of(PLAIN)
    pairs = {True: (near, xupc.Comm(near)), False: (PLAIN, drop_in)}
    cells = usable([tuple(cell) for cell in settings["cells"]], drop_in)
    began, found = time.monotonic(), []
    deadline = began + settings["seconds"]
    for done, (method, nbytes) in enumerate(cells):
        if not goes_on(deadline):
            break
        pair = pairs[method.startswith("Neighbor")]
        calls = ways(method, nbytes, pair[0])
        share = max(0.0, deadline - time.monotonic()) / (len(cells) - done) / len(calls)
        share = PLAIN.bcast(share)
        for way, call in calls.items():
            times = measured(call, pair, share)
            found.append({"method": method, "nbytes": nbytes, "way": way, "times": times})
    if PLAIN.rank == 0:
        place = record.team.state.place
        about = {name: getattr(place, name) for name in Place.__match_args__}
        left = [cell for cell in cells if cell not in {(f["method"], f["nbytes"]) for f in found}]
        seconds = time.monotonic() - began
        print(json.dumps({"place": about, "cells": found, "left": left, "seconds": seconds}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
