"""Whether a second result is slower than a first one, cell by cell, candidate by candidate.

The unit is the launch, since launches differ by more than repetitions do: of each launch only one
number counts, the mean over the cell's visits of the logarithm of the median of a visit.

1. If the launches of the two results alternate, launch i is compared with launch i, else all
   launches of one with all of the other. The change is the mean of the differences.
2. What disturbs a launch disturbs a peer's collective in it, too: a machine that is in another
   state for a while (its threads on other cores, a neighbour that computes) may make all calls
   half as slow again. Where both results have the same MPI, the launches' times are therefore
   explained by the peer's time in the same cell and launch, by as much as they go along with it,
   and by the change, if that leaves less uncertain (an analysis of covariance).
3. A few launches say little about how much launches differ, but many cells together say more. The
   variance in a cell is therefore drawn towards that of the job's other cells, as far as those
   agree among each other (Smyth's moderated t statistic). The interval and p follow from Student's
   distribution with the degrees of freedom of both.
4. There are many cells, and some look slower by chance: of all p the false discovery rate is held
   at 5% (Benjamini and Hochberg).

A regression is a change that is significant so and larger than the tolerance. A cell whose A/A
spread is above 5% in either result, that has less than two launches of one, or whose launches
differ so much that a change as large as the tolerance would be lost among them, says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..bench.results import OURS, PEER, Cell, Job, Launch, Result
from ..bench.stats import RESOLVABLE, Ratio

__all__ = [
    "BETTER", "REGRESSION", "SAME", "UNCLEAR", "UNRESOLVED", "Change", "Comparison", "compare",
]  # fmt: skip

REGRESSION, BETTER, SAME = "REGRESSION", "faster", "same"
UNCLEAR, UNRESOLVED = "unclear", "not resolvable"
ERROR = 0.05
"""Of an interval, and of the calls of regressions."""
MOST_FREEDOM = 60.0
"""Of degrees of freedom, so that other cells never make a variance all but certain."""

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """How a candidate of a cell differs between the results.

    Attributes
    ----------
    old, new
        Medians over launches of medians over repetitions, in ns.
    ratio
        New / old, above 1 if it got slower; None with less than two launches.
    p
        Of such a ratio if nothing had changed; 1 without a ratio.
    spread
        The larger A/A spread of the two cells; None if neither measured it.
    verdict
        One of `REGRESSION`, `BETTER`, `SAME`, `UNCLEAR`, `UNRESOLVED`.
    """

    cell: Cell
    candidate: str
    old: float
    new: float
    ratio: Ratio | None
    p: float
    spread: float | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """Two jobs of one shape.

    Attributes
    ----------
    paired
        Whether launches alternate, and so were compared one by one.
    relative
        The peer that explains what launches have in common; empty if none does.
    launches
        Of the first and of the second.
    missing
        What the first has measured and the second has not, in words.
    """

    shape: str
    paired: bool
    relative: str
    launches: tuple[int, int]
    changes: list[Change]
    missing: list[str]

    def of(self, verdict: str) -> list[Change]:
        """Those with a verdict."""
        return [change for change in self.changes if change.verdict == verdict]


@dataclass
class _Sample:
    """A candidate's difference of logarithms, plain or at equal times of a peer."""

    value: float
    variance: float  # of one launch's difference
    scale: float  # how much of that the value has
    freedom: int


@dataclass
class _Found:
    """What is known of a candidate before it is judged."""

    cell: Cell
    candidate: str
    old: float
    new: float
    spread: float | None
    plain: _Sample | None
    relative: _Sample | None


def compare(old: Result, new: Result, tolerance: float = 0.05) -> list[Comparison]:
    """Each job of `new` against the job of `old` with the same threads on the same nodes."""
    found = []
    for job in new.jobs:
        before = next((j for j in old.jobs if j.nodes == job.nodes), None)
        if before is not None:
            found.append(_compare_jobs(before, job, tolerance))
    return found


def alternate(old: Sequence[Launch], new: Sequence[Launch]) -> bool:
    """Whether launches were A B A B, so that neighbours belong together."""
    if not old or len(old) != len(new):
        return False
    began = sorted([(x.began, 0, x.number) for x in old] + [(x.began, 1, x.number) for x in new])
    whose = [which for _, which, _ in began]
    return all(a != b for a, b in pairwise(whose))


def _compare_jobs(old: Job, new: Job, tolerance: float) -> Comparison:
    paired = alternate(old.launches, new.launches)
    peer = _common_peer(old, new)
    before = {cell.key: cell for cell in old.cells}
    pairs = [(before[cell.key], cell) for cell in new.cells if cell.key in before]
    found = [
        _difference(a, b, candidate.name, peer, paired)
        for a, b in pairs
        for candidate in b.of_kind(OURS)
        if (other := a.candidate(candidate.name)) is not None and any(other.ns)
    ]
    relative = bool(peer) and _steadier(found)
    samples = [x.relative if relative else x.plain for x in found]
    prior = _prior([s for s in samples if s is not None])
    judged = [None if s is None else _tested(s, prior) for s in samples]
    passed = _discoveries([p for _, p in filter(None, judged)])
    changes = []
    for x, test in zip(found, judged, strict=True):
        ratio, p = (None, 1.0) if test is None else test
        verdict = _verdict(ratio, p <= passed, x.spread, tolerance)
        changes.append(Change(x.cell, x.candidate, x.old, x.new, ratio, p, x.spread, verdict))
    counts = len(old.launches), len(new.launches)
    there = {(x.cell.key, x.candidate) for x in found}
    missing = [
        f"{cell.title} of {cell.nbytes} bytes by {candidate.name}"
        for cell in old.cells
        for candidate in cell.of_kind(OURS)
        if (cell.key, candidate.name) not in there
    ]
    return Comparison(new.shape, paired, peer * relative, counts, changes, missing)


def _common_peer(old: Job, new: Job) -> str:
    """A peer that all cells of both have, and that is the same library in both; or empty."""
    if any(old.about.get(name) != new.about.get(name) for name in ("mpi", "mpi4py", "transport")):
        return ""
    names = [{c.name for c in cell.of_kind(PEER)} for cell in (*old.cells, *new.cells)]
    return min(set.intersection(*names), default="") if names else ""


def _difference(old: Cell, new: Cell, name: str, peer: str, paired: bool) -> _Found:
    """A candidate of a cell in the two results."""
    a, b = _logs(old, name), _logs(new, name)
    was, now = (math.exp(float(np.nanmedian(x))) for x in (a, b))
    spreads = [s for cell in (old, new) if (s := cell.spread) is not None]
    relative = None
    if peer:
        relative = _adjusted(a, b, _logs(old, peer), _logs(new, peer))
    plain = _sample(a, b, paired)
    return _Found(new, name, was, now, max(spreads, default=None), plain, relative)


def _logs(cell: Cell, name: str) -> Logs:
    """A candidate's time in each launch, as a logarithm; nan where a launch has none.

    That is the mean of its visits' medians: where the machine is in one state for one part of a
    launch and in another one for the rest, all candidates' means follow in a straight line.
    """
    candidate = cell.candidate(name)
    assert candidate is not None
    every = (candidate.parts(k) for k in range(len(candidate.ns)))
    return np.array([_mean_log(parts) if parts else math.nan for parts in every])


def _mean_log(parts: Sequence[Sequence[int]]) -> float:
    return float(np.mean([math.log(max(1.0, float(np.median(part)))) for part in parts]))


def _sample(old: Logs, new: Logs, paired: bool) -> _Sample | None:
    """The difference and how it varies; None if there are too few launches to say."""
    if paired:
        n = min(old.size, new.size)
        d = new[:n] - old[:n]
        d = d[~np.isnan(d)]
        if d.size < 2:
            return None
        return _Sample(float(d.mean()), float(d.var(ddof=1)), 1 / d.size, d.size - 1)
    old, new = old[~np.isnan(old)], new[~np.isnan(new)]
    if min(old.size, new.size) < 2:
        return None
    freedom = old.size + new.size - 2
    squares = old.var() * old.size + new.var() * new.size
    scale = 1 / old.size + 1 / new.size
    return _Sample(float(new.mean() - old.mean()), float(squares) / freedom, scale, freedom)


def _adjusted(old: Logs, new: Logs, old_peer: Logs, new_peer: Logs) -> _Sample | None:
    """The difference at equal times of the peer, by least squares."""
    logs = np.concatenate([old, new])
    peer = np.concatenate([old_peer, new_peer])
    later = np.concatenate([np.zeros(old.size), np.ones(new.size)])
    there = ~np.isnan(logs + peer)
    logs, peer, later = logs[there], peer[there], later[there]
    if min(np.sum(later == 0), np.sum(later == 1)) < 3 or not np.ptp(peer):
        return None
    design = np.stack([np.ones(logs.size), later, peer - peer.mean()], axis=1)
    inverse = np.linalg.pinv(design.T @ design)
    found = inverse @ design.T @ logs
    freedom = logs.size - 3
    left = float(np.sum((logs - design @ found) ** 2))
    return _Sample(float(found[1]), left / freedom, float(inverse[1, 1]), freedom)


def _steadier(found: Sequence[_Found]) -> bool:
    """Whether differences at equal times of the peer are less uncertain in a typical cell."""
    both = [(x.plain, x.relative) for x in found if x.plain and x.relative]
    if len(both) < sum(x.plain is not None for x in found) or not both:
        return False
    plain, relative = (
        np.median([pair[i].variance * pair[i].scale for pair in both]) for i in (0, 1)
    )
    return bool(relative < plain)


# --- variances that help each other ---------------------------------------------------------------


def _digamma(x: float) -> float:
    return (math.lgamma(x + 1e-4) - math.lgamma(x - 1e-4)) / 2e-4


def _trigamma(x: float) -> float:
    total = 0.0
    while x < 12:  # where the series below is exact to nine digits
        total += 1 / x**2
        x += 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)


def _prior(samples: Sequence[_Sample]) -> tuple[float, float]:
    """What other cells say of a variance, and of how many degrees of freedom that is worth.

    Logarithms of estimated variances vary by trigamma(freedom / 2) if the true ones are equal;
    what they vary beyond that says how much the true ones differ.
    """
    usable = [s for s in samples if s.variance > 0]
    if len(usable) < 3:
        return 0.0, 0.0
    logs = np.array([math.log(s.variance) for s in usable])
    expected = [_digamma(s.freedom / 2) - math.log(s.freedom / 2) for s in usable]
    logs -= expected
    beyond = float(logs.var(ddof=1)) - float(np.mean([_trigamma(s.freedom / 2) for s in usable]))
    freedom = MOST_FREEDOM
    if beyond > _trigamma(MOST_FREEDOM / 2):
        freedom = 2 * _solve(lambda x: beyond - _trigamma(x), 1e-3, MOST_FREEDOM / 2)
    half = freedom / 2
    return math.exp(float(logs.mean()) + _digamma(half) - math.log(half)), freedom


def _tested(sample: _Sample, prior: tuple[float, float]) -> tuple[Ratio, float]:
    """The ratio with its interval, and p of it if nothing had changed."""
    variance, freedom = prior
    total = sample.freedom + freedom
    moderated = (sample.variance * sample.freedom + variance * freedom) / total
    error = math.sqrt(max(moderated * sample.scale, 1e-12))
    p = 2 * student_tail(abs(sample.value) / error, total)
    reach = error * _solve(lambda t: ERROR / 2 - student_tail(t, total), 0.0, 1e3)
    return Ratio(*(math.exp(sample.value + x) for x in (0.0, -reach, reach))), p


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)


def student_tail(t: float, freedom: float) -> float:
    """How likely Student's distribution is above `t`, not negative.

    With t = sqrt(freedom) tan(a) its density is that of a power of cos(a).
    """
    low, high = math.atan(t / math.sqrt(freedom)), math.pi / 2
    angles = low + (high - low) * (_NODES + 1) / 2
    area = float(np.sum(_WEIGHTS * np.cos(angles) ** (freedom - 1))) * (high - low) / 2
    log_all = math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2) + math.log(math.pi) / 2
    return area / math.exp(log_all)


def _solve(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is 0, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


# --- verdicts -------------------------------------------------------------------------------------


def _discoveries(every: Sequence[float]) -> float:
    """The largest p that counts when so many are looked at; below 0 if none does."""
    ordered = sorted(every)
    limits = (p for i, p in enumerate(ordered, 1) if p <= ERROR * i / len(ordered))
    return max(limits, default=-1.0)


def _verdict(ratio: Ratio | None, found: bool, spread: float | None, tolerance: float) -> str:
    if ratio is None or (spread is not None and spread > RESOLVABLE):
        return UNRESOLVED
    most = 1 + tolerance
    if found and ratio.value > most:
        return REGRESSION
    if found and ratio.value < 1 / most:
        return BETTER
    if ratio.high > ratio.low * most**2:
        return UNRESOLVED
    return SAME if ratio.high <= most and ratio.low >= 1 / most else UNCLEAR
