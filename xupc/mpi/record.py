"""Counts of the calls on a communicator: one record per handle, whatever objects refer to it.

The record is an attribute of MPI's communicator. MPI deletes it with the communicator, and a
duplicate does not inherit it.
"""

from __future__ import annotations

import threading
from typing import Any

from mpi4py import MPI

from ..backends.native import native_core
from ..comm.held_by_mpi import HeldByMPI
from ..errors import said
from ..health.note_comparison import WORLD
from . import constants
from .journal import key_of_group, label_of_child, label_of_group
from .repeated import CallTable
from .switch import OFF, from_the_first_call, mode
from .truncation import note_sizes

__all__ = [
    "PATIENCE", "WARM_UP", "Record", "all_counts", "drop_record", "open_records", "record_of",
    "world_rank",
]  # fmt: skip

PATIENCE = 64
MOST_GROUPS = 4096  # of threads and tags by which communicators are made from one
WARM_UP = f"warm-up: the first {PATIENCE} calls of a communicator"

Key = tuple[str, str, str]  # method, carrier ("xupc" or "MPI"), reason
Counts = dict[Key, list[int]]  # [calls, bytes, calls whose bytes are not known]
_WITHOUT_DATA = frozenset(("Barrier", "barrier", "Ibarrier"))


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
    place
        The rank of this thread in the communicator, and its number of threads.
    label
        The label of the communicator (`journal`); "" if it has none.
    alone
        The last call that raised an error on this thread alone: its number, and what it was.
    """

    __slots__ = (
        "_by_groups", "_counts", "_made", "_patience", "_unsized", "alone", "carriers", "label",
        "no_requests", "place", "refused", "slots", "team", "topology",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counts = {}
        self._unsized: set[Key] = set()
        self.team: Any = None
        self.refused = ""
        self.carriers: Any = None
        self.no_requests = ""
        self.topology: Any = None
        self.slots: dict[tuple[str, int | None], Any] = {}
        self.place = 0, 0
        self._patience = 1
        self._made = 0
        self._by_groups: dict[str, int] = {}
        self.label = ""
        self.alone = 0, ""

    @property
    def counts(self) -> Counts:
        """Calls, bytes, and calls whose bytes are not known, by method, carrier and reason."""
        for *key, calls, nbytes in self.take_counts():
            method, carrier, why = key
            unknown = calls if (method, carrier, why) in self._unsized else 0
            _add(self._counts, {(method, carrier, why): [calls, nbytes, unknown]})
        for method, calls in self.take_given():
            unknown = 0 if method in _WITHOUT_DATA else calls
            _add(self._counts, {(method, "MPI", self.refused): [calls, 0, unknown]})
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

    def failed_alone(self, name: str, error: BaseException) -> None:
        """Note an error that this thread raised before the call met the others."""
        text = f"{type(error).__name__} in {name}: {said(error)}"
        self.alone = self.last_calls()[0] + 1, text[:200]

    def failed_in_mpi(
        self, name: str, error: BaseException, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Add the sizes of this thread's messages to an error of a call that MPI carried.

        `arguments`: those that are not `named`, with the communicator first.
        """
        note_sizes(error, name, arguments[1:], named)

    def has_made(self, made: MPI.Comm, record: Record | None) -> None:
        """Note that all threads have made a communicator from this one; None: not this thread."""
        self._made += 1
        if record is not None:
            record.label = label_of_child(self.label, self._made, made)

    def will_copy(self, comm: MPI.Comm) -> str:
        """Note that all threads make a copy of this communicator; return the label of the copy."""
        self._made += 1
        return label_of_child(self.label, self._made, comm)

    def has_made_for_group(self, tag: int, made: MPI.Comm, record: Record) -> None:
        """Note that the threads of a new communicator, and no others, have made it from this one.

        MPI has all of them name the same group and tag. So they make those of one group and tag in
        one order, whatever they make with other threads between.
        """
        groups = self._by_groups
        key = key_of_group(tag, made) if self.label else ""
        if key and (key in groups or len(groups) < MOST_GROUPS):
            groups[key] = groups.get(key, 0) + 1
            record.label = label_of_group(self.label, key, groups[key])

    def note(
        self, method: str, nbytes: int | None, carrier: str = "MPI", why: str = ""
    ) -> None:
        """Count one call; `nbytes` is None if this thread does not know the size.

        The core counts the calls that repeat such a one, also without their bytes.
        """
        key = (method, carrier, why)
        unknown = nbytes is None and method not in _WITHOUT_DATA
        if unknown:
            self._unsized.add(key)
        _add(self._counts, {key: [1, nbytes or 0, int(unknown)]})

    def give_all(self, form: Any, why: str) -> None:
        """Have MPI carry all calls of a method: the core counts them without their bytes."""
        self._unsized.add((form.name, "MPI", why))
        self.give_method(form, why)

    def unsized(self, method: str) -> dict[Key, int]:
        """Return how many calls of a method are counted without their bytes."""
        return {key: count[2] for key, count in self.counts.items() if key[0] == method}

    def add_bytes(self, method: str, before: dict[Key, int], nbytes: int) -> None:
        """Add the bytes of a call that has been counted without them since `before`."""
        for key, unknown in self.unsized(method).items():
            if unknown > before.get(key, 0):
                _add(self._counts, {key: [0, nbytes, -1]})

    def went_to_mpi(self, method: str, nbytes: int | None, why: str) -> None:
        """Correct the count of a call that was given to xupc: MPI carries it after all."""
        found = self.counts[method, "xupc", ""]
        found[0] -= 1
        found[2] -= (method, "xupc", "") in self._unsized
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
            _key = MPI.Comm.Create_keyval()
            _rank = constants.plain().Get_rank()
        held: HeldByMPI[Record] | None = comm.Get_attr(_key)  # type: ignore[assignment]
        if held is not None:
            return held.value
        found = Record()
        _begin(found, comm)
        comm.Set_attr(_key, HeldByMPI(found, _deleted))
        _open.add(found)
        return found


def drop_record(comm: MPI.Comm) -> None:
    """Drop the record of a communicator that the program frees now.

    It is the first attribute to go: no delete function of the program's runs after it (`HeldByMPI`
    says why).
    """
    if _key == MPI.KEYVAL_INVALID or comm in (MPI.COMM_NULL, MPI.COMM_SELF, constants.plain()):
        return  # MPI frees none of these
    if comm.Get_attr(_key) is not None:
        comm.Delete_attr(_key)


def open_records() -> list[Record]:
    """Return the records of the communicators that are not freed."""
    return list(_open)


def _begin(record: Record, comm: MPI.Comm) -> None:
    record.place = comm.Get_rank(), comm.Get_size()
    if comm == constants.plain():
        record.label = WORLD
    if record.place[1] == 1:
        record.give_to_mpi("one thread")
    elif mode() == OFF:
        record.give_to_mpi(f"XUPC_COMM={OFF}")
    elif not from_the_first_call():
        record.give_to_mpi(WARM_UP, PATIENCE)


def _deleted(record: Record) -> None:
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
    for key, numbers in list(more.items()):
        found = total.setdefault(key, [0, 0, 0])
        for k, number in enumerate(numbers):
            found[k] += number
