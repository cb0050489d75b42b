"""The activities of the threads in a call, as the clock of a plan finds them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Act", "Timeline"]


@dataclass(frozen=True)
class Act:
    """An activity that takes time of a thread or of its network.

    Attributes
    ----------
    kind
        "copy", "fold", "wait", "barrier", "send", "receive" or "get".
    thread
        A rank of the team.
    start, end
        In ns from the start of the call.
    peer
        The other rank of a message; -1 for other kinds.
    """

    kind: str
    thread: int
    start: float
    end: float
    nbytes: int = 0
    peer: int = -1


@dataclass
class Timeline:
    """All activities of a call, and its end in ns from its start."""

    acts: list[Act]
    end: float

    def of(self, thread: int) -> list[Act]:
        """Return the activities of a thread, by start."""
        return sorted(
            (act for act in self.acts if act.thread == thread), key=lambda a: (a.start, a.end)
        )

    def total(self, thread: int, kind: str) -> tuple[float, int]:
        """Return the ns and bytes that a thread spends on one kind of activity."""
        found = [act for act in self.acts if act.thread == thread and act.kind == kind]
        return sum(act.end - act.start for act in found), sum(act.nbytes for act in found)
