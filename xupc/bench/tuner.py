"""Make rules from a result: the best algorithm at each size, where the gain is significant.

A rule overrides the choice of the table at a size only if the gain is statistically significant.
This requires three launches or more, and the whole interval of the paired ratio must be above
`GAIN`. The interval is so wide that an error about any of the alternatives has a probability of at
most 2.5%. The choice stays at a size where the same call under two names differs by too much, and
at a size without a measurement. `decisions` has what this tuner shares with others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..algorithms.registry import collectives, names_variant, parse_name
from ..flags import ALGORITHM_NAMES
from ..records import replace
from ..tuning.selection import Choices, Place, Rule, Table, public_name, registered_name
from ..tuning.selection_file import built_in
from .decisions import LEAST_LAUNCHES, Change, Spot, Tuned, decided, ranges_of, when_at
from .results import OURS, Candidate, Cell, Job, Result
from .size_ranges import chosen_at
from .stats import ERROR, RESOLVABLE, Ratio, ratio

__all__ = ["place_of", "tuned"]


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
        old = ranges_of((rule.when, rule.name) for rule in earlier if rule.collective == collective)
        spots = [
            _Spot(
                public_name(collective), nbytes, choices.rule(collective, nbytes).name,
                chosen_at(old, nbytes), here,
            )
            for nbytes, here in sorted(cells.get(collective, {}).items())
        ]  # fmt: skip
        found, changed = decided(spots, old)
        for least, most, name in found:
            flag, label = parse_name(name)
            rules.append(
                Rule(
                    collective, flag, replace(at_place, min_bytes=least or None, max_bytes=most),
                    variant=label, if_possible=True if label else None, source="measured",
                )
            )  # fmt: skip
        changes += changed
    return Tuned(place, tuple(rules), tuple(changes))


# --- one size -------------------------------------------------------------------------------------


@dataclass
class _Spot(Spot):
    """One size of one collective, and the cells that measured it."""

    cells: list[Cell]

    @cached_property
    def names(self) -> list[str]:
        """The algorithms to choose from: the flags, and the variants that were measured by name."""
        named = (c.name for cell in self.cells for c in cell.of_kind(OURS) if names_variant(c.name))
        return list(dict.fromkeys([*ALGORITHM_NAMES.values(), *named]))

    @property
    def others(self) -> list[str]:
        """The algorithms besides the usual one that enough launches have measured."""
        return [
            name for name in self.names
            if name != self.usual
            and min(_launches(cell, name) for cell in self.cells) >= LEAST_LAUNCHES
        ]  # fmt: skip

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

    def gains(self, before: str, after: str) -> list[Ratio | None]:
        """Return the time of one algorithm / that of another in each cell; None if it lacks one."""
        error = ERROR / (len(self.names) - 1)
        found: list[Ratio | None] = []
        for cell in self.cells:
            one, other = _of_algorithm(cell, before), _of_algorithm(cell, after)
            if one is None or other is None:
                found.append(None)
            else:
                found.append(ratio(one.medians, other.medians, error))
        return found


def _launches(cell: Cell, name: str) -> int:
    """Return the number of launches that measured an algorithm."""
    candidate = _of_algorithm(cell, name)
    return 0 if candidate is None else sum(map(bool, candidate.medians))


def _of_algorithm(cell: Cell, name: str) -> Candidate | None:
    """Return the candidate of an algorithm; None if there is none, or its result was wrong."""
    ours = list(cell.of_kind(OURS))
    named = [c for c in ours if c.name in (name, name.upper())]
    same = [c for c in ours if c.algorithm.startswith(name) and ":" not in c.name]
    found = next(iter((*named, *same)), None)
    return None if found is None or any(found.wrong) else found
