"""Compare the calls of threads on different machines, where MPI carries the call of one of them.

On one machine the threads read each other's notes (`crossed_calls`). The lowest thread of each
machine sums up the notes of threads that have waited for long, with the summaries of its children
in the failure tree (`note_summary`). If the sum shows a difference, all threads of all machines get
it, as any trouble. If not, the sum goes to the parent, when it has changed and the parent has read
the last one. So while threads wait, no message follows; while none waits, there is none at all.

What a summary says need not be confirmed: a thread has made these calls for good, and threads that
wait for each other go on waiting.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .control_segment import Control
from .crossed_calls import FRESH, read_note
from .hang_of_all import stuck_here
from .note_comparison import MESSAGE, Note
from .note_summary import Runs, Summary, difference_in, merged, summary_of

if TYPE_CHECKING:
    from .failure_tree import FailureTree

__all__ = ["CallsElsewhere"]

LONG = 700_000_000  # ns of a wait before other machines get the calls of a thread
NOTHING: Summary = {"waits": [], "pasts": [], "stuck": []}


class CallsElsewhere:
    """The part of a machine in the comparison, for the detector of its lowest thread.

    Parameters
    ----------
    control : Control
        The control segment of the machine.
    tree : FailureTree
        The failure tree of the machines.
    """

    def __init__(self, control: Control, tree: FailureTree) -> None:
        self._control = control
        self._tree = tree
        self._here = NOTHING
        self._below: dict[int, Summary] = {}  # by the lowest thread of the machine that sent it
        self._changed = False
        self._whole = self._sent = NOTHING
        tree.summary = self._received

    @property
    def stuck(self) -> Runs:
        """The threads of this machine and of those below it that are stuck."""
        return self._whole["stuck"]

    def _received(self, thread: int, summary: Summary) -> None:
        self._below[thread] = summary
        self._changed = True

    def turn(self) -> str:
        """Send what has changed, and return how the calls differ, or ""."""
        if self._control.trouble() is not None:
            return ""
        here, found = self._summary(), ""
        if self._changed or here != self._here:
            self._here, self._changed = here, False
            self._whole = merged([here, *self._below.values()])
            found = difference_in(self._whole)
        if self._whole != self._sent and self._tree.send_summary(self._whole):
            self._sent = self._whole
        return found

    def _summary(self) -> Summary:
        control, now = self._control, time.monotonic_ns()
        fresh = control.noted_since(now - FRESH)
        notes = (read_note(control, i) for i in fresh)
        found = [
            note for note in notes
            if note is not None and note["since"] < now - LONG and not _of_message(note)
        ]  # fmt: skip
        return {**(summary_of(found) if found else NOTHING), "stuck": stuck_here(control)}


def _of_message(note: Note) -> bool:
    """Return whether a thread waits in a call that has nothing to compare."""
    inside = note["inside"]
    return inside is not None and inside["label"] == MESSAGE
