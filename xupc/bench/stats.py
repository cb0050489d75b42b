"""From repetitions to verdicts.

A ratio is peer / xupc: above 1.0 xupc is faster. Within a launch it is the ratio of the medians;
over launches it is the median of those. Its 95% interval comes from a bootstrap in two stages:
launches are drawn with replacement, and within each the repetitions. So it covers the spread
between launches, which is the larger part: with five launches it is never much narrower than the
span of their ratios.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "Ratio", "geometric_mean", "median", "ratio", "spread", "verdict"]

DRAWS = 4000
RESOLVABLE = 0.05  # the A/A spread above which a cell says nothing
Launches = Sequence[Sequence[int]]  # ns, per launch and repetition


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
    value = float(np.median([np.median(times) for times in launches]))
    drawn = np.stack([drawn_medians(times, random) for times in launches])
    return Estimate(value, *_interval(drawn, random))


def ratio(above: Launches, below: Launches, seed: int = 1) -> Ratio:
    """The ratio of two candidates that were measured in the same launches."""
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


def per_launch(above: Launches, below: Launches) -> list[float]:
    """The ratio of medians in each launch."""
    return [float(np.median(a) / np.median(b)) for a, b in zip(above, below, strict=True)]


def drawn_medians(times: Sequence[int], random: np.random.Generator) -> NDArray[np.float64]:
    """Medians of bootstrap samples: quantiles of the sample at Beta-distributed places."""
    n = len(times)
    places = random.beta((n + 1) / 2, (n + 1) / 2, DRAWS)
    return np.quantile(np.asarray(times, np.float64), places)


def spread(one: Launches, again: Launches) -> float:
    """How far the same thing under two names differs in a typical launch (median over launches)."""
    return float(np.median([abs(r - 1.0) for r in per_launch(one, again)]))


def verdict(found: Ratio, spread_of_same: float) -> str:
    """What a cell says."""
    if spread_of_same > RESOLVABLE:
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
