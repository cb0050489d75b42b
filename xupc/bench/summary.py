"""What a compact result keeps of one candidate's repetitions in one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .files import LARGEST

__all__ = ["Summary", "typical"]


class Summary(NamedTuple):
    """Summarise one candidate's repetitions in one launch.

    Attributes
    ----------
    repetitions
        The number of repetitions.
    first
        The time of the first one, which may be slow.
    least, most, total
        The times of the others; of the first one where it is the only one.
    low, middle, high
        The quartiles of all.
    typical
        The geometric mean of the medians of its visits.
    """

    repetitions: float
    first: float
    least: float
    most: float
    total: float
    low: float
    middle: float
    high: float
    typical: float

    @classmethod
    def of(cls, parts: Sequence[Sequence[int]]) -> Summary:
        """Return the summary of repetitions, given visit by visit."""
        times = [ns for part in parts for ns in part]
        others = times[1:] or times
        low, middle, high = (float(q) for q in np.percentile(times, (25, 50, 75)))
        return cls(
            len(times), times[0], min(others), max(others), sum(others), low, middle, high,
            typical(parts),
        )  # fmt: skip

    @property
    def others(self) -> float:
        """Return the number of repetitions behind `least`, `most` and `total`."""
        return max(1.0, self.repetitions - 1)

    @property
    def mean(self) -> float:
        """Return the mean of all repetitions."""
        return (self.total + self.first * (self.repetitions > 1)) / self.repetitions

    def row(self) -> list[float]:
        """Return the numbers for a file, with no more digits than they need."""
        exact = [int(x) if x == int(x) else round(x, 2) for x in self[:-1]]
        return [*exact, float(f"{self.typical:.8g}")]

    def is_sound(self) -> bool:
        """Return whether any repetitions can have these numbers."""
        return (
            all(0 <= x < LARGEST for x in self)
            and self.repetitions >= 1
            and self.repetitions == int(self.repetitions)
            and self.least <= self.most
            and self.low <= self.middle <= self.high
        )


def typical(parts: Sequence[Sequence[int]]) -> float:
    """Return the geometric mean of visits' medians."""
    logs = [math.log(max(1.0, float(np.median(part)))) for part in parts]
    return math.exp(float(np.mean(logs)))
