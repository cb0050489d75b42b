"""Slower is called slower, and nothing else is: on made-up launches, many times over."""

from __future__ import annotations

import numpy as np
import pytest
from support.bench_results import job, result

from xupc.bench.results import PEER, Job, Launch, Result
from xupc.bench.stats import student_tail
from xupc.report.regression import (
    BETTER,
    REGRESSION,
    SAME,
    UNRESOLVED,
    Comparison,
    compare,
    couples,
    signed_ranks_p,
)

SIZES = (8, 32768)


def _pair(seed: int, *, slower: float = 1.0, at: str = "PULL", alternating: bool = True, **more):
    """Two results of 6 cells with five candidates of ours each."""

    def made(which: int, factor) -> Result:
        step = (2, which) if alternating else (1, 30 * which)
        return result(job(
            sizes=SIZES, seed=seed + 7919 * which, factor=factor, repetitions=15, within=0.02,
            began=lambda i: f"2026-11-21T10:{step[0] * i + step[1]:02d}:00Z", **more,
        ))  # fmt: skip

    return made(0, lambda *_: 1.0), made(1, lambda name, *_: slower if name == at else 1.0)


def _only(found: list[Comparison]) -> Comparison:
    (comparison,) = found
    return comparison


@pytest.mark.parametrize(
    ("spread", "launches", "alternating"), [(0.01, 5, True), (0.02, 7, False), (0.03, 12, True)]
)
def test_ten_of_ten_and_none_of_ten(spread: float, launches: int, alternating: bool) -> None:
    """10% slower is called in all resolvable cells of ten pairs, nothing else in ten others.

    Launches differ by `spread`, half of its square common to all candidates of a cell.
    """
    noise = {"between": spread / 2**0.5, "own": spread / 2**0.5, "launches": launches}
    missed, false = [], []
    for seed in range(10):
        pair = _pair(seed, slower=1.10, alternating=alternating, **noise)
        comparison = _only(compare(*pair))
        assert comparison.paired == alternating
        called = {(c.cell.key, c.candidate) for c in comparison.of(REGRESSION)}
        slowed = [c for c in comparison.changes if c.candidate == "PULL" and c.spread <= 0.05]
        missed += [c for c in slowed if (c.cell.key, "PULL") not in called]
        false += [c for c in called if c[1] != "PULL"]
        same = _only(compare(*_pair(seed + 100, alternating=alternating, **noise)))
        assert len(same.changes) == 6 * 5
        false += same.of(REGRESSION)
    assert (missed, false) == ([], [])


def test_what_slows_a_whole_launch_is_seen_in_the_peer() -> None:
    """Launches that differ by 10%, all candidates of a cell together."""
    comparison = _only(compare(*_pair(5, slower=1.10, between=0.10)))
    assert comparison.relative == "mpi4py"
    assert comparison.terms == "at equal times of mpi4py"
    assert len(comparison.of(REGRESSION)) == 6
    for what in ("mpi", "mpi4py", "transport", "thread level", "binding"):
        old, new = _pair(5, slower=1.10, between=0.10)
        new.jobs[0].about[what] = "another"
        assert _only(compare(old, new)).relative == "", what


def test_faster_and_within_tolerance() -> None:
    """The direction counts, and so does the tolerance."""
    assert len(_only(compare(*_pair(1, slower=0.9))).of(BETTER)) == 6
    assert not _only(compare(*_pair(1, slower=1.10), tolerance=0.2)).of(REGRESSION)
    assert len(_only(compare(*_pair(1, between=0.002), tolerance=0.2)).of(SAME)) == 30


def test_what_cannot_be_resolved() -> None:
    """One launch, or the same call under two names far apart."""
    single = _only(compare(*_pair(1, slower=2.0, launches=1)))
    assert {c.verdict for c in single.changes} == {UNRESOLVED}
    old, new = _pair(1, slower=2.0)
    for cell in old.jobs[0].cells[:3]:
        again = cell.candidate("xupc again")
        again.ns = [[round(ns * 1.08) for ns in times] for times in again.ns]
    found = _only(compare(old, new))
    assert len(found.of(UNRESOLVED)) == 3 * 5
    assert len(found.of(REGRESSION)) == 6 - 3


def test_only_what_both_have_is_compared() -> None:
    """By the job's nodes, the cell's arguments, the candidate's name."""
    old, new = _pair(1)
    assert compare(old, result(job("2x1", sizes=SIZES))) == []
    del old.jobs[0].cells[0]
    old.jobs[0].cells[0].candidates = old.jobs[0].cells[0].candidates[:1]
    assert len(_only(compare(old, new)).changes) == 4 * 5 + 1


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(12.706, 1, 0.025), (2.776, 4, 0.025), (4.604, 4, 0.005), (1.812, 10, 0.05),
     (3.460, 60, 0.0005), (0.0, 7, 0.5)],
)  # fmt: skip
def test_students_distribution(t: float, freedom: float, tail: float) -> None:
    """Tails of Student's t agree with printed tables."""
    assert student_tail(t, freedom) == pytest.approx(tail, rel=2e-3)


# --- many couples ---------------------------------------------------------------------------------


def _many(seed: int, *, slower: float = 1.0, couples: int = 40, **more) -> list[Result]:
    """Launches in turns, on a machine that is in another state for seven of them at a time.

    In that state our calls take 1.8 times as long, the peer's 1.3 times.
    """
    found = []
    for which in range(2):
        factor = slower if which else 1.0
        made = job(
            sizes=(8,), seed=seed + 7919 * which, repetitions=9, launches=couples, **more,
            factor=lambda name, *_, factor=factor: factor if name == "PULL" else 1.0,
            began=lambda i, which=which: f"2026-11-21T{i // 20:02d}:{i % 20 * 2 + which:02d}:00Z",
        )  # fmt: skip
        for i in range(couples):
            if (2 * i + which) // 7 % 2:
                _stretch(made, i, 1.8, 1.3)
        found.append(result(made))
    return found


def _stretch(made: Job, launch: int, ours: float, peers: float) -> None:
    for cell in made.cells:
        for candidate in cell.candidates:
            by = peers if candidate.kind == PEER else ours
            candidate.ns[launch] = [round(ns * by) for ns in candidate.ns[launch]]


def test_a_machine_in_two_states() -> None:
    """Ten of ten, and none of ten, by ranks."""
    missed, false = 0, []
    for seed in range(10):
        found = _only(compare(*_many(seed, slower=1.10, own=0.03)))
        assert (found.paired, found.ranked) == (True, True)
        called = [c.candidate for c in found.of(REGRESSION)]
        missed += 3 - called.count("PULL")
        false += [name for name in called if name != "PULL"]
        false += _only(compare(*_many(seed + 100, own=0.03))).of(REGRESSION)
    assert (missed, false) == (0, [])


def test_what_differs_between_launches_is_seen() -> None:
    """The A/A spread has it, though the same call twice in a launch differs by nothing."""
    near, further = _many(3, slower=1.10, own=0.5), _many(3, slower=9.0, own=0.5)
    for cell in (c for r in (*near, *further) for c in r.jobs[0].cells):
        cell.candidate("xupc again").ns = cell.candidate("xupc").ns
    found, far = _only(compare(*near)), _only(compare(*further))
    assert all(c.cell.spread < 0.05 < c.spread for c in found.changes)
    assert {c.verdict for c in found.changes} == {UNRESOLVED}
    assert {c.candidate for c in far.of(REGRESSION)} == {"PULL"}


def test_launches_among_other_processes_are_left_out() -> None:
    """Whatever their times; but not if hardly any others are left."""
    old, new = _many(4, slower=1.10, own=0.02)
    for i in range(0, 40, 3):
        new.jobs[0].launches[i].others = 0.3
        _stretch(new.jobs[0], i, 50.0, 20.0)
    found = _only(compare(old, new))
    assert found.disturbed == (0, 14)
    assert {c.candidate for c in found.of(REGRESSION)} == {"PULL"}
    assert len(found.of(REGRESSION)) == 3
    for launch in old.jobs[0].launches[:21]:
        launch.others = 0.3
    again = _only(compare(old, new))
    assert (again.disturbed, again.busy) == ((0, 14), 21)


def test_couples() -> None:
    """Neighbours, whichever of the two came first; none where launches do not take turns."""

    def at(minutes: list[int]) -> list[Launch]:
        return [Launch(1, f"2026-11-21T10:{m:02d}:00Z", 1.0, [], 1) for m in minutes]

    assert couples(at([1, 3, 5]), at([2, 4, 6])) == [(0, 0), (1, 1), (2, 2)]
    assert couples(at([1, 4, 5]), at([2, 3, 6])) == [(0, 0), (1, 1), (2, 2)]
    assert couples(at([1, 2]), at([3, 4])) == []
    assert couples(at([1, 3]), at([2])) == []


@pytest.mark.parametrize(
    ("differences", "p"),
    [([1.0, 2, 3, 4, 5], 2 / 32), ([-1.0, *range(2, 11)], 2 * 2 / 1024), ([-2.0, 2.0], 1.0),
     ([0.0, 0.0], 1.0), ([0.0, *range(1, 7)], 2 / 64)],
)  # fmt: skip
def test_signed_ranks(differences: list[float], p: float) -> None:
    """The p of signed ranks agrees with tables."""
    assert signed_ranks_p(np.array(differences)) == pytest.approx(p)
