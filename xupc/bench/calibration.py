"""Measure what steps cost on the machines of a job, for `xupc calibrate`.

``python -m xupc.bench.calibration`` is a job that does only this. Thread 0 prints JSON: the values
of `xupc.bench.machine`, and

=================  =============================================================================
send ns            of the sending thread, for a message of 8 bytes among many, through mpi4py
receive ns         of the receiving thread, likewise
cores              that the threads of the largest node may run on
call ns            of a call of a team of one thread: arguments, plan, one copy of 8 bytes
step ns            of one copy of 8 bytes among many in a plan
switch ns          half a round trip of signals of two processes that share one core, and yield it
cache copy rate    bytes per second of a copy of 128 KiB within a core's cache
cache size         bytes of a core's own cache of level 2, or its part of the last level
crossing rate      bytes per second of a copy of 256 KiB that another thread has just written
fold rate          bytes per second that an addition of two arrays of 64 KiB reads (numpy)
=================  =============================================================================

The first two are missing on one node. The step and the switch need the native core; the switch and
the crossing rate two threads on a node.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.topology import host

from . import machine, memory_probe, network_probe

__all__ = ["measure"]

MESSAGES = 200
ROUNDS = 11


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, float]:
    """Measure on all threads together; collective, takes about a second.

    Returns
    -------
    dict
        By the names above, on every thread.
    """
    found: dict[str, float] = machine.measure(team, comm)
    node = max(team.tree.nodes, key=len)
    cores = comm.allgather(host.affinity())
    found["cores"] = float(len({core for rank in node for core in cores[rank]}))
    found |= memory_probe.measure(team, comm)
    if team.tree.node_count > 1:
        found |= _messages(team, comm)
    return found


def _messages(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, float]:
    """Return the times of short messages between the first two node roots."""
    first, second = (int(root) for root in list(team.tree.roots)[:2])
    mine: list[float] = []
    if team.rank in (first, second):
        peer = second if team.rank == first else first
        mine = [_one_round(comm, peer, team.rank == first) for _ in range(ROUNDS)]
    network_probe.wait_quietly(comm)
    every = comm.allgather(mine)
    return {
        "send ns": statistics.median(every[first]), "receive ns": statistics.median(every[second])
    }  # fmt: skip


def _one_round(comm: MPI.Intracomm, peer: int, leads: bool) -> float:
    """Return the ns for one of many messages, from one thread to the other."""
    places = np.zeros((MESSAGES, 8), np.uint8)
    ready = bytearray(1)
    if leads:
        comm.Recv([ready, 1, MPI.BYTE], peer)  # all receives are posted
        begin = time.perf_counter_ns()
        requests = [comm.Isend([place, 8, MPI.BYTE], peer) for place in places]
        spent = time.perf_counter_ns() - begin
        MPI.Request.Waitall(requests)
        return spent / MESSAGES
    waiting: list[Any] = [comm.Irecv([place, 8, MPI.BYTE], peer) for place in places]
    comm.Send([ready, 1, MPI.BYTE], peer)
    waiting[0].Wait()
    begin = time.perf_counter_ns()
    MPI.Request.Waitall(waiting)
    return (time.perf_counter_ns() - begin) / (MESSAGES - 1)


if __name__ == "__main__":
    machine.print_measured(measure)
