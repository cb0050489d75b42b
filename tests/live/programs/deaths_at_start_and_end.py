"""Threads that leave init by an error, or are slow to finalize: ``... CASE [FOLDER]``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.cases import case, run_case
from support.handshakes import index_of
from support.polling import await_file, until

import xupc
from xupc.runtime.job import Job


@case
def error_out_of_init() -> None:
    """All raise it; thread 0 late, while its deadline looks at the others' locks."""
    place = Job._agree_place

    def full(job: Job) -> None:
        place(job)
        if job.info.me == 0:
            time.sleep(1)  # several looks of the thread that watches init, after the others' end
        raise xupc.HeapError("no room")

    Job._agree_place = full  # type: ignore[method-assign, assignment]
    try:
        xupc.init()
    except xupc.HeapError:
        print("raised", flush=True)
    os._exit(7)


@case
def slow_finalize(folder: str) -> None:
    """Thread 1 is gone, as its lock shows, when thread 0 is still on its way out."""
    team = xupc.init()
    job, own = team.job, team.job.control
    ended = Path(folder, "ended")
    if team.rank == 0:
        free, first = job.network.free, index_of(1)

        def slow() -> None:
            until(lambda: own.process_of(first) is None, "thread 1's lock is free")
            time.sleep(0.8)  # several looks of the failure detector, which must see no death
            free()

        job.network.free = slow
    xupc.finalize()
    if team.rank == 0:
        ended.touch()
    if team.rank == 1:
        until(lambda: own.segment.fd < 0, "the daemon thread closes the segment")
        await_file(ended)


run_case()
