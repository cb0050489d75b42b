"""From repetitions to verdicts.

The unit is the launch: launches differ by more than repetitions do. Of each launch one number
counts, the median of its repetitions or the ratio of two medians. What is shown is the median of
those over launches. Its 95% interval is Student's, of the mean of their logarithms, and reaches at
least to the median. Fewer than three launches do not show how much launches differ: they give no
interval (nan) and no verdict.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Estimate",
    "Ratio",
    "estimated",
    "geometric_mean",
    "median",
    "ratio",
    "solve",
    "spread",
    "student_reach",
    "student_tail",
    "together",
    "verdict",
    "width",
]

ERROR = 0.05
"""How often an interval may miss what it is of."""
LEAST = 3  # launches of an interval
RESOLVABLE = 0.05  # the A/A spread above which a cell says nothing
Launches = Sequence[Sequence[float] | NDArray[np.float64]]  # ns, per launch and repetition


@dataclass(frozen=True)
class Estimate:
    """A median in ns and its 95% interval; nan of fewer than `LEAST` launches."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """A ratio and its 95% interval; nan of fewer than `LEAST` launches."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.interval()})"

    def interval(self, between: str = "-") -> str:
        """Return low and high; a dash where there are too few launches."""
        if math.isnan(self.low):
            return "-"
        return f"{self.low:.2f}{between}{self.high:.2f}"


def median(launches: Launches) -> Estimate:
    """Return the median over launches of the medians over their repetitions."""
    return Estimate(*_estimated([float(np.median(_times(ns))) for ns in launches if len(ns)]))


def width(times: Sequence[int]) -> float:
    """Return how uncertain a median is, as a share of it: its 95% interval by ranks."""
    ordered, n = sorted(times), len(times)
    if n < 6:
        return 1.0
    reach = 0.98 * n**0.5
    low, high = ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, int(n / 2 + reach))]
    return (high - low) / max(1, ordered[n // 2])


def ratio(above: Launches, below: Launches, error: float = ERROR) -> Ratio | None:
    """Return the ratio of two candidates; None if there is no launch in which both were measured.

    Where several are looked at together, `error` is divided by their number (Bonferroni).
    """
    found = per_launch(*together(above, below))
    return estimated(found, error) if found else None


def estimated(values: Sequence[float] | NDArray[np.float64], error: float = ERROR) -> Ratio:
    """Return the median of one ratio per launch, and its interval."""
    return Ratio(*_estimated(values, error))


def _estimated(
    values: Sequence[float] | NDArray[np.float64], error: float = ERROR
) -> tuple[float, float, float]:
    """Return the median of one number per launch, and the ends of its interval."""
    middle = float(np.median(values))
    if len(values) < LEAST:
        return middle, math.nan, math.nan
    logs = np.log(values)
    mean, reach = logs.mean(), logs.std(ddof=1) / math.sqrt(len(values))
    reach *= student_reach(error, len(values) - 1)
    low, high = np.exp(np.clip([mean - reach, mean + reach], -700.0, 700.0))
    return middle, min(middle, float(low)), max(middle, float(high))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)


def student_tail(t: float, freedom: float) -> float:
    """Return how likely Student's distribution is above `t`, not negative.

    With t = sqrt(freedom) tan(a) its density is that of a power of cos(a).
    """
    low, high = math.atan(t / math.sqrt(freedom)), math.pi / 2
    angles = low + (high - low) * (_NODES + 1) / 2
    area = float(np.sum(_WEIGHTS * np.cos(angles) ** (freedom - 1))) * (high - low) / 2
    log_all = math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2) + math.log(math.pi) / 2
    return area / math.exp(log_all)


@functools.cache
def student_reach(error: float, freedom: float) -> float:
    """Return how many standard errors an interval with this error reaches to either side."""
    return solve(lambda t: error / 2 - student_tail(t, freedom), 0.0, 1e3)


def solve(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function is 0, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def together(above: Launches, below: Launches) -> tuple[Launches, Launches]:
    """Return only the launches in which both were measured."""
    pairs = [(a, b) for a, b in zip(above, below, strict=False) if len(a) and len(b)]
    return [_times(a) for a, _ in pairs], [_times(b) for _, b in pairs]


def _times(ns: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times in ns to divide by: one that no clock resolves counts as 1 ns."""
    return np.maximum(np.asarray(ns, np.float64), 1.0)


def per_launch(above: Launches, below: Launches) -> list[float]:
    """Return the ratio of medians in each launch."""
    return [float(np.median(a) / np.median(b)) for a, b in zip(above, below, strict=True)]


def spread(one: Launches, again: Launches) -> float | None:
    """Return by which share the same call under two names differs, in the median over launches.

    None if there is no launch in which it was measured twice.
    """
    differences = [abs(math.log(r)) for r in per_launch(*together(one, again))]
    return math.expm1(float(np.median(differences))) if differences else None


def verdict(found: Ratio, spread_of_same: float | None) -> str:
    """Return the verdict on a cell: none if its noise is unknown or there are too few launches."""
    if spread_of_same is None or spread_of_same > RESOLVABLE or math.isnan(found.low):
        return "not resolvable"
    if found.low > 1.0:
        return "win"
    if found.high < 1.0:
        return "LOSS"
    return "parity"


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values; nan if there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan
