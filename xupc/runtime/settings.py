"""The settings of `init`, and their comparison among all threads."""

from __future__ import annotations

import numpy as np

from ..comm.team_comm import TeamComm
from ..errors import (
    CollectiveMismatchError,
)
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord, compare

__all__ = [
    "Settings",
    "agree_settings",
]


DEFAULT_HEAP = 4 << 20


class Settings:
    """The arguments of `init`, completed from the environment."""

    def __init__(self, heap_size: int | None, nodes: str | None, timeout: float | None) -> None:
        self.heap_size = heap_size or DEFAULT_HEAP
        self.explicit_heap = heap_size is not None
        self.nodes = nodes
        self.timeout = timeout

    def difference(self, other: Settings) -> str:
        """Return the first setting in which `other` differs, as text; empty if none does."""
        mine, theirs = vars(self), vars(other)
        for name in ("heap_size", "nodes", "timeout"):
            if mine[name] != theirs[name]:
                return f"{name}: {mine[name]!r}, not {theirs[name]!r}"
        return ""


def agree_settings(settings: Settings, link: TeamComm) -> None:
    """Compare the settings of all threads; CollectiveMismatchError on all if some differ."""
    heap_size, nodes = settings.heap_size, settings.nodes
    comm, mpi = link.comm, link.mpi
    mine = fingerprint("init", heap_size, nodes or "") >> 1
    # of an array: mpi4py holds the interpreter's lock in reductions of objects
    most = np.empty(2, np.int64)
    comm.Allreduce(np.array([mine, -mine], np.int64), most, mpi.MAX)
    if most[0] == -most[1]:
        return
    arguments = [("heap_size", str(heap_size)), ("nodes", repr(nodes))]
    records = [CallRecord("init", theirs) for theirs in comm.allgather(arguments)]
    raise CollectiveMismatchError(compare(records, range(link.size))["text"])
