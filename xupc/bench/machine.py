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
..., LEVEL          line latency, copy rate and cached copy rate between two threads whose narrowest
                    common domain is on that level (`xupc.bench.pair_probe`); missing if the node
                    is the only level
==================  ============================================================================

Each is a median. A copy rate is missing where there is not enough memory for such blocks.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import psutil
from mpi4py import MPI

import xupc
from xupc.topology import host

from . import network_probe, pair_probe

__all__ = ["measure", "print_measured"]

CACHE = 32 << 20  # where the system does not say
LEAST_BLOCK, MOST_BLOCK = 8 << 20, 256 << 20
MEMORY_SHARE = 0.25  # of what is free may be taken for blocks
LEAST_COPIES, COPIES = 3, 11
COPY_SECONDS = 0.2  # for all copies, after the least


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, float]:
    """Measure the bounds of this job, on every thread; collective, takes about a second.

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
        found["line latency ns"] = pair_probe.line_latency(team, comm, node[0], node[1])
        found |= pair_probe.by_level(team, comm, node, block_bytes(1))
    found = comm.bcast(found, root=node[0])
    if team.tree.node_count > 1:
        times = network_probe.measure(team, comm)
        found["wire rate"] = times["stream bytes"] / statistics.median(times["stream ns"]) * 1e9
        found["wire latency ns"] = statistics.median(times["latency ns"])
    return {key: float(value) for key, value in found.items() if value}


# --- copying --------------------------------------------------------------------------------------


def copy_rate(comm: MPI.Comm) -> float | None:
    """Return the bytes/s that the threads of `comm`, on one host, copy; None if memory is short."""
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
    """Return the bytes of a block per thread, twice what caches hold; None if memory is short."""
    caches = host.caches()
    own = max(caches.values(), default=CACHE)
    wanted = 2 * own if threads == 1 else 2 * max(own, sum(caches.values())) // threads
    nbytes = min(max(wanted, LEAST_BLOCK), MOST_BLOCK)
    free = psutil.virtual_memory().available
    room = min(free, host.memory_limit() or free) * MEMORY_SHARE
    return nbytes if 2 * nbytes * threads <= room else None


def print_measured(measured: Callable[[xupc.Team, MPI.Intracomm], dict[str, float]]) -> None:
    """Measure in a job of its own, and let thread 0 print the result as JSON."""
    with xupc.init() as team:
        found = measured(team, MPI.COMM_WORLD)
        if team.rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    print_measured(measure)
