"""Values that MPI holds as attributes of communicators, and what to do when it drops them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["HeldByMPI"]

T = TypeVar("T")


class HeldByMPI(Generic[T]):
    """A value for ``Set_attr`` that calls a function with `value` when MPI deletes the attribute.

    Its key needs no delete function, and must have none of Python's. For such a function mpi4py
    4.1.2 makes an object of the communicator, and looks for its topology among its attributes,
    while MPICH 5.0.2 deletes them one by one. If the function's attribute is not the first one,
    MPICH then reads an attribute that it has freed: a null pointer, and the end of the process,
    when as many attributes are in use as MPICH has room for (32, and so on), once the process has
    made a Cartesian or graph communicator.

    Only the attribute may refer to it for long, so that it ends with the attribute.
    """

    __slots__ = ("_dropped", "value")

    def __init__(self, value: T, dropped: Callable[[T], object]) -> None:
        self.value = value
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped(self.value)
