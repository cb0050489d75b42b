"""Read the calls on communicators for the failure detector (`journal`).

It reads them in its daemon thread, while the program waits: it runs no code of the program's
objects, and calls no function of MPI.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..health.note_comparison import CommNotes, Inside, text_of_past
from .journal import array_bytes, inside_mpi, messages_of, root_in
from .record import open_records

__all__ = ["Notes"]


class Notes:
    """The calls on the communicators of this process; see `xupc.health.crossed_calls.Source`."""

    def place(self) -> tuple[str, int] | None:
        """Return the label of the communicator of the call inside MPI, and the call's number."""
        found = inside_mpi()
        return None if found is None else (found[0].label, found[0].last_calls()[0])

    def inside(self) -> Inside | None:
        """Describe the call inside MPI."""
        found = inside_mpi()
        if found is None:
            return None
        journal, name, arguments, keywords = found
        root, nbytes = _described(name, arguments, keywords)
        return {
            "label": journal.label, "call": journal.last_calls()[0], "name": name, "root": root,
            "nbytes": nbytes,
        }  # fmt: skip

    def comms(self, wanted: Collection[str], team: int, most: int) -> dict[str, CommNotes]:
        """Return the calls on some communicators: those `wanted`, the team's one, and others."""
        known = [record for record in open_records() if _comparable(record)]
        known.sort(key=lambda r: (r.label not in wanted, _number(r) != team, r.label))
        return {record.label: _notes(record) for record in known[:most]}


def _number(record: Any) -> int:
    team = record.team
    return -1 if team is None else int(team.state.number)


def _comparable(record: Any) -> bool:
    """Return whether the numbers of the calls are those of the other threads."""
    if not record.label or record.unsure:
        return False
    # a nonblocking call may have found a difference: it does not number the calls anew
    return record.team is None or bool(record.team.state.core.since == record.epoch)


def _notes(record: Any) -> CommNotes:
    calls, last = record.last_calls()
    rank = record.place[0]
    return {
        "epoch": record.epoch, "calls": calls, "team": _number(record), "ranks": [[rank, rank]],
        "alone": record.alone,
        "last": [text_of_past(*noted) for noted in last],
    }  # fmt: skip


def _described(
    name: str, arguments: list[Any], keywords: tuple[str, ...]
) -> tuple[int | None, int | None]:
    """Return the root and the bytes of the first message, as far as they are known for sure.

    It runs no code of the program's objects.
    """
    if not arguments:  # too many of them
        return None, None
    n = len(arguments) - len(keywords)
    given, named = arguments[1:n], dict(zip(keywords, arguments[n:], strict=True))
    found = (_bytes(message) for _, message in messages_of(name, given, named))
    sizes = [size for size in found if size is not None]
    return root_in(name, given, named), (sizes[0] if sizes else None)


def _bytes(message: Any) -> int | None:
    return array_bytes(message[0] if type(message) is list and len(message) == 1 else message)
