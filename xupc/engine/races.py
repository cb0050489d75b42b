"""Who touched which bytes, and whether the accesses are ordered: the race detector.

Knowledge is a bit mask, one Python int: every access gets a bit, or shares it with
its actor's other accesses since that actor last told anybody anything.  What an
actor knows to have *ended* is the union of the bits it has been told.  An access
may start when all conflicting ones before it are known to have ended; a single
``&`` decides.  The order of execution is one that happens-before allows, so an
access never has to be compared with later ones.

An access that every later conflicting one must be ordered behind anyway, since a
newer one covers it, is forgotten.  So the lists stay as short as one call's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..plan.draw import step_text
from ..plan.steps import LANES

__all__ = ["Race", "Shadow", "Where"]


class Where(NamedTuple):
    """A step of a call of a thread, or an action of its user between calls (lane -1).

    Put into words only when somebody asks: there are very many.
    """

    thread: int
    call: int
    lane: int
    at: int
    step: Any
    name: str

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


_Access = tuple[int, int, bool, int, Where]


class Shadow:
    """The accesses to one array on one thread that later ones must still look at."""

    __slots__ = ("_accesses", "_array", "_found", "_thread")

    def __init__(self, array: str, thread: int, found: dict[tuple[Where, Where], Race]):
        self._array = array
        self._thread = thread
        self._found = found
        self._accesses: list[_Access] = []

    def touch(self, lo: int, hi: int, writes: bool, known: int, bit: int, where: Where) -> None:
        """Note an access by somebody who knows `known`; `bit` will say that it has ended."""
        covered = False
        for alo, ahi, awrites, abit, awhere in self._accesses:
            if alo < hi and lo < ahi:
                if known & abit:
                    if lo <= alo and ahi <= hi and (writes or not awrites):
                        covered = True
                elif writes or awrites:
                    self._found.setdefault(
                        (awhere, where),
                        Race(
                            self._array,
                            self._thread,
                            max(lo, alo),
                            min(hi, ahi),
                            awhere,
                            awrites,
                            where,
                            writes,
                        ),
                    )
        if covered:
            self._accesses = [
                a
                for a in self._accesses
                if not (known & a[3] and lo <= a[0] and a[1] <= hi and (writes or not a[2]))
            ]
        self._accesses.append((lo, hi, writes, bit, where))
