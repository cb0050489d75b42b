"""The part that all tuners share: what is decided at one size, and the rules that follow.

A choice overrides that of the table only if its gain is statistically significant: the whole
interval of the paired ratio must be above the least gain. It stays at a size whose measurement
permits no conclusion. `size_ranges` makes ranges of sizes from the choices.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from ..tuning.selection import CarrierRule, Place, Rule, When
from .size_ranges import GAIN, Choice, Range, cheapest, ranges
from .stats import LEAST, Ratio, geometric_mean

__all__ = ["LEAST_LAUNCHES", "Change", "Spot", "Tuned", "decided", "ranges_of", "when_at"]

LEAST_LAUNCHES = LEAST  # of which a table is made
_R = TypeVar("_R", Rule, CarrierRule)


@dataclass(frozen=True, slots=True)
class Change:
    """The change, or its absence, at one size of one collective.

    Attributes
    ----------
    collective
        Its name, or that of a method of mpi4py.
    nbytes
        Bytes of a block; None: at all sizes.
    before, after
        Names of algorithms, or of the libraries that carry the call.
    gain
        Time before / time after; None if nothing changes.
    why_not
        The problem of the measurement that prevents a change, or "".
    reason
        The same without its figures.
    """

    collective: str
    nbytes: int | None
    before: str
    after: str
    gain: Ratio | None = None
    why_not: str = ""

    @property
    def reason(self) -> str:
        return self.why_not.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Tuned(Generic[_R]):
    """All rules of the tuner for one place, and the changes that they make."""

    place: Place
    rules: tuple[_R, ...]
    changes: tuple[Change, ...]

    @property
    def changed(self) -> list[Change]:
        """The sizes that get another algorithm or library than before."""
        return [change for change in self.changes if change.before != change.after]

    @property
    def gain_there(self) -> float:
        """The gain at the sizes that change, by the geometric mean."""
        return geometric_mean(change.gain.value for change in self.changed if change.gain)

    @property
    def gain_over_all(self) -> float:
        """The gain over all sizes measured, by the geometric mean."""
        return geometric_mean(c.gain.value if c.gain else 1.0 for c in self.changes)


def when_at(place: Place) -> When:
    """Return the conditions of all rules for a place."""
    return When(
        shape=place.shape, family=place.family, transport=place.transport,
        oversubscribed=place.oversubscribed,
    )  # fmt: skip


@dataclass
class Spot(ABC):
    """What is decided at once: one size of one call, or all its sizes.

    Each tuner says what its cells have measured.

    Attributes
    ----------
    call
        The name of a collective, or of a method of mpi4py.
    nbytes
        Bytes of a block; None: at all sizes.
    usual
        What the table chooses without a rule of the tuner.
    said
        What the rules of the tuner chose so far.
    """

    call: str
    nbytes: int | None
    usual: str
    said: Choice

    @property
    @abstractmethod
    def problem(self) -> str:
        """The reason why the cells permit no conclusion; empty if they permit one."""

    @property
    @abstractmethod
    def others(self) -> Sequence[str]:
        """The names to choose from besides the usual one."""

    @abstractmethod
    def gains(self, before: str, after: str) -> list[Ratio | None]:
        """Return the time of one choice / that of another in each cell; None if it lacks one."""

    @property
    def least_gain(self) -> float:
        """The ratio that the whole interval of a gain must exceed."""
        return GAIN

    @cached_property
    def costs(self) -> dict[Choice, float]:
        """What may be chosen, and how much slower than the usual one it is, by logarithm."""
        if self.problem:
            return {self.said: 0.0}
        found: dict[Choice, float] = {None: 0.0}
        for name in self.others:
            gain = self.gain(self.usual, name)
            if gain is not None and gain.low > self.least_gain:
                found[name] = -math.log(gain.value)
        return found

    def gain(self, before: str, after: str) -> Ratio | None:
        """Return the time of one choice / that of another; None if a cell lacks one of them.

        Over several cells this is the geometric mean, with the widest interval.
        """
        found = self.gains(before, after)
        gains = [gain for gain in found if gain is not None]
        if len(gains) < len(found):
            return None
        value = geometric_mean(gain.value for gain in gains)
        return Ratio(value, min(g.low for g in gains), max(g.high for g in gains))

    def change(self, chosen: Choice) -> Change:
        """Return the change that a choice makes."""
        before, after = self.said or self.usual, chosen or self.usual
        gain = self.gain(before, after) if before != after else None
        return Change(self.call, self.nbytes, before, after, gain, self.problem)


def ranges_of(rules: Iterable[tuple[When, str]]) -> list[Range]:
    """Return the ranges of sizes of some rules, each given as its conditions and its choice."""
    return [(when.min_bytes or 0, when.max_bytes, choice) for when, choice in rules]


def decided(
    spots: Sequence[Spot], old: Sequence[Range], *, by_size: bool = True
) -> tuple[list[Range], list[Change]]:
    """Return the ranges of sizes that need a rule, and the change at each spot.

    Parameters
    ----------
    spots
        Those of one call, by ascending size.
    old
        The ranges of the tuner's rules so far. They stay where nothing new is known.
    by_size
        False: there is one spot at most, and what it decides holds for all sizes.
    """
    chosen = cheapest([spot.costs for spot in spots])
    changes = [spot.change(choice) for spot, choice in zip(spots, chosen, strict=True)]
    judged = {
        spot.nbytes or 0: choice
        for spot, choice in zip(spots, chosen, strict=True)
        if not spot.problem
    }
    if by_size:
        return list(ranges([spot.nbytes or 0 for spot in spots], judged, old)), changes
    choice = judged.get(0, old[0][2] if old else None)
    return [(0, None, choice)] if choice else [], changes
