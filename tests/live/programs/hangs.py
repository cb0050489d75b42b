"""Threads that do not come to init or to a barrier: ``hangs.py CASE [ARGUMENT]``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from support.cases import case, run_case
from support.polling import await_file

import xupc

IS_THREAD_1 = "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK"))


@case
def numbers_in_a_broken_job(folder: str) -> None:
    """Thread 0 comes when the other one has raised, and knows its numbers."""
    team = xupc.init()
    named = Path(folder, "named")
    if team.rank == 0:
        await_file(named)
    try:
        xupc.barrier()
    except xupc.HangError:
        print(f"I am {xupc.MYTHREAD} of {xupc.THREADS}", flush=True)
        named.touch()
        raise


@case
def stops_before_init() -> None:
    if IS_THREAD_1:
        os.kill(os.getpid(), signal.SIGSTOP)
    xupc.init()


@case
def stops_in_init(stage: str) -> None:
    """Thread 1 stops in a stage of init, a function that none watches for as long as usual."""
    from xupc.health import init_watchdog
    from xupc.runtime import job

    init_watchdog.UNWATCHED = 1.0
    kept = getattr(job, stage)

    def stops(*args: Any) -> Any:
        if IS_THREAD_1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return kept(*args)

    setattr(job, stage, stops)
    xupc.init()


run_case()
