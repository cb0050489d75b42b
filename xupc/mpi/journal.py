"""The collective calls on each communicator in their order, and the call that is inside MPI.

All threads make the collective calls on a communicator in one order. So two calls of the same
number that differ show that the program is wrong, also where MPI carries one of them or both. Each
call leaves a note here, without communication. If a thread waits for long, the failure detector
reads the notes and compares them with those of other threads (`xupc.health.crossed_calls`).

A communicator has a *label*, the same on all its threads: that of the communicator from which it
was made, and the number of the making there. If only the threads of a group make it, the number
counts the makings with this group and this tag. One that was made in another way has none, and its
calls are not compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..backends.native.native_core import core
from ..fingerprint import digest
from . import constants

__all__ = [
    "ORDERED", "ORDERED_COPIES", "WATCHED", "PythonJournal", "inside_mpi", "key_of_group",
    "label_of_child", "label_of_group",
]  # fmt: skip

Run = Callable[..., Any]

ORDERED = frozenset((
    "Clone", "Create", "Create_cart", "Create_dist_graph", "Create_dist_graph_adjacent",
    "Create_graph", "Dup", "Dup_with_info", "Split", "Split_type", "Sub",
))  # fmt: skip
"""Methods that make a communicator, and that all threads of the old one call in one order."""
ORDERED_COPIES = frozenset(("Idup", "Idup_with_info"))
"""The same, but the new communicator cannot be used before a request is complete."""
WATCHED = "Alltoallw", "neighbor_allgather", "neighbor_alltoall"
"""Blocking collectives that always go to MPI."""


class PythonJournal:
    """The same as the core's `Journal`, without the core."""

    __slots__ = ("_calls", "_past", "epoch", "left", "unsure")

    def __init__(self) -> None:
        self.left = 0
        self.epoch = 0
        self.unsure = False
        self._calls = 0
        self._past: deque[tuple[str, bool]] = deque(maxlen=16)

    def begin_by_xupc(self, name: str) -> None:
        """Note a call that xupc carries."""
        self._begin(name, by_xupc=True)

    def _begin(self, name: str, *, by_xupc: bool) -> None:
        self._calls += 1
        self._past.append((name, by_xupc))

    def failed_by_xupc(self, differ: bool, since: int) -> None:
        """Note an error of a call that xupc carries, as the core's method does."""
        if differ:
            self.epoch, self._calls = since, 0
            self._past.clear()
        else:
            self.unsure = True

    def failed_alone(self, name: str, error: BaseException) -> None:
        """Note an error that this thread raised before the call met the others."""

    def last_calls(self) -> tuple[int, list[tuple[str, bool]]]:
        """Return how many calls there were, and the last ones: (method, whether by xupc)."""
        return self._calls, list(self._past)

    def by_mpi(self, name: str, run: Run, met: Run, arguments: Any, keywords: Any) -> Any:
        """Have MPI carry a call; one that raises an error before it meets others is not counted."""
        self._begin(name, by_xupc=False)
        here = self, name, [*arguments, *keywords.values()], tuple(keywords)
        _inside.append(here)
        try:
            return run(*arguments, **keywords)
        except BaseException as error:
            if met(name, error):
                self.left -= self.left > 0
            else:
                self._calls -= 1
                self._past.pop()
                self.failed_alone(name, error)
            raise
        finally:
            _inside.remove(here)


_inside: list[tuple[Any, str, list[Any], tuple[str, ...]]] = []


def _inside_mpi() -> Any:
    """Return what `core.inside_mpi` returns."""
    found = list(_inside)
    return found[0] if len(found) == 1 else None


inside_mpi: Callable[[], Any] = _inside_mpi if core is None else core.inside_mpi


# --- labels -------------------------------------------------------------------------------------


def label_of_child(parent: str, number: int, made: MPI.Comm) -> str:
    """Return the label of a communicator that was made from another one; "": it has none.

    Several can be made at once from one communicator, so the label has the lowest thread, too.
    `made` can be the other one, if the new one is its copy.
    """
    if not parent:
        return ""
    (first,) = _in_world(made, [0])
    return "" if first == MPI.UNDEFINED else f"{parent}.{number}@{first}"


def key_of_group(tag: int, made: MPI.Comm) -> str:
    """Return a hash of the threads and the tag by which they made a communicator; "": none."""
    threads = _in_world(made, None)
    if MPI.UNDEFINED in threads:
        return ""
    return digest(f"{tag} {threads}".encode(), 8).hex()


def label_of_group(parent: str, key: str, number: int) -> str:
    """Return the label of the communicator of that number which was made with a group's key."""
    return f"{parent}.{number}g@{key}"


def _in_world(comm: MPI.Comm, ranks: list[int] | None) -> list[int]:
    """Return the numbers in COMM_WORLD of some ranks of a communicator, of all for None."""
    mine, whole = comm.Get_group(), constants.plain().Get_group()
    try:
        return list(mine.Translate_ranks(ranks, whole))
    finally:
        mine.Free()
        whole.Free()
