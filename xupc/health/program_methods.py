"""The methods of mpi4py's by which a program makes a team's calls, for messages about mismatches.

Most calls of a program on `xupc.Comm` are collectives under the name of the method
(`xupc.mpi.method_calls`). This is for calls that two methods share, such as a barrier: a message
has to name what the program called.
"""

from __future__ import annotations

from collections import deque

from .call_record import LIBRARY_BARRIER, CallRecord

__all__ = ["ProgramMethods"]

_MOST = 128  # notes: more than two for each call that a team compares


class ProgramMethods:
    """The last methods that a team of `xupc.Comm` has carried, with the operations of each."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        # (operation before the method, method)
        self._last: deque[tuple[int, str]] = deque(maxlen=_MOST)

    def begin(self, op: int, method: str) -> None:
        """Note that the operations after `op` belong to a method; "": to none that is known."""
        self._last.append((op, method))

    @staticmethod
    def repeats(method: str, record: CallRecord) -> None:
        """Note that the core repeats the call of a record for a method, without `begin`."""
        if not record.repeated_by:
            record.repeated_by = method
        elif method not in record.repeated_by.split(" or "):
            record.repeated_by += f" or {method}"

    def named(self, record: CallRecord, op: int) -> CallRecord:
        """Return the record of an operation under the name of its method, if it has one."""
        if record.name == LIBRARY_BARRIER:
            return record
        method = self._method_of(op) or record.repeated_by
        return record.renamed(method) if method else record

    def _method_of(self, op: int) -> str:
        return next((method for before, method in reversed(self._last) if before < op), "")
