"""What the wire between nodes can do: latency and rate between node roots, and its byte counters.

Measured with plain MPI messages in the same launch as the collectives, while all other threads
wait in a barrier that gives the processors away.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

__all__ = ["counters", "measure"]

PINGS = 200
STREAM_BYTES = 8 << 20
STREAM_PIECE = 32 << 10  # Open MPI over TCP is at its best with such messages
STREAMS = 5
WINDOW = 16
DEVICES = Path("/sys/class/net")


def counters(team: xupc.Team) -> tuple[int, int]:
    """(sent, received) bytes of my node's network device; zeros but on the node root."""
    if team.rank != team.tree.root_of(team.rank):
        return 0, 0
    sent = received = 0
    for device in DEVICES.iterdir():
        if device.name != "lo":
            sent += int((device / "statistics/tx_bytes").read_text())
            received += int((device / "statistics/rx_bytes").read_text())
    return sent, received


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, Any]:
    """Latency and rate between the first two node roots; collective."""
    first, second = (int(root) for root in list(team.tree.roots)[:2])
    found: dict[str, Any] = {}
    if team.rank in (first, second):
        peer = second if team.rank == first else first
        latency = ping_pong(comm, peer, team.rank == first)
        rates = [stream(comm, peer, team.rank == first) for _ in range(STREAMS)]
        found = {
            "latency ns": latency,
            "stream bytes": STREAM_BYTES,
            "stream ns": rates,
        }
    wait_quietly(comm)
    return dict(comm.bcast(found, root=first))


def ping_pong(comm: MPI.Intracomm, peer: int, leads: bool) -> list[int]:
    """Half round trips of 8 bytes, in ns."""
    buffer = bytearray(8)
    message: Any = [buffer, 8, MPI.BYTE]
    times = []
    for _ in range(PINGS):
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
    """A barrier whose waiting threads sleep."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)
    os.sched_yield()
