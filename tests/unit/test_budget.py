"""A budget is kept or refused: with a clock and jobs that are made up, nothing takes time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from xupc.bench import budget, driver
from xupc.bench.budget import Cost, Preparation, TooShort
from xupc.bench.launch_plan import Plan
from xupc.bench.results import Result
from xupc.bench.settings import Case, Settings, Shape, cases
from xupc.cli import bench_jobs
from xupc.cli.bench_jobs import find_launcher
from xupc.cli.outcome import Outcome

ABOUT = {"xupc": "1", "mpi": "MPICH 5", "cores": 2, "oversubscribed": False}
SETTINGS = Settings(collectives=("all_gather", "all_scatter"), sizes=(8, 64, 512, 4096))


class Clock:
    """Stands in for the module `time` in the driver."""

    strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class Jobs:
    """Stands in for `run_job`: launches that take the time of `cost`, or their share if longer.

    `later` is the cost of those after the trial. `deaf` ones do not end at their limit.
    """

    def __init__(self, clock: Clock, cost: Cost, later: Cost | None = None, deaf: bool = False):
        self.clock, self.costs, self.deaf = clock, [cost, later or cost], deaf
        self.settings: list[Settings] = []

    def __call__(self, command: list[str], *_: Any, time_limit: float, **__: Any) -> Outcome:
        at = next(i for i, word in enumerate(command) if word.endswith(".worker"))
        settings = Settings.from_json(command[at + 2])
        cost = self.costs[bool(self.settings)]
        self.settings.append(settings)
        if settings.until is not None:
            left = max(0.0, settings.until - self.clock.now - cost.start)
            settings = settings.but(seconds=left, limit=left)
        every = list(cases(settings))
        spent, done = 0.0, 0
        for case in every:
            next_one = cost.base + cost.per_byte * case.nbytes
            longest = next_one if done else 0.0  # as far as the worker knows
            if settings.limit is not None and spent + longest >= settings.limit and not self.deaf:
                break
            spent += next_one
            done += 1
        if done == len(every):
            spent = max(spent, settings.seconds)
        seconds = cost.start + spent
        timed_out = seconds > time_limit
        self.clock.now += min(seconds, time_limit)
        lines = _lines(every, cost, 0 if timed_out else done, int(command[command.index("-n") + 1]))
        Path(command[at + 1]).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Outcome(3 * timed_out, timed_out=timed_out, seconds=min(seconds, time_limit))


def _lines(every: Sequence[Case], cost: Cost, done: int, threads: int) -> list[dict[str, Any]]:
    candidates = [{"name": "xupc", "kind": "ours", "call": "xupc"}]
    cells = [
        {"collective": c.collective, "nbytes": c.nbytes, "moved": 8, "candidates": candidates}
        for c in every
    ]
    head: list[dict[str, Any]] = [
        {"about": ABOUT, "hosts": ["here"]},
        {"threads": threads, "nodes": [list(range(threads))], "clock": "monotonic",
         "began": "2026-11-22T00:00:00Z", "seed": 1, "cells": cells},
    ]  # fmt: skip
    visits = [{"cell": k, "ns": [[5]], "wrong": [[]]} for k in range(done)]
    costs = [cost.base + cost.per_byte * c.nbytes for c in every[:done]]
    end = {"seconds": 1.0, "load": [0.0, 0.0], "others": 0.0, "costs": costs}
    return [*head, *visits, end] if done else head


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(driver, "time", found)
    return found


def measured(
    patch: pytest.MonkeyPatch, jobs: Jobs, *threads: int, seconds: float, save: Path | None = None,
    **plan: Any,
) -> tuple[Result, int]:  # fmt: skip
    patch.setattr(bench_jobs, "run_job", jobs)
    shapes = tuple(Shape(n) for n in threads or (2,))
    plan = {"settings": SETTINGS, "launches": 12, "least": 1, **plan}
    return driver.measure(Plan(shapes, seconds=seconds, **plan), ["x"], find_launcher, save=save)


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0, 600.0])
@pytest.mark.parametrize("start", [0.3, 2.0, 9.0])
@pytest.mark.parametrize("cell", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("threads", [(2,), (2, 3, 4)])
def test_a_budget_is_kept_within_a_tenth_or_refused(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float, start: float, cell: float,
    threads: tuple[int, ...],
) -> None:  # fmt: skip
    began = clock.now
    jobs = Jobs(clock, Cost(start, cell, cell / 1000))
    try:
        result, status = measured(monkeypatch, jobs, *threads, seconds=seconds)
    except TooShort:
        assert clock.now - began <= 1.1 * seconds
        return
    assert status == 0
    assert clock.now - began <= 1.1 * seconds
    assert clock.now - began >= 0.5 * seconds
    counts = {len(job.launches) for job in result.jobs}
    assert len(counts) == 1
    assert all(c.measured for job in result.jobs for cell in job.cells for c in cell.candidates)


def test_what_an_error_demands_is_enough(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    cost = Cost(2.0, 0.5)
    with pytest.raises(TooShort) as refused:
        measured(monkeypatch, Jobs(clock, cost), seconds=15.0, least=3)
    found = re.search(r"--budget 15s: expected at least (\d+)s: .* 3 launches", str(refused.value))
    assert found
    result, _ = measured(monkeypatch, Jobs(clock, cost), seconds=float(found[1]), least=3)
    assert len(result.jobs[0].launches) == 3


class Preparing:
    """Stands for what comes before the launches: it takes some seconds, its limit at most."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.limits: list[float] = []

    def __call__(self, limit: float) -> None:
        self.limits.append(limit)
        self.clock.now += min(self.seconds, limit)


@pytest.mark.parametrize("seconds", [5.0, 9.0, 12.0, 20.0, 60.0, 600.0])
@pytest.mark.parametrize("takes", [0.0, 3.0, 99.0])
def test_nothing_is_prepared_before_it_is_known_that_the_budget_is_enough(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float, takes: float
) -> None:
    began, cost, run = clock.now, Cost(1.0, 0.1), Preparing(clock, takes)
    plan: dict[str, Any] = {"least": 3, "prepare": Preparation(run, 0.25, 30.0)}
    jobs = Jobs(clock, cost)
    try:
        result, status = measured(monkeypatch, jobs, seconds=seconds, **plan)
    except TooShort as refused:
        assert seconds < 10.0
        assert (run.limits, len(jobs.settings)) == ([], 1)
        found = re.search(rf"--budget {seconds:.0f}s: expected at least (\d+)s: ", str(refused))
        assert found
        result, status = measured(monkeypatch, Jobs(clock, cost), seconds=float(found[1]), **plan)
        assert (len(result.jobs[0].launches), status) == (3, 0)
        return
    assert seconds > 10.0
    assert run.limits == [min(30.0, 0.25 * seconds)]
    assert (len(result.jobs[0].launches) >= 3, status) == (True, 0)
    assert clock.now - began <= 1.1 * seconds


def test_what_a_preparation_leaves_is_for_launches(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    counts = []
    for takes in (0.0, 99.0):
        prepare = Preparation(Preparing(clock, takes), 0.5, 30.0)
        jobs = Jobs(clock, Cost(1.0, 0.1))
        result, _ = measured(monkeypatch, jobs, seconds=25.0, least=3, enough=12, prepare=prepare)
        counts.append(len(result.jobs[0].launches))
    assert counts[0] > counts[1] >= 3


def test_a_trial_that_does_not_end_in_time_is_cut(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    began = clock.now
    words = r"a launch of 2 threads had not ended after 4\.8 s \(0\.0 s were spent before it\)"
    with pytest.raises(TooShort, match=words):
        measured(monkeypatch, Jobs(clock, Cost(50.0)), seconds=5.0)
    assert clock.now - began <= 5.5


@pytest.mark.parametrize("start", [0.2, 2.0, 9.0, 50.0])
@pytest.mark.parametrize("seconds", [0.1, 2.0, 12.0])
@pytest.mark.parametrize("threads", [(2,), (2, 3, 4)])
def test_each_refused_budget_names_a_time_that_leads_to_one_that_will_do(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float, start: float,
    threads: tuple[int, ...],
) -> None:  # fmt: skip
    for _ in range(5):
        jobs = Jobs(clock, Cost(start, 0.01))
        try:
            result, status = measured(monkeypatch, jobs, *threads, seconds=seconds)
        except TooShort as error:
            text = str(error)
        else:
            assert (status, len(result.jobs)) == (0, len(threads))
            return
        found = re.match(r"--budget ([\d.]+[sm]): expected .*?(\d+)([sm]):", text)
        assert found, text
        assert found[1] == budget.given(seconds)
        named = float(found[2]) * (60 if found[3] == "m" else 1)
        assert named > seconds
        seconds = named
    raise AssertionError("no time that would do was named")


def test_a_budget_is_shown_as_it_was_given() -> None:
    shown = [budget.given(seconds) for seconds in (0.1, 2.0, 90.0, 600.0, 601.0)]
    assert shown == ["0.1s", "2s", "90s", "10m", "601s"]


@pytest.mark.parametrize("before", [None, "a result"])
def test_a_budget_that_is_refused_leaves_the_file_as_it_was(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "result.json"
    if before is not None:
        path.write_text(before)
    with pytest.raises(TooShort):
        measured(monkeypatch, Jobs(clock, Cost(50.0)), seconds=5.0, save=path)
    assert (path.read_text() if path.exists() else None) == before


def test_an_error_of_a_later_launch_keeps_what_was_saved(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, tmp_path: Path
) -> None:
    jobs, path = Jobs(clock, Cost(1.0, 0.1)), tmp_path / "result.json"
    launches: list[int] = []

    def start(*given: Any, **options: Any) -> Any:
        launches.append(len(launches))
        if len(launches) > 3:
            raise ValueError("not of a budget")
        return jobs(*given, **options)

    with pytest.raises(ValueError, match="not of a budget"):
        measured(monkeypatch, cast(Jobs, start), seconds=25.0, save=path)
    assert "jobs" in json.loads(path.read_text())


def test_many_short_launches_come_before_few_long_ones(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    cost = Cost(1.0, 0.1)  # 1.8 s for a launch
    for seconds, launches in ((100.0, 12), (10.0, 3), (6.5, 2)):
        result, _ = measured(monkeypatch, Jobs(clock, cost), seconds=seconds)
        assert len(result.jobs[0].launches) == launches, seconds
    assert "the budget is enough for 2 of 3 launches" in result.notes
    result, _ = measured(monkeypatch, Jobs(clock, cost), seconds=20.0, launches=9, enough=9)
    assert len(result.jobs[0].launches) == 9


def test_a_launch_that_would_not_end_in_time_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    began = clock.now
    jobs = Jobs(clock, Cost(1.0, 0.1), Cost(4.0, 0.1))
    result, status = measured(monkeypatch, jobs, seconds=20.0)
    assert status == 0
    assert any("the time was up after" in note for note in result.notes), result.notes
    assert clock.now - began <= 22.0


def test_a_launch_that_runs_over_is_cut(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """At its next cell if it can; else it is killed, which is an error."""
    for deaf in (False, True):
        began = clock.now
        jobs = Jobs(clock, Cost(1.0, 0.1), Cost(1.0, 3.0), deaf=deaf)
        result, status = measured(monkeypatch, jobs, seconds=10.0)
        assert clock.now - began <= 11.0
        assert status == (3 if deaf else 0)
        assert any("cut" in note for note in result.notes), result.notes
        assert result.complete is not deaf


def test_a_single_launch_ends_in_time_without_a_trial(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    for start, cells in ((0.5, 8), (1.5, 8), (3.0, 3), (4.0, 0)):
        began = clock.now
        jobs = Jobs(clock, Cost(start, 0.2))
        result, status = measured(monkeypatch, jobs, seconds=4.0, launches=1)
        assert status == (0 if cells else 3)
        assert 3.0 <= clock.now - began <= 4.2
        assert len(jobs.settings) == 1
        found = [c.measured for cell in result.jobs[0].cells for c in cell.candidates]
        assert sum(found) == cells
        assert ("nothing was measured: the budget is too short" in result.notes) == (not cells)


def test_sizes_are_left_out_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    settings = SETTINGS.but(sizes=tuple(8 << k for k in range(18)))
    plan = {"settings": settings, "seconds": 40.0, "least": 3}
    jobs = Jobs(clock, Cost(1.0, 0.5))
    with pytest.raises(TooShort):
        measured(monkeypatch, jobs, **plan)
    result, _ = measured(monkeypatch, jobs, **plan, thin=True)
    sizes = sorted({cell.nbytes for cell in result.jobs[0].cells})
    assert {8, 8 << 17} <= set(sizes)
    assert f"the budget is enough for {len(sizes)} of 18 sizes" in result.notes
    assert len(result.jobs[0].launches) == 3


def test_a_trial_is_small_and_has_both_ends() -> None:
    settings = Settings(sizes=(1, 8, 64, 1 << 20), collectives=Settings().collectives)
    trial = budget.trial(settings)
    assert len(trial.collectives) <= budget.TRIED
    assert {case.nbytes for case in cases(trial)} >= {1, 1 << 20}
    odd = budget.trial(Settings(sizes=(3, 8, 9), collectives=("all_reduce", "allv_reduce")))
    assert {case.nbytes for case in cases(odd)} == {8}


def test_the_cost_of_a_launch_is_its_start_and_a_line_over_the_bytes() -> None:
    every = [Case("all_gather", n) for n in (8, 8, 1 << 20, 1 << 20)]
    lines = _lines(every, Cost(0.0, 0.25, 1e-6), 4, 2)
    found = budget.cost_of(lines, 9.0)
    assert found is not None
    assert found.base == pytest.approx(0.25, rel=1e-3)
    assert found.per_byte == pytest.approx(1e-6, rel=1e-3)
    assert found.start == pytest.approx(9.0 - 4 * 0.25 - 2 * 1.048576, rel=1e-3)
    assert budget.cost_of(lines[:-1], 9.0) is None


def test_thinned() -> None:
    assert budget.thinned((8,)) == [(8,)]
    assert budget.thinned((1, 2, 4, 8))[:2] == [(1, 2, 4, 8), (1, 4, 8)]
