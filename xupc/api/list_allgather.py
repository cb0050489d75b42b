"""Shared lists between nodes: every thread gives all the others what it has of them.

A list of T elements lies on T threads. Where those are on one machine each thread reads it by
itself; between nodes that would be T one-sided reads by each of T threads, and is one exchange
of values instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.operand_binding import PrivateOperand
from ..fingerprint import fingerprint
from ..pgas.access import Run, read_run
from ..pgas.slices import runs_within

if TYPE_CHECKING:
    from ..health.call_record import CallRecord
    from ..runtime.team_state import TeamState
    from .list_arguments import List

__all__ = ["ListAllgather"]

_WIDER = 4
"""How much longer, in all, what is exchanged may be than the lists themselves."""


class ListAllgather:
    """An instance that gathers the shared lists of a call on all threads of a team.

    It waits for all threads and sends the part that each thread holds when it enters. No thread
    reads another thread's part, so a thread that has entered may change its own part. If the parts
    differ much in size, or threads outside the team hold some, the call reads the lists one-sided
    instead. The instance can be run again for the same lists.
    """

    @classmethod
    def of(cls, team: TeamState, lists: Sequence[List]) -> ListAllgather | None:
        """Return the gathering of some lists; None if it is not possible or not needed."""
        bringing = cls(team, lists) if team.spans_nodes and lists else None
        return bringing if bringing is not None and bringing.even else None

    def __init__(self, team: TeamState, lists: Sequence[List]) -> None:
        self.team = team
        self.lists = lists
        self._rank = {thread: rank for rank, thread in enumerate(team.threads)}
        self._runs: list[tuple[List, Run]] = []
        for listed in lists:
            assert listed.shared is not None
            for run in runs_within(listed.shared, range(listed.count)):
                self._runs.append((listed, run))
        lengths = dict.fromkeys(self._rank, 0)
        for listed, run in self._runs:
            if run.thread in lengths:
                lengths[run.thread] += run.nelems * _itemsize(listed)
        self._width = -(-max(lengths.values(), default=0) // 8) * 8
        total = sum(x.count * _itemsize(x) for x in lists)
        inside = all(run.thread in lengths for _, run in self._runs)
        self.even = inside and self._width * team.size <= _WIDER * total
        kept = self._width if self.even else 0
        self._mine = np.zeros(kept, np.uint8)
        self._all = np.empty((team.size, kept), np.uint8)
        self._instance: Any = None

    def instance(self, record: CallRecord) -> Any:
        """Return the instance to run, and copy my part of the lists now."""
        at, me = 0, self.team.job.info.me
        for listed, run in self._runs:
            if run.thread == me:
                assert listed.shared is not None
                part = np.empty(run.nelems, listed.shared.dtype)
                read_run(listed.shared.allocation, run, part)
                self._mine[at : at + part.nbytes] = part.view(np.uint8)
                at += part.nbytes
        if self._instance is None:
            self._instance = self._made(record)
        return self._instance

    def _made(self, record: CallRecord) -> Any:
        team, width = self.team, self._width
        plan = team.planned(
            "allav_gather_all", 0, width, ("no", "no"), (0, width, False, b"", 0),
            [0, width, False], private=True,
        )  # fmt: skip
        where = [number for listed in self.lists for number in listed.where]
        bounds: list[Any] = [PrivateOperand(), PrivateOperand()]
        instance = team.make(plan, bounds, fingerprint("lists", width, *where), record)
        instance.rebind(self._all.ctypes.data, self._mine.ctypes.data)
        return instance

    def finish(self) -> None:
        """Give the lists their elements, after the instance has completed."""
        at = [0] * self.team.size
        for listed in self.lists:
            assert listed.shared is not None
            listed.brought = np.empty(listed.count, listed.shared.dtype)
        for listed, run in self._runs:
            assert listed.brought is not None
            dtype, rank = listed.brought.dtype, self._rank[run.thread]
            end = at[rank] + run.nelems * dtype.itemsize
            listed.brought[run.items] = self._all[rank, at[rank] : end].view(dtype)
            at[rank] = end


def _itemsize(listed: List) -> int:
    assert listed.shared is not None
    return listed.shared.dtype.itemsize
