"""Calls that repeat an earlier one of the communicator, in all but the addresses: a short way in C.

`decision.taken_over` decides about a call and carries it: the slow way. If the call worked on
the program's own arrays, the core then keeps what the program gave, and the instance that carried
it. A later call that gives the same would be decided in the same way, so it runs that instance at
once. Arrays and datatypes are recognised by identity of their types, all else goes the slow way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..backends.native.native_core import core
from .mismatch import error_for

__all__ = ["CallTable", "form_of", "repeating"]


class _NoTable:
    """The same interface as the core's table, without the core."""

    __slots__ = ()

    def forget(self) -> None:
        """Do nothing: no calls are kept."""

    def learn(self, *call: object) -> None:
        """Do nothing: no calls are kept."""

    def take_counts(self) -> list[tuple[str, int, int]]:
        """Return no counts."""
        return []


CallTable: Any = _NoTable if core is None else core.CallTable

# How mpi4py's methods take their arguments: messages, operation, root, what only the root has.
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
    "Reduce": (2, True, True, "dst"),
    "Neighbor_allgather": (2,),
    "Neighbor_alltoall": (2,),
}


def form_of(name: str) -> Any:
    """Return how a method takes its arguments; None if its calls are not kept."""
    if core is None or name not in _FORMS:
        return None
    return core.Form(name, *_FORMS[name])


def repeating(form: Any, slow: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that runs repeated calls in C, and gives all others to `slow`."""
    method: Callable[..., Any] = core.repeating(form, slow)
    return method


if core is not None:
    core.set_repeated(MPI.IN_PLACE, error_for)
