"""Compare the calls of threads that wait, where MPI carries the call of at least one of them.

A call of xupc and a call of MPI never meet, and MPI does not compare calls. So threads whose calls
on `xupc.Comm` differ would wait for ever. The daemon thread of the failure detector calls
`CrossedCalls.turn` four times a second. When its thread has been in one wait for a while, in xupc
or in MPI, it publishes its last calls on each communicator in the control segment. It reads those
of the other threads of the machine. Two things show for sure that the program is wrong:

* calls of one communicator and one number that differ: in the method, in the library that carries
  them, or in the root or the size of MPI's calls; also if the threads have left them;
* threads that wait for each other in calls on several communicators.

A thread that is late publishes nothing, so it causes no error, however late it is. What is found
counts if all threads in it publish the same wait once more.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, cast

from ..backends.own_threads import main_alone
from ..backends.running_time import RunningTime
from .control_segment import Control
from .message_waits import MessageWaits
from .note_comparison import MESSAGE, OPENING, CommNotes, Inside, Note, compared, text_of

__all__ = ["CrossedCalls", "Source", "held_by_mpi", "read_from"]

STALLED = 0.2  # seconds of a wait before a thread publishes its calls
FRESH = 5_000_000_000  # ns after which a note counts as that of a thread that has gone on
MOST = (16, 8, 4, 1, 0)  # communicators of a note, as many as it has room for


class Source(Protocol):
    """The calls on the communicators of this process; `mpi/journal_notes.py` implements it."""

    def place(self) -> tuple[str, int] | None:
        """Return the label of the communicator of the call inside MPI, and the call's number."""

    def inside(self) -> Inside | None:
        """Describe the call inside MPI."""

    def comms(self, wanted: Collection[str], team: int, most: int) -> dict[str, CommNotes]:
        """Return the calls on some communicators: those `wanted`, the team's one, and others."""


_source: Source | None = None


def read_from(source: Source) -> None:
    """Set what knows the calls on the communicators of this process."""
    global _source
    _source = source


def read_note(control: Control, index: int) -> Note | None:
    """Return what a thread of the machine has published, None if it does not wait."""
    when, data = control.note_of(index)
    if time.monotonic_ns() - when > FRESH:
        return None
    return _parsed(data)


@functools.lru_cache(1024)
def _parsed(data: bytes) -> Note | None:
    """Return a note; a thread that still waits publishes the same data again."""
    try:
        return cast("Note | None", json.loads(data))
    except ValueError:
        return None


def held_by_mpi(control: Control, index: int) -> tuple[str, int, str] | None:
    """Return for a report the call that a thread is inside, since when, and a remark."""
    note = read_note(control, index)
    if note is None or note["inside"] is None:
        return None
    label = note["inside"]["label"]
    text = note["text"] if note["inside"]["name"] == OPENING else f"{note['text']} of MPI"
    error = note["comms"][label]["alone"][1] if label in note["comms"] else ""
    return text, note["since"], f"last error: {error}" if error else ""


class CrossedCalls:
    """The part of a thread in the comparison.

    Parameters
    ----------
    control : Control
        The control segment of the machine.
    line : callable
        Returns the Python line of the program.
    messages : MessageWaits
        The waits of this thread in other calls of MPI.
    """

    def __init__(self, control: Control, line: Callable[[], str], messages: MessageWaits) -> None:
        self._control = control
        self._line = line
        self._messages = messages
        self._at: tuple[object, ...] | None = None
        self._time = RunningTime()
        self._published = False
        self._suspected: tuple[object, int] | None = None

    @property
    def held(self) -> tuple[str, float] | None:
        """Return the call of MPI that this thread has been inside for a while, and the seconds."""
        if not self._published or self._at is None or self._at[0] == "xupc":
            return None
        found = held_by_mpi(self._control, self._control.index)
        return None if found is None else (found[0], self._time.look())

    @property
    def awaits_message(self) -> bool:
        """Return whether this thread waits in a call that is no collective of `xupc.Comm`."""
        return self._at is not None and self._at[0] == MESSAGE

    @property
    def busy(self) -> bool:
        """Return whether a finding has to be confirmed soon."""
        return self._suspected is not None

    def turn(self) -> str:
        """Look at this thread, and return how its calls differ from others', or ""."""
        at = self._place()
        if at != self._at:
            self._at, self._time, self._suspected = at, RunningTime(), None
            if self._published:
                self._control.write_note(None)
                self._published = False
        if at is None or self._time.look() < STALLED:
            return ""
        if at[0] == MESSAGE:
            self._write_wait(*cast("tuple[int, str]", at[1:]))
            return ""
        return "" if _source is None else self._compare(_source)

    def _place(self) -> tuple[object, ...] | None:
        """Return in which wait this thread is; None if it may be in none."""
        inside = None if _source is None else _source.place()
        if inside is not None:
            return ("MPI", *inside)
        control, me = self._control, self._control.index
        _, op, team = control.wait_of(me)
        if op and control.waits_in(me, team, op):
            return ("xupc", team, op)
        wait = None if control.waits(me) else self._messages.turn()
        return None if wait is None else (MESSAGE, *wait)

    def _write_wait(self, number: int, name: str) -> None:
        """Publish a wait that is no collective's."""
        inside = Inside(label=MESSAGE, call=number, name=name, root=None, nbytes=None)
        stuck = self._messages.stuck(self._time.look())
        self._published = self._control.write_note(
            {
                "since": self._time.since, "threads": self._myself(), "inside": inside,
                "wait": [0, 0], "text": text_of(inside), "line": self._line(), "alone": True,
                "stuck": stuck, "comms": {},
            }
        )  # fmt: skip

    def _myself(self) -> list[list[int]]:
        return [[self._control.who(self._control.index)[1]] * 2]

    def _compare(self, source: Source) -> str:
        notes = self._notes_of_others()
        wanted = {n["inside"]["label"] for n in notes.values() if n["inside"]}
        mine = self._written(source, wanted)
        if mine is None:
            return ""
        self._published = True
        notes[self._control.index] = mine
        found = compared(notes, self._awaited_in(notes))
        if found is None or self._control.index != min(found.threads):
            self._suspected = None
            return ""
        key = [(notes[i]["inside"], notes[i]["wait"]) for i in found.threads]
        if self._suspected is None or self._suspected[0] != key:
            self._suspected = key, time.monotonic_ns()
            return ""
        since, control = self._suspected[1], self._control
        return found.text if all(control.note_of(i)[0] > since for i in found.threads) else ""

    def _notes_of_others(self) -> dict[int, Note]:
        control = self._control
        found = ((i, read_note(control, i)) for i in range(control.threads) if i != control.index)
        return {i: note for i, note in found if note is not None}

    def _written(self, source: Source, wanted: Collection[str]) -> Note | None:
        """Publish the note of this thread and return it; None if the thread has moved meanwhile."""
        for most in MOST:
            note = self._note(source, wanted, most)
            if note is None or self._control.write_note(note):
                return note
        return None

    def _note(self, source: Source, wanted: Collection[str], most: int) -> Note | None:
        """Return the note of this thread; None if it has moved meanwhile."""
        control, me = self._control, self._control.index
        _, op, team = control.wait_of(me)
        inside = source.inside()
        comms = source.comms(wanted, team if inside is None else -1, most)
        line, text = self._line(), control.waits_for(me).split(": no word from")[0]
        if inside is not None:
            text = text_of(inside)
        if self._place() != self._at:
            return None
        return {
            "since": self._time.since, "threads": self._myself(), "inside": inside,
            "wait": [team, op], "text": text[:300], "line": line,
            "alone": main_alone(), "stuck": False, "comms": comms,
        }  # fmt: skip

    def _awaited_in(self, notes: Mapping[int, Note]) -> Callable[[int], Collection[int]]:
        control = self._control
        index = {note["threads"][0][0]: i for i, note in notes.items()}

        def awaited(i: int) -> Collection[int]:
            _, team, op, threads = control.awaited_by(i)
            if [team, op] != notes[i]["wait"]:
                return ()
            return [index[t] for t in threads if t in index]

        return awaited
