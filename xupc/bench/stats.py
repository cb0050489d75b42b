"""From repetitions to verdicts.

Within a launch a ratio is the ratio of the medians; over launches it is the median of those. Its
interval comes from a bootstrap in two stages: launches are drawn with replacement, and within each
the repetitions. So it covers the spread between launches, which is the larger part: with few
launches it is their span. How often that holds the true median depends on their number
(`coverage`); of one launch it says nothing of how launches differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Estimate",
    "Ratio",
    "coverage",
    "geometric_mean",
    "median",
    "ratio",
    "spread",
    "together",
    "verdict",
    "width",
]

DRAWS = 4000
RESOLVABLE = 0.05  # the A/A spread above which a cell says nothing
Launches = Sequence[Sequence[float] | NDArray[np.float64]]  # ns, per launch and repetition


@dataclass(frozen=True)
class Estimate:
    """A median in ns and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """A ratio and its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}-{self.high:.2f})"


def median(launches: Launches, seed: int = 1) -> Estimate:
    """The median over launches of the medians over their repetitions, by the same bootstrap."""
    random = np.random.default_rng(seed)
    launches = [_times(times) for times in launches if len(times)]
    value = float(np.median([np.median(times) for times in launches]))
    drawn = np.stack([drawn_medians(times, random) for times in launches])
    return Estimate(value, *_interval(drawn, random))


def width(times: Sequence[int]) -> float:
    """How uncertain a median is, as a share of it: its 95% interval by ranks."""
    ordered, n = sorted(times), len(times)
    if n < 6:
        return 1.0
    reach = 0.98 * n**0.5
    low, high = ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, int(n / 2 + reach))]
    return (high - low) / max(1, ordered[n // 2])


def coverage(launches: int) -> float:
    """How often the span of so many launches holds the median of all: at most 95% is claimed."""
    return min(0.95, 1 - 2.0 ** (1 - launches))


def ratio(above: Launches, below: Launches, seed: int = 1) -> Ratio | None:
    """The ratio of two candidates; None if there is no launch in which both were measured."""
    above, below = together(above, below)
    if not above:
        return None
    random = np.random.default_rng(seed)
    value = float(np.median(per_launch(above, below)))
    drawn = np.stack(
        [
            drawn_medians(a, random) / drawn_medians(b, random)
            for a, b in zip(above, below, strict=True)
        ]
    )
    return Ratio(value, *_interval(drawn, random))


def _interval(drawn: NDArray[np.float64], random: np.random.Generator) -> tuple[float, float]:
    """Of the median over launches, which are drawn too; a row of draws for each launch."""
    which = random.integers(0, len(drawn), size=drawn.shape)
    resampled = np.median(np.take_along_axis(drawn, which, axis=0), axis=0)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def together(above: Launches, below: Launches) -> tuple[Launches, Launches]:
    """Only the launches in which both were measured."""
    pairs = [(a, b) for a, b in zip(above, below, strict=False) if len(a) and len(b)]
    return [_times(a) for a, _ in pairs], [_times(b) for _, b in pairs]


def _times(ns: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """As numbers to divide by: a time that no clock gives counts as 1 ns."""
    return np.maximum(np.asarray(ns, np.float64), 1.0)


def per_launch(above: Launches, below: Launches) -> list[float]:
    """The ratio of medians in each launch."""
    return [float(np.median(a) / np.median(b)) for a, b in zip(above, below, strict=True)]


def drawn_medians(
    times: Sequence[float] | NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:
    """Medians of bootstrap samples: quantiles of the sample at Beta-distributed places."""
    n = len(times)
    places = random.beta((n + 1) / 2, (n + 1) / 2, DRAWS)
    return np.quantile(np.asarray(times, np.float64), places)


def spread(one: Launches, again: Launches) -> float | None:
    """How far the same thing under two names differs in a typical launch (median over launches).

    None if there is no launch in which it was measured twice.
    """
    differences = [abs(r - 1.0) for r in per_launch(*together(one, again))]
    return float(np.median(differences)) if differences else None


def verdict(found: Ratio, spread_of_same: float | None) -> str:
    """What a cell says; nothing, if it is not known how noisy it is."""
    if spread_of_same is None or spread_of_same > RESOLVABLE:
        return "not resolvable"
    if found.low > 1.0:
        return "win"
    if found.high < 1.0:
        return "LOSS"
    return "parity"


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive values; nan of none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan
