"""Signals that order the phases in which a node's threads read from each other.

A call by levels moves unit after unit, each in some *phases*, which every thread passes in order.
In a phase a thread reads places that other threads wrote in earlier phases of the unit, and waits
for these threads alone. A place is written again `depth` units later, when all its readers have
read it.

One channel per thread is enough: the thread raises it at the end of each phase that another one
waits for. A signal names all threads that wait for this signal or for a later one, so that each of
them receives as many signals as the value that it waits for. Threads are numbered inside the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, Ranks
from ..records import record
from .domains import Pairs, Threads, first_levels, pairs_between, same_source

__all__ = ["Descent", "Flow", "Reading", "node_runs"]

_Wait = tuple[int, int, tuple[Ranks, ...]]
"""The value to wait for in the first unit, its increase per unit, and the threads to wait for."""


@record
class Reading:
    """Reads in phase `phase` of places that were written in phase `written` of the same unit."""

    phase: int
    written: int
    pairs: Pairs


class Flow:
    """Record the waits and signals of one thread.

    Parameters
    ----------
    readings
        All reads of a unit, by any thread: the same list on all threads of the node.
    units
        The number of units.
    depth
        After how many units a place is written again; 0: never, each place belongs to this call.
    """

    def __init__(
        self, t: Recorder, readings: Iterable[Reading], units: int, depth: int = 0
    ) -> None:
        self.t, self.units, self.depth = t, units, depth
        self._readings = [
            Reading(x.phase, x.written, apart)
            for x in readings
            if (apart := x.pairs & ~np.eye(len(x.pairs), dtype=bool)).any()
        ]
        self._phases = 1 + max((x.phase for x in self._readings), default=0)
        self._channel = t.channel()
        me = t.tree.local_index(t.me)
        numbers, self._last = self._count(me)
        self._mine = numbers[:, me].tolist()
        self._before: list[list[_Wait]] = [[] for _ in range(self._phases)]
        self._reuse: list[list[_Wait]] = [[] for _ in range(self._phases)]
        for x in self._readings:
            self._before[x.phase] += self._waits_for(numbers, x.written, x.pairs[me])
            if depth:
                self._reuse[x.written] += self._waits_for(numbers, x.phase, x.pairs[:, me])

    def _count(self, me: int) -> tuple[NDArray[Any], dict[int, int]]:
        """Return the signals of all threads, and the last phase in which each waits for this one.

        The first is an array by phase and thread: the number of the thread's signal at the end of
        the phase, counted from 1; 0 if it sends none.
        """
        signals = np.zeros((self._phases, self.t.tree.node_size(self.t.my_node)), bool)
        last: dict[int, int] = {}
        for x in self._readings:
            ends = [(x.written, x.pairs), (x.phase, x.pairs.T)]
            for phase, waits in ends if self.depth else ends[:1]:
                signals[phase] |= waits.any(axis=0)
                for waiter in np.flatnonzero(waits[:, me]).tolist():
                    last[waiter] = max(phase, last.get(waiter, 0))
        return np.where(signals, np.cumsum(signals, axis=0), 0), last

    def _waits_for(self, numbers: NDArray[Any], phase: int, of: Pairs) -> list[_Wait]:
        """Return the waits for the end of a phase on the threads `of`, one per value."""
        each = numbers.max(axis=0)
        kinds = {(int(numbers[phase, x]), int(each[x])) for x in np.flatnonzero(of)}
        return [
            (number, per, node_runs(self.t, np.flatnonzero(
                of & (numbers[phase] == number) & (each == per)
            )))
            for number, per in sorted(kinds)
        ]  # fmt: skip

    def begin(self, unit: int, phase: int) -> None:
        """Wait until this thread may write its places of a phase, and read those of others."""
        if phase < self._phases:
            if self.depth and unit >= self.depth:
                self._wait(unit - self.depth, self._reuse[phase])
            self._wait(unit, self._before[phase])

    def _wait(self, unit: int, waits: Iterable[_Wait]) -> None:
        for number, each, of in waits:
            self.t.wait(self._channel, of, unit * each + number)

    def end(self, unit: int, phase: int) -> None:
        """Signal the end of a phase to all threads that wait for this one or a later one."""
        if phase >= self._phases or not self._mine[phase]:
            return
        final = unit + 1 == self.units
        to = [thread for thread, last in self._last.items() if last >= phase or not final]
        value = unit * max(self._mine) + self._mine[phase]
        self.t.signal(self._channel, node_runs(self.t, sorted(to)), value)

    def finish(self) -> None:
        """Wait after the last unit until no thread reads this thread's places any more."""
        if self.depth:
            for unit in range(max(0, self.units - self.depth), self.units):
                for waits in self._reuse:
                    self._wait(unit, waits)


class Descent:
    """Bring blocks into the domains of one thread, level by level, from where they start.

    Parameters
    ----------
    entries
        The entry of each block in each domain, by level (`domains.block_entries`).
    used
        The blocks that have any bytes.
    me
        This thread, numbered inside the node.
    phase
        The phase of a unit in which the threads where blocks start write them to their places. The
        phases of this object follow it.
    """

    def __init__(
        self, entries: Sequence[Threads], used: Sequence[int], me: int, phase: int
    ) -> None:
        self.entries, self.used, self.me, self.phase = entries, used, me, phase
        self.last = len(entries) - 1
        """The number of phases; in the last one each thread copies all blocks from its domain."""

    def readings(self) -> Iterator[Reading]:
        """Yield the reads of all phases."""
        for level in range(self.last):
            outer, inner = self.entries[level : level + 2]
            first = first_levels(self.entries, level)
            for wide in range(level + 1):
                pairs = pairs_between(np.where(first == wide, inner, outer), outer, self.used)
                yield Reading(self.phase + 1 + level, self.phase + wide, pairs)

    def record(
        self, t: Recorder, flow: Flow, unit: int, ends: Sequence[int],
        place: Callable[[int], BlockRef], take: Callable[[BlockRef, int, int], None],
    ) -> None:  # fmt: skip
        """Record the phases of a unit.

        Parameters
        ----------
        ends
            Where each block begins in the unit, in bytes, and the end of the last one.
        place
            ``place(thread)`` returns where a thread keeps the blocks of a unit for others to read.
        take
            ``take(place, begin, end)`` copies these bytes of the unit to the program's memory.
        """
        self.enter(t, flow, unit, ends, place)
        flow.begin(unit, self.phase + self.last)
        for source, begin, end in self.runs(ends, self.entries[-2][self.me]):
            take(place(source) + begin, begin, end)
        flow.end(unit, self.phase + self.last)

    def enter(
        self, t: Recorder, flow: Flow, unit: int, ends: Sequence[int],
        place: Callable[[int], BlockRef],
    ) -> None:  # fmt: skip
        """Record all phases but the last: this thread's share of what enters its domains."""
        for level in range(self.last - 1):
            outer, inner = (x[self.me] for x in self.entries[level : level + 2])
            flow.begin(unit, self.phase + 1 + level)
            for source, begin, end in self.runs(ends, np.where(inner == self.me, outer, self.me)):
                if source != self.me:
                    t.copy(place(self.me) + begin, place(source) + begin, end - begin)
            flow.end(unit, self.phase + 1 + level)

    def runs(self, ends: Sequence[int], sources: Threads) -> Iterator[tuple[int, int, int]]:
        """Yield runs of bytes with the same source: source, begin, end."""
        for first, last, source in same_source(self.used, sources.tolist().__getitem__):
            if ends[first] < ends[last + 1]:
                yield source, ends[first], ends[last + 1]


def node_runs(t: Recorder, threads: Sequence[int] | NDArray[Any]) -> tuple[Ranks, ...]:
    """Return threads of this node, ascending by their number inside it, as runs of ranks."""
    found: list[Ranks] = []
    at = 0
    for run in t.node_ranks():
        inside = [int(x) - at for x in threads if at <= x < at + run.count]
        begin = None
        for k, x in enumerate(inside):
            begin = x if begin is None else begin
            if k + 1 == len(inside) or inside[k + 1] != x + 1:
                found.append(run.cut(begin, x - begin + 1))
                begin = None
        at += run.count
    return tuple(found)
