"""Completion of calls with a root exchange on threads of other nodes.

Such a call returns when its own node is done. A thread that then accesses memory of another node
must wait until the owner of the memory has left the call. This module holds all that this needs:
accesses use `RemoteCompletions`, each team has its `TeamCompletions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..backends.protocol import TeamCore
from ..pgas.heap import Heap

__all__ = [
    "RemoteCompletion",
    "RemoteCompletions",
    "TeamCompletions",
    "incomplete",
]


class TeamCompletions:
    """The last root exchanges of a team that its threads on other nodes are known to have left.

    Parameters
    ----------
    offset
        Offset in the team's heap where each thread notes the last root exchange that it has left.
    """

    def __init__(self, core: TeamCore, heap: Heap, offset: int, threads: Sequence[int]) -> None:
        self.core = core
        self.heap = heap
        self._offset = offset
        self._threads = threads
        self._left: dict[int, int] = {}  # by thread, the last root exchange that it has left
        self.closed = False

    def of(self, thread: int) -> RemoteCompletion | None:
        """Return what an access to a thread's memory must wait for; None if there is nothing."""
        epoch = self.core.debt
        if not epoch or self.has_left(thread, epoch) or thread not in self._threads:
            return None
        return RemoteCompletion(self, thread, epoch, self._offset)

    def has_left(self, thread: int, epoch: int) -> bool:
        """Return True if a thread is known to have left a root exchange."""
        return self._left.get(thread, 0) >= epoch

    def note(self, thread: int, epoch: int) -> None:
        """Note that a thread has left a root exchange."""
        self._left[thread] = epoch


class RemoteCompletion:
    """Checks one-sided if a thread of another node has left a call with a root exchange."""

    def __init__(self, team: TeamCompletions, thread: int, epoch: int, offset: int) -> None:
        self.team, self.thread, self.epoch = team, thread, epoch
        self._remote, self._displacement = team.heap.displacement(thread, offset)
        self._word = np.zeros(1, np.uint64)
        self._reading = False

    def poll(self) -> bool:
        """Return True if the thread has left the call, as far as known without waiting."""
        team = self.team
        if team.closed or team.core.debt < self.epoch:  # a barrier came after it
            return True
        if team.has_left(self.thread, self.epoch):
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
            self.team.note(self.thread, self.epoch)


class RemoteCompletions:
    """What accesses to memory of other nodes must wait for, over all open teams.

    Parameters
    ----------
    wait_for
        Waits for one completion.
    """

    def __init__(self, wait_for: Callable[[RemoteCompletion], None]) -> None:
        self._wait_for = wait_for
        self._teams: list[TeamCompletions] = []

    def add(self, team: TeamCompletions) -> None:
        """Include a team that is opened."""
        self._teams.append(team)

    def remove(self, team: TeamCompletions) -> None:
        """Leave out a team that is closed: nothing waits for it any more."""
        self._teams.remove(team)
        team.closed = True

    def pending(self, thread: int) -> list[RemoteCompletion]:
        """Return what an access to a thread's memory must wait for."""
        return [found for team in self._teams if (found := team.of(thread)) is not None]

    def wait(self, thread: int) -> None:
        """Wait until a thread of another node has left all calls with a root exchange."""
        for completion in self.pending(thread):
            self._wait_for(completion)

    def note_write(self) -> None:
        """Note a write to another node's memory: the next root exchanges must consider it."""
        for team in self._teams:
            team.core.wrote()


def incomplete(completions: Iterable[RemoteCompletion]) -> list[RemoteCompletion]:
    """Return the completions that are not reached yet."""
    return [completion for completion in completions if not completion.poll()]
