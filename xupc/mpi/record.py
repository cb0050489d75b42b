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
from .switch import FORCE, mode

__all__ = ["PATIENCE", "WARM_UP", "Record", "all_counts", "record_of", "world_rank"]

PATIENCE = 64
WARM_UP = f"warm-up: the first {PATIENCE} calls of a communicator"

Key = tuple[str, str, str]  # method, carrier ("xupc" or "MPI"), reason
Counts = dict[Key, list[int]]  # [calls, bytes]


class Record(CallTable):  # type: ignore[misc]
    """Data that xupc keeps for one communicator.

    Attributes
    ----------
    team
        The team of xupc with the threads of the communicator, if one is open.
    refused
        The reason why MPI carries all calls at present; "" if it does not.
    left
        How many calls MPI carries before a team is tried; -1: all of them.
    carriers
        Which calls the tuning table gives to MPI; None: none of them.
    no_requests
        The reason why MPI carries all nonblocking calls; "" if it does not.
    topology
        The neighbourhood of the communicator, if a call needed it.
    slots
        The slots of its methods, by method and root: all threads of the team have the same.
    """

    __slots__ = (
        "_counts", "_patience", "carriers", "no_requests", "refused", "slots", "team", "topology",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counts = {}
        self.team: Any = None
        self.refused = ""
        self.carriers: Any = None
        self.no_requests = ""
        self.topology: Any = None
        self.slots: dict[tuple[str, int | None], Any] = {}
        self._patience = 1

    @property
    def counts(self) -> Counts:
        """Calls and bytes by method, carrier and reason."""
        for method, carrier, why, calls, nbytes in self.take_counts():
            _add(self._counts, {(method, carrier, why): [calls, nbytes]})
        for method, calls in self.take_given():
            _add(self._counts, {(method, "MPI", self.refused): [calls, 0]})
        return self._counts

    def give_to_mpi(self, why: str, calls: int = -1) -> None:
        """Have MPI carry so many calls; -1: all calls from now on."""
        _ = self.counts  # those of another reason
        self.team, self.refused = None, why
        self.slots.clear()
        self.forget()
        self.left = calls  # type: ignore[misc]

    def give_to_team(self, team: Any, no_requests: str = "") -> None:
        """Have a team carry calls from now on; `no_requests`: why not the nonblocking ones."""
        self.give_to_mpi("", 0)
        self.team, self.no_requests = team, no_requests

    def due(self) -> bool:
        """Return whether this call has to open a team. It is the same call on all threads."""
        return self.team is None and self.left == 0

    def try_later(self, why: str) -> None:
        """Try again to open a team: after 8 calls, then 64, and so on."""
        self._patience *= 8
        self.give_to_mpi(why, self._patience - 1)

    def note(self, method: str, nbytes: int, carrier: str = "MPI", why: str = "") -> None:
        """Count one call."""
        key = (method, carrier, why)
        found = self._counts.get(key)
        if found is None:
            found = self._counts.setdefault(key, [0, 0])
        found[0] += 1
        found[1] += nbytes

    def add_bytes(self, method: str, nbytes: int) -> None:
        """Add the bytes of a call that MPI has carried for the present reason."""
        _add(self._counts, {(method, "MPI", self.refused): [0, nbytes]})

    def went_to_mpi(self, method: str, nbytes: int, why: str) -> None:
        """Correct the count of a call that was given to xupc: MPI carries it after all."""
        found = self.counts[method, "xupc", ""]
        found[0] -= 1
        if not found[0]:
            del self._counts[method, "xupc", ""]
        self.note(method, nbytes, "MPI", why)


_lock = threading.RLock()  # the collector may free a communicator meanwhile
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
            _begin(found, comm)
            comm.Set_attr(_key, found)
            _open.add(found)
        return found


def _begin(record: Record, comm: MPI.Comm) -> None:
    if comm.Get_size() == 1:
        record.give_to_mpi("one thread")
    elif mode() != FORCE:
        record.give_to_mpi(WARM_UP, PATIENCE)


def _deleted(comm: MPI.Comm, key: int, record: Any) -> None:
    """Keep the counts of a communicator that MPI frees, and drop its team.

    The team is closed later, when all its threads have dropped it: this call waits for no thread.
    """
    record.give_to_mpi("the communicator was freed")
    record.topology = None
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
