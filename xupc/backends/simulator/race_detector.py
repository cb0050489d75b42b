"""The race detector: which actor touched which bytes, and whether the accesses are ordered.

Knowledge is a bit mask, one Python int. Every access gets a bit, or shares it with the
other accesses of its actor since the actor's last signal or message. Signals and messages
carry bits: the mask of an actor holds all accesses known to the actor to have *ended*. An
access may start when all earlier conflicting accesses are known to have ended; a single
``&`` decides. The order of execution is one that happens-before allows, so an access need
not be compared with later ones.

The memory is cut into pieces wherever an access began or ended; each piece keeps the
accesses to all of it. An access is dropped when a newer one covers it and every later
conflicting access must be ordered after the newer one. So each piece keeps few accesses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...plan.draw import step_text
from ...plan.steps import LANES
from .symbols import Store

__all__ = ["Head", "Place", "Race", "Shadow", "Where"]

Head = tuple[int, int, int, Sequence[Any], str]
Place = tuple[Head, int]
"""A `Where` that is not made yet: ((thread, call, lane, all steps of the lane, name), at)."""


class Where(NamedTuple):
    """A step of a thread's call, or an action of the user between calls (lane -1)."""

    thread: int
    call: int
    lane: int
    at: int
    step: Any
    name: str

    @classmethod
    def of(cls, place: Place) -> Where:
        """Make it from a place. Only findings need it: there are very many places."""
        (thread, call, lane, steps, name), at = place
        return cls(thread, call, lane, at, steps[at], name)

    def __str__(self) -> str:
        if self.lane < 0:
            return f"thread {self.thread}, before call {self.call}: {self.step}"
        return (
            f"thread {self.thread}, call {self.call} ({self.name}), {LANES[self.lane]} lane, "
            f"step {self.at}: {step_text(self.step)}"
        )


class Race(NamedTuple):
    """Two accesses to bytes ``lo:hi`` of an array on a thread that nothing orders."""

    array: str
    thread: int
    lo: int
    hi: int
    first: Where
    first_writes: bool
    second: Where
    second_writes: bool

    def __str__(self) -> str:
        def verb(writes: bool) -> str:
            return "writes" if writes else "reads"

        return (
            f"race on {self.array}@{self.thread}[{self.lo}:{self.hi}]:\n"
            f"    {verb(self.first_writes)}: {self.first}\n"
            f"    {verb(self.second_writes)}: {self.second}\n"
            f"    missing order: the second does not know that the first has ended "
            f"(thread {self.first.thread} -> thread {self.second.thread})"
        )


_Access = tuple[int, bool, int, int, Place]
"""An access: its bit, whether it writes, the bytes that it touches (lo, hi), its place."""


class Shadow:
    """The accesses to one array on one thread that later ones must be compared with.

    Attributes
    ----------
    memory, size
        The array itself, and how many bytes it has.
    """

    __slots__ = ("_array", "_found", "_pieces", "_starts", "_thread", "memory", "size")

    def __init__(
        self,
        array: str,
        thread: int,
        memory: Store,
        found: dict[tuple[Where, Where], Race],
    ) -> None:
        self.memory = memory
        self.size = len(memory)
        self._array = array
        self._thread = thread
        self._found = found
        # piece i lies between _starts[i] and the next start; the last one is empty
        self._starts = [0, self.size]
        self._pieces: list[list[_Access]] = [[], []]

    @property
    def name(self) -> str:
        """Return the name of the array, with its thread."""
        return f"{self._array}@{self._thread}"

    def touch(self, lo: int, hi: int, writes: bool, known: int, bit: int, place: Place) -> None:
        """Note an access inside the array by an actor that knows `known`.

        Actors that later have `bit` know that the access has ended.
        """
        if lo == hi:
            return
        starts, pieces = self._starts, self._pieces
        first = bisect_left(starts, lo)
        if starts[first] != lo:
            starts.insert(first, lo)
            pieces.insert(first, pieces[first - 1])
        end = first + 1
        if starts[end] != hi:
            end = bisect_left(starts, hi, end)
            if starts[end] != hi:
                starts.insert(end, hi)
                pieces.insert(end, pieces[end - 1])
        access = bit, writes, lo, hi, place
        whole = writes
        for i in range(first, end):
            kept = []
            for before in pieces[i]:
                if not known & before[0]:
                    if writes or before[1]:
                        self._race(before, access)
                    kept.append(before)
                    whole = False
                elif before[1] and not writes:
                    kept.append(before)
            kept.append(access)
            pieces[i] = kept  # a new list, since pieces that were cut share theirs
        if whole and end - first > 1:
            starts[first:end] = [lo]
            pieces[first:end] = [kept]

    def written_by(self, at: int) -> Place | None:
        """Return the last access that wrote a byte; None if none did."""
        piece = self._pieces[bisect_right(self._starts, at) - 1]
        return next((place for _, writes, _, _, place in reversed(piece) if writes), None)

    def _race(self, first: _Access, second: _Access) -> None:
        _, first_writes, first_lo, first_hi, first_place = first
        _, second_writes, second_lo, second_hi, second_place = second
        a, b = Where.of(first_place), Where.of(second_place)
        lo, hi = max(first_lo, second_lo), min(first_hi, second_hi)
        race = Race(self._array, self._thread, lo, hi, a, first_writes, b, second_writes)
        self._found.setdefault((a, b), race)
