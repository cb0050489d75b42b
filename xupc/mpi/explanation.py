"""The text and the data of `Comm.explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import methods
from .switch import EXPLAIN, mode

__all__ = ["as_data", "as_text", "by_mpi"]

Counts = Mapping[tuple[str, str, str], Sequence[int]]
"""``(method, carrier, why): [calls, bytes, calls whose bytes are not known]``."""

_NOT_KNOWN = "-: this thread does not know the bytes of all these calls"
_NOT_COUNTED = "calls of methods that always go to MPI are counted only under XUPC_COMM=explain"


def as_data(counts: Counts) -> dict[str, dict[str, Any]]:
    """Return calls, bytes, carriers and reasons by method."""
    data: dict[str, dict[str, Any]] = {}
    for method, carrier, calls, nbytes, why in _rows(counts):
        entry = data.setdefault(method, {"calls": 0, "bytes": 0, "carried_by": {}, "why": {}})
        entry["calls"] += calls
        entry["bytes"] = None if None in (entry["bytes"], nbytes) else entry["bytes"] + nbytes
        entry["carried_by"][carrier] = entry["carried_by"].get(carrier, 0) + calls
        if why:
            entry["why"][why] = calls
    return data


def as_text(counts: Counts, title: str) -> str:
    """Return a table for people, under a title."""
    rows = [("method", "calls", "bytes", "by", "why")]
    rows += [
        (method, str(calls), "-" if nbytes is None else str(nbytes), carrier, why)
        for method, carrier, calls, nbytes, why in _rows(counts)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [title]
    for name, calls_, nbytes_, carrier, why in rows:
        numbers = f"{calls_:>{widths[1]}}  {nbytes_:>{widths[2]}}"
        lines.append(f"  {name:<{widths[0]}}  {numbers}  {carrier:<{widths[3]}}  {why}".rstrip())
    if len(rows) == 1:
        lines = [f"{title}: no call was counted"]
    if any(row[2] == "-" for row in rows):
        lines.append(f"  ({_NOT_KNOWN})")
    if mode() != EXPLAIN:
        lines.append(f"  ({_NOT_COUNTED})")
    return "\n".join(lines)


def by_mpi(counts: Counts) -> list[tuple[str, str, int]]:
    """Return (method, reason, calls) of those that MPI has carried, for a trace."""
    rows = [(method, why, calls) for method, by, calls, _, why in _rows(counts) if by == "MPI"]
    return [(method, why, calls) for method, why, calls in rows if calls]


def _rows(counts: Counts) -> list[tuple[str, str, int, int | None, str]]:
    """Return (method, carrier, calls, bytes, why), most calls first."""
    rows = [
        (
            method, carrier, calls, None if unknown else nbytes,
            why or (_why(method) if carrier == "MPI" else ""),
        )
        for (method, carrier, why), (calls, nbytes, unknown) in counts.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row[2], row[0], row[1]))


def _why(method: str) -> str:
    return methods.group_of(method).why
