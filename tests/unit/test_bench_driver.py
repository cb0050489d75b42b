"""The driver of launches, with made-up jobs in their place: what is launched when, and kept."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from xupc.bench import driver
from xupc.bench.launch_plan import Plan
from xupc.bench.osu_text import osu
from xupc.bench.results import Result
from xupc.bench.settings import Settings, Shape
from xupc.cli import bench_jobs
from xupc.cli.bench_jobs import find_launcher
from xupc.cli.outcome import Outcome

ABOUT = {"xupc": "1", "mpi": "MPICH 5", "cores": 2, "oversubscribed": False}


class Jobs:
    """Instead of `run_job`: writes what thread 0 of a job would, and remembers the settings."""

    def __init__(self, names: Sequence[str] = ("xupc", "mpi4py"), takes: float = 0.0) -> None:
        self.settings: list[Settings] = []
        self.names = names
        self.takes = takes
        self.cell: dict[str, Any] = {"collective": "all_gather", "nbytes": 8, "moved": 8}
        self.more: list[dict[str, Any]] = []  # further cells, to which no launch comes

    def __call__(self, command: list[str], *_: Any, **__: Any) -> Outcome:
        at = next(i for i, word in enumerate(command) if word.endswith(".worker"))
        threads = int(command[command.index("-n") + 1])
        self.settings.append(Settings.from_json(command[at + 2]))
        candidates = [{"name": n, "kind": "ours", "call": n} for n in self.names]
        cells = [{**cell, "candidates": candidates} for cell in (self.cell, *self.more)]
        lines = [
            {"about": ABOUT, "hosts": ["here"]},
            {"threads": threads, "nodes": [list(range(threads))], "clock": "monotonic",
             "began": "2026-11-22T00:00:00Z", "seed": 1, "cells": cells},
            {"cell": 0, "ns": [[5]] * len(self.names), "wrong": [[]] * len(self.names)},
            {"seconds": 1.0, "load": [0.0, 0.0], "others": 0.25},
        ]  # fmt: skip
        Path(command[at + 1]).write_text("".join(json.dumps(line) + "\n" for line in lines))
        time.sleep(self.takes)
        return Outcome(0, seconds=1.0)


def measured(
    patch: pytest.MonkeyPatch, jobs: Jobs, *threads: int, file: Path | None = None, **plan: Any
) -> Result:
    patch.setattr(bench_jobs, "run_job", jobs)
    settings = plan.pop("settings", Settings(collectives=("all_gather",), sizes=(8,)))
    shapes = tuple(Shape(n) for n in threads)
    result, status = driver.measure(
        Plan(shapes, settings, **plan), ["x"], find_launcher, save=file
    )
    assert status == 0
    return result


def test_launches_are_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To the job of the same shape, with a seed of their own; other jobs stay."""
    jobs, file = Jobs(), tmp_path / "r.json"
    measured(monkeypatch, jobs, 2, 3, launches=2, file=file)
    measured(monkeypatch, jobs, 3, 4, launches=1, file=file, after=Result.load(file))
    found = Result.load(file)
    assert {job.threads: len(job.launches) for job in found.jobs} == {2: 2, 3: 3, 4: 1}
    assert found.complete
    assert all(launch.disturbed for job in found.jobs for launch in job.launches)
    assert [s.seed for s in jobs.settings] == [1, 1, 2, 2, 3, 1]


def test_what_does_not_belong_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other candidates, or another library: refused, and the file is as it was."""
    file = tmp_path / "r.json"
    measured(monkeypatch, Jobs(), 2, file=file)
    before = file.read_bytes()
    others = [Jobs(["xupc"]), *(Jobs() for _ in range(5))]
    odd = {"sync": "mysync"}, {"op": "MAX"}, {"root": "1"}, {"loop": True}, {"team": "node"}
    for jobs, change in zip(others[1:], odd, strict=True):
        jobs.cell |= change
    for jobs in others:
        with pytest.raises(ValueError, match="other calls, arguments or candidates"):
            measured(monkeypatch, jobs, 2, file=file, after=Result.load(file))
        assert file.read_bytes() == before
    monkeypatch.setitem(ABOUT, "mpi", "Open MPI 5")
    with pytest.raises(ValueError, match="another mpi: MPICH 5, not Open MPI 5"):
        measured(monkeypatch, Jobs(), 2, file=file, after=Result.load(file))
    assert file.read_bytes() == before


def test_a_result_that_is_there_stays_until_there_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A launch that fails leaves it alone; one that cannot be saved is returned all the same."""
    file = tmp_path / "r.json"
    measured(monkeypatch, Jobs(), 2, file=file)
    before = file.read_bytes()

    def fails(*_: Any, **__: Any) -> Outcome:
        assert file.read_bytes() == before
        return Outcome(5, seconds=0.1)

    monkeypatch.setattr(bench_jobs, "run_job", fails)
    settings = Settings(collectives=("all_gather",), sizes=(8,))
    plan = Plan((Shape(2),), settings, launches=1)
    driver.measure(plan, ["x"], find_launcher, save=file)
    assert file.read_bytes() == before

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench_jobs, "run_job", Jobs())
    monkeypatch.setattr(Result, "save", full)
    found, status = driver.measure(plan, ["x"], find_launcher, save=file)
    assert (len(found.jobs[0].launches), status) == (1, 4)
    assert "No space left" in found.notes[-1]


def test_no_launch_begins_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first of each job; and where repetitions are given time does not count."""
    slow = Jobs(takes=0.1)
    found = measured(monkeypatch, slow, 2, 3, launches=9, seconds=0.3)
    assert 1 <= len(found.jobs[0].launches) == len(found.jobs[1].launches) < 9
    assert "time was up" in found.notes[0]
    fixed = Settings(collectives=("all_gather",), sizes=(8,), iterations=3)
    found = measured(monkeypatch, Jobs(), 2, launches=4, seconds=0.001, settings=fixed)
    assert len(found.jobs[0].launches) == 4


def test_a_job_that_fails_twice_alike_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are; and one failure may have been chance."""
    started: list[int] = []

    def run(command: list[str], *_: Any, **__: Any) -> Outcome:
        threads = int(command[command.index("-n") + 1])
        started.append(threads)
        bad = threads == 3 or started.count(threads) == 1
        return Outcome(7 if bad else 0, seconds=0.1)

    monkeypatch.setattr(bench_jobs, "run_job", run)
    settings = Settings(collectives=("all_gather",), sizes=(8,))
    plan = Plan((Shape(2), Shape(3)), settings, launches=5)
    found, status = driver.measure(plan, ["x"], find_launcher)
    assert (status, started.count(2), started.count(3)) == (4, 5, 2)
    assert found.is_empty
    assert "no more launches of 3 threads" in found.notes[3]


def test_fewer_repetitions_than_asked_for_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note reports fewer repetitions than asked for, if the time is limited."""
    fixed = Settings(collectives=("all_gather",), sizes=(8,), iterations=3, limited=True)
    found = measured(monkeypatch, Jobs(), 2, settings=fixed)
    assert found.notes == ["the time was too short for 3 repetitions of 1 of 1 cells"]
    assert not measured(monkeypatch, Jobs(), 2, settings=fixed.but(iterations=1)).notes


def test_many_threads_get_more_time_for_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs share the time by threads if repetitions are fixed, and evenly if not."""
    jobs = Jobs()
    fixed = Settings(collectives=("all_gather",), sizes=(8,), iterations=500, limited=True)
    measured(monkeypatch, jobs, 2, 8, seconds=1000.0, settings=fixed)
    measured(monkeypatch, jobs, 2, 8, seconds=1000.0)
    first, _, other, _ = [s.seconds for s in jobs.settings]
    assert first == pytest.approx(2 / 10 * 1000, rel=0.05)
    assert other == pytest.approx(1 / 2 * 1000, rel=0.05)


def test_a_launch_that_the_budget_cuts_names_what_it_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A note gives the reason, the table of figures the calls."""
    jobs = Jobs()
    jobs.more = [{"collective": "all_gather", "nbytes": n, "moved": n} for n in (64, 512)]
    settings = Settings(("all_gather",), sizes=(8, 64, 512), limited=True)
    found = measured(
        monkeypatch, jobs, 2, settings=settings, launches=1, seconds=60.0, least=1
    )  # fmt: skip
    assert found.notes == [
        "launch 1 of 1, 2 threads: cut after 1 of 3 cells: the budget is spent"
    ]  # fmt: skip
    assert list(found.jobs[0].unmeasured.values()) == [[64, 512]]
    assert "\n# not measured: all_gather, blocks of 64, 512 bytes\n" in osu(found)
    assert "not measured" not in osu(measured(monkeypatch, Jobs(), 2))


def test_a_signal_in_the_trial_is_no_lack_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that was cut says nothing about costs: the status is the signal's."""
    interrupted = Outcome(130, interrupted=2, seconds=0.1)
    monkeypatch.setattr(bench_jobs, "run_job", lambda *_, **__: interrupted)
    settings = Settings(collectives=("all_gather",), sizes=(8,), limited=True)
    plan = Plan((Shape(2),), settings, launches=12, seconds=1.0, least=1)
    result, status = driver.measure(plan, ["x"], find_launcher)
    assert status == 130
    assert result.notes == ["ended by SIGINT"]
