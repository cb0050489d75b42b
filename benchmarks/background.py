"""What goes on while a program computes: posted collectives, and one-sided accesses.

    scripts/cluster run -n 2 -- PYTHON benchmarks/background.py overlap [bytes per block]
    scripts/cluster run -n 2 -- PYTHON benchmarks/background.py access

overlap: gather_all on all threads against matrix products of the same length on each; both one
after the other, and the collective posted, the products, then the wait. All three in turn, each
repetition's maximum over the threads; printed are medians of the ratios. And the same with plain
sockets instead of the collective: no library that uses TCP can do with less.

access: thread 0 reads 8 bytes of the last thread's memory again and again, while that is in
numpy, in a loop of Python, asleep, or waits in a barrier. Printed: median, 90th percentile and
the longest, in ms. The first access waits until the other threads are notified to serve accesses.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from mpi4py import MPI

import xupc

ROUNDS = 15
SIDE = 120  # of the matrices
SECONDS = 3.0


def slowest(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes, the maximum over the threads."""
    xupc.barrier()
    begin = time.perf_counter()
    call()
    return float(xupc.allv_reduce_all(time.perf_counter() - begin, xupc.MAX))


def overlapped(post: Callable[[], Callable[[], object]]) -> dict[str, float]:
    """Return how long products and what is posted take alone and together, in ms and as ratios.

    `post` returns a function that waits for the end.
    """
    a = np.random.default_rng(1).random((SIDE, SIDE))

    def move() -> None:
        post()()

    def work(times: int) -> None:
        for _ in range(times):
            a @ a

    for _ in range(3):
        move()
    goal = float(np.median([slowest(move) for _ in range(5)]))
    times = 1
    while slowest(partial(work, times)) < goal:
        times += max(1, times // 4)

    def both() -> None:
        finish = post()
        work(times)
        finish()

    both()
    rows = np.array(
        [[slowest(move), slowest(partial(work, times)), slowest(both)] for _ in range(ROUNDS)]
    )
    longer, total = rows[:, :2].max(1), rows[:, :2].sum(1)
    return {
        "moved in ms": 1e3 * float(np.median(rows[:, 0])),
        "products ms": 1e3 * float(np.median(rows[:, 1])),
        "together / longer": float(np.median(rows[:, 2] / longer)),
        "together / sum": float(np.median(rows[:, 2] / total)),
    }


def overlap(nbytes: int) -> dict[str, float]:
    """Measure the overlap of gather_all."""
    threads = int(xupc.THREADS)
    src = xupc.all_alloc(threads * nbytes, np.uint8, nbytes)
    dst = xupc.all_alloc(threads * threads * nbytes, np.uint8, threads * nbytes)
    flags = xupc.ASYNC
    return overlapped(lambda: xupc.all_gather_all(dst, src, nbytes, flags).wait)


def sockets(nbytes: int) -> dict[str, float]:
    """Measure the overlap of sockets: as many bytes to the next thread and from the one before.

    Two threads of the process sleep in the kernel meanwhile: what is left is the price of TCP.
    """
    threads, me = int(xupc.THREADS), int(xupc.MYTHREAD)
    listener = socket.create_server((socket.gethostname(), 0))
    addresses = MPI.COMM_WORLD.allgather(listener.getsockname())
    out = socket.create_connection(addresses[(me + 1) % threads])
    into, _ = listener.accept()
    there, here = bytes(nbytes), memoryview(bytearray(nbytes))

    def receive() -> None:
        got = 0
        while got < nbytes:
            got += into.recv_into(here[got:])

    with listener, out, into, ThreadPoolExecutor(2) as pool:

        def post() -> Callable[[], object]:
            return partial(wait, [pool.submit(out.sendall, there), pool.submit(receive)])

        return overlapped(post)


def access(doing: str) -> dict[str, float]:
    """Return the ms of reads of 8 bytes from a thread that does something else, on thread 0."""
    threads, me = int(xupc.THREADS), int(xupc.MYTHREAD)
    array = xupc.all_alloc(threads, np.int64, 1)
    array.local[:] = me
    xupc.barrier()
    end = time.monotonic() + SECONDS
    took: list[float] = []
    if me == 0:
        while time.monotonic() < end - 0.3:
            begin = time.perf_counter()
            assert array[threads - 1] == threads - 1
            took.append(1e3 * (time.perf_counter() - begin))
            time.sleep(1e-3)
    elif me == threads - 1:
        a, count = np.random.default_rng(1).random((300, 300)), 0
        while doing != "a barrier" and time.monotonic() < end:
            if doing == "numpy":
                a @ a
            elif doing == "Python":
                count += 1
            else:
                time.sleep(end - time.monotonic())
    xupc.barrier()
    if not took:
        return {}
    return {
        "median": float(np.median(took)),
        "90 %": float(np.percentile(took, 90)),
        "longest": max(took),
        "accesses": len(took),
    }


def main(what: str, nbytes: int = 4_000_000) -> None:
    """Print one line of JSON for each measurement."""
    with xupc.init() as team:
        place = {"threads": team.size, "nodes": len(team.tree.nodes)}
        if what == "overlap":
            found = [(way.__name__, way(int(nbytes))) for way in (overlap, sockets)]
        else:
            found = [(doing, access(doing)) for doing in ("numpy", "Python", "sleep", "a barrier")]
        for name, figures in found:
            if team.rank == 0:
                rounded = {k: round(v, 3) for k, v in figures.items()}
                print(json.dumps({"what": name, **place, **rounded}), flush=True)


main(*sys.argv[1:])
