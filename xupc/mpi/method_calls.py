"""Collectives on private arrays under the names of mpi4py's methods.

A method that xupc carries runs one or several of these. Errors, reports of hangs and recorded calls
then name what the program has called.
"""

from __future__ import annotations

import functools

from ..api.array_call import ArrayCall
from ..specs import SPECS

__all__ = ["MethodCall", "call_of"]


class MethodCall(ArrayCall):
    """A collective that carries calls of one method; `kind`: what else all threads compare."""

    def __init__(self, method: str, collective: str, kind: str = "") -> None:
        super().__init__(SPECS[collective], kind=kind)
        self.__name__ = method


@functools.cache
def call_of(method: str, collective: str) -> MethodCall:
    """Return the collective, "broadcast" for example, that carries calls of a method."""
    return MethodCall(method, collective)
