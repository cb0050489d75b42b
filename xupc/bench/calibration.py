"""Measure what steps cost on the machines of a job, for `xupc calibrate`.

``python -m xupc.bench.calibration`` is a job that does only this. Thread 0 prints JSON: the values
of `xupc.bench.machine`, and

=================  =============================================================================
send ns            of the sending thread, for a message of 8 bytes among many, through mpi4py
receive ns         of the receiving thread, likewise
read ns            of the thread that starts a one-sided read of 8 bytes, besides that of a send
serve ns           of the thread whose memory is read: of its time in MPI what is no idle look; 0 if
                   that is little, as where the network or the reader does the work
cores              that the threads of the largest node may run on
call ns            of a call of a team of one thread: arguments, plan, one copy of 8 bytes
step ns            of one copy of 8 bytes among many in a plan
switch ns          half a round trip of signals of two processes that share one core, and yield it
cache copy rate    bytes per second of a copy of 128 KiB within a core's cache
cache size         bytes of a core's own cache of level 2, or its part of the last level
crossing rate      bytes per second of a copy of 256 KiB that another thread has just written
fold rate          bytes per second that an addition of two arrays of 64 KiB reads (numpy)
=================  =============================================================================

The first four are missing on one node. The step and the switch need the native core; the switch and
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
READS = 50
IDLE_NS = 1_000_000  # in which looks for messages find none
LEAST_SERVED_NS = 500.0  # of a read; less is noise


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
        found |= _reads(team, comm, found["send ns"])
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


def _reads(team: xupc.Team, comm: MPI.Intracomm, send: float) -> dict[str, float]:
    """Return the times of one-sided reads of one node root by another one; collective."""
    first, second = (int(root) for root in list(team.tree.roots)[:2])
    window = MPI.Win.Create(np.zeros(8, np.uint8), comm=comm)
    window.Lock_all()
    mine: list[float] = []
    if team.rank == first:
        mine = [_read_many(comm, window, second) for _ in range(ROUNDS)]
    elif team.rank == second:
        mine = [_serve_many(comm, first) for _ in range(ROUNDS)]
    network_probe.wait_quietly(comm)
    window.Unlock_all()
    window.Free()
    every = comm.allgather(mine)
    read, serve = (statistics.median(every[rank]) for rank in (first, second))
    serve = serve if serve > LEAST_SERVED_NS else 0.0
    return {"read ns": max(0.0, read - send), "serve ns": serve}


def _read_many(comm: MPI.Intracomm, window: MPI.Win, peer: int) -> float:
    """Return the ns that it takes to start one of many reads of a thread that looks for them."""
    places = np.zeros((READS, 8), np.uint8)
    message = bytearray(1)
    comm.Recv([message, 1, MPI.BYTE], peer)
    begin = time.perf_counter_ns()
    requests = [window.Rget([place, 8, MPI.BYTE], peer, 0) for place in places]
    spent = time.perf_counter_ns() - begin
    MPI.Request.Waitall(requests)
    comm.Send([message, 1, MPI.BYTE], peer)
    return spent / READS


def _serve_many(comm: MPI.Intracomm, peer: int) -> float:
    """Return the processor time in ns that MPI takes to serve one of many reads by a thread."""
    message = bytearray(1)
    clock, looks = time.thread_time_ns, 0
    begin = now = clock()
    while now - begin < IDLE_NS:
        comm.Iprobe(peer)
        now, looks = clock(), looks + 1
    idle = (now - begin) / looks
    comm.Send([message, 1, MPI.BYTE], peer)
    begin, looks = clock(), 0
    while not comm.Iprobe(peer):
        now, looks = clock(), looks + 1
    spent = clock() - begin
    comm.Recv([message, 1, MPI.BYTE], peer)
    return (spent - looks * idle) / READS


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
