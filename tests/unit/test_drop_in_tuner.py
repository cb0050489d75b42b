"""`xupc tune --drop-in`: decisions from made-up times, and what becomes of the user's table."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from xupc import cli
from xupc.bench.drop_in_tuner import MEETING, SIZED, Timed, cells_of, drop_in_tuned
from xupc.bench.tuning_file import TuningFile
from xupc.tuning.selection import CarrierRule, Place, Table, When
from xupc.tuning.selection_file import METHODS, built_in, load, parse, read

command = importlib.import_module("xupc.cli.tune_drop_in")

PLACE = Place.of([2], "mpich", "shm", False)
SIZES = (8, 64, 512, 4096, 32768)
AT = {"shape": "2", "family": "mpich", "transport": "shm", "oversubscribed": False}
Truth = Callable[[int], float]
"""The time of xupc / that of mpi4py, by size."""


def times(method: str, nbytes: int, truth: float, way: str = "", **how: Any) -> Timed:
    """Times as they would be measured: launches differ by a tenth, turns by 3%.

    `apart` is how far a library differs in a launch, `again` mpi4py's second name.
    """
    launches, apart, again = (how.get(k, v) for k, v in
                              (("launches", 5), ("apart", 0.005), ("again", 1.0)))  # fmt: skip
    random = np.random.default_rng([nbytes, len(method), len(way), 7])
    levels = random.lognormal(0, 0.1, launches)
    found = Timed(method, nbytes, way)
    for name, factor in (("mpi", 1.0), ("xupc", truth), ("again", again)):
        each = 10.0 * factor * levels * random.lognormal(0, apart, launches)
        found.times[name] = [(level * random.lognormal(0, 0.03, 9)).tolist() for level in each]
    return found


def series(method: str, truth: Truth, **how: Any) -> list[Timed]:
    return [times(method, n, truth(n), **how) for n in SIZES]


def rules(cells: Sequence[Timed], earlier: Sequence[CarrierRule] = ()) -> list[CarrierRule]:
    return list(drop_in_tuned(PLACE, cells, built_in(), earlier).rules)


def test_a_method_goes_to_the_faster_library_by_size() -> None:
    cells = series("Bcast", lambda n: 0.5 if n < 4096 else 1.3)
    assert rules(cells) == [
        CarrierRule("Bcast", "mpi", When(min_bytes=1449, max_bytes=92681, **AT))
    ]
    cells = series("Allgatherv", lambda n: 9.0 if n < 4096 else 0.7)
    (only,) = rules(cells)
    assert (only.carrier, only.when.min_bytes, only.when.max_bytes) == ("xupc", 1449, 92681)


def test_what_is_as_fast_stays() -> None:
    assert rules(series("Bcast", lambda _: 0.7) + series("Allgatherv", lambda _: 1.5)) == []
    assert rules(series("Bcast", lambda _: 1.01)) == []
    assert rules(series("Bcast", lambda _: 1.5, launches=2)) == []
    assert rules(series("Bcast", lambda _: 1.1, apart=0.4)) == []


def test_a_gain_below_the_difference_of_a_call_to_itself_decides_nothing() -> None:
    assert len(rules(series("Bcast", lambda _: 1.3))) == 1
    assert rules(series("Bcast", lambda _: 1.3, again=1.5)) == []


def test_without_common_sizes_the_gain_must_be_there_at_all_sizes_and_in_all_ways() -> None:
    method = "Neighbor_alltoallw"
    cells = [times(method, n, 0.6, way) for n in (8, 512) for way in ("arrays", "bytes")]
    assert rules(cells) == [CarrierRule(method, "xupc", When(**AT))]
    assert rules([*cells, times(method, 4096, 1.0, "bytes")]) == []
    two = [times("Ibcast", 8, 0.5, "Wait"), times("Ibcast", 8, 1.5, "Test")]
    assert rules(two) == []


def test_calls_whose_sizes_only_their_senders_have_begin_in_the_library_of_the_shortest() -> None:
    own = parse('version = 1\n[[drop_in]]\nmethod = "scan"\ncarrier = "mpi"\n', "t", built_in())
    cells = series("scan", lambda n: 0.6 if n < 4096 else 1.5)
    found = drop_in_tuned(PLACE, cells, own).rules
    assert found == (CarrierRule("scan", "xupc", When(max_bytes=1448, **AT)),)
    assert Table("", (), {}, own, {}, found).carriers_at(PLACE).first_by_mpi("scan") == 1449
    # xupc could begin only the longer ones
    cells = series("scan", lambda n: 1.5 if n < 4096 else 0.6)
    assert drop_in_tuned(PLACE, cells, own).rules == ()
    assert drop_in_tuned(PLACE, cells[3:], own).rules == (CarrierRule("scan", "xupc", When(**AT)),)


def test_rules_so_far_stay_for_what_was_not_measured() -> None:
    earlier = [
        CarrierRule("Scan", "mpi", When(max_bytes=100, **AT)),
        CarrierRule("scan", "xupc", When(**AT)),
        CarrierRule("Bcast", "mpi", When(**AT)),
    ]
    found = rules([times("Bcast", 512, 0.5)], earlier)
    assert found == [
        CarrierRule("Bcast", "mpi", When(max_bytes=362, **AT)),
        CarrierRule("Bcast", "mpi", When(min_bytes=725, **AT)),
        *earlier[:2],
    ]
    assert rules([times("Bcast", 512, 0.5, launches=2)], earlier) == [earlier[2], *earlier[:2]]


def test_cells_cover_every_method() -> None:
    cells = cells_of(METHODS, SIZES)
    assert {method for method, _ in cells} == set(METHODS) >= SIZED | MEETING
    assert [n for method, n in cells if method == "Iscan"] == list(SIZES)
    assert [n for method, n in cells if method == "Gatherv"] == list(SIZES)
    assert [n for method, n in cells if method == "Neighbor_alltoallv"] == [8, 512, 32768]
    assert [n for method, n in cells if method == "Ibarrier"] == [0]


# --- the command ----------------------------------------------------------------------------------


class Jobs:
    """Stands for the jobs that measure; each launch has so many cells, and one truth for all."""

    def __init__(self, truth: float, most: int = 1000, start: float = 0.0) -> None:
        self.truth, self.most, self.start = truth, most, start
        self.settings: list[dict[str, Any]] = []

    def __call__(self, module: str, *rest: Any) -> tuple[dict[str, Any], str]:
        self.settings.append(json.loads(rest[-1][0]))
        cells = [tuple(cell) for cell in self.settings[-1]["cells"]]
        k = len(self.settings) - 1
        found = []
        for method, nbytes in cells[: self.most]:
            made = times(method, nbytes, self.truth).times
            found.append({
                "method": method, "nbytes": nbytes, "way": "",
                "times": {name: of[k % 5] for name, of in made.items()},
            })  # fmt: skip
        place = {name: getattr(PLACE, name) for name in Place.__match_args__}
        left = cells[self.most :]
        return {"place": place, "cells": found, "left": left, "seconds": -self.start}, ""


def tune(
    monkeypatch: pytest.MonkeyPatch, jobs: Any, path: Path, *words: str, status: int = 0
) -> list[str]:
    monkeypatch.setattr(command, "measured_by", jobs)
    monkeypatch.setattr(command, "others_computed", lambda *_: "others computed here")
    arguments = ["tune", "--drop-in", "-n", "2", "-o", str(path), *words]
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == status, done.output
    return done.output.splitlines()


def test_the_table_gets_a_section_and_few_lines_are_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, own = tmp_path / "t.toml", '[[drop_in]]\nmethod = "scan"\ncarrier = "mpi"\n'
    path.write_text(f"version = 1\n\n# mine\n{own}")
    jobs = Jobs(0.5)
    lines = tune(monkeypatch, jobs, path, "-m", "8,4096")
    assert len(lines) <= 10, lines
    assert lines[0] == "2, mpich, shm"
    assert len(jobs.settings) == 5
    carriers = load(read(path)).carriers_at(PLACE)
    assert not any(carriers.by_mpi(method, None) for method in set(METHODS) - SIZED)
    assert not any(carriers.by_mpi(method, 4096) for method in SIZED)
    file = TuningFile(path)
    assert {rule.carrier for rule in file.carriers(PLACE)} == {"xupc"}
    assert file.rules(PLACE) == ()
    assert file.text.endswith(f"# mine\n{own}")
    assert path.with_name("t.toml.old").exists()
    tune(monkeypatch, Jobs(0.5), path, "-m", "8,4096")
    assert TuningFile(path).text == file.text  # what stays is not dated anew


def test_where_nothing_is_decided_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "t.toml"
    lines = tune(monkeypatch, Jobs(1.0), path, "Bcast", "I*", "-m", "8:64", "-v")
    assert lines[-1] == f"nothing was decided: {path} is not written"
    assert not path.exists()
    assert "none is faster with the other library beyond doubt" in lines[-2]


def test_cells_without_time_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs = Jobs(0.5, most=5)
    lines = tune(monkeypatch, jobs, tmp_path / "t.toml", "B*", "-m", "8:1K", "--dry-run")
    assert [len(each["cells"]) for each in jobs.settings] == [9, 4, 4, 4, 4]
    assert any("; 5 sizes had no time" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["all_gather"], "expected methods of mpi4py"),
        (["-n", "1"], "expected at least 2 threads"),
        (["-n", "2", "--variants"], "not with --variants"),
        (["-n", "2", "--host-only"], "not with --drop-in"),
        (["Bcast", "--budget", "9s"], "--budget 9s: expected at least"),
    ],
)
def test_wrong_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], expected: str
) -> None:
    path = tmp_path / "t.toml"
    lines = tune(monkeypatch, Jobs(0.5, start=5.0), path, *words, status=2)
    assert expected in " ".join(lines), lines
    assert not path.exists()


def test_a_launch_that_takes_all_of_the_budget_is_a_budget_that_is_too_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Clock:
        strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()

    def killed(*job: Any) -> tuple[dict[str, Any], str]:
        clock.now += job[3]
        return {}, f"not finished after {job[3]:g} s"

    monkeypatch.setattr(command, "time", clock)
    monkeypatch.setattr("xupc.cli.common.began", lambda: 0.0)
    lines = tune(monkeypatch, killed, tmp_path / "t.toml", "--budget", "3s", status=2)
    wanted = (
        "--budget 3s: expected more, try 33s: a launch of 2 threads had not ended after 3.8 s "
        "(0.0 s were spent before it)"
    )
    assert lines == [f"Error: {wanted}"]


def test_a_job_that_fails_decides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    lines = tune(monkeypatch, lambda *_: ({}, "the job failed"), path, status=4)
    assert lines == ["Error: the drop-in communicator was not measured: the job failed"]
    assert not path.exists()
