"""Teams that a thread's program has dropped without `free`, and how they are given back.

Giving one back takes all its threads together, and each drops it at another time, in another order,
some by Python's collector. So a drop is only noted. Where threads meet in a rare call anyway they
exchange which teams they have dropped, and close those that all threads of the team have.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ..backends.native.native_core import empty_caches
from ..backends.protocol import TeamCore
from ..comm.setup_collectives import Agreement

__all__ = ["Dropped", "Hold", "Returns"]

CROWD = 64  # open teams from which on garbage is looked for
_COLUMNS = 4  # of an entry: number, operation, fingerprint, whether it is a part of the one before


class DroppableTeam(Protocol):
    """The part of a team that is needed to give it back."""

    threads: Sequence[int]
    number: int
    freed: bool
    core: TeamCore

    @property
    def idle(self) -> bool:
        """True if no call of the team or its parts is running or has an error to report."""

    @property
    def opened_parts(self) -> Sequence[DroppableTeam]:
        """Predefined teams of this team that were used, and their own."""

    def close(self) -> None:
        """Release the team; collective."""


class TeamRegistry(Protocol):
    """The part of the job that knows its open teams."""

    @property
    def teams(self) -> Sequence[object]:
        """All open teams but the world."""


class ReturnServices(Protocol):
    """The part of the job that gives teams back."""

    @property
    def dropped(self) -> Dropped:
        """Teams that this thread has dropped."""

    def blocking(self, call: str) -> AbstractContextManager[None]:
        """Apply the timeout to calls of MPI in which threads wait for each other."""


class MeetingTeam(Protocol):
    """The part of a team whose threads give back dropped teams together."""

    threads: Sequence[int]
    agreement: Agreement

    @property
    def job(self) -> ReturnServices:
        """Job of the team."""

    def rank_of(self, thread: int) -> int | None:
        """Return the rank of a thread, None if it is not in the team."""


class Hold:
    """What all of a program's references to a team have in common: it goes with the last one."""

    __slots__ = ("__weakref__",)


class Dropped:
    """The teams that this thread has dropped and that are not given back yet."""

    def __init__(self, job: TeamRegistry) -> None:
        self._job = job
        self._noted: deque[DroppableTeam] = deque()
        self._teams: list[DroppableTeam] = []
        self._crowd = CROWD

    def note(self, team: DroppableTeam) -> None:
        """Note one. Python's collector calls this at any time, so it does nothing else."""
        self._noted.append(team)

    def among(self, threads: Sequence[int]) -> list[DroppableTeam]:
        """Return the teams that these threads can give back by themselves, by number."""
        while self._noted:
            self._teams.append(self._noted.popleft())
        if not self._teams:
            return []
        self._teams = [team for team in self._teams if not team.freed]
        here = frozenset(threads)
        found = [team for team in self._teams if team.idle and here.issuperset(team.threads)]
        return sorted(found, key=lambda team: team.number)

    def relieve(self, *, now: bool = False) -> None:
        """Drop what only garbage and caches refer to, if very many teams are open, or `now`.

        A team in a reference cycle is dropped when Python's collector finds it, which looks at
        the number of objects and knows nothing of descriptors and communicators.
        """
        if len(self._job.teams) < self._crowd and not now:
            return
        empty_caches()
        gc.collect()
        left = len(self._job.teams) - len(self._noted) - len(self._teams)
        self._crowd = max(CROWD, 2 * left)


class Returns:
    """The giving back of dropped teams, in a meeting of the threads of a team.

    Attributes
    ----------
    count
        What the threads have to find the maximum of.
    """

    def __init__(self, meeting: MeetingTeam) -> None:
        self._meeting = meeting
        self._mine = meeting.job.dropped.among(meeting.threads)
        self._entries = {
            team.number: _entry(team, is_part=team is not mine)
            for mine in self._mine
            for team in (mine, *mine.opened_parts)
        }
        self.count = len(self._entries)

    def carry_out(self, most: int) -> None:
        """Close the teams that all their threads have dropped; collective.

        `most`: the maximum of the threads' counts. A team on which the threads made calls that
        differ stays: `finalize` reports that.
        """
        if not most:
            return
        rows = self._gather(list(self._entries.values()), most)
        agreed = [team for team in self._mine if self._same(team, rows)]
        if any(entry[3] for row in rows for entry in row.values()):
            agreed = self._agreed_by_all(agreed, most)
        with self._meeting.job.blocking("the giving back of dropped teams"):
            for team in agreed:
                team.close()

    def _same(self, team: DroppableTeam, rows: Sequence[dict[int, list[int]]]) -> bool:
        """Return whether all have dropped a team, after the same calls on it and my parts of it."""
        return all(
            rows[self._rank(thread)].get(each.number) == self._entries[each.number]
            for each in (team, *team.opened_parts)
            for thread in each.threads
        )

    def _agreed_by_all(self, agreed: Sequence[DroppableTeam], most: int) -> list[DroppableTeam]:
        """Return those whose parts have the same calls on all threads."""
        entries = [[team.number, 0, 0, 0] for team in agreed]
        rows = self._gather(entries, most)
        return [
            team for team in agreed if all(team.number in rows[self._rank(t)] for t in team.threads)
        ]

    def _rank(self, thread: int) -> int:
        rank = self._meeting.rank_of(thread)
        assert rank is not None
        return rank

    def _gather(self, entries: list[list[int]], most: int) -> list[dict[int, list[int]]]:
        """Return the threads' entries by rank, each by number; numbers of teams are positive."""
        flat = [value for entry in entries for value in entry]
        flat += [0] * (most * _COLUMNS - len(flat))
        found = []
        for row in self._meeting.agreement.gather_all(flat):
            each = [row[k : k + _COLUMNS] for k in range(0, len(row), _COLUMNS)]
            found.append({entry[0]: entry for entry in each if entry[0]})
        return found


def _entry(team: DroppableTeam, *, is_part: bool) -> list[int]:
    fp = int(team.core.fp)
    return [team.number, int(team.core.op), fp - (fp >> 63 << 64), int(is_part)]
