"""Clocks of several machines, compared.

On one machine all threads read the same monotonic clock. Between machines offsets are estimated
by ping-pong along a binomial tree of the machines' first threads, so that it takes a number of
rounds that is logarithmic in theirs: of many exchanges the quickest one counts, and half of its
round trip is how far its estimate may be off. Uncertainties add up along the tree. Taken before
and after a launch, offsets are interpolated between, which covers a drift.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Offset", "compare", "interpolated"]

PINGS = 50
TAG = 71


@dataclass(frozen=True)
class Offset:
    """The offset to add to my clock to get the first thread's clock.

    Attributes
    ----------
    at
        The time of the measurement, by my clock.
    ns, uncertainty
        The offset and the bound of its error.
    """

    at: int
    ns: float
    uncertainty: float


def compare(comm: Any, machines: list[int]) -> Offset:
    """Return my clock's offset; collective.

    Parameters
    ----------
    comm : mpi4py communicator
        A communicator of all threads.
    machines : list of int
        For each thread, the first thread of its machine.
    """
    roots = sorted(set(machines))
    me = comm.Get_rank()
    found = np.zeros(2)
    if machines[me] == me:
        found[:] = _along_tree(comm, roots, roots.index(me))
    # the others have their machine's clock
    local = comm.Split(machines[me], me)
    request = local.Ibcast(found)
    while not request.Test():
        time.sleep(1e-4)
    local.Free()
    return Offset(time.perf_counter_ns(), float(found[0]), float(found[1]))


def _along_tree(comm: Any, roots: list[int], number: int) -> tuple[float, float]:
    """Return (offset, uncertainty) against the first machine; those that know theirs send it on."""
    offset = uncertainty = 0.0
    step = 1
    while step < len(roots):
        if number < step and number + step < len(roots):
            _answer(comm, roots[number + step], offset, uncertainty)
        elif step <= number < 2 * step:
            offset, uncertainty = _ask(comm, roots[number - step])
        step *= 2
    return offset, uncertainty


def _answer(comm: Any, other: int, offset: float, uncertainty: float) -> None:
    """Answer the pings of another machine with my clock; then send it my offset and its error."""
    question, clock = np.zeros(1), np.zeros(1, np.int64)
    for _ in range(PINGS):
        comm.Recv(question, other, TAG)
        clock[0] = time.perf_counter_ns()
        comm.Send(clock, other, TAG)
    comm.Send(np.array([offset, uncertainty]), other, TAG)


def _ask(comm: Any, other: int) -> tuple[float, float]:
    question, clock, known = np.zeros(1), np.zeros(1, np.int64), np.zeros(2)
    best, offset = np.inf, 0.0
    for _ in range(PINGS):
        begin = time.perf_counter_ns()
        comm.Send(question, other, TAG)
        comm.Recv(clock, other, TAG)
        end = time.perf_counter_ns()
        if end - begin < best:
            best, offset = float(end - begin), float(int(clock[0]) - (begin + end) // 2)
    comm.Recv(known, other, TAG)
    return offset + float(known[0]), best / 2 + float(known[1])


def interpolated(before: Offset, after: Offset, at: np.ndarray[Any, Any]) -> Any:
    """Return times by my clock as the first thread's clock has them."""
    span = max(1, after.at - before.at)
    share = (at - before.at) / span
    return at + np.rint(before.ns + share * (after.ns - before.ns)).astype(np.int64)
