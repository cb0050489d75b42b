"""Counts of the calls on a communicator: one record per handle, whatever objects refer to it.

The record is an attribute of MPI's communicator. MPI deletes it with the communicator, and a
duplicate does not inherit it.
"""

from __future__ import annotations

import threading
from typing import Any

from mpi4py import MPI

from ..backends.native import native_core
from . import constants
from .repeated import CallTable

__all__ = ["Record", "all_counts", "record_of", "world_rank"]

Key = tuple[str, str, str]  # method, carrier ("xupc" or "MPI"), reason
Counts = dict[Key, list[int]]  # [calls, bytes]


class Record(CallTable):  # type: ignore[misc]
    """Data that xupc keeps for one communicator.

    Attributes
    ----------
    team
        The team of xupc with the threads of the communicator, if one is open.
    refused
        The reason why there is no team; "" if none was tried yet.
    topology
        The neighbourhood of the communicator, if a call needed it.
    """

    __slots__ = ("_counts", "_patience", "_wait", "refused", "team", "topology")

    def __init__(self) -> None:
        self._counts: Counts = {}
        self.team: Any = None
        self.refused = ""
        self.topology: Any = None
        self._patience = 1
        self._wait = 0  # calls until a team is tried again; 0 or less: it is not

    @property
    def counts(self) -> Counts:
        """Calls and bytes by method, carrier and reason."""
        for method, calls, nbytes in self.take_counts():
            _add(self._counts, {(method, "xupc", ""): [calls, nbytes]})
        return self._counts

    def due(self) -> bool:
        """Return whether this call has to open a team. It is the same call on all threads."""
        if self.team is not None:
            return False
        if not self.refused:
            return True
        self._wait -= 1
        return self._wait == 0

    def try_later(self) -> None:
        """Try again to open a team: after 8 calls, then 64, and so on."""
        self._patience *= 8
        self._wait = self._patience

    def note(self, method: str, nbytes: int, carrier: str = "MPI", why: str = "") -> None:
        """Count one call."""
        key = (method, carrier, why)
        found = self._counts.get(key)
        if found is None:
            found = self._counts.setdefault(key, [0, 0])
        found[0] += 1
        found[1] += nbytes

    def went_to_mpi(self, method: str, nbytes: int, why: str) -> None:
        """Correct the count of a call that was given to xupc: MPI carries it after all."""
        found = self.counts[method, "xupc", ""]
        found[0] -= 1
        if not found[0]:
            del self._counts[method, "xupc", ""]
        self.note(method, nbytes, "MPI", why)


_lock = threading.Lock()
_key = MPI.KEYVAL_INVALID
_rank = 0
_open: set[Record] = set()
_of_freed = Record()  # the sum over communicators that MPI has freed


def record_of(comm: MPI.Comm) -> Record:
    """Return the record of a communicator, a new one at the first call."""
    global _key, _rank
    with _lock:
        if _key == MPI.KEYVAL_INVALID:
            _key = MPI.Comm.Create_keyval(delete_fn=_deleted)
            _rank = constants.plain().Get_rank()
        found: Record | None = comm.Get_attr(_key)  # type: ignore[assignment]
        if found is None:
            found = Record()
            comm.Set_attr(_key, found)
            _open.add(found)
        return found


def _deleted(comm: MPI.Comm, key: int, record: Any) -> None:
    """Keep the counts of a communicator that MPI frees, and drop its team.

    The team is closed later, when all its threads have dropped it: this call waits for no thread.
    """
    record.team, record.refused = None, "the communicator was freed"
    record.topology = None
    record.forget()
    _open.discard(record)
    _add(_of_freed.counts, record.counts)


def _forget_calls() -> None:
    for record in list(_open):
        record.forget()


native_core.caches.append(_forget_calls)


def world_rank() -> int:
    """Return the rank of this process in COMM_WORLD, also after the end of MPI; 0 if unknown."""
    return _rank


def all_counts() -> Counts:
    """Return the sum over all communicators of this process, freed ones included."""
    total: Counts = {}
    for record in (_of_freed, *_open):
        _add(total, record.counts)
    return total


def _add(total: Counts, more: Counts) -> None:
    for key, (calls, nbytes) in list(more.items()):
        found = total.setdefault(key, [0, 0])
        found[0] += calls
        found[1] += nbytes
