"""What threads publish of their calls, for tests of the comparison."""

from __future__ import annotations

from typing import Any

from xupc.health.note_comparison import CommNotes, Note

__all__ = ["note", "on"]


def on(calls: int, *last: str, rank: int = 0, team: int = -1, epoch: int = 0) -> CommNotes:
    """Return the calls of a thread on a communicator: the last ones as `text_of_past`."""
    return {
        "epoch": epoch, "calls": calls, "last": list(last), "team": team, "ranks": [[rank, rank]],
        "alone": (0, ""),
    }  # fmt: skip


def note(thread: int, comms: dict[str, CommNotes], inside: Any = None, **more: Any) -> Note:
    """Return a note of a thread: inside a call of MPI, (label, method, root), or in xupc."""
    if inside is not None:
        label, name, root = inside
        found = comms.get(label)
        inside = {
            "label": label, "call": found["calls"] if found else 9, "name": name, "root": root,
            "nbytes": more.pop("nbytes", None),
        }  # fmt: skip
    made: Any = {
        "since": 0, "threads": [[thread, thread]], "inside": inside, "wait": [7, 3],
        "text": "Call()", "line": "p.py:1", "alone": True, "stuck": False, "comms": comms,
    }  # fmt: skip
    whole: Note = made | more
    return whole
