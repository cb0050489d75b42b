"""Report what `xupc tune` decided."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xupc.bench.columns import aligned
from xupc.bench.decisions import Change, Tuned
from xupc.bench.results import AGAIN, OURS, Result
from xupc.bench.stats import geometric_mean
from xupc.bench.tuning_file import label_of
from xupc.tuning.selection_file import user_path

from ..report import formatting

__all__ = ["details", "has_wrong_results", "hint", "outline", "remark", "report", "summary"]

SHOWN = 6  # ranges of sizes that the outline of a place lists


def report(found: Sequence[Tuned[Any]], result: Result, *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines about what was decided: a few for each place, or one for each size."""
    for each in found:
        yield label_of(each.place)
        yield from aligned(details(each), indent=2) if verbose else outline(each)
        yield f"  {summary(each)}"
    if not verbose and any(each.changes for each in found):
        yield "-v prints every size; --json FILE keeps what was measured"
    if not result.complete:
        yield "what was measured is not complete"
    if has_wrong_results(result):
        yield "WRONG RESULTS of some algorithms: these are not used; see xupc report"


def details(found: Tuned[Any]) -> list[list[str]]:
    """Return a row for each size that changes, or that could not be judged."""
    rows = [
        [c.collective, _bytes(c), f"{c.before} -> {c.after}", str(c.gain)] for c in found.changed
    ]
    rows += [
        [c.collective, _bytes(c), f"as before: {c.why_not}"]
        for c in found.changes if c.why_not
    ]  # fmt: skip
    return rows


def outline(found: Tuned[Any], shown: int = SHOWN) -> list[str]:
    """Return a line for each range of sizes that changes alike, those with the largest gains."""
    runs = [
        list(run)
        for _, run in itertools.groupby(
            found.changes, key=lambda c: (c.collective, c.before, c.after)
        )
    ]
    changed = [run for run in runs if run[0].before != run[0].after]
    changed.sort(key=lambda run: -_gain(run))
    rows = [
        [
            run[0].collective, " to ".join(dict.fromkeys(_size(c) for c in (run[0], run[-1]))),
            f"{run[0].before} -> {run[0].after}", f"{_gain(run):.2f} times as fast",
        ]
        for run in changed[:shown]
    ]  # fmt: skip
    left = len(changed) - len(rows)
    return [*aligned(rows, indent=2), *([f"  and {left} more such ranges"] if left > 0 else [])]


def _size(change: Change) -> str:
    return "all sizes" if change.nbytes is None else formatting.size(change.nbytes)


def _bytes(change: Change) -> str:
    return "all" if change.nbytes is None else str(change.nbytes)


def _gain(run: Sequence[Change]) -> float:
    return geometric_mean(change.gain.value for change in run if change.gain)


def summary(found: Tuned[Any], other: str = "another algorithm") -> str:
    """Return a text about the gain at a place; `other` is what could be chosen."""
    changed, count = len(found.changed), len(found.changes)
    reasons = Counter(change.reason for change in found.changes if change.reason)
    judged = count - sum(reasons.values())
    why = "; ".join(f"{number} {text}" for text, number in reasons.most_common(3))
    unjudged = f" (not judged: {why})" if why else ""
    if not judged and not changed:
        return f"nothing was decided: none of {count} sizes could be judged{unjudged}"
    if not changed:
        return (
            f"{judged} of {count} sizes judged: none is faster with {other} beyond doubt{unjudged}"
        )
    return (
        f"{changed} of {count} sizes changed: {found.gain_there:.2f} times as fast there, "
        f"{found.gain_over_all:.2f} over all{unjudged}"
    )


def has_wrong_results(result: Result) -> bool:
    """Return True if a measured call of xupc gave a wrong result."""
    return any(
        any(candidate.wrong)
        for job in result.jobs
        for cell in job.cells
        for candidate in cell.candidates
        if candidate.kind in (OURS, AGAIN)
    )


def hint(path: Path) -> str:
    """Return what the user must do so that the library finds a table; empty if it does."""
    usual = user_path()
    if usual is not None and os.path.realpath(usual) == os.path.realpath(path):
        return ""
    return f"xupc uses it with XUPC_TUNING={os.path.realpath(path)}"


def remark(text: str) -> str:
    """Return a text on one line, without anything that a table cannot hold."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
