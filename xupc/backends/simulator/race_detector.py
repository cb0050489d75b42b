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
Reads do not conflict: a read is compared with the writes only, and reads that newer ones
cover are looked for each time that there are twice as many reads as after the last search.
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

FEW = 8  # reads of a piece among which none is looked for that a newer one covers


class _Piece:
    """The accesses to some bytes that later ones must be compared with, the oldest ones first.

    `most` is the number of reads from which on covered ones are dropped.
    """

    __slots__ = ("most", "reads", "writes")

    def __init__(self, reads: list[_Access], writes: list[_Access]) -> None:
        self.most = FEW
        self.reads = reads
        self.writes = writes

    def copy(self) -> _Piece:
        """Return what a part of this piece begins with when it is cut."""
        return _Piece(self.reads.copy(), self.writes.copy())


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
        self._pieces = [_Piece([], []), _Piece([], [])]

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
            pieces.insert(first, pieces[first - 1].copy())
        end = first + 1
        if starts[end] != hi:
            end = bisect_left(starts, hi, end)
            if starts[end] != hi:
                starts.insert(end, hi)
                pieces.insert(end, pieces[end - 1].copy())
        access = bit, writes, lo, hi, place
        if not writes:
            self._read(pieces[first:end], access, known)
        elif self._write(pieces[first:end], access, known) and end - first > 1:
            del starts[first + 1 : end], pieces[first + 1 : end]

    def _read(self, pieces: Sequence[_Piece], access: _Access, known: int) -> None:
        """Note a read of all these pieces."""
        for piece in pieces:
            for before in piece.writes:
                if not known & before[0]:
                    self._race(before, access)
            reads = piece.reads
            if len(reads) >= piece.most:
                reads[:] = _unordered(reads, known)
                piece.most = 2 * len(reads) + FEW
            reads.append(access)

    def _write(self, pieces: Sequence[_Piece], access: _Access, known: int) -> bool:
        """Note a write to all these pieces; return whether it is all that they have to keep."""
        alone = True
        for piece in pieces:
            for before in (*piece.writes, *piece.reads):
                if not known & before[0]:
                    self._race(before, access)
                    alone = False
            piece.writes = [access] if alone else [*_unordered(piece.writes, known), access]
            piece.reads = [] if alone else _unordered(piece.reads, known)
        return alone

    def written_by(self, at: int) -> Place | None:
        """Return the last access that wrote a byte; None if none did."""
        writes = self._pieces[bisect_right(self._starts, at) - 1].writes
        return writes[-1][-1] if writes else None

    def _race(self, first: _Access, second: _Access) -> None:
        _, first_writes, first_lo, first_hi, first_place = first
        _, second_writes, second_lo, second_hi, second_place = second
        a, b = Where.of(first_place), Where.of(second_place)
        lo, hi = max(first_lo, second_lo), min(first_hi, second_hi)
        race = Race(self._array, self._thread, lo, hi, a, first_writes, b, second_writes)
        self._found.setdefault((a, b), race)


def _unordered(accesses: Sequence[_Access], known: int) -> list[_Access]:
    """Return the accesses of which an actor with this knowledge does not know that they ended."""
    return [access for access in accesses if not known & access[0]]
