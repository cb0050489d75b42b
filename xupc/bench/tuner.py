"""Make rules from a result: the best algorithm at each size, where the gain is significant.

A rule overrides the choice of the table at a size only if the gain is statistically significant.
This requires three launches or more, and the whole interval of the paired ratio must be above
`GAIN`. The interval is so wide that an error about any of the alternatives has a probability of at
most 2.5%. The choice stays at a size where the same call under two names differs by too much, and
at a size without a measurement. `size_ranges` makes ranges of sizes from the choices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from ..algorithms.registry import collectives, names_variant, parse_name
from ..flags import ALGORITHM_NAMES
from ..records import replace
from ..tuning.selection import (
    CarrierRule,
    Choices,
    Place,
    Rule,
    Table,
    When,
    public_name,
    registered_name,
)  # fmt: skip
from ..tuning.selection_file import built_in
from .results import OURS, Candidate, Cell, Job, Result
from .size_ranges import GAIN, Choice, cheapest, chosen_at, ranges
from .stats import ERROR, LEAST, RESOLVABLE, Ratio, geometric_mean, ratio

__all__ = ["LEAST_LAUNCHES", "Change", "Tuned", "place_of", "tuned", "when_at"]

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
        """Sizes that get another algorithm or library than before."""
        return [change for change in self.changes if change.before != change.after]

    @property
    def gain_there(self) -> float:
        """How many times as fast changed sizes become, by the geometric mean."""
        return geometric_mean(change.gain.value for change in self.changed if change.gain)

    @property
    def gain_over_all(self) -> float:
        """The same over all sizes measured."""
        return geometric_mean(c.gain.value if c.gain else 1.0 for c in self.changes)


def place_of(job: Job) -> Place:
    """Return where a job ran, as rules ask for it.

    Raises
    ------
    ValueError
        The result does not say.
    """
    about = job.about
    for key in ("mpi family", "transport", "oversubscribed"):
        if key not in about:
            raise ValueError(f"the result does not have {key!r} of the job on {job.shape}")
    return Place.of(
        (len(node) for node in job.nodes),
        str(about["mpi family"]), str(about["transport"]), bool(about["oversubscribed"]),
    )  # fmt: skip


def when_at(place: Place) -> When:
    """Return the conditions of all rules for a place."""
    return When(
        shape=place.shape, family=place.family, transport=place.transport,
        oversubscribed=place.oversubscribed,
    )  # fmt: skip


def tuned(
    result: Result,
    table: Table | None = None,
    earlier: Callable[[Place], Sequence[Rule]] = lambda place: (),
) -> list[Tuned[Rule]]:
    """Return the rules that follow from a result, for each place that it measured.

    Parameters
    ----------
    table : Table, optional
        What chooses where no rule of ours does; default the built-in one.
    earlier : callable, optional
        Our rules so far for a place. They stay for whatever was not measured now.
    """
    table = built_in() if table is None else table
    cells: dict[Place, dict[str, dict[int, list[Cell]]]] = {}
    known = set(collectives())
    for job in result.jobs:
        by_size = cells.setdefault(place_of(job), defaultdict(lambda: defaultdict(list)))
        for cell in job.cells:
            name = registered_name(cell.collective)
            if name in known and cell.team == "world" and not (cell.cold or cell.loop):
                by_size[name][cell.nbytes].append(cell)
    return [
        _tuned_at(place, by_size, table.at(place), earlier(place))
        for place, by_size in cells.items()
    ]


def _tuned_at(
    place: Place,
    cells: Mapping[str, Mapping[int, list[Cell]]],
    choices: Choices,
    earlier: Sequence[Rule],
) -> Tuned[Rule]:
    at_place = when_at(place)
    rules: list[Rule] = []
    changes: list[Change] = []
    for collective in sorted({rule.collective for rule in earlier} | cells.keys()):
        old = [
            (rule.when.min_bytes or 0, rule.when.max_bytes, rule.name)
            for rule in earlier if rule.collective == collective
        ]  # fmt: skip
        spots = [
            Spot(
                collective,
                nbytes,
                here,
                choices.rule(collective, nbytes).name,
                chosen_at(old, nbytes),
            )
            for nbytes, here in sorted(cells.get(collective, {}).items())
        ]
        chosen = cheapest([spot.costs for spot in spots])
        judged = {
            spot.nbytes: choice
            for spot, choice in zip(spots, chosen, strict=True) if not spot.problem
        }  # fmt: skip
        for least, most, name in ranges([spot.nbytes for spot in spots], judged, old):
            flag, label = parse_name(name)
            rules.append(
                Rule(
                    collective, flag, replace(at_place, min_bytes=least or None, max_bytes=most),
                    variant=label, if_possible=True if label else None, source="measured",
                )
            )  # fmt: skip
        changes += [spot.change(name) for spot, name in zip(spots, chosen, strict=True)]
    return Tuned(place, tuple(rules), tuple(changes))


# --- one size -------------------------------------------------------------------------------------


@dataclass
class Spot:
    """One size of one collective, and the cells that measured it.

    Attributes
    ----------
    usual
        What the table chooses without a rule of ours.
    said
        What our rules said so far.
    """

    collective: str
    nbytes: int
    cells: list[Cell]
    usual: str
    said: Choice

    @cached_property
    def costs(self) -> dict[Choice, float]:
        """What may be chosen, and how much slower than the usual one it is, by logarithm."""
        if self.problem:
            return {self.said: 0.0}
        found: dict[Choice, float] = {None: 0.0}
        for name in self.names:
            gain = self.gain(self.usual, name) if name != self.usual else None
            if gain is not None and gain.low > GAIN and self.launches(name) >= LEAST_LAUNCHES:
                found[name] = -math.log(gain.value)
        return found

    @cached_property
    def names(self) -> list[str]:
        """The algorithms to choose from: the flags, and the variants that were measured by name."""
        named = (c.name for cell in self.cells for c in cell.of_kind(OURS) if names_variant(c.name))
        return list(dict.fromkeys([*ALGORITHM_NAMES.values(), *named]))

    @cached_property
    def problem(self) -> str:
        """The reason why the result permits no conclusion; empty if it permits one."""
        for cell in self.cells:
            differs = cell.spread
            if differs is None:
                return "nothing was measured twice"
            if _of_algorithm(cell, self.usual) is None:
                return f"{self.usual} was not measured, or was wrong"
            if (launches := _launches(cell, self.usual)) < LEAST_LAUNCHES:
                return f"too few launches: {launches}, at least {LEAST_LAUNCHES}"
            if differs > RESOLVABLE:
                return f"not resolvable: the same call twice differs by {differs:.0%}"
        return ""

    def launches(self, name: str) -> int:
        """Return the number of launches that measured an algorithm, the least over all cells."""
        return min(_launches(cell, name) for cell in self.cells)

    def gain(self, before: str, after: str) -> Ratio | None:
        """Return the time of one algorithm / that of another; None if a cell lacks one of them.

        Over several cells this is the geometric mean, with the widest interval.
        """
        found = []
        for cell in self.cells:
            one, other = _of_algorithm(cell, before), _of_algorithm(cell, after)
            if (
                one is None
                or other is None
                or (each := ratio(one.medians, other.medians, ERROR / (len(self.names) - 1)))
                is None
            ):
                return None
            found.append(each)
        value = geometric_mean(r.value for r in found)
        return Ratio(value, min(r.low for r in found), max(r.high for r in found))

    def change(self, chosen: Choice) -> Change:
        """Return the change that a choice makes."""
        before, after = self.said or self.usual, chosen or self.usual
        gain = self.gain(before, after) if before != after else None
        return Change(public_name(self.collective), self.nbytes, before, after, gain, self.problem)


def _launches(cell: Cell, name: str) -> int:
    candidate = _of_algorithm(cell, name)
    return 0 if candidate is None else sum(map(bool, candidate.medians))


def _of_algorithm(cell: Cell, name: str) -> Candidate | None:
    """Return the candidate of an algorithm; None if there is none, or its result was wrong."""
    ours = list(cell.of_kind(OURS))
    named = [c for c in ours if c.name in (name, name.upper())]
    same = [c for c in ours if c.algorithm.startswith(name) and ":" not in c.name]
    found = next(iter((*named, *same)), None)
    return None if found is None or any(found.wrong) else found
