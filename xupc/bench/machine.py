"""Measure the machine's rates and latencies, to which reports compare the collectives.

The measurement runs in the threads of a job, after `xupc.init`. ``python -m xupc.bench.machine`` is
a job that does nothing else and prints the results as JSON. It measures one value at a time, on the
largest node (the first one of equals), while all threads without a part in it sleep. The keys are
those of `Job.bounds`:

==================  ============================================================================
copy rate           bytes per second that one thread copies from private memory to private memory
                    (numpy's copy, hence the C library's memcpy); each byte is read once and
                    written once and counts once. The block is twice the last-level cache: one
                    that is still in a cache is copied faster.
node copy rate      the same by all threads of the node at once, together; missing if it has one
line latency ns     half a round trip of an integer between two cores of the node: one thread stores
                    to its own cache line; the other one spins on that line, reads the new value
                    and stores to its own line. Missing without the native core, with one
                    thread on the node, or with one core for them.
wire rate           bytes per second from one node root to another by MPI, 32 KiB a message
wire latency ns     half a round trip of 8 bytes between two node roots by MPI; both missing on one
                    node
==================  ============================================================================

Each is a median. A copy rate is missing where there is not enough memory for such blocks.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator

import numpy as np
import psutil
from mpi4py import MPI
from numpy.typing import NDArray

import xupc
from xupc.backends.native.lowering import lower
from xupc.backends.native.native_core import core
from xupc.backends.wait import DONE, PENDING
from xupc.plan.plan import Plan
from xupc.plan.recorder import Recorder, trace
from xupc.topology import host
from xupc.topology.tree import Tree

from . import network_probe

__all__ = ["measure"]

CACHE = 32 << 20  # where the system does not say
LEAST_BLOCK, MOST_BLOCK = 8 << 20, 256 << 20
MEMORY_SHARE = 0.25  # of what is free may be taken for blocks
LEAST_COPIES, COPIES = 3, 11
COPY_SECONDS = 0.2  # for all copies, after the least
ROUND_TRIPS = 100  # in one sample
SAMPLES = 51
SPINS = 100_000
LINE = 64
LINE_SECONDS = 0.3  # for all samples, on a busy machine


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, float]:
    """The bounds of this job, on every thread; collective, takes about a second.

    Parameters
    ----------
    team : Team
        All threads.
    comm : mpi4py.MPI.Intracomm
        The same threads in the same order, as it was given to `xupc.init`.
    """
    node = max(team.tree.nodes, key=len)
    found: dict[str, float | None] = {}
    if team.rank == node[0]:
        found["copy rate"] = copy_rate(MPI.COMM_SELF)
    network_probe.wait_quietly(comm)
    if len(node) > 1:
        mates = comm.Split(0 if team.rank in node else MPI.UNDEFINED, team.rank)
        if mates:
            found["node copy rate"] = copy_rate(mates)
            mates.Free()
        network_probe.wait_quietly(comm)
        found["line latency ns"] = line_latency(team, comm, node)
    found = comm.bcast(found, root=node[0])
    if team.tree.node_count > 1:
        times = network_probe.measure(team, comm)
        found["wire rate"] = times["stream bytes"] / statistics.median(times["stream ns"]) * 1e9
        found["wire latency ns"] = statistics.median(times["latency ns"])
    return {key: float(value) for key, value in found.items() if value}


# --- copying --------------------------------------------------------------------------------------


def copy_rate(comm: MPI.Comm) -> float | None:
    """Bytes per second of all threads of `comm` together, which share a machine; None: no room."""
    nbytes: int | None = comm.bcast(block_bytes(comm.size) if comm.rank == 0 else None)
    if nbytes is None:
        return None
    src, dst = np.full(nbytes, 1, np.uint8), np.full(nbytes, 2, np.uint8)
    times: list[tuple[int, int]] = []  # begin and end of each copy; one clock for all on a machine
    deadline = time.monotonic() + COPY_SECONDS
    while len(times) < COPIES:
        if not comm.bcast(len(times) < LEAST_COPIES or time.monotonic() < deadline):
            break
        comm.Barrier()
        begin = time.monotonic_ns()
        np.copyto(dst, src)
        times.append((begin, time.monotonic_ns()))
    every = np.array(comm.allgather(times))
    took = every[:, :, 1].max(axis=0) - every[:, :, 0].min(axis=0)
    return comm.size * nbytes / float(np.median(took)) * 1e9


def block_bytes(threads: int) -> int | None:
    """Of each thread's block, so that caches hold little of all; None if memory is short."""
    caches = host.caches()
    own = max(caches.values(), default=CACHE)
    wanted = 2 * own if threads == 1 else 2 * max(own, sum(caches.values())) // threads
    nbytes = min(max(wanted, LEAST_BLOCK), MOST_BLOCK)
    free = psutil.virtual_memory().available
    room = min(free, host.memory_limit() or free) * MEMORY_SHARE
    return nbytes if 2 * nbytes * threads <= room else None


# --- a cache line ---------------------------------------------------------------------------------


def line_latency(team: xupc.Team, comm: MPI.Intracomm, node: tuple[int, ...]) -> float | None:
    """Return half a round trip of signals between the node's first two threads; collective.

    The native core runs a plan of signals and waits, without Python in between. It uses a separate
    sync area, and spins there even where the library's own waits would sleep. Meanwhile each of the
    two threads is bound to one core.
    """
    if not team.native:
        return None
    area = xupc.node_array(core.sync_bytes(2) + 2 * LINE, np.uint8)
    found = None
    if team.rank in node[:2]:
        me = node.index(team.rank)
        cores = host.affinity()
        theirs = comm.sendrecv(cores, node[1 - me])
        pair = host.two_cores(*((cores, theirs) if me == 0 else (theirs, cores)))
        if pair is not None:
            with bound_to(pair[me]):
                found = bounce(area, me)
    network_probe.wait_quietly(comm)
    return found


@contextlib.contextmanager
def bound_to(core_number: int) -> Iterator[None]:
    """Run on one processor alone, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core_number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def round_trips(t: Recorder, count: int) -> None:
    """Thread 0 signals and thread 1 answers, again and again."""
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
    """The plan of one of the two threads, without barriers, and their tree."""
    tree = Tree(np.zeros(2, np.int32))
    return trace(round_trips, "pull", "line", me, tree, ("no", "no"), {}, (count,)), tree


def bounce(area: NDArray[np.uint8], me: int) -> float | None:
    """The median over samples of half a round trip, in ns; None if the other one never came."""
    address = area.ctypes.data
    report = address + core.sync_bytes(2) + me * LINE  # instead of the job's own status line
    group = core.Team(address, 2, me, report, False, False, False, SPINS, 0, 0, 0, 0, area)
    plan, tree = round_trip_plan(me, ROUND_TRIPS)
    instance = core.Instance(group, core.Program(lower(plan, tree)), (), (), 0, 0, None)
    times = []
    deadline = time.monotonic() + LINE_SECONDS
    for _ in range(SAMPLES):
        begin = time.perf_counter_ns()
        instance.begin()
        while (status := instance.run(0)) == PENDING:
            if time.monotonic() > deadline:
                break
        if status != DONE:
            break
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / (2 * ROUND_TRIPS) if times else None


def main() -> None:
    """Measure, and let thread 0 print the result."""
    with xupc.init() as team:
        bounds = measure(team, MPI.COMM_WORLD)
        if team.rank == 0:
            print(json.dumps(bounds), flush=True)


if __name__ == "__main__":
    main()
