"""Jobs that are suspended for longer than the limit of waits: ``suspended.py CASE SECONDS``.

Thread 1 has all threads stopped for so many seconds while it is late.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from support.cases import case, run_case
from support.launch import TEST_TAG
from support.polling import until

import xupc
from xupc.cli.processes import tagged

IS_THREAD_1 = "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK"))
LATE = 0.5  # seconds of the others' wait before and after


def _others() -> list[int]:
    """Return the process ids of the other threads: those of the job with this command line."""
    own = _command_line("self")
    of_job = tagged(TEST_TAG, os.environ[TEST_TAG])
    return [pid for pid in of_job if _command_line(pid) == own]


def _command_line(pid: int | str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def suspend_all(seconds: float) -> None:
    """Stop all three threads while the other two wait."""
    until(lambda: len(_others()) == 2, "the other threads")
    time.sleep(LATE)
    pids = " ".join(map(str, [*_others(), os.getpid()]))
    script = f"kill -STOP {pids}; sleep {seconds}; kill -CONT {pids}"
    subprocess.run(["sh", "-c", script], check=True)
    time.sleep(LATE)


@case
def before_init(seconds: str) -> None:
    if IS_THREAD_1:
        suspend_all(float(seconds))
    xupc.init()
    done()


@case
def in_init(seconds: str) -> None:
    from xupc.runtime import job

    name = "prove_memory"
    kept = getattr(job, name)

    def late(*args: Any) -> Any:
        if IS_THREAD_1:
            suspend_all(float(seconds))
        return kept(*args)

    setattr(job, name, late)
    xupc.init()
    done()


@case
def in_a_call(seconds: str) -> None:
    xupc.init()
    if IS_THREAD_1:
        suspend_all(float(seconds))
    xupc.barrier()
    done()


@case
def in_a_call_of_mpi(seconds: str) -> None:
    """MPI carries the call, as `SOME_BY_MPI` says."""
    from mpi4py import MPI

    comm = xupc.Comm(MPI.COMM_WORLD)
    xupc.init()
    comm.Allreduce(np.zeros(8), np.zeros(8))
    if IS_THREAD_1:
        suspend_all(float(seconds))
    comm.Barrier()
    done()


def done() -> None:
    """Print that this thread has ended its calls, and end xupc."""
    print("done", flush=True)
    xupc.finalize()


run_case()
