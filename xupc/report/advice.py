"""The recommended flag of each call, by size: which one, and by how much."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.results import OURS, Candidate
from ..bench.stats import ERROR, RESOLVABLE, Ratio, ratio
from . import formatting
from .findings import CHOSEN, PLANNED, Findings, Standing, judged, with_mpi

__all__ = ["Advice", "advised"]

NO_FLAG = "no flag"


@dataclass(frozen=True)
class Advice:
    """Recommend a flag for a call with blocks of some sizes.

    Attributes
    ----------
    call
        The collective with its arguments.
    sizes
        Like ``8 B to 64 KiB``; empty where there is no data.
    flag
        The name of an algorithm, or ``no flag``: the library's own choice.
    why
        By how much, in words.
    """

    call: str
    sizes: str
    flag: str
    why: str


@dataclass(frozen=True)
class _Best:
    """Hold the recommendation for one size; a ratio above 1 is in its favour."""

    flag: str
    against: str
    ratio: Ratio | None
    verdict: str


def advised(findings: Findings) -> list[Advice]:
    """Return recommendations, those of neighbouring sizes in one if they are the same."""
    found = []
    for title, group in findings.groups.items():
        best = [(s, _best(s, findings.decidable)) for s in group]
        there = [(s, b) for s, b in best if b is not None]
        for _, some in itertools.groupby(there, key=lambda pair: _kind(pair[1])):
            pairs = list(some)
            sizes = _span([s for s, _ in pairs])
            call = with_mpi(title, group[0].cell)
            found.append(Advice(call, sizes, pairs[0][1].flag, _why([b for _, b in pairs])))
    return found


def _best(standing: Standing, decidable: bool) -> _Best | None:
    """Return the recommendation for one cell; None if there is nothing to choose from."""
    ours = {c.name: c for c in standing.cell.of_kind(OURS) if c.name != PLANNED}
    if len(ours) < 2:
        return None
    order = sorted(ours, key=lambda name: standing.times[name].value)
    if CHOSEN not in ours:
        first, second = order[:2]
        return _against(standing, ours[first], ours[second], len(ours), decidable)
    first = next(name for name in order if name != CHOSEN)
    found = _against(standing, ours[first], ours[CHOSEN], len(ours), decidable)
    small = found.ratio is not None and found.ratio.value <= 1 + RESOLVABLE
    if found.verdict == "win" and not small:
        return found
    return _Best(NO_FLAG, first, found.ratio, found.verdict)


def _against(
    standing: Standing, one: Candidate, other: Candidate, count: int, decidable: bool
) -> _Best:
    """Return how the fastest of `count` compares with another; each might be it by chance."""
    found = ratio(other.medians, one.medians, ERROR / max(1, count - 1))
    verdict = "not resolvable"
    if decidable and found is not None:
        verdict = judged(found, standing.spread)
    return _Best(one.name, other.name, found, verdict)


def _kind(best: _Best) -> tuple[str, bool, str]:
    """Return what recommendations have in common that are shown as one."""
    unclear = best.verdict in ("unclear", "not resolvable")
    return best.flag, unclear, "" if best.flag == NO_FLAG else best.against


def _span(standings: Sequence[Standing]) -> str:
    sizes = [s.cell.nbytes for s in standings]
    ends = [formatting.size(n) for n in (sizes[0], sizes[-1]) if n]
    return " to ".join(dict.fromkeys(ends))


def _why(some: Sequence[_Best]) -> str:
    """Return by how much, over the sizes of one recommendation."""
    first = some[0]
    ratios = sorted(b.ratio.value for b in some if b.ratio is not None)
    said = _times(ratios)
    if first.verdict in ("unclear", "not resolvable"):
        others = "/".join(dict.fromkeys(b.against for b in some))
        return f"not clear: {others} measured {said} as fast; more launches would show it"
    if first.flag == NO_FLAG:
        return f"no flag is more than {RESOLVABLE:.0%} faster than the library's own choice"
    whom = "without a flag" if first.against == CHOSEN else f"by {first.against}"
    if first.verdict == "parity":
        return f"level with {first.against}"
    return f"{said} as fast as {whom}"


def _times(ratios: Sequence[float]) -> str:
    """Return like ``1.20 to 1.35 times``."""
    if not ratios or not all(map(math.isfinite, ratios)):
        return "an unknown number of times"
    return " to ".join(dict.fromkeys(f"{r:.2f}" for r in (ratios[0], ratios[-1]))) + " times"
