"""Keep the budget of a measurement: what a launch needs, and how many launches fit.

A trial launch of a few cells measures what a launch costs: its start, and the least time of a
cell, as a line over the bytes of a block. From that follow the number of launches, the sizes
where some may be left out, or the time that the least sensible measurement needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import stats
from .settings import Settings, cases

__all__ = [
    "ENOUGH", "LAUNCHES", "LEAST", "MOST_LAUNCHES", "Cost", "Preparation", "TooShort",
    "cost_of", "fitting", "given", "in_words", "no_trial", "thinned", "too_short", "trial",
]  # fmt: skip

LAUNCHES = 12
"""How many there are by default: many short ones show more than few long ones."""
MOST_LAUNCHES = 1000
ENOUGH = stats.LEAST
"""Launches. So many come before longer ones: fewer give no interval."""
LEAST = 0.5  # seconds of measuring in a launch
ROOM = 2.0  # times their least time that cells should have in a launch
TRIED = 6  # collectives in a trial
RESERVE = 1.1  # times the estimate of a trial: the time that launches must have


class TooShort(ValueError):
    """The budget is shorter than the least sensible measurement."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Hold what comes before the launches, once it is known that the budget is enough.

    Attributes
    ----------
    run
        Do it; the argument is its limit in seconds.
    share, most
        The limit: this share of the budget, but `most` seconds at most.
    """

    run: Callable[[float], None]
    share: float
    most: float

    def limit(self, seconds: float) -> float:
        """Return the limit for a budget, both in seconds."""
        return min(self.most, self.share * seconds)

    def budget_for(self, seconds: float) -> float:
        """Return the least budget that leaves so many seconds for the rest."""
        return min(seconds / (1.0 - self.share), seconds + self.most)


@dataclass(frozen=True, slots=True)
class Cost:
    """Hold what a launch of one job costs, in seconds.

    Attributes
    ----------
    start
        The launch without its cells.
    base, per_byte
        The least time of a cell: `base` + `per_byte` x the bytes of its block.
    """

    start: float
    base: float = 0.0
    per_byte: float = 0.0

    def of_cells(self, settings: Settings) -> float:
        """Return the least time of all cells."""
        return sum(self.base + self.per_byte * case.nbytes for case in cases(settings))

    def of_launch(self, settings: Settings, room: float = 1.0) -> float:
        """Return the time of a launch whose cells have `room` times their least time."""
        return self.start + max(LEAST, room * self.of_cells(settings))


def trial(settings: Settings) -> Settings:
    """Return settings for a trial: a few collectives, with the smallest and the largest blocks."""
    every = list(cases(settings))
    names = list(dict.fromkeys(case.collective for case in every))
    sizes = [size for size in settings.sizes if any(case.nbytes == size for case in every)]
    sizes = sizes or list(settings.sizes)
    return settings.but(
        collectives=tuple(names[:: math.ceil(len(names) / TRIED)]),
        sizes=tuple(dict.fromkeys((min(sizes), max(sizes)))),
        seconds=0.0, limited=True, widths=(),
    )  # fmt: skip


def cost_of(lines: Iterable[dict[str, Any]], seconds: float) -> Cost | None:
    """Return the cost by the lines of a trial and its run time; None if it did not end well."""
    sizes: list[int] = []
    costs: list[float] = []
    for line in lines:
        sizes = [cell["nbytes"] for cell in line["cells"]] if "cells" in line else sizes
        costs = line.get("costs", costs)
    if not costs or len(costs) != len(sizes):
        return None
    start = max(0.0, seconds - sum(costs))
    if len(set(sizes)) == 1:
        return Cost(start, sum(costs) / len(costs))
    slope, base = np.polyfit(np.array(sizes, float), np.array(costs), 1)
    if slope <= 0:
        return Cost(start, sum(costs) / len(costs))
    return Cost(start, max(min(costs), float(base)), float(slope))


def fitting(
    costs: Sequence[Cost], settings: Settings, seconds: float, *, most: int, least: int = 1,
    enough: int = ENOUGH,
) -> int:  # fmt: skip
    """Return how many launches of each job fit into a time; 0 if fewer than `least`.

    Up to `enough` launches come before longer ones, which have more than the least time of each
    cell. There are at most `most`.
    """
    tight = sum(cost.of_launch(settings) for cost in costs)
    easy = sum(cost.of_launch(settings, ROOM) for cost in costs)
    fit = _count(seconds, RESERVE * tight)
    if fit < least:
        return 0
    return max(1, min(most, max(min(fit, enough), _count(seconds, easy))))


def _count(seconds: float, each: float) -> int:
    return int(max(0.0, seconds) / max(each, 1e-3))


def thinned(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all sizes, then every second, third ... of them, the largest always included."""
    found = [(*sizes[:-1:step], sizes[-1]) for step in range(1, max(2, len(sizes) - 1))]
    return list(dict.fromkeys(found))


def too_short(
    costs: Sequence[Cost], settings: Settings, seconds: float, spent: float, least: int,
    prepare: Preparation | None = None,
) -> TooShort:  # fmt: skip
    """Return the error about a budget, with the time that would do."""
    count = sum(1 for _ in cases(settings))
    starts = sum(cost.start for cost in costs) / len(costs)
    need = spent + RESERVE * least * sum(cost.of_launch(settings) for cost in costs)
    if prepare is not None:
        need = prepare.budget_for(need)
    launches = f"{least} launch{'es' * (least != 1)} of {len(costs)} job{'s'[: len(costs) != 1]}"
    return TooShort(
        f"--budget {given(seconds)}: expected at least {in_words(need)}: the least sensible "
        f"measurement is {launches} with {count} cell{'s'[: count != 1]} (a start takes "
        f"{starts:.1f} s, and {spent:.0f} s are spent); give it more time, fewer collectives, or "
        "fewer sizes (-m)"
    )


def no_trial(
    shape: str, seconds: float, spent: float, limit: float, launches: int, expected: float,
    prepare: Preparation | None = None,
) -> TooShort:  # fmt: skip
    """Return the error about a budget in which a launch that shows the costs did not end.

    It names a time to try: one in which each of so many launches, and this first one, may take
    twice as long, or as long as one usually takes.
    """
    each = max(2 * limit, expected + LEAST)
    need = spent + each * (1 + RESERVE * launches)
    if prepare is not None:
        need = prepare.budget_for(need)
    return TooShort(
        f"--budget {given(seconds)}: expected more, try {in_words(need)}: a launch of {shape} had "
        f"not ended after {limit:.1f} s ({spent:.1f} s were spent before it)"
    )


def given(seconds: float) -> str:
    """Return a time that was given as --budget."""
    if seconds < 600 or seconds % 60:
        return f"{seconds:g}s"
    return f"{seconds / 60:g}m"


def in_words(seconds: float) -> str:
    """Return a time as --budget takes it, rounded up."""
    if seconds < 600:
        return f"{math.ceil(seconds)}s"
    return f"{math.ceil(seconds / 60)}m"
