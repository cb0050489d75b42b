"""Calls that repeat an earlier one of the communicator, in all but the addresses: a short way in C.

`decision.taken_over` decides about a call and carries it: the slow way. If the call worked on the
program's own arrays, or went to MPI for a reason that all threads have, the core then keeps what
the program gave. A later call that gives the same would be decided in the same way, so the core
carries it at once. Arrays and datatypes are recognised by identity of their types, all else goes
the slow way.

Before that a method looks whether MPI carries all calls on the communicator at present.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..backends.native.native_core import core
from ..errors import XupcError
from .journal import ROOT_AT, SIZES, PythonJournal
from .mismatch import error_for
from .requests import returning_request

__all__ = ["CallTable", "by_mpi", "form_of", "repeating"]

Run = Callable[..., Any]
Count = tuple[str, str, str, int, int]  # method, carrier, reason, calls, bytes


class _NoTable(PythonJournal):
    """The same interface as the core's table, without the core: no call is kept."""

    __slots__ = ("given",)

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, int] = {}

    def forget(self) -> None:
        """Do nothing."""

    def learn(self, *call: object) -> None:
        """Do nothing."""

    def learn_given(self, *call: object) -> None:
        """Do nothing."""

    def keep_slots(self, *slots: object) -> None:
        """Do nothing."""

    def learn_posted(self, *call: object) -> None:
        """Do nothing."""

    def give_method(self, *method: object) -> None:
        """Do nothing."""

    def take_counts(self) -> list[Count]:
        """Return no counts."""
        return []

    def take_given(self) -> list[tuple[str, int]]:
        """Return (method, calls) of those given to MPI unseen since the last request."""
        found = list(self.given.items())
        self.given.clear()
        return found

    def give(self, name: str, run: Run, met: Run, on: Any, arguments: Any, keywords: Any) -> Any:
        """Have MPI carry a call; one that raises an error before it meets others is not counted."""
        result = self.by_mpi(name, run, met, (on, *arguments), keywords)
        self.given[name] = self.given.get(name, 0) + 1
        self.left -= self.left > 0
        return result


CallTable: Any = _NoTable if core is None else core.CallTable

# How mpi4py's methods take their arguments: messages, operation, root, what only the root has,
# counts, the name of an object.
_FORMS: dict[str, tuple[Any, ...]] = {
    "Barrier": (0,),
    "barrier": (0,),
    "Bcast": (1, False, True),
    "Gather": (2, False, True, "dst"),
    "Scatter": (2, False, True, "src"),
    "Allgather": (2,),
    "Alltoall": (2,),
    "Allreduce": (2, True),
    "Scan": (2, True),
    "Exscan": (2, True),
    "Reduce_scatter_block": (2, True),
    "Reduce_scatter": (2, True, False, "", True),
    "Reduce": (2, True, True, "dst"),
    "Neighbor_allgather": (2,),
    "Neighbor_alltoall": (2,),
}
_FORMS |= {
    f"I{name[0].lower()}{name[1:]}": form
    for name, form in _FORMS.items()
    if name[0].isupper() and not name.startswith("N")
}
_FORMS |= {
    name: (-1, op, root, "", False, obj)
    for name, op, root, obj in (
        ("bcast", False, True, "obj"), ("gather", False, True, "sendobj"),
        ("scatter", False, True, "sendobj"), ("allgather", False, False, "sendobj"),
        ("alltoall", False, False, "sendobj"), ("reduce", True, True, "sendobj"),
        ("allreduce", True, False, "sendobj"), ("scan", True, False, "sendobj"),
        ("exscan", True, False, "sendobj"),
    )
}  # fmt: skip
_NOT_KEPT = (-1,)


@functools.cache
def form_of(name: str) -> Any:
    """Return how a method takes its arguments; None without the core."""
    if core is None:
        return None
    root_at, sizes = ROOT_AT.get(name, -1), SIZES.get(name, "")
    return core.Form(name, *_FORMS.get(name, _NOT_KEPT), root_at=root_at, sizes=sizes)


def by_mpi(name: str, run: Run, met: Run) -> Run:
    """Return mpi4py's method, but that each call leaves a note in the communicator's record."""
    key = form_of(name) or name

    @functools.wraps(run)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._counts().by_mpi(key, run, met, (self, *arguments), keywords)

    return method


def repeating(name: str, run: Run, met: Run, slow: Run, *, returns_request: bool = False) -> Run:
    """Return a method that gives all but repeated calls to `slow`.

    Calls that MPI carries go to mpi4py's method `run`. If one raises an error,
    ``met(name, error)`` returns whether it met the other threads.
    """
    if core is not None:
        found: Run = core.Method(form_of(name), run, met, slow, returns_request)
        return found
    if returns_request:
        run = returning_request(run)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        record = self._record
        if record is not None and record.left:
            return record.give(name, run, met, self, arguments, keywords)
        return slow(self, *arguments, **keywords)

    return method


if core is not None:
    core.set_repeated(MPI.IN_PLACE, error_for, XupcError)
