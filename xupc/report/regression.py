"""Test if a second result is slower than a first one, for each cell and each candidate.

The unit is the launch, since launches differ by more than repetitions do. Each launch gives one
number: the mean, over the cell's visits, of the logarithm of the median of a visit. The test omits
launches in which other processes used part of the cores, for any times of theirs, if at least half
of the launches remain.

**Couples.** If the launches of the two results alternate, the test compares each launch with its
neighbour of the other result: slow changes of the machine affect both. From `ENOUGH` couples on:

1. A disturbance of a launch also affects a peer's collective in it. So if both results have the
   same MPI, with one thread level and binding, the test subtracts the differences of the peer's
   times, multiplied by a median slope of the call's times over the peer's. It estimates the slope
   from differences between launches of the *same* result, which contain no change. It subtracts
   only if those differences become smaller.
2. The change is the median of all means of two differences (Hodges and Lehmann). Its interval and p
   are those of Wilcoxon's signed ranks, computed exactly. If the machine changes its state between
   the launches of some couples, for better or worse, only those differences become large. Ranks do
   not depend on how large they are.
3. The test repeats this with the same number of couples of neighbouring launches of the same
   result. The A/A spread is half of that interval. It contains all variation between launches. If
   the spread is above the tolerance, the cell is not resolvable, unless the whole interval of the
   change lies beyond the spread.

**Few launches, or launches that do not alternate.** They give little information about the
variation between launches, but many cells together give more:

1. The test compares all launches of one result with all of the other, or couples by the mean of
   their differences. It compares at equal times of the peer if that reduces the uncertainty (an
   analysis of covariance).
2. The variance in a cell is moved towards that of the job's other cells, as far as those agree
   with each other (Smyth's moderated t statistic). The interval and p follow from Student's
   distribution with the degrees of freedom of both.

**Many cells.** Some look slower by chance. Over all p the false discovery rate is at most 5%
(Benjamini and Hochberg).

A regression is a change that is significant by this test and larger than the tolerance. The test
gives no verdict for a cell

* in which the same call under two names differs by more than 5% within launches,
* that has less than two launches of one result, or
* whose interval is so wide that it would hide a change as large as the tolerance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..bench.results import OURS, PEER, Cell, Job, Launch, Result
from ..bench.stats import ERROR, RESOLVABLE, Ratio, solve, student_reach, student_tail

__all__ = [
    "BETTER", "REGRESSION", "SAME", "UNCLEAR", "UNRESOLVED", "Change", "Comparison", "compare",
]  # fmt: skip

OF_PEERS = "mpi", "mpi4py", "transport", "thread level", "binding"
"""The entries of `Job.about` on which a peer's time depends besides the state of the machine."""
REGRESSION, BETTER, SAME = "REGRESSION", "faster", "same"
UNCLEAR, UNRESOLVED = "unclear", "not resolvable"
ENOUGH = 12
"""Couples, for ranks: of so many the least p, 2 / 2**12, passes among a hundred cells."""
MOST_FREEDOM = 60.0
"""Of degrees of freedom, so that other cells never make a variance all but certain."""

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """Hold the difference of a candidate of a cell between the results.

    Attributes
    ----------
    old, new
        Medians over launches of medians over repetitions, in ns.
    ratio
        New / old, above 1 if it got slower; None with less than two launches.
    p
        The probability of such a ratio if nothing had changed; 1 without a ratio.
    spread
        The A/A spread: the difference of the same call under two names within a launch or, for
        couples, the difference between launches of the same result, whichever is larger. None if
        neither is known.
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
    """Hold two jobs of one shape, and what changed between them.

    Attributes
    ----------
    paired
        Whether launches take turns, and so were compared one by one.
    ranked
        Whether there were enough of them for ranks.
    relative
        The peer that explains what launches have in common; empty if none does.
    launches
        Of the first and of the second.
    disturbed
        How many of those were left out.
    busy
        In how many of the others, too, other processes took part of the cores.
    missing
        What the first has measured and the second has not, in words.
    """

    shape: str
    paired: bool
    ranked: bool
    relative: str
    launches: tuple[int, int]
    disturbed: tuple[int, int]
    busy: int
    changes: list[Change]
    missing: list[str]

    @property
    def terms(self) -> str:
        """Return in words what the ratios are adjusted for; empty if they are plain."""
        return f"at equal times of {self.relative}" if self.relative else ""

    def of(self, verdict: str) -> list[Change]:
        """Return the changes with a verdict."""
        return [change for change in self.changes if change.verdict == verdict]


@dataclass
class _Sample:
    """Hold a candidate's difference of logarithms, plain or at equal times of a peer."""

    value: float
    variance: float  # of one launch's difference
    scale: float  # how much of that the value has
    freedom: int


@dataclass
class _Found:
    """Hold a candidate's times before they are judged: logarithms of ns, one per launch."""

    cell: Cell
    candidate: str
    spread: float | None  # within launches
    old: Logs
    new: Logs
    old_peer: Logs | None
    new_peer: Logs | None


@dataclass
class _Tested:
    """Hold a ratio, its p if nothing had changed, and the A/A spread of launches if known."""

    ratio: Ratio
    p: float
    spread: float | None = None


def compare(old: Result, new: Result, tolerance: float = 0.05) -> list[Comparison]:
    """Compare each job of `new` with that of `old` with the same threads on the same nodes."""
    found = []
    for job in new.jobs:
        before = next((j for j in old.jobs if j.nodes == job.nodes), None)
        if before is not None:
            found.append(_compare_jobs(before, job, tolerance))
    return found


def couples(old: Sequence[Launch], new: Sequence[Launch]) -> list[tuple[int, int]]:
    """Return launches next to each other in time, by their places; none unless they take turns."""
    began = sorted([(x.began, 0, i) for i, x in enumerate(old)]
                   + [(x.began, 1, i) for i, x in enumerate(new)])  # fmt: skip
    found = []
    for one, other in zip(began[::2], began[1::2], strict=False):
        if one[1] == other[1]:
            return []
        (_, _, first), (_, _, second) = sorted((one, other), key=lambda x: x[1])
        found.append((first, second))
    return found if len(old) == len(new) else []


def _compare_jobs(old: Job, new: Job, tolerance: float) -> Comparison:
    pairs = couples(old.launches, new.launches)
    peer = _common_peer(old, new)
    out = _disturbed(old.launches), _disturbed(new.launches)
    before = {cell.key: cell for cell in old.cells}
    found = [
        _times(before[cell.key], cell, candidate.name, peer, out)
        for cell in new.cells
        if cell.key in before
        for candidate in cell.of_kind(OURS)
        if (other := before[cell.key].candidate(candidate.name)) is not None and other.measured
    ]
    ranked = len(pairs) >= ENOUGH
    tested, relative = _by_ranks(found, pairs) if ranked else _by_variances(found, pairs)
    passed = _discoveries([test.p for test in tested if test is not None])
    changes = [_judged(x, t, passed, tolerance) for x, t in zip(found, tested, strict=True)]
    counts, left = (len(old.launches), len(new.launches)), (len(out[0]), len(out[1]))
    busy = sum(x.disturbed for x in (*old.launches, *new.launches)) - sum(left)
    there = {(x.cell.key, x.candidate) for x in found}
    missing = [
        f"{cell.title} of {cell.nbytes} bytes by {candidate.name}"
        for cell in old.cells
        for candidate in cell.of_kind(OURS)
        if (cell.key, candidate.name) not in there
    ]
    return Comparison(
        new.shape, bool(pairs), ranked, peer * relative, counts, left, busy, changes, missing
    )


def _disturbed(launches: Sequence[Launch]) -> list[int]:
    """Return the places of those that say little; none if hardly any others are left."""
    found = [i for i, launch in enumerate(launches) if launch.disturbed]
    return found if 2 * len(found) <= len(launches) else []


def _judged(x: _Found, test: _Tested | None, passed: float, tolerance: float) -> Change:
    was, now = (math.exp(float(np.nanmedian(logs))) for logs in (x.old, x.new))
    if test is None:
        return Change(x.cell, x.candidate, was, now, None, 1.0, x.spread, UNRESOLVED)
    verdict = _verdict(test, test.p <= passed, x.spread, tolerance)
    spreads = [s for s in (x.spread, test.spread) if s is not None]
    spread = max(spreads, default=None)
    return Change(x.cell, x.candidate, was, now, test.ratio, test.p, spread, verdict)


def _common_peer(old: Job, new: Job) -> str:
    """Return a peer that all cells of both have, the same library, used alike in both; or empty."""
    if any(old.about.get(name) != new.about.get(name) for name in OF_PEERS):
        return ""
    names = [{c.name for c in cell.of_kind(PEER)} for cell in (*old.cells, *new.cells)]
    return min(set.intersection(*names), default="") if names else ""


def _times(old: Cell, new: Cell, name: str, peer: str, out: tuple[list[int], list[int]]) -> _Found:
    """Return a candidate of a cell in the two results, but for some launches of each."""
    spreads = [s for cell in (old, new) if (s := cell.spread) is not None]
    peers = [_logs(cell, peer) if peer else None for cell in (old, new)]
    times = _logs(old, name), _logs(new, name)
    for logs, places in zip(times, out, strict=True):
        logs[places] = math.nan
    return _Found(new, name, max(spreads, default=None), *times, *peers)


def _logs(cell: Cell, name: str) -> Logs:
    """Return a candidate's time in each launch, as a logarithm; nan where a launch has none.

    That is of the mean of its visits' medians: where the machine is in one state for one part of a
    launch and in another one for the rest, all candidates' means follow in a straight line.
    """
    candidate = cell.candidate(name)
    assert candidate is not None
    every = (candidate.typical(k) for k in range(len(candidate.ns)))
    return np.array([math.nan if ns is None else math.log(ns) for ns in every])


# --- couples, by ranks ----------------------------------------------------------------------------


def _by_ranks(
    found: Sequence[_Found], pairs: Sequence[tuple[int, int]]
) -> tuple[list[_Tested | None], bool]:
    """Test every candidate by ranks; return also whether a peer explains common variation."""
    plain = [_couples_of(x, pairs, 0.0) for x in found]
    slopes = [_slope(x) for x in found]
    if None not in slopes and found:
        relative = [_couples_of(x, pairs, s or 0.0) for x, s in zip(found, slopes, strict=True)]
        sizes = [[float(np.median(np.abs(same))) for _, same in each if same.size]
                 for each in (plain, relative)]  # fmt: skip
        if all(sizes) and np.median(sizes[1]) < np.median(sizes[0]):
            return [_ranks(*each) for each in relative], True
    return [_ranks(*each) for each in plain], False


def _couples_of(x: _Found, pairs: Sequence[tuple[int, int]], slope: float) -> tuple[Logs, Logs]:
    """Return differences of couples, new from old, and of as many neighbours of the same result."""
    old, new = x.old, x.new
    if slope and x.old_peer is not None and x.new_peer is not None:
        old, new = old - slope * x.old_peer, new - slope * x.new_peer
    first, second = (np.array(each) for each in zip(*pairs, strict=True))
    old, new = old[first], new[second]
    changed = new - old
    same = np.concatenate([each[1::2] - each[: each.size // 2 * 2 : 2] for each in (old, new)])
    return changed[~np.isnan(changed)], same[~np.isnan(same)]


def _slope(x: _Found) -> float | None:
    """Return how much a candidate's time follows its peer's from launch to launch of a result.

    The line through the origin with the least absolute deviations; None without a peer.
    """
    if x.old_peer is None or x.new_peer is None:
        return None
    mine = np.concatenate([np.diff(x.old), np.diff(x.new)])
    peer = np.concatenate([np.diff(x.old_peer), np.diff(x.new_peer)])
    there = ~np.isnan(mine + peer) & (peer != 0)
    mine, peer = mine[there], peer[there]
    if mine.size < ENOUGH:
        return None
    slopes, weights = mine / peer, np.abs(peer)
    order = np.argsort(slopes)
    below = np.cumsum(weights[order])
    return float(slopes[order][np.searchsorted(below, below[-1] / 2)])


def _ranks(changed: Logs, same: Logs) -> _Tested | None:
    """Test couples by Wilcoxon's signed ranks; None if too many couples lack a launch."""
    if min(changed.size, same.size) < ENOUGH / 2:
        return None
    value, low, high = _middle(changed)
    _, apart, other = _middle(same)  # the middle is 0: nothing has changed between these
    ratio = Ratio(*(math.exp(x) for x in (value, low, high)))
    return _Tested(ratio, signed_ranks_p(changed), math.expm1((other - apart) / 2))


def _middle(differences: Logs) -> tuple[float, float, float]:
    """Return the median of all means of two, and its interval."""
    first, second = np.triu_indices(differences.size)
    means = np.sort((differences[first] + differences[second]) / 2)
    rare = _ranks_below(differences.size) <= ERROR / 2  # sums of ranks, from 0
    out = int(rare.sum())  # so many of the means, at either end
    if not out:
        return float(np.median(means)), -math.inf, math.inf
    return float(np.median(means)), float(means[out - 1]), float(means[-out])


def signed_ranks_p(differences: Logs) -> float:
    """Return the probability of such signed ranks if signs were random; equal ones share ranks."""
    some = differences[differences != 0]
    if not some.size:
        return 1.0
    sizes = np.abs(some)
    ordered = np.sort(sizes)
    ranks = (np.searchsorted(ordered, sizes) + np.searchsorted(ordered, sizes, "right") + 1) / 2
    ahead = float(ranks[some > 0].sum())
    less = math.floor(min(ahead, ranks.sum() - ahead))
    return min(1.0, 2 * float(_ranks_below(some.size)[less]))


@functools.cache
def _ranks_below(count: int) -> Logs:
    """Return how likely a random part of the ranks 1 to `count` sums up to k or less, by k."""
    likely = np.zeros(count * (count + 1) // 2 + 1)
    likely[0] = 1.0
    for rank in range(1, count + 1):
        likely[rank:] += likely[:-rank].copy()
        likely /= 2
    return np.cumsum(likely)


# --- few launches, by variances -------------------------------------------------------------------


def _by_variances(
    found: Sequence[_Found], pairs: Sequence[tuple[int, int]]
) -> tuple[list[_Tested | None], bool]:
    """Test every candidate by variances; return also whether a peer explains common variation."""
    plain = [_sample(x.old, x.new, pairs) for x in found]
    adjusted = [_adjusted(x) for x in found]
    relative = _steadier(plain, adjusted)
    samples = adjusted if relative else plain
    prior = _prior([s for s in samples if s is not None])
    return [None if s is None else _tested(s, prior) for s in samples], relative


def _sample(old: Logs, new: Logs, pairs: Sequence[tuple[int, int]]) -> _Sample | None:
    """Return the difference and how it varies; None if there are too few launches to say."""
    if pairs:
        d = np.array([new[second] - old[first] for first, second in pairs])
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


def _adjusted(x: _Found) -> _Sample | None:
    """Return the difference at equal times of the peer, by least squares; None without a peer."""
    old, new = x.old, x.new
    if x.old_peer is None or x.new_peer is None:
        return None
    logs = np.concatenate([old, new])
    peer = np.concatenate([x.old_peer, x.new_peer])
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


def _steadier(plain: Sequence[_Sample | None], adjusted: Sequence[_Sample | None]) -> bool:
    """Return whether differences at equal peer times are less uncertain in a typical cell."""
    both = [(x, y) for x, y in zip(plain, adjusted, strict=True) if x and y]
    if len(both) < sum(x is not None for x in plain) or not both:
        return False
    without, at_equal = (
        np.median([pair[i].variance * pair[i].scale for pair in both]) for i in (0, 1)
    )
    return bool(at_equal < without)


def _digamma(x: float) -> float:
    return (math.lgamma(x + 1e-4) - math.lgamma(x - 1e-4)) / 2e-4


def _trigamma(x: float) -> float:
    total = 0.0
    while x < 12:  # where the series below is exact to nine digits
        total += 1 / x**2
        x += 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)


def _prior(samples: Sequence[_Sample]) -> tuple[float, float]:
    """Return what other cells say of a variance, and of how many degrees of freedom that is worth.

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
        freedom = 2 * solve(lambda x: beyond - _trigamma(x), 1e-3, MOST_FREEDOM / 2)
    half = freedom / 2
    return math.exp(float(logs.mean()) + _digamma(half) - math.log(half)), freedom


def _tested(sample: _Sample, prior: tuple[float, float]) -> _Tested:
    """Return the ratio with its interval, and p, by Student's distribution."""
    variance, freedom = prior
    total = sample.freedom + freedom
    moderated = (sample.variance * sample.freedom + variance * freedom) / total
    error = math.sqrt(max(moderated * sample.scale, 1e-12))
    p = 2 * student_tail(abs(sample.value) / error, total)
    reach = error * student_reach(ERROR, total)
    return _Tested(Ratio(*(math.exp(sample.value + x) for x in (0.0, -reach, reach))), p)


# --- verdicts -------------------------------------------------------------------------------------


def _discoveries(every: Sequence[float]) -> float:
    """Return the largest p that counts when so many are looked at; below 0 if none does."""
    ordered = sorted(every)
    limits = (p for i, p in enumerate(ordered, 1) if p <= ERROR * i / len(ordered))
    return max(limits, default=-1.0)


def _verdict(test: _Tested, found: bool, within: float | None, tolerance: float) -> str:
    if within is not None and within > RESOLVABLE:
        return UNRESOLVED
    ratio, most = test.ratio, 1 + tolerance
    spread = test.spread or 0.0
    hidden = spread > tolerance
    if found and ratio.value > most and (ratio.low > 1 + spread or not hidden):
        return REGRESSION
    if found and ratio.value < 1 / most and (ratio.high < 1 / (1 + spread) or not hidden):
        return BETTER
    if hidden or ratio.high > ratio.low * most**2:
        return UNRESOLVED
    return SAME if ratio.high <= most and ratio.low >= 1 / most else UNCLEAR
