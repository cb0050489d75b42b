"""Measure what a call that MPI carries costs on the drop-in communicator beyond mpi4py's own call.

    python benchmarks/given_calls.py [ROUNDS]

One thread makes calls of 8 bytes on four communicators in turn: mpi4py's, one in its warm-up, one
whose table gives the method to MPI, and one whose table gives this size to MPI. Printed are the
time of mpi4py's call and the differences, in nanoseconds: each the least of ROUNDS batches of 20
calls, which other jobs disturb little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.mpi.repeated import form_of

CALLS = 20
A, B = np.zeros(1), np.zeros(1)
ROWS: dict[str, tuple[Any, ...]] = {
    "Barrier()": (), "Bcast(A)": (A,), "Bcast([A, DOUBLE])": ([A, MPI.DOUBLE],),
    "Allreduce(A, B)": (A, B), "Allreduce(A, B, MAX)": (A, B, MPI.MAX),
    "Scatter(A, B, 0)": (A, B, 0), "bcast(3)": (3,),
}  # fmt: skip
WAYS = "warm-up", "method", "size"


def given(way: str, name: str, *arguments: Any) -> Any:
    """Return a communicator whose calls of a method MPI carries, for a reason."""
    comm = xupc.Comm(MPI.COMM_WORLD.Dup())
    record = comm._counts()
    if way != "warm-up":
        record.left = 0
    if way == "method":
        record.give_method(form_of(name), "table")
    elif way == "size":
        record.learn_given(form_of(name), arguments, {}, 0, 8, "table")
    return comm


def batches(call: str, comm: Any) -> Callable[[], float]:
    """Return a function that makes a batch of calls and returns nanoseconds of one.

    Each communicator has code of its own: Python keeps in it how it found the method.
    """
    names = {"comm": comm, "A": A, "B": B, "DOUBLE": MPI.DOUBLE, "MAX": MPI.MAX, "N": CALLS}
    code = f"def calls():\n for _ in range(N):\n  comm.{call}\n"
    exec(code, names)
    calls = names["calls"]

    def batch() -> float:
        begin = time.perf_counter_ns()
        calls()
        return (time.perf_counter_ns() - begin) / CALLS

    return batch


def main(rounds: int) -> None:
    """Print a row for each call."""
    print(f"{'call':22}{'mpi4py':>8}" + "".join(f"{way:>9}" for way in WAYS))
    for call, arguments in ROWS.items():
        name = call.partition("(")[0]
        by_size = name not in ("Barrier", "bcast")
        comms = [MPI.COMM_WORLD, *(given(way, name, *arguments) for way in WAYS[: 2 + by_size])]
        each = [batches(call, comm) for comm in comms]
        least = np.min([[batch() for batch in each] for _ in range(rounds)], axis=0)
        more = "".join(f"{ns - least[0]:+9.0f}" for ns in least[1:])
        print(f"{call:22}{least[0]:8.0f}{more}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
