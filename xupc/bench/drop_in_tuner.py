"""Decide which library carries the calls of the drop-in communicator, from measured times.

A rule overrides the choice of the table only if the gain is statistically significant, in every way
in which a call was measured: in three launches or more, the whole interval of the gain must be
above `GAIN`, and above the difference of mpi4py's call to itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..records import replace
from ..tuning.selection import CarrierRule, Carriers, Place, Table
from ..tuning.selection_file import METHODS
from .size_ranges import GAIN, Choice, cheapest, chosen_at, ranges
from .stats import ERROR, Ratio, geometric_mean, ratio, spread
from .tuner import LEAST_LAUNCHES, Change, Tuned, when_at

__all__ = ["SIZED", "Timed", "cells_of", "collected", "drop_in_tuned", "methods_named"]

SIZED = frozenset(
    (
        "Allgather", "Allgatherv", "Allreduce", "Alltoall", "Bcast", "Exscan", "Gather",
        "Iallgather", "Iallreduce", "Ialltoall", "Ibcast", "Iexscan", "Igather", "Ireduce",
        "Ireduce_scatter", "Ireduce_scatter_block", "Iscan", "Iscatter", "Reduce",
        "Reduce_scatter", "Reduce_scatter_block", "Scan", "Scatter",
    )
)  # fmt: skip
"""The methods whose calls have a size that all threads know: rules may differ by size."""
MEETING = frozenset(("Barrier", "Ibarrier", "barrier"))
"""The methods without data."""
MPI, XUPC, AGAIN = "mpi", "xupc", "again"
"""The two libraries, and mpi4py's call under a second name."""

Times = list[list[float]]
"""Times in µs, by launch and repetition."""


@dataclass
class Timed:
    """The times of one method at one size, in one way to call it."""

    method: str
    nbytes: int
    way: str = ""
    times: dict[str, Times] = field(default_factory=lambda: defaultdict(list))

    def gain(self, before: str, after: str, error: float) -> Ratio | None:
        """Return the time of one library / that of the other; None if one was not measured."""
        return ratio(self.times[before], self.times[after], error)

    @cached_property
    def spread(self) -> float | None:
        """How far mpi4py's call differs from itself; None if it was not measured twice."""
        return spread(self.times[MPI], self.times[AGAIN])


def methods_named(words: Sequence[str]) -> tuple[str, ...]:
    """Return the methods of some names or patterns, all of them without any.

    Raises
    ------
    ValueError
        Nothing can be chosen for a name.
    """
    for word in words:
        if not any(fnmatchcase(name, word) for name in METHODS):
            raise ValueError(
                f"--drop-in: expected methods of mpi4py like Bcast, bcast or 'I*', got {word!r}; "
                f"there are {', '.join(METHODS)}"
            )
    return tuple(n for n in METHODS if not words or any(fnmatchcase(n, w) for w in words))


def cells_of(methods: Iterable[str], sizes: Sequence[int]) -> list[tuple[str, int]]:
    """Return the cells of a measurement, short blocks first: methods and bytes of a block.

    Where sizes do not decide, the smallest, the middle and the largest one do for all.
    """
    few = {sizes[0], sizes[len(sizes) // 2], sizes[-1]}
    found = [(method, 0) for method in methods if method in MEETING]
    for nbytes in sizes:
        found += [
            (method, nbytes) for method in methods
            if method in SIZED or (method not in MEETING and nbytes in few)
        ]  # fmt: skip
    return found


def collected(launches: Iterable[Sequence[Mapping[str, Any]]]) -> list[Timed]:
    """Return the times of several launches together; each has what the job printed."""
    found: dict[tuple[str, int, str], Timed] = {}
    for launch in launches:
        for cell in launch:
            key = cell["method"], cell["nbytes"], cell["way"]
            timed = found.setdefault(key, Timed(*key))
            for name, times in cell["times"].items():
                timed.times[name].append(list(times))
    return list(found.values())


def drop_in_tuned(
    place: Place, cells: Iterable[Timed], table: Table, earlier: Sequence[CarrierRule] = ()
) -> Tuned[CarrierRule]:
    """Return the rules for one place that follow from times.

    Parameters
    ----------
    table : Table
        What decides where no rule of the tuner does.
    earlier : sequence of CarrierRule
        The rules of the tuner so far for the place. They stay for what was not measured now.
    """
    carriers, at_place = table.carriers_at(place), when_at(place)
    by_method: dict[str, list[Timed]] = defaultdict(list)
    for cell in cells:
        by_method[cell.method].append(cell)
    rules: list[CarrierRule] = []
    changes: list[Change] = []
    for method in sorted({rule.method for rule in earlier} | by_method.keys()):
        old = [
            (rule.when.min_bytes or 0, rule.when.max_bytes, rule.carrier)
            for rule in earlier if rule.method == method
        ]  # fmt: skip
        spots = _spots(method, by_method.get(method, []), carriers, old)
        chosen = cheapest([spot.costs for spot in spots])
        judged = {
            spot.nbytes or 0: choice
            for spot, choice in zip(spots, chosen, strict=True) if not spot.problem
        }  # fmt: skip
        if method in SIZED:
            found = list(ranges([spot.nbytes or 0 for spot in spots], judged, old))
        else:
            choice = judged.get(0, old[0][2] if old else None)
            found = [(0, None, choice)] if choice else []
        rules += [
            CarrierRule(method, name, replace(at_place, min_bytes=least or None, max_bytes=most))
            for least, most, name in found
        ]
        changes += [spot.change(name) for spot, name in zip(spots, chosen, strict=True)]
    return Tuned(place, tuple(rules), tuple(changes))


def _spots(
    method: str, cells: Sequence[Timed], carriers: Carriers, old: Sequence[tuple[int, Any, str]]
) -> list[_Spot]:
    """Return what is decided of a method: each size, or all sizes at once."""
    if method not in SIZED:
        usual = MPI if carriers.by_mpi(method, None) else XUPC
        said = old[0][2] if old else None
        return [_Spot(method, None, list(cells), usual, said)] if cells else []
    return [
        _Spot(
            method, nbytes, [cell for cell in cells if cell.nbytes == nbytes],
            MPI if carriers.by_mpi(method, nbytes) else XUPC, chosen_at(old, nbytes),
        )
        for nbytes in sorted({cell.nbytes for cell in cells})
    ]  # fmt: skip


@dataclass
class _Spot:
    """What is decided at once, and the cells that measured it.

    Attributes
    ----------
    nbytes
        Bytes of a block; None: at all sizes.
    usual
        The library by the table without a rule of ours.
    said
        The library by our rules so far.
    """

    method: str
    nbytes: int | None
    cells: list[Timed]
    usual: str
    said: Choice

    @cached_property
    def problem(self) -> str:
        """The reason why the times permit no conclusion; empty if they permit one."""
        launches = min(sum(map(bool, cell.times[XUPC])) for cell in self.cells)
        if launches < LEAST_LAUNCHES:
            return f"too few launches: {launches}, at least {LEAST_LAUNCHES}"
        return ""

    @cached_property
    def costs(self) -> dict[Choice, float]:
        """What may be chosen, and how much slower than the usual one it is, by logarithm."""
        if self.problem:
            return {self.said: 0.0}
        other = MPI if self.usual == XUPC else XUPC
        found: dict[Choice, float] = {None: 0.0}
        gain = self._gain(self.usual, other)
        if gain is not None and gain.low > max(GAIN, 1.0 + self._spread):
            found[other] = -math.log(gain.value)
        return found

    @property
    def _spread(self) -> float:
        """How far mpi4py's call differs from itself, in the worst cell."""
        return max((cell.spread or 0.0 for cell in self.cells), default=0.0)

    def _gain(self, before: str, after: str) -> Ratio | None:
        """Return the gain over all cells: their geometric mean, with the widest interval."""
        found = [cell.gain(before, after, ERROR) for cell in self.cells]
        gains = [gain for gain in found if gain is not None]
        if len(gains) < len(found):
            return None
        value = geometric_mean(gain.value for gain in gains)
        return Ratio(value, min(g.low for g in gains), max(g.high for g in gains))

    def change(self, chosen: Choice) -> Change:
        """Return the change that a choice makes."""
        before, after = self.said or self.usual, chosen or self.usual
        gain = self._gain(before, after) if before != after else None
        return Change(self.method, self.nbytes, before, after, gain, self.problem)
