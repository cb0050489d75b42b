"""The last calls of each thread in the control segment, and their texts.

The native core writes the ring of calls itself; the methods here that begin and end calls are for
the other backends.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ..records import record
from .control_layout import (
    CALL_RING,
    CALLS,
    LAST,
    NUMBER,
    POSTED,
    RING,
    TEXT_BYTES,
    TEXTS,
)
from .control_view import ControlView

__all__ = ["Call", "CallLog"]


@record
class Call:
    """One of a thread's last calls. Times are ns of the monotonic clock; `ended` 0: not yet."""

    op: int
    team: int
    text: str
    began: int
    ended: int
    posted: bool

    @property
    def name(self) -> str:
        """Return the call with its number, which is the same on all threads of its team."""
        return f"{self.text} #{self.op}"


class CallLog(ControlView):
    """The calls in a control segment: those of this thread to write, those of all to read."""

    @property
    def ring_address(self) -> int:
        """Return the address of this thread's ring."""
        return self.segment.address + self._ring + self.index * CALL_RING.itemsize

    def note(self, text: str) -> int:
        """Publish the text of a kind of call; return its number, for the status line."""
        self._next_text += 1
        self._write_call(self._next_text, text)
        return self._next_text

    def ensure(self, call: int, text: str) -> None:
        """Write the text of a call again if another text has replaced it."""
        if self._texts[call % TEXTS] != (call, text):
            self._write_call(call, text)

    def _write_call(self, call: int, text: str) -> None:
        self._texts[call % TEXTS] = call, text
        at = self._text_at(self.index, call)
        self._put_number(at, 0)
        self._write(at + NUMBER.size, text, TEXT_BYTES)
        self._put_number(at, call)

    def _text_at(self, index: int, call: int) -> int:
        return self._record(index) + CALLS + call % TEXTS * (NUMBER.size + TEXT_BYTES)

    def _text(self, index: int, call: int) -> str:
        """Return the text of a call, "" if another text has replaced it."""
        at = self._text_at(index, call)
        (number,) = NUMBER.unpack_from(self.segment.map, at)
        return self._read(at + NUMBER.size, TEXT_BYTES) if number == call else ""

    def _put_number(self, at: int, number: int) -> None:
        NUMBER.pack_into(self.segment.map, at, number)

    def last_call(self, index: int) -> str:
        """Return the text of the call that a thread is in, or was in last."""
        call = int(self.status[index]["call"])
        return (self._text(index, call) or "a call") if call else ""

    def begin_call(self, op: int, call: int, team: int) -> int:
        """Note the begin of a call, as the native core does; return the calls before it."""
        ring = self.rings[self.index]
        count = int(ring["count"])
        ring["call"][count % RING] = op, call | team << 32, time.monotonic_ns(), 0
        ring["count"] = count + 1
        return count

    def end_call(self, noted: int) -> None:
        """Note the end of a call as the native core does."""
        ring = self.rings[self.index]
        if int(ring["count"]) - noted <= RING:
            ring["call"][noted % RING]["ended"] = time.monotonic_ns()

    def posted(self) -> None:
        """Note that the last call is posted: it continues while the program does something else."""
        ring = self.rings[self.index]
        last = ring["call"][(int(ring["count"]) - 1) % RING]
        if not last["ended"]:
            last["ended"] = POSTED

    def all_over(self) -> None:
        """Note the end of all calls of this thread, except posted ones."""
        status, calls = self.status[self.index], self.rings[self.index]["call"]
        status["done"] = status["op"]
        calls["ended"][(calls["ended"] == 0) & (calls["op"] > 0)] = time.monotonic_ns()

    def calls_of(self, index: int) -> list[Call]:
        """Return the last `LAST` calls of a thread, the latest one last."""
        ring = self.rings[index]
        for _ in range(10):
            count = int(ring["count"])
            rows = ring["call"].copy()
            # the oldest may be half overwritten: a call is counted after it is written
            first = max(0, count - LAST, int(ring["count"]) + 1 - RING)
            if first < count or not count:  # else all are overwritten: try again
                break
        return [self._call(index, rows[i % RING]) for i in range(first, count)]

    def _call(self, index: int, row: NDArray[np.void]) -> Call:
        what, ended = int(row["what"]), int(row["ended"])
        team = what >> 32
        text = self._text(index, what & 0xFFFFFFFF)
        text = text or (f"a call of team {team}" if team else "a call")
        posted = ended == POSTED
        began, ended = int(row["began"]), 0 if posted else ended
        return Call(int(row["op"]), team, text, began, ended, posted)
