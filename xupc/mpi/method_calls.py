"""Collectives on private arrays under the names of mpi4py's methods.

A method that xupc carries runs one or several of these. Errors, reports of hangs and recorded calls
then name what the program has called.
"""

from __future__ import annotations

import functools

from ..api.array_arguments import Arrays, RawArguments
from ..api.array_call import ArrayCall
from ..errors import show
from ..health.call_record import CallRecord
from ..reduction.foreign_ops import mpi_name_of
from ..specs import SPECS

__all__ = ["MethodCall", "call_of"]


class MethodCall(ArrayCall):
    """A collective that carries calls of one method; `kind`: what else all threads compare."""

    def __init__(self, method: str, collective: str, kind: str = "") -> None:
        super().__init__(SPECS[collective], kind=kind)
        self.__name__ = method

    def _record(self, given: RawArguments, found: Arrays | None) -> CallRecord:
        """Return what must be equal on all threads, in the terms of mpi4py."""
        op, root = given.op, given.root
        what, much = ("elements", "") if self.spec.computes else ("message", "")
        if found is not None:  # what is only moved are bytes here, whatever the program's type
            much = f"{found.n} x {found.dtype}" if self.spec.computes else f"{found.n} bytes"

        def arguments() -> list[tuple[str, str]]:
            out = [(what, much)] if much else []
            if self.kind:
                out.append(("type", self.kind))
            if self.spec.computes:
                out.append(("op", mpi_name_of(op)))
            if self.spec.root:
                out.append(("root", show(root)))
            return out

        return CallRecord(self.__name__, arguments, title=f"{self.__name__}({much})")


@functools.cache
def call_of(method: str, collective: str) -> MethodCall:
    """Return the collective, "broadcast" for example, that carries calls of a method."""
    return MethodCall(method, collective)
