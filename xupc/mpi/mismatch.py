"""The error of calls that differ, as programs for MPI catch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..errors import CollectiveMismatchError

__all__ = ["MismatchError", "carry", "error_for"]


class MismatchError(CollectiveMismatchError, MPI.Exception):
    """The threads are not all in the same call; also an `MPI.Exception`, of class ERR_OTHER."""

    def __init__(self, text: str = "") -> None:
        MPI.Exception.__init__(self, MPI.ERR_OTHER)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"MismatchError({self.text!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.text,)


def carry(call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call of xupc, and return what it returns.

    Raises
    ------
    MismatchError
        Where the call raises CollectiveMismatchError.
    """
    try:
        return call(*arguments)
    except CollectiveMismatchError as error:
        raise MismatchError(str(error)) from error


def error_for(error: Exception) -> MismatchError | None:
    """Return the error to raise in place of an error of xupc's; None if that one is right."""
    return MismatchError(str(error)) if isinstance(error, CollectiveMismatchError) else None
