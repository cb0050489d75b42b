"""Methods in place of mpi4py's, without most of xupc.

A program whose communicators make few calls never loads what decides about calls and carries them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from .failures import met
from .repeated import by_mpi, repeating

__all__ = ["replaced"]

Run = Callable[..., Any]


def replaced(name: str, run: Run, *, returns_request: bool = False) -> Run:
    """Return a method in place of mpi4py's method `run`.

    What decides about calls is loaded at the first call that needs it: most of xupc comes with it.
    """
    decide: Run | None = None

    def slow(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal decide
        if self._record is None:
            call = method
            try:
                self._counts()
            except MPI.Exception:
                call = run  # mpi4py raises its own error, not inside `except`: without a context
            return call(self, *arguments, **keywords)
        if decide is None:
            decide = deciding(name, run)
        return decide(self, *arguments, **keywords)

    short = repeating(name, run, met, slow, returns_request=returns_request)
    method: Run = functools.wraps(run)(short)
    return method


def deciding(name: str, run: Run) -> Run:
    """Return the method that looks at each call."""
    from .collectives import CALLS

    return CALLS[name](name, by_mpi(name, run, met))
