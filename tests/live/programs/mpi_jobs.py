"""Programs of mpi4py alone, for the harness and the launcher: ``mpi_jobs.py CASE [ARGUMENT]``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.cases import case, run_case
from support.polling import await_end


@case
def hello() -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    print(f"thread {comm.rank} of {comm.allreduce(1)}")


@case
def hangs() -> None:
    """Thread 1 never comes to the barrier of all."""
    from mpi4py import MPI

    print("before")
    if MPI.COMM_WORLD.rank == 1:
        sleeps()
    waits(MPI.COMM_WORLD)
    print("after")


def sleeps() -> None:
    time.sleep(600)


def waits(comm: object) -> None:
    comm.Barrier()  # type: ignore[attr-defined]


@case
def dies(how: str) -> None:
    """Thread 1 ends in a way, the others well when it has ended."""
    from mpi4py import MPI

    victim = MPI.COMM_WORLD.bcast(os.getpid(), root=1)
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 1:
        if how.startswith("signal"):
            os.kill(os.getpid(), int(how.removeprefix("signal ")))
        if how == "abort":
            MPI.COMM_WORLD.Abort(5)
        os._exit(int(how))
    await_end(victim)
    os._exit(0)


@case
def exits_before_mpi() -> None:
    """Thread 1 never starts MPI."""
    if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
        sys.exit(7)
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


@case
def leaves_a_daemon() -> None:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 0 and os.fork() == 0:
        os.setsid()
        os.closerange(0, 256)
        time.sleep(600)
        os._exit(0)


@case
def exits_one_after_the_other() -> None:
    """Each thread has a status of its own; thread 1 ends when that of thread 0 is known."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    first = MPI.COMM_WORLD.bcast(os.getppid(), root=0)  # it reports the status, then ends
    MPI.Finalize()
    if rank == 1:
        await_end(first)
    os._exit((3, 4)[rank])


@case
def prints_its_words(*words: str) -> None:
    """At once, so that lines of several threads do not mix."""
    os.write(1, f"{list(words)!a}\n".encode())


@case
def prints_its_surroundings(*words: str) -> None:
    print(list(words), os.environ["A"], "B" in os.environ)


@case
def prints_its_nodes() -> None:
    print(os.environ["XUPC_NODES"])


@case
def makes_a_file(path: str) -> None:
    Path(path).touch()


@case
def does_nothing() -> None: ...


@case
def naps() -> None:
    """Print the process id, then sleep for longer than any test takes."""
    from mpi4py import MPI

    os.write(1, f"{os.getpid()} {MPI.COMM_WORLD.rank}\n".encode())
    time.sleep(600)


@case
def sends_a_signal_to_a_job(number: str) -> None:
    """Start `xupc run`, send it the signal, print its status and how many seconds it took."""
    # A shell may have had us ignore SIGINT, as it does for background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = [sys.executable, "-m", "xupc", "run", "-n", "3", __file__, "naps"]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    threads = [int(job.stdout.readline().split()[0]) for _ in range(3)]
    began = time.monotonic()
    job.send_signal(int(number))
    print(job.wait(), time.monotonic() - began)
    for pid in threads:  # after SIGKILL the kernel has notified the launcher, which ends the job
        await_end(pid)


run_case()
