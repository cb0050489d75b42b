"""The collective calls on each communicator in their order, and the call that is inside MPI.

All threads make the collective calls on a communicator in one order. So two calls of the same
number that differ show that the program is wrong, also where MPI carries one of them or both. Each
call leaves a note here, without communication: the method, and where MPI carries the call its root
and, for some methods, its size. If a thread waits for long, the failure detector reads the notes
and compares them with those of other threads (`xupc.health.crossed_calls`).

A communicator has a *label*, the same on all its threads: that of the communicator from which it
was made, and the number of the making there. If only the threads of a group make it, the number
counts the makings with this group and this tag. One that was made in another way has none, and its
calls are not compared.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from mpi4py import MPI

from ..backends.native.native_core import core
from ..fingerprint import digest
from . import constants

__all__ = [
    "ORDERED", "ORDERED_COPIES", "ROOT_AT", "SIZES", "WATCHED", "PythonJournal", "array_bytes",
    "inside_mpi", "key_of_group", "label_of_child", "label_of_group", "messages_of", "root_in",
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
ROOT_AT = {
    name: place
    for place, names in (
        (1, "bcast gather scatter Bcast Ibcast"),
        (2, "reduce Gather Scatter Gatherv Scatterv Igather Iscatter"), (3, "Reduce Ireduce"),
    )
    for name in names.split()
}  # fmt: skip
"""The place of the root among the arguments of a method."""
SIZES = {
    name: which
    for which, names in (
        ("first", "Bcast Ibcast Reduce Ireduce"),
        ("either", "Allreduce Iallreduce Scan Iscan Exscan Iexscan"),
    )
    for name in names.split()
}  # fmt: skip
"""Methods whose message has one size on all threads: the first one, or in place the second one.

The second message of a Reduce means nothing on a thread other than the root.
"""
_INTEGERS = (int, bool, *(np.dtype(code).type for code in "bBhHiIlLqQ"))
Noted = tuple[str, bool, int | None, int | None]  # method, whether by xupc, root, nbytes


def root_in(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> int | None:
    """Return the root of a call; None if it has none, or only code of the program has its number.

    `given`: the arguments after the communicator. `named`: those by name.
    """
    if name not in ROOT_AT:
        return None
    root = given[ROOT_AT[name]] if ROOT_AT[name] < len(given) else named.get("root", 0)
    if not any(type(root) is kind for kind in _INTEGERS):
        return None
    return int(root) if 0 <= int(root) < 1 << 31 else None


def array_bytes(message: Any) -> int | None:
    """Return the bytes of an array, None for anything else."""
    return int(message.nbytes) if type(message) is np.ndarray else None


def messages_of(
    name: str, given: Sequence[Any], named: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return (argument, message) of the first two messages of a call on buffers.

    `given`: the arguments after the communicator. `named`: those by name.
    """
    names = ("buf",) if name in ("Bcast", "Ibcast") else ("sendbuf", "recvbuf")
    found = list(zip(names, given, strict=False))
    return found + [(each, named[each]) for each in names[len(found) :] if each in named]


def _size_in(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> int | None:
    """Return the bytes of a message that has one size on all threads; None if not known."""
    if name not in SIZES:
        return None
    messages = [message for _, message in messages_of(name, given, named)]
    found = array_bytes(messages[0]) if messages else None
    if found is None and SIZES[name] == "either" and len(messages) > 1:
        in_place = messages[0] is None or messages[0] is MPI.IN_PLACE
        return array_bytes(messages[1]) if in_place else None
    return found


class PythonJournal:
    """The same as the core's `Journal`, without the core."""

    __slots__ = ("_calls", "_past", "epoch", "left", "unsure")

    def __init__(self) -> None:
        self.left = 0
        self.epoch = 0
        self.unsure = False
        self._calls = 0
        self._past: deque[Noted] = deque(maxlen=16)

    def begin_by_xupc(self, name: str) -> None:
        """Note a call that xupc carries."""
        self._begin(name, True, None, None)

    def _begin(self, *noted: Any) -> None:
        self._calls += 1
        self._past.append(noted)

    def failed_by_xupc(self, differ: bool, since: int) -> None:
        """Note an error of a call that xupc carries, as the core's method does."""
        if differ:
            self.epoch, self._calls = since, 0
            self._past.clear()
        else:
            self.unsure = True

    def failed_alone(self, name: str, error: BaseException) -> None:
        """Note an error that this thread raised before the call met the others."""

    def failed_in_mpi(self, name: str, error: BaseException, arguments: Any, named: Any) -> None:
        """Describe this thread's part in an error of a call that met the others."""

    def last_calls(self) -> tuple[int, list[Noted]]:
        """Return how many calls there were, and the last ones, as the core's method does."""
        return self._calls, list(self._past)

    def by_mpi(self, name: str, run: Run, met: Run, arguments: Any, keywords: Any) -> Any:
        """Have MPI carry a call; one that raises an error before it meets others is not counted."""
        of = arguments[1:], keywords
        self._begin(name, False, root_in(name, *of), _size_in(name, *of))
        frame = None if isinstance(run, FunctionType) else sys._getframe()
        here = _Inside(self, name, [*arguments, *keywords.values()], tuple(keywords), frame)
        _inside.append(here)
        try:
            return run(*arguments, **keywords)
        except BaseException as error:
            if met(name, error):
                self.left -= self.left > 0
                self.failed_in_mpi(name, error, arguments, keywords)
            else:
                self._calls -= 1
                self._past.pop()
                self.failed_alone(name, error)
            raise
        finally:
            _inside.remove(here)


class _Inside:
    """A call inside MPI; `frame`: its Python frame, None if Python code makes the wait."""

    __slots__ = ("_frame", "_thread", "call")

    def __init__(self, *call: Any) -> None:
        *self.call, self._frame = call
        self._thread = threading.get_ident()

    def in_python(self) -> bool:
        """Return whether Python code of the program runs inside the call."""
        frame = self._frame
        return frame is not None and sys._current_frames().get(self._thread) is not frame


_inside: list[_Inside] = []


def _inside_mpi() -> Any:
    """Return what `core.inside_mpi` returns."""
    found = list(_inside)
    return tuple(found[0].call) if len(found) == 1 and not found[0].in_python() else None


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
