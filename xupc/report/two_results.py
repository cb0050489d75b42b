"""What a report says of a second result against a first one: sentences and tables of changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..bench.results import Result
from . import formatting
from .formatting import fact
from .regression import (
    BETTER,
    REGRESSION,
    SAME,
    UNCLEAR,
    UNRESOLVED,
    Change,
    Comparison,
    compare,
)
from .tables import MARKS, Entry, Matrix, heads

__all__ = ["Regressions", "regressions"]

PLACE = (
    "processor", "cores", "kernel", "mpi", "mpi4py", "python", "numpy", "transport",
    "thread level", "native core", "binding",
)  # fmt: skip
"""The entries of `Job.about` that are equal if two results differ in the code only."""


@dataclass
class Regressions:
    """Hold a comparison of two results; `comparable`: at least one cell could be resolved."""

    old: str
    new: str
    summary: list[str]
    tables: list[Matrix]
    found: list[tuple[Comparison, Change]]
    comparable: bool


def regressions(old: Result, new: Result, names: tuple[str, str], tolerance: float) -> Regressions:
    """Compare the second result with the first."""
    comparisons = compare(old, new, tolerance)
    found = [(c, change) for c in comparisons for change in c.of(REGRESSION)]
    found.sort(key=lambda pair: -(pair[1].ratio.value if pair[1].ratio else 0.0))
    summary = [_outcome(c, tolerance) for c in comparisons]
    if not comparisons:
        summary = ["The two have no job in common: nothing can be compared."]
    summary = [*_differing(old, new), *summary]
    summary += [
        f"{c.shape}: no longer measured: {', '.join(c.missing)}." for c in comparisons if c.missing
    ]
    tables = [_changes(c) for c in comparisons if c.changes]
    every = [change for c in comparisons for change in c.changes]
    comparable = any(change.verdict != UNRESOLVED for change in every)
    return Regressions(*names, summary, tables, found, comparable)


def _differing(old: Result, new: Result) -> list[str]:
    """Return in a sentence the differences of the two results other than in the code."""
    found: dict[str, None] = {}
    for job in new.jobs:
        before = next((j for j in old.jobs if j.nodes == job.nodes), None)
        if before is None:
            continue
        pairs: list[tuple[str, object, object]] = [("hosts", before.hosts, job.hosts)]
        pairs += [(name, before.about.get(name), job.about.get(name)) for name in PLACE]
        for name, was, now in pairs:
            if was != now:
                found[f"{name} ({fact(was)}, then {fact(now)})"] = None
    return [f"The two differ in more than times: {'; '.join(found)}."] if found else []


def _outcome(comparison: Comparison, tolerance: float) -> str:
    count = {v: len(comparison.of(v)) for v in (REGRESSION, BETTER, SAME, UNCLEAR, UNRESOLVED)}
    a, b = comparison.launches
    if comparison.paired:
        how = (
            f"{formatting.count(a, 'launch')} each, which take turns and are compared pair by pair"
        )
        how += ", by ranks" * comparison.ranked
    else:
        how = f"{formatting.count(a, 'launch')} against {formatting.count(b, 'launch')}"
    if any(comparison.disturbed):
        how += f" ({sum(comparison.disturbed)} left out: other processes took part of the cores)"
    if comparison.relative:
        how += f", {comparison.terms} in the same launch"
    said = (
        f"{comparison.shape}: {how}. Of {formatting.count(len(comparison.changes), 'comparison')} "
        f"{count[REGRESSION]} got slower by more than {tolerance:.0%}, {count[BETTER]} faster by "
        f"as much, {count[SAME]} stayed within it, {count[UNCLEAR]} are unclear, and "
        f"{count[UNRESOLVED]} cannot be resolved."
    )
    if comparison.busy:
        said += (
            f" In {comparison.busy} launches, too many to be left out, other processes took part "
            "of the cores: measure again on a machine of your own."
        )
    if not comparison.paired:
        said += (
            " The launches did not take turns: a change of the machine's state cannot be "
            "distinguished from a change of the code."
        )
    if min(a, b) < 2:
        said += " One launch does not say how much launches differ: nothing can be called."
    elif count[UNCLEAR]:
        said += " More launches would make what is unclear clear."
    return said


def _changes(comparison: Comparison) -> Matrix:
    changes = comparison.changes
    sizes = sorted({c.cell.nbytes for c in changes})
    rows: dict[str, dict[int, Entry]] = {}
    for change in changes:
        row = rows.setdefault(f"{change.cell.title}, {change.candidate}", {})
        row[change.cell.nbytes] = _change(change)
    caption = (
        f"{comparison.shape}: time now / time before{', ' * bool(comparison.relative)}"
        f"{comparison.terms}, and the interval of each alone. "
        "▼ REGRESSION: slower beyond the tolerance, with a false discovery rate of 5% over all "
        "cells. ▲: faster by as much. =: within the tolerance. ~: unclear. ?: not resolvable."
    )
    table = [(name, [row.get(n, Entry()) for n in sizes]) for name, row in rows.items()]
    return Matrix(caption, heads(sizes), table, "collective, candidate")


def _change(change: Change) -> Entry:
    class_ = {
        REGRESSION: "lost loss3", BETTER: "win2", SAME: "tie", UNCLEAR: "", UNRESOLVED: "noisy",
    }[change.verdict]  # fmt: skip
    r, mark = change.ratio, MARKS[change.verdict]
    if r is None or not math.isfinite(r.value):
        return Entry(mark, "", "", class_)
    sign, _, word = mark.partition(" ")
    return Entry(f"{r.value:.2f} {sign}", r.interval(" to "), word, class_)
