"""Completion of a call on threads of other nodes.

In a call with a root exchange, threads may return before other threads have read their memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..backends.protocol import TeamCore
from ..pgas.heap import Heap

__all__ = [
    "RemoteCompletion",
    "TeamCalls",
]


class TeamCalls(Protocol):
    """The part of a team that its completions read."""

    settled: dict[int, int]

    @property
    def heap(self) -> Heap:
        """Heap of the team."""

    @property
    def freed(self) -> bool:
        """True if the team has been freed."""

    @property
    def core(self) -> TeamCore:
        """Counters of the team's calls."""


class RemoteCompletion:
    """Checks one-sided if a thread of another node has left a call with a root exchange.

    Parameters
    ----------
    offset : int
        Offset in the team's heap where the thread notes the last such call that it has left.
    """

    def __init__(self, team: TeamCalls, thread: int, epoch: int, offset: int) -> None:
        self.team, self.thread, self.epoch = team, thread, epoch
        self._remote, self._displacement = team.heap.displacement(thread, offset)
        self._word = np.zeros(1, np.uint64)
        self._reading = False

    def poll(self) -> bool:
        """Return True if the thread has left the call, as far as known without waiting."""
        team = self.team
        if team.freed or team.core.debt < self.epoch:  # a barrier came after it
            return True
        if team.settled.get(self.thread, 0) >= self.epoch:
            return True
        if not self._reading:
            self._reading = True
            address = self._word.ctypes.data
            request = self._remote.start(self.thread, self._displacement, address, 8)
            self._remote.window.track(request, self._arrived)
        return False

    def _arrived(self) -> None:
        self._reading = False
        if self._word[0] >= self.epoch:
            self.team.settled[self.thread] = self.epoch
