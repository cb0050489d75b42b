"""Compact results: the same tables, reports, comparisons and tunings, without the repetitions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.bench_results import SIZES, job, result

from xupc.bench import osu_text, suites
from xupc.bench.collect import Collector
from xupc.bench.results import Candidate, Result
from xupc.bench.summary import Summary
from xupc.bench.tuner import tuned
from xupc.cli import main
from xupc.report import markdown
from xupc.report.model import Section, job_content
from xupc.report.two_results import regressions

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MOST = 3 << 20
"""Bytes of all files in benchmarks/results: repetitions belong elsewhere."""


def measured(seed: int = 1, **more: Any) -> Result:
    """A result with visits, and some launches in which a candidate has no repetition."""
    found = result(job(seed=seed, repetitions=23, **{"launches": 4, **more}))
    dice = random.Random(seed)
    for cell in found.jobs[0].cells:
        for candidate in cell.candidates:
            for times in candidate.ns:
                first = dice.randrange(1, 20)
                candidate.visits.append([first, len(times) - first])
        cell.candidates[3].ns[1] = []
        cell.candidates[3].visits[1] = []
    return found


def reread(found: Result, tmp_path: Path) -> Result:
    """Save the result in a compact file and load it again."""
    found.compact().save(tmp_path / "r.json.gz")
    return Result.load(tmp_path / "r.json.gz")


def report(old: Result, new: Result) -> str:
    sections = [Section("r", each, [job_content(each, j, None) for j in each.jobs])
                for each in (old, new)]  # fmt: skip
    return markdown.render("r", sections, [regressions(old, new, ("old", "new"), 0.05)])


def test_everything_is_shown_alike(tmp_path: Path) -> None:
    old, new = measured(), measured(7, factor=lambda name, *_: 1.2 if name == "PULL" else 1.0)
    small = [reread(each, tmp_path) for each in (old, new)]
    for full, compact in zip((old, new), small, strict=True):
        assert compact.is_compact
        assert not full.is_compact
        assert not any(any(c.ns) for cell in compact.jobs[0].cells for c in cell.candidates)
        for table in (osu_text.table_csv, suites.mtu_table, suites.bandwidth_table):
            assert table(compact) == table(full)
        assert osu_text.osu(compact, full=True, check=True) == osu_text.osu(
            full, full=True, check=True
        )
        assert [t.rules for t in tuned(compact)] == [t.rules for t in tuned(full)]
        cells = zip(full.jobs[0].cells, compact.jobs[0].cells, strict=True)
        assert all(a.repetitions == b.repetitions and a.spread == b.spread for a, b in cells)
    assert report(*small) == report(old, new)


def test_a_summary_is_right() -> None:
    candidate = Candidate("xupc", "ours", "", ns=[[90, 10, 20, 40, 30], [7], []],
                          visits=[[1, 4], [1], []])  # fmt: skip
    kept = candidate.compact()
    assert kept.ns == [[], [], []]
    assert kept.kept[1:] == [[1, 7, 7, 7, 7, 7, 7, 7, 7.0], []]
    assert kept.kept[0] == [5, 90, 10, 40, 100, 20, 30, 40, 47.434165]  # sqrt(90 * 25)
    summary = Summary(*kept.kept[0])
    assert (summary.mean, summary.others) == (38.0, 4)
    assert kept.medians == candidate.medians == [[30.0], [7.0], []]
    assert [kept.count(k) for k in range(3)] == [5, 1, 0]
    assert kept.compact() == kept


def test_a_file_says_which_form_it_is_in(tmp_path: Path) -> None:
    found = measured(sizes=SIZES[:2])
    for name, each, version in (("full", found, 1), ("small", found.compact(), 2)):
        each.save(tmp_path / name)
        said = json.loads((tmp_path / name).read_text())
        assert said["version"] == version
        candidate = said["jobs"][0]["cells"][0]["candidates"][0]
        assert ("ns" in candidate, "kept" in candidate) == (version == 1, version == 2)
        assert Result.load(tmp_path / name) == each


@pytest.mark.parametrize(
    "row",
    [[1, 2], [0, 1, 1, 1, 1, 1, 1, 1, 1], [1.5, 1, 1, 1, 1, 1, 1, 1, 1],
     [2, 1, 3, 1, 1, 1, 1, 1, 1], [2, 1, 1, 1, 1, 3, 2, 1, 1], [2, 1, 1, 1, -1, 1, 1, 1, 1],
     [2, 1, 1, 1, 1, 1, 1, 1, 1e300],
     [2, 1, 1, 1, 1, 1, float("nan"), 1, 1]],
)  # fmt: skip
def test_what_is_no_summary_is_refused(tmp_path: Path, row: list[float]) -> None:
    found = measured(sizes=SIZES[:1]).compact()
    found.jobs[0].cells[0].candidates[1].kept[2] = row
    found.save(tmp_path / "r.json")
    with pytest.raises(ValueError, match=r"jobs\[0\].cells\[0\].candidates\[1\].kept\[2\]: no sum"):
        Result.load(tmp_path / "r.json")


def test_launches_are_added_to_a_compact_result(tmp_path: Path) -> None:
    found = reread(measured(sizes=SIZES[:1], collectives=("all_gather_all",)), tmp_path)
    cell = found.jobs[0].cells[0]
    collector = Collector(found.jobs[0])
    collector.take({"about": dict(found.jobs[0].about), "hosts": ["node0"], "bounds": {}})
    candidates = [{"name": c.name, "kind": c.kind, "call": c.call} for c in cell.candidates]
    key = {"collective": cell.collective, "nbytes": cell.nbytes, "moved": cell.moved,
           "root": cell.root}  # fmt: skip
    collector.take({"cells": [{**key, "candidates": candidates}], "threads": 2, "nodes": [[0, 1]],
                    "clock": "monotonic", "began": "", "seed": 1})  # fmt: skip
    collector.take({"cell": 0, "ns": [[1000, 1200]] * len(candidates)})
    assert [bool(m) for m in cell.candidates[3].medians] == [True, False, True, True, True]
    assert cell.candidates[0].medians[-1] == [1100.0]
    assert max(collector.widths()) > 0
    again = reread(found, tmp_path)
    assert len(again.jobs[0].cells[0].candidates[0].kept) == 5
    assert osu_text.table_csv(again) == osu_text.table_csv(found)


def test_the_commands_write_them(tmp_path: Path) -> None:
    full, small = tmp_path / "r.json", tmp_path / "s.json.gz"
    measured(sizes=SIZES[:2]).save(full)
    done = CliRunner().invoke(main, ["report", str(full), "--compact", str(small)])
    assert done.exit_code == 0, done.output
    assert Result.load(small) == Result.load(full).compact()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "s.json.gz"]  # no page
    for words, said in (
        (["report", str(full), str(full), "--compact", str(small)], "expected one result, got 2"),
        (["report", str(full), "--compact", "/none/r.json"], "there is no directory /none"),
        (["bench", "--compact"], "--compact needs --json FILE"),
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert said in done.output


def test_results_in_the_repository_are_compact_and_few() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST
    for path in files:
        if path.name.endswith(".json.gz"):
            found = Result.load(path)
            assert found.is_compact, f"{path}: xupc report {path} --compact {path}"
            assert not any(any(c.ns) for j in found.jobs for x in j.cells for c in x.candidates)
