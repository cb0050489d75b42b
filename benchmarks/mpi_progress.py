"""The speed of MPI work whose other side waits: in `MPI.Barrier`, and in `xupc.barrier`.

    python benchmarks/mpi_progress.py PY [--before FOLDER] [--rounds 11] [--only WORD]

PY is the interpreter of an environment with the MPI to be measured. Thread 0 starts the work and
waits in the barrier; thread 1 sleeps for 0.3 s, does its part of the work, which needs thread 0's
progress, and prints the time that this took. Each round launches every way once, in turn:
`MPI.Barrier`, xupc of FOLDER (a checkout whose core is built in place), and xupc of this checkout.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

HERE = Path(__file__).resolve().parent.parent
SLEEP = 0.3  # seconds until thread 1 begins: thread 0 waits by then


def many_sends(comm: Intracomm, barrier: Callable[[], None]) -> float:
    """Send 20,000 messages of 4 KiB."""
    import numpy as np
    from mpi4py import MPI

    data = np.zeros(4096, np.uint8)
    if comm.rank == 0:
        requests = [comm.Isend(data, 1) for _ in range(20000)]
        barrier()
        MPI.Request.Waitall(requests)
        return 0.0
    time.sleep(SLEEP)
    begin = time.perf_counter()
    for _ in range(20000):
        comm.Recv(data, 0)
    took = time.perf_counter() - begin
    barrier()
    return took


def accumulate(comm: Intracomm, barrier: Callable[[], None]) -> float:
    """Add 64 Ki doubles to the other thread's window 50 times."""
    import numpy as np
    from mpi4py import MPI

    window = MPI.Win.Create(np.zeros(1 << 16), 8, comm=comm)
    took = 0.0
    if comm.rank == 1:
        time.sleep(SLEEP)
        data = np.ones(1 << 16)
        begin = time.perf_counter()
        window.Lock(0)
        for _ in range(50):
            window.Accumulate(data, 0)
            window.Flush(0)
        window.Unlock(0)
        took = time.perf_counter() - begin
    barrier()
    window.Free()
    return took


def strided_send(comm: Intracomm, barrier: Callable[[], None]) -> float:
    """Send every other one of 2 Mi doubles."""
    import numpy as np
    from mpi4py import MPI

    count = 1 << 20
    if comm.rank == 0:
        every_other = MPI.DOUBLE.Create_vector(count, 1, 2).Commit()
        request = comm.Isend([np.zeros(2 * count), 1, every_other], 1)
        barrier()
        request.Wait()
        return 0.0
    time.sleep(SLEEP)
    room = np.zeros(count)
    begin = time.perf_counter()
    comm.Recv(room, 0)
    took = time.perf_counter() - begin
    barrier()
    return took


WORK = {"sends": many_sends, "accumulate": accumulate, "strided": strided_send}


def run_rank(work: str, way: str) -> None:
    """Do the work on this rank, and print what thread 1 measured."""
    from mpi4py import MPI

    import xupc

    barrier: Callable[[], None] = MPI.COMM_WORLD.Barrier
    if way != "MPI":
        xupc.init()
        barrier = xupc.barrier
    MPI.COMM_WORLD.Barrier()
    took = WORK[work](MPI.COMM_WORLD, barrier)
    if MPI.COMM_WORLD.rank == 1:
        print("seconds", took, flush=True)
    if way != "MPI":
        xupc.finalize()


def launch(python: str, folder: Path, work: str, way: str) -> float:
    """Start a job of two ranks and return the seconds that thread 1 printed."""
    mpiexec = Path(python).with_name("mpiexec")
    options = ["--allow-run-as-root"] if Path(python).with_name("ompi_info").exists() else []
    command = [str(mpiexec), *options, "-n", "2", python, __file__, "--rank", work, way]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(folder)}, cwd="/", timeout=60, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return next(float(line.split()[1]) for line in done.stdout.splitlines() if "seconds" in line)


def main() -> None:
    """Launch all ways in turn and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("python")
    options.add_argument("--before", type=Path)
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--only", choices=WORK)
    chosen = options.parse_args()
    ways = {"MPI": HERE, **({"before": chosen.before} if chosen.before else {}), "xupc": HERE}
    for work in [chosen.only] if chosen.only else list(WORK):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(chosen.rounds):
            for way, folder in ways.items():
                times[way].append(launch(chosen.python, folder, work, way))
        base = statistics.median(times["MPI"])
        for way, found in times.items():
            low, middle, high = statistics.quantiles(found, n=4)
            ratios = " ".join(f"{value / base:.2f}" for value in (middle, low, high))
            print(
                f"{work:10} {way:6} {middle * 1e3:8.1f} ms, of MPI's median: {ratios}", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(*sys.argv[2:])
    else:
        main()
