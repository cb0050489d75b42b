"""`xupc tune --drop-in`: measures which library carries calls of mpi4py's methods faster.

What is decided is the work of `xupc.bench.drop_in_tuner`; `xupc.bench.drop_in_probe` measures.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from xupc.bench.budget import given, in_words, no_trial
from xupc.bench.columns import aligned
from xupc.bench.decisions import LEAST_LAUNCHES, Tuned
from xupc.bench.drop_in_tuner import cells_of, collected, drop_in_tuned
from xupc.bench.settings import Shape
from xupc.bench.tuning_file import TuningFile, label_of
from xupc.tuning.selection import CarrierRule, Place

from .common import BudgetProblem, EnvironmentProblem
from .diagnostics import others_computed
from .jobs import measured_by
from .tune_report import details, outline, remark, summary

__all__ = ["DropInPlan", "add_carriers"]

PROBE = "xupc.bench.drop_in_probe"
LAUNCHES = 5
START = 3.0
"""Seconds that the first launch is expected to take without its cells."""
SHORTEST = 0.5  # seconds for all cells of a launch
OVER = 0.1
"""The part of the budget after its end at which a launch is killed."""
RESERVE = 0.8
"""The part of the first launch's cells that later ones measure, if not all had time."""
SHOWN = 4  # ranges of sizes that the outline of a single place lists

Show = Callable[[float, str], None]


@dataclass(frozen=True)
class DropInPlan:
    """Hold the measurement: jobs of these shapes, one after the other.

    Attributes
    ----------
    methods, sizes
        The names in mpi4py, and bytes of a block.
    seconds
        The budget, from `began` on, by `time.monotonic`.
    load
        The load average at that time.
    launches
        Of each job; None: as many as the budget permits, up to 5.
    """

    shapes: tuple[Shape, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    seconds: float
    launches: int | None
    began: float
    load: float


@dataclass
class _Measured:
    """Hold what the launches of one job printed, and how many cells had no time."""

    launches: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0

    @property
    def place(self) -> Place:
        """Return where the job ran, as rules ask for it."""
        return Place(**{**self.launches[0]["place"], "levels": ""})


def add_carriers(
    file: TuningFile, plan: DropInPlan, progress: Show, *, verbose: bool = False
) -> list[str]:
    """Measure the jobs of a plan, put the rules that follow into a table, and return what to print.

    Raises
    ------
    BudgetProblem
        The budget is too short.
    EnvironmentProblem
        A job did not run to its end.
    click.UsageError
        A job has one thread.
    """
    if any(shape.threads == 1 for shape in plan.shapes):
        raise click.UsageError("--drop-in: expected at least 2 threads, got -n 1")
    lines: list[str] = []
    for number, shape in enumerate(plan.shapes, 1):
        end = plan.began + plan.seconds * number / len(plan.shapes)
        measured = _measured(plan, shape, end, progress)
        cells = collected(launch["cells"] for launch in measured.launches)
        place = measured.place
        found = drop_in_tuned(place, cells, file.rest, file.carriers(place))
        remarks = [_made(shape, len(measured.launches))]
        if busy := others_computed(plan.load, shape.threads):
            remarks.append(busy)
        if list(found.rules) != list(file.carriers(place)):
            file.put_carriers(place, found.rules, [*remarks, _summary(found)])
        lines += _lines(found, measured, remarks[1:], verbose, SHOWN if not plan.shapes[1:] else 0)
    return lines


def _made(shape: Shape, launches: int) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return remark(f"{now}, {shape}, {launches} launches: {' '.join(['xupc', *sys.argv[1:]])}")


def _summary(found: Tuned[CarrierRule]) -> str:
    return summary(found, "the other library")


def _lines(
    found: Tuned[CarrierRule], measured: _Measured, notes: Sequence[str], verbose: bool, shown: int
) -> list[str]:
    """Return the lines about one place."""
    lines = [label_of(found.place), *(f"  {note}" for note in notes)]
    if verbose:
        lines += aligned(details(found), indent=2)
    elif shown:
        lines += outline(found, shown)
    left = f"; {measured.left} sizes had no time: give a longer --budget" if measured.left else ""
    return [*lines, f"  {_summary(found)}{left}"]


def _measured(plan: DropInPlan, shape: Shape, end: float, progress: Show) -> _Measured:
    """Launch one job several times, the last one to end in time."""
    cells, start, found = cells_of(plan.methods, plan.sizes), START, _Measured()
    count = plan.launches or LAUNCHES
    for number in range(count):
        began = time.monotonic()
        progress((began - plan.began) / plan.seconds, f"{shape}, launch {number + 1} of {count}")
        share = (end - began) / (count - number) - start
        if share < SHORTEST and number:
            break
        settings = json.dumps({"cells": cells, "seconds": max(share, SHORTEST)})
        limit = max(end - began, START + SHORTEST) + OVER * plan.seconds
        launch, why = measured_by(PROBE, shape.threads, shape.nodes, limit, [settings])
        if not launch and number >= LEAST_LAUNCHES:
            break
        if not launch and time.monotonic() - began >= limit:
            raise BudgetProblem(str(no_trial(
                str(shape), plan.seconds, began - plan.began, limit,
                LEAST_LAUNCHES * len(plan.shapes), START,
            )))  # fmt: skip
        if not launch:
            raise EnvironmentProblem(f"the drop-in communicator was not measured: {why}")
        start = time.monotonic() - began - launch["seconds"]
        found.launches.append(launch)
        if launch["left"] and not number:
            every, cells = len(cells), _done(launch)
            cells = cells[: math.ceil(RESERVE * len(cells))]
            found.left = every - len(cells)
    if not cells or (len(found.launches) < LEAST_LAUNCHES and not plan.launches):
        raise _too_short(plan, start)
    return found


def _done(launch: dict[str, Any]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((cell["method"], cell["nbytes"]) for cell in launch["cells"]))


def _too_short(plan: DropInPlan, start: float) -> BudgetProblem:
    """Return the error about a budget, with the time that would do."""
    need = in_words(2 * len(plan.shapes) * LEAST_LAUNCHES * (start + SHORTEST))
    return BudgetProblem(
        f"--budget {given(plan.seconds)}: expected at least {need}: {LEAST_LAUNCHES} launches "
        f"of each job (a start takes {start:.1f} s)"
    )
