"""Measure how far the clocks of other machines are from that of thread 0."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .team_comm import TeamComm

if TYPE_CHECKING:
    from .mpi_types import Intracomm

__all__ = ["best_offset", "clock_offset"]

ROUNDS = 32


def best_offset(rounds: Sequence[tuple[int, int, int]]) -> int:
    """Return the offset by the fastest of some round trips.

    Each is ``(sent, answered, received)``: a clock's time before a message to thread 0, the time of
    thread 0, and the clock's time after its answer.
    """
    sent, answered, received = min(rounds, key=lambda times: times[2] - times[0])
    return answered - (sent + received) // 2


def clock_offset(
    link: TeamComm, machine: Sequence[int], now: Callable[[], int] = time.monotonic_ns
) -> int:
    """Return what to add to this thread's clock to get that of thread 0; collective, blocking.

    The threads of a machine have one clock: the lowest one exchanges messages with thread 0.
    """
    lowest = link.rank == machine[0]
    roots = link.split(0 if lowest else 1)
    offset = np.zeros(1, np.int64)
    if lowest:
        for rank in range(1, roots.Get_size()):
            if roots.Get_rank() == 0:
                for _ in range(ROUNDS):
                    roots.Recv(offset, rank)
                    offset[0] = now()
                    roots.Send(offset, rank)
            elif roots.Get_rank() == rank:
                offset[0] = best_offset([_round_trip(roots, now) for _ in range(ROUNDS)])
        if link.rank == 0:
            offset[0] = 0
    roots.Free()
    here = link.split(machine[0])
    here.Bcast(offset)
    here.Free()
    return int(offset[0])


def _round_trip(roots: Intracomm, now: Callable[[], int]) -> tuple[int, int, int]:
    """Return the times of one message to thread 0 and its answer."""
    room = np.zeros(1, np.int64)
    sent = now()
    roots.Send(room, 0)
    roots.Recv(room, 0)
    return sent, int(room[0]), now()
