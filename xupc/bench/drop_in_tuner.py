"""Decide which library carries the calls of the drop-in communicator, from measured times.

A rule overrides the choice of the table only if the gain is statistically significant, in every way
in which a call was measured: in three launches or more, the whole interval of the gain must be
above `GAIN`, and above the difference of mpi4py's call to itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..records import replace
from ..tuning.selection import SENDER_SIZED, CarrierRule, Carriers, Place, Table
from ..tuning.selection_file import METHODS
from .decisions import LEAST_LAUNCHES, Change, Spot, Tuned, decided, ranges_of, when_at
from .size_ranges import GAIN, Range, chosen_at
from .stats import ERROR, Ratio, ratio, spread

__all__ = ["SIZED", "Timed", "cells_of", "collected", "drop_in_tuned", "methods_named"]

SIZED = frozenset(
    (
        "Allgather", "Allgatherv", "Allreduce", "Alltoall", "Bcast", "Exscan", "Gather",
        "Iallgather", "Iallreduce", "Ialltoall", "Ibcast", "Iexscan", "Igather", "Ireduce",
        "Ireduce_scatter", "Ireduce_scatter_block", "Iscan", "Iscatter", "Reduce",
        "Reduce_scatter", "Reduce_scatter_block", "Scan", "Scatter",
    )
) | SENDER_SIZED  # fmt: skip
"""The methods whose rules may differ by size."""
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
        """The difference of mpi4py's call to itself, as a share; None if it was measured once."""
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

    Where sizes do not decide (neighbourhoods), the smallest, the middle and the largest do for all.
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
        old = ranges_of((rule.when, rule.carrier) for rule in earlier if rule.method == method)
        found, changed = _decided(method, by_method.get(method, []), carriers, old)
        rules += [
            CarrierRule(method, name, replace(at_place, min_bytes=least or None, max_bytes=most))
            for least, most, name in found
        ]
        changes += changed
    return Tuned(place, tuple(rules), tuple(changes))


def _decided(
    method: str, cells: Sequence[Timed], carriers: Carriers, old: Sequence[Range]
) -> tuple[list[Range], list[Change]]:
    """Return the ranges of sizes of a method that need a rule, and the changes."""
    by_size = method in SIZED
    spots = _spots if by_size else _at_once
    found, changes = decided(spots(method, cells, carriers, old), old, by_size=by_size)
    first = chosen_at(found, 0) or _usual(carriers, method, 0)
    if cells and method in SENDER_SIZED and first == MPI:
        # MPI carries all calls that xupc does not begin, so one choice is for all sizes
        return decided(_at_once(method, cells, carriers, old), old, by_size=False)
    return found, changes


def _spots(
    method: str, cells: Sequence[Timed], carriers: Carriers, old: Sequence[Range]
) -> list[_Spot]:
    """Return what is decided of a method at each size."""
    return [
        _Spot(
            method, nbytes, _usual(carriers, method, nbytes), chosen_at(old, nbytes),
            [cell for cell in cells if cell.nbytes == nbytes],
        )
        for nbytes in sorted({cell.nbytes for cell in cells})
    ]  # fmt: skip


def _at_once(
    method: str, cells: Sequence[Timed], carriers: Carriers, old: Sequence[Range]
) -> list[_Spot]:
    """Return what is decided of a method at all sizes at once."""
    said = old[0][2] if old else None
    usual = _usual(carriers, method, None)
    return [_Spot(method, None, usual, said, list(cells))] if cells else []


def _usual(carriers: Carriers, method: str, nbytes: int | None) -> str:
    """Return the library that carries a call without a rule of the tuner."""
    return MPI if carriers.by_mpi(method, nbytes) else XUPC


@dataclass
class _Spot(Spot):
    """One size of one method, or all its sizes, and the cells that measured it."""

    cells: list[Timed]

    @cached_property
    def problem(self) -> str:
        """The reason why the times permit no conclusion; empty if they permit one."""
        launches = min(sum(map(bool, cell.times[XUPC])) for cell in self.cells)
        if launches < LEAST_LAUNCHES:
            return f"too few launches: {launches}, at least {LEAST_LAUNCHES}"
        return ""

    @property
    def others(self) -> list[str]:
        """The library that does not carry the call now."""
        return [MPI if self.usual == XUPC else XUPC]

    @property
    def least_gain(self) -> float:
        """The ratio that a gain must exceed: also how far mpi4py's call differs from itself."""
        spread_of_same = max((cell.spread or 0.0 for cell in self.cells), default=0.0)
        return max(GAIN, 1.0 + spread_of_same)

    def gains(self, before: str, after: str) -> list[Ratio | None]:
        """Return the time of one library / that of the other in each cell."""
        return [cell.gain(before, after, ERROR) for cell in self.cells]
