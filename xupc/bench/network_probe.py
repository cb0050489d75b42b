"""What the wire between nodes can do: latency and rate between node roots.

Measured with plain MPI messages in the same launch as the collectives, while all other threads
sleep. Where several nodes are on one machine (``--nodes``), the wire is what MPI carries messages
with between its processes there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

__all__ = ["measure", "wait_quietly"]

PINGS, BATCH = 200, 20
STREAM_BYTES = 8 << 20
STREAM_PIECE = 32 << 10  # Open MPI over TCP is at its best with such messages
STREAMS = 5
WINDOW = 16
SECONDS = 0.3  # for either, on a slow wire; at least one batch of pings and one stream


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, Any]:
    """Measure latency and rate between the first two node roots; collective, of several nodes.

    Returns
    -------
    dict
        On every thread. ``latency ns``: half of each round trip of 8 bytes; ``stream ns``: the
        times of moving ``stream bytes`` one way, in messages of 32 KiB.
    """
    first, second = (int(root) for root in list(team.tree.roots)[:2])
    found: dict[str, Any] = {}
    if team.rank in (first, second):
        link = comm, second if team.rank == first else first, team.rank == first
        latency = repeated(link, PINGS // BATCH, lambda: ping_pong(*link))
        rates = repeated(link, STREAMS, lambda: [stream(*link)])
        found = {
            "latency ns": latency,
            "stream bytes": STREAM_BYTES,
            "stream ns": rates,
        }
    wait_quietly(comm)
    return dict(comm.bcast(found, root=first))


def repeated(
    link: tuple[MPI.Intracomm, int, bool], most: int, part: Callable[[], list[int]]
) -> list[int]:
    """Return what a measurement gives when it is repeated while the leading thread has time."""
    comm, peer, leads = link
    deadline = time.monotonic() + SECONDS
    times = part()
    for _ in range(most - 1):
        go_on = bytearray([time.monotonic() < deadline])
        message: Any = [go_on, 1, MPI.BYTE]
        if leads:
            comm.Send(message, peer)
        else:
            comm.Recv(message, peer)
        if not go_on[0]:
            break
        times += part()
    return times


def ping_pong(comm: MPI.Intracomm, peer: int, leads: bool) -> list[int]:
    """Return the times of half round trips of 8 bytes, in ns."""
    buffer = bytearray(8)
    message: Any = [buffer, 8, MPI.BYTE]
    times = []
    for _ in range(BATCH):
        begin = time.perf_counter_ns()
        if leads:
            comm.Send(message, peer)
            comm.Recv(message, peer)
        else:
            comm.Recv(message, peer)
            comm.Send(message, peer)
        times.append((time.perf_counter_ns() - begin) // 2)
    return times


def stream(comm: MPI.Intracomm, peer: int, leads: bool) -> int:
    """Time to move STREAM_BYTES one way, in ns, on the receiver's acknowledgement."""
    data = np.zeros(STREAM_BYTES, np.uint8)
    answer = bytearray(1)
    pieces: list[Any] = [
        [data[start : start + STREAM_PIECE], STREAM_PIECE, MPI.BYTE]
        for start in range(0, STREAM_BYTES, STREAM_PIECE)
    ]
    begin = time.perf_counter_ns()
    post = comm.Isend if leads else comm.Irecv
    requests: list[MPI.Request] = []
    for piece in pieces:
        if len(requests) == WINDOW:
            requests.pop(0).Wait()
        requests.append(post(piece, peer))
    MPI.Request.Waitall(requests)
    if leads:
        comm.Recv([answer, 1, MPI.BYTE], peer)
    else:
        comm.Send([answer, 1, MPI.BYTE], peer)
    return time.perf_counter_ns() - begin


def wait_quietly(comm: MPI.Intracomm) -> None:
    """Wait in a barrier whose waiting threads sleep; collective."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)
    os.sched_yield()
