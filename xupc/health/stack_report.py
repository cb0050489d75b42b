"""Report the position of each thread: its call, its Python line, since when; grouped.

A request comes from a thread whose wait took too long, a thread that received SIGUSR2, or
``xupc hang-report``. It writes the time into the head of the machine's control segment. The
detector of each thread reads it there and publishes the innermost Python line outside of xupc;
the call is read from the thread's ring. A thread that does not answer within a second is stopped,
or runs C code that holds the interpreter. Then the report uses its ring and the kernel's state.

Across machines the lowest threads forward the request, collect the answers of their machine, and
send them, grouped, to all others (`xupc.health.failure_tree`). So the control segment of every
machine holds all answers.
"""

from __future__ import annotations

import json
import os
import site
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ..records import record
from .call_log import Call
from .control_layout import PLACES_BYTES
from .control_segment import Control
from .crossed_calls import held_by_mpi
from .thread_ranges import range_text, ranges

__all__ = [
    "Gathering",
    "Group",
    "Row",
    "line_of",
    "merge",
    "report_text",
]

HERE = 1.0  # seconds for the threads of this machine to answer
THERE = 2.5  # seconds for other machines
MOST_GROUPS = 24
ROOM = PLACES_BYTES - 64
_TEXT = 300
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
_TOOLS = tuple(f"{_PACKAGE}{name}{os.sep}" for name in ("bench", "cli", "report"))
_LIBRARIES = tuple(
    folder + os.sep for folder in (os.path.dirname(os.__file__), *site.getsitepackages())
)
_STATES = {
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
    "D": "waiting for a device",
    "R": "computing in C code?",
    "S": "sleeping in C code?",
}


# -- which line ----------------------------------------------------------------------------------


def line_of(frame: FrameType | None) -> tuple[str, bool]:
    """Return the innermost line outside of xupc, and whether the thread is inside xupc.

    A line of a library is followed by the line of the program that called it.
    """
    inside = frame is not None and _is_ours(frame)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return "", inside
    line = _name(frame)
    program: FrameType | None = frame
    while program is not None and _is_library(program):
        program = program.f_back
    if program is None or program is frame:
        return line, inside
    return f"{line} from {_name(program)}", inside


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_PACKAGE) and not file.startswith(_TOOLS)


def is_internal(frame: FrameType) -> bool:
    """Return whether a frame is in the library, not in a program or one of its tools."""
    return _is_ours(frame)


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((*_LIBRARIES, "<frozen "))


def _name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    dunder = path.stem.startswith("__") and path.parent.name
    return f"{path.parent.name + os.sep if dunder else ''}{path.name}:{frame.f_lineno}"


# -- groups as text -----------------------------------------------------------------------------


@record
class Row:
    """The position of a thread, for how many `seconds` if known, and a remark `else_`."""

    thread: int
    place: str
    seconds: float | None = None
    else_: str = ""


@record
class Group:
    """Threads at one position, for `least` to `most` seconds."""

    place: str
    else_: str
    threads: tuple[tuple[int, int], ...]
    least: float | None = None
    most: float | None = None

    @property
    def size(self) -> int:
        """Return the number of threads."""
        return sum(last - first + 1 for first, last in self.threads)

    def __str__(self) -> str:
        time_ = f", for {_seconds(self.least, self.most)}" if self.most is not None else ""
        else_ = f" ({self.else_})" if self.else_ else ""
        return f"{range_text(self.threads)}: {self.place}{time_}{else_}"


def _seconds(least: float | None, most: float | None) -> str:
    first, last = f"{least or 0:.1f}", f"{most or 0:.1f}"
    close = (most or 0) - (least or 0) < 0.5
    return f"{last} s" if first == last or close else f"{first} to {last} s"


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Group threads at the same position, the largest group first."""
    return merge(
        [Group(r.place, r.else_, ((r.thread, r.thread),), r.seconds, r.seconds) for r in rows]
    )


def merge(groups: Iterable[Group]) -> list[Group]:
    """Merge groups at the same position; the largest first."""
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.place, group.else_), []).append(group)
    out = [_together(place, else_, same) for (place, else_), same in found.items()]
    return sorted(out, key=lambda g: (-g.size, g.threads))


def shortened(groups: Sequence[Group], most: int = MOST_GROUPS) -> list[Group]:
    """Return at most so many groups: the last one holds all threads of the smallest ones."""
    if len(groups) <= most:
        return list(groups)
    rest = groups[most - 1 :]
    return [*groups[: most - 1], _together(f"in {len(rest)} other places", "", rest)]


def _together(place: str, else_: str, groups: Sequence[Group]) -> Group:
    """Merge groups into one, with the least and the most of their times."""
    threads = ranges(t for g in groups for a, b in g.threads for t in range(a, b + 1))
    times = [t for g in groups for t in (g.least, g.most) if t is not None]
    return Group(place, else_, threads, min(times, default=None), max(times, default=None))


def report_text(groups: Sequence[Group]) -> str:
    """Return one line for each group."""
    return "\n".join(f"  {group}" for group in shortened(groups))


# -- as JSON, for the other machines -------------------------------------------------------------


def pack(groups: Sequence[Group]) -> Sequence[Sequence[object]]:
    """Return groups as data for JSON, shortened to the bytes that fit."""
    runs = ROOM // 8
    while True:
        for most in (MOST_GROUPS, 8, 1):
            rows = [
                [g.place[:_TEXT], g.else_[:_TEXT], g.threads[:runs], g.least, g.most]
                for g in shortened(groups, most)
            ]
            if len(json.dumps(rows)) < ROOM:
                return rows
        runs //= 2


def unpack(rows: Any) -> list[Group]:
    """Return the groups of `pack`; raise ValueError or TypeError for other data."""
    found = []
    for place, else_, threads, *times in rows:
        runs = tuple((int(a), int(b)) for a, b in threads)
        least, most = (None if t is None else float(t) for t in times)
        found.append(Group(str(place), str(else_), runs, least, most))
    return found


# -- requests -------------------------------------------------------------------------------------


class Gathering:
    """One request for positions, by a thread of the machine or from outside of the job.

    Parameters
    ----------
    control : Control
        The control segment of the machine.
    asked : int, optional
        The time of the request, if another process has made it.
    """

    def __init__(self, control: Control, asked: int | None = None) -> None:
        self.control = control
        self.asked = control.ask() if asked is None else asked

    @property
    def here(self) -> bool:
        """Return whether the living threads of this machine have answered or have had time to."""
        if self._age > HERE:
            return True
        control = self.control
        silent = (~control.answered(self.asked)).nonzero()[0]
        return all(control.process_of(int(i)) is None for i in silent)

    @property
    def there(self) -> bool:
        """Return whether all machines have answered or have had time to."""
        if self._age > THERE:
            return True
        far = (k for k in range(self.control.machines) if k != self.control.machine)
        return self.here and all(self.control.places_of(k)[0] >= self.asked for k in far)

    @property
    def _age(self) -> float:
        return (time.monotonic_ns() - self.asked) * 1e-9

    def wait(self) -> None:
        """Wait until all have answered or have had time to."""
        while not self.there:
            time.sleep(0.01)

    def mine(self) -> list[Group]:
        """Return the positions of this machine's threads."""
        return grouped(self._row(i) for i in range(self.control.threads))

    def groups(self) -> list[Group]:
        """Return the positions of all threads of the job, as far as known."""
        control = self.control
        found = self.mine()
        for k in range(control.machines):
            if k != control.machine:
                found += self._far(k)
        return merge(found)

    def _far(self, machine: int) -> list[Group]:
        when, rows = self.control.places_of(machine)
        if when >= self.asked:
            try:
                return unpack(rows)
            except (ValueError, TypeError):
                pass
        _, thread, host = self.control.host(machine)
        place = f"no word from host {host}, whose first thread this is"
        return [Group(place, "", ((thread, thread),))]

    def _row(self, index: int) -> Row:
        control = self.control
        _, thread, _ = control.who(index)
        calls = control.calls_of(index)
        line, inside = control.line_of(index)
        if not control.answered(self.asked)[index]:
            line, inside = _silent(control.process_of(index)), False
        place, since, else_ = self._place(index, calls, inside)
        seconds = (time.monotonic_ns() - since) * 1e-9 if since else None
        place = f"{place}, {line}" if line else place
        return Row(thread, place, seconds and max(seconds, 0.0), else_)

    def _place(self, index: int, calls: list[Call], inside: bool) -> tuple[str, int, str]:
        """Return the call that a thread is in, since when, and a remark."""
        control = self.control
        under_way = [call for call in calls if not call.ended]
        blocking = [call for call in under_way if not call.posted]
        waits = control.waits_for(index)
        if blocking:
            return blocking[-1].name, blocking[-1].began, ""
        if waits:
            since, op, team = control.wait_of(index)
            same = [call.name for call in under_way if (call.op, call.team) == (op, team)]
            name = same[0] if same else waits.split(": no word from")[0]
            return name, since, ""
        if (by_mpi := held_by_mpi(control, index)) is not None:
            return by_mpi
        # the clock is coarse: of calls with equal times, take the latest
        last = max(reversed(calls), key=lambda call: call.ended or call.began, default=None)
        posted = "; ".join(call.name for call in under_way)
        else_ = f"posted: {posted}" if posted else f"last call: {last.name}" if last else ""
        if inside:
            return "in xupc", 0, else_
        since = (last.ended or last.began) if last else 0
        return "not in xupc", since, else_ or "no call yet"


def _silent(pid: int | None) -> str:
    """Return the kernel's state of a process that does not answer."""
    if pid is None:
        return "dead"
    if not pid or sys.platform != "linux":
        return "does not answer"
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"does not answer (pid {pid})"
    return f"does not answer ({_STATES.get(letter, letter)}; pid {pid})"
