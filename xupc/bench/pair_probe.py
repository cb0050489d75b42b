"""Measure what passes between two threads of a node: a cache line, and blocks of two lengths.

Where the node has levels, each is measured by a pair of threads whose narrowest common domain is on
that level. The keys end with its name:

=======================  =======================================================================
line latency ns, LEVEL   half a round trip of an integer from core to core
cached copy rate, LEVEL  bytes per second at which one thread copies a block of 256 KiB that the
                         other one has just written
copy rate, LEVEL         the same of a block that is longer than the caches, in memory that the
                         other one has touched first
=======================  =======================================================================
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import xupc
from xupc.backends.native.lowering import lower
from xupc.backends.native.native_core import core
from xupc.backends.wait import DONE, PENDING
from xupc.plan.plan import Plan
from xupc.plan.recorder import Recorder, trace
from xupc.topology import host
from xupc.topology.levels import NodeLevels
from xupc.topology.tree import Tree

from . import network_probe

__all__ = ["CACHED", "bounce", "by_level", "copy_rate", "line_latency", "pairs_of"]

ROUND_TRIPS = 100  # in one sample
SAMPLES = 51
SPINS = 100_000
LINE = 64
FIRST_SECONDS, LINE_SECONDS = 2.0, 0.3  # for the first sample, and for all others, if it is busy
CACHED = 256 << 10  # bytes of a block that caches hold
COPIES = 11
COPY_SECONDS = 0.2  # for all copies of a block, after the first three


def pairs_of(levels: NodeLevels) -> dict[str, tuple[int, int]]:
    """Return two threads for each level, whose narrowest common domain is on it.

    Threads count inside the node. A level has none if each of its domains is one of the next level.
    """
    found = {}
    narrower = [level.root_of for level in levels.levels[1:]] + [tuple(range(levels.size))]
    for level, below in zip(levels.levels, narrower, strict=True):
        for domain in level.domains:
            first = domain[0]
            other = next((thread for thread in domain if below[thread] != below[first]), None)
            if other is not None:
                found[level.name] = first, other
                break
    return found


def by_level(
    team: xupc.Team, comm: MPI.Intracomm, node: tuple[int, ...], nbytes: int | None
) -> dict[str, float | None]:
    """Return the figures of each level of a node, on its threads; collective.

    Parameters
    ----------
    team, comm
        All threads, in the same order.
    node
        The threads of the node.
    nbytes
        The length of a block that is longer than the caches; None: there is no room for it.
    """
    levels = team.tree.levels(team.tree.node_of(node[0]))
    found: dict[str, float | None] = {}
    if levels.is_flat:
        return found
    for name, (first, other) in pairs_of(levels).items():
        pair = node[first], node[other]
        found[f"line latency ns, {name}"] = line_latency(team, comm, *pair)
        found[f"cached copy rate, {name}"] = copy_rate(team, comm, *pair, CACHED)
        if nbytes:
            found[f"copy rate, {name}"] = copy_rate(team, comm, *pair, nbytes)
    return found


# --- copying --------------------------------------------------------------------------------------


def copy_rate(
    team: xupc.Team, comm: MPI.Intracomm, reader: int, writer: int, nbytes: int
) -> float | None:
    """Return bytes per second at which `reader` copies what `writer` has written; collective.

    The two threads are bound to a core each meanwhile; None if they have one core.
    """
    block = xupc.node_array(nbytes, np.uint8)  # none of its pages is in use yet
    pair = comm.Split(0 if team.rank in (reader, writer) else MPI.UNDEFINED, team.rank == writer)
    found = None
    if pair:
        with on_two_cores(pair) as bound:
            found = _copied(pair, block) if bound else None
        pair.Free()
    network_probe.wait_quietly(comm)
    rate: float | None = comm.bcast(found, root=reader)
    return rate


def _copied(pair: MPI.Comm, block: NDArray[np.uint8]) -> float:
    """Return the rate of rank 0, which copies what rank 1 writes."""
    reads = pair.rank == 0
    private = np.zeros(len(block) if reads else 0, np.uint8)
    times: list[int] = []
    deadline = time.monotonic() + COPY_SECONDS
    while pair.bcast(len(times) < 3 or (len(times) < COPIES and time.monotonic() < deadline)):
        if not reads:
            block[:] = len(times) + 1
        pair.Barrier()
        begin = time.perf_counter_ns()
        if reads:
            np.copyto(private, block)
        times.append(time.perf_counter_ns() - begin)
    return len(block) / statistics.median(times) * 1e9


# --- a cache line ---------------------------------------------------------------------------------


def line_latency(team: xupc.Team, comm: MPI.Intracomm, first: int, second: int) -> float | None:
    """Return half a round trip of signals between two threads of a node; collective.

    The native core runs a plan of signals and waits, without Python in between. It uses a separate
    sync area, and spins there even where the library's own waits would sleep. Meanwhile each of the
    two threads is bound to one core; None if they have one core, and without the native core. The
    result is that of `first`.
    """
    if not team.native:
        return None
    area = xupc.node_array(core.sync_bytes(2) + 2 * LINE, np.uint8)
    found = None
    pair = comm.Split(0 if team.rank in (first, second) else MPI.UNDEFINED, team.rank == second)
    if pair:
        with on_two_cores(pair) as bound:
            found = bounce(area, pair.rank) if bound else None
        pair.Free()
    network_probe.wait_quietly(comm)
    latency: float | None = comm.bcast(found, root=first)
    return latency


@contextlib.contextmanager
def on_two_cores(pair: MPI.Comm) -> Iterator[bool]:
    """Bind each of two threads to a core of its own, where the system can do that.

    Yields False, and binds neither, if they have one core.
    """
    before = host.affinity()
    cores = host.two_cores(*pair.allgather(before))
    bind = cores is not None and hasattr(os, "sched_setaffinity")
    if cores is not None and bind:
        os.sched_setaffinity(0, {cores[pair.rank]})
    try:
        yield cores is not None
    finally:
        if bind:
            os.sched_setaffinity(0, before)


def round_trips(t: Recorder, count: int) -> None:
    """Record `count` round trips: thread 0 signals, and thread 1 answers."""
    channel = t.channel()
    other = 1 - t.me
    for turn in range(1, count + 1):
        if t.me == 0:
            t.signal_thread(channel, other, turn)
            t.wait_for_thread(channel, other, turn)
        else:
            t.wait_for_thread(channel, other, turn)
            t.signal_thread(channel, other, turn)


def round_trip_plan(me: int, count: int) -> tuple[Plan, Tree]:
    """Return the plan of one of the two threads, without barriers, and their tree."""
    tree = Tree(np.zeros(2, np.int32))
    return trace(round_trips, "pull", "line", me, tree, ("no", "no"), {}, (count,)), tree


def bounce(
    area: NDArray[np.uint8], me: int, *, spins: int = SPINS, yields: int = 0
) -> float | None:
    """Return the median over samples of half a round trip, in ns; None if the other one never came.

    `spins`, `yields`: looks at a line, and yields of the core after them, before a wait ends.
    """
    address = area.ctypes.data
    report = address + core.sync_bytes(2) + me * LINE  # instead of the job's own status line
    group = core.Team(address, 2, me, report, False, False, False, spins, yields, 0, 0, 0, area)
    plan, tree = round_trip_plan(me, ROUND_TRIPS)
    instance = core.Instance(group, core.Program(lower(plan, tree)), (), (), 0, 0, None)
    times: list[int] = []
    deadline = time.monotonic() + FIRST_SECONDS
    for _ in range(SAMPLES):
        if len(times) == 1:
            deadline = time.monotonic() + LINE_SECONDS
        begin = time.perf_counter_ns()
        instance.begin()
        while (status := instance.run(0)) == PENDING:
            if time.monotonic() > deadline:
                break
        if status != DONE:
            break
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / (2 * ROUND_TRIPS) if times else None
