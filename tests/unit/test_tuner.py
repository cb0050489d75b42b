"""The tuner: rules from results with a known truth, and what becomes of the user's file."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from xupc import cli
from xupc.bench import driver
from xupc.bench.budget import TooShort
from xupc.bench.launch_plan import Plan
from xupc.bench.results import AGAIN, OURS, Candidate, Cell, Job, Launch, Result
from xupc.bench.settings import Shape
from xupc.bench.tuner import tuned
from xupc.bench.tuning_file import TuningFile
from xupc.flags import ALGORITHM_NAMES, MULTICORE, PULL, PUSH
from xupc.tuning.host_figures import HostFigures
from xupc.tuning.selection import Place, Rule, Table, When
from xupc.tuning.selection_file import BUILT_IN, built_in, find, load, parse, read

tune_command = importlib.import_module("xupc.cli.tune")
tune_host = importlib.import_module("xupc.cli.tune_host")

PLACE = Place.of([4, 4], "mpich", "shm", True)
SIZES = [8 << i for i in range(0, 18, 2)]
Truth = dict[int, float]  # µs by algorithm


def cell(
    random: np.random.Generator, truth: Truth, collective: str, nbytes: int,
    *, launches: int = 5, noise: float = 0.03, apart: float = 0.005, wrong: int | None = None,
) -> Cell:  # fmt: skip
    """A cell as it would be measured: launches differ by a tenth, the same in all candidates.

    `noise` is that of repetitions, `apart` that of a candidate in a launch.
    """
    levels = random.lognormal(0, 0.1, launches)

    def times(flag: int) -> list[list[int]]:
        each = levels * random.lognormal(0, apart, launches) * truth[flag] * 1000
        return [(level * random.lognormal(0, noise, 40)).astype(int).tolist() for level in each]

    names = {"xupc": MULTICORE, "PULL": PULL, "PUSH": PUSH, "MULTICORE": MULTICORE}
    found = [
        Candidate(name, OURS, "", ALGORITHM_NAMES[flag], ns=times(flag), wrong=[[]] * launches)
        for name, flag in names.items()
    ]
    found.append(Candidate("xupc again", AGAIN, "", ns=times(MULTICORE), wrong=[[]] * launches))
    for candidate in found:
        if wrong is not None and candidate.name == ALGORITHM_NAMES[wrong].upper():
            candidate.wrong = [[1], *[[]] * (launches - 1)]
    return Cell(collective, nbytes, nbytes, candidates=found)


def result(cells: Iterable[Cell], place: Place = PLACE) -> Result:
    about = {
        "mpi family": place.family, "transport": place.transport,
        "oversubscribed": place.oversubscribed, "mpi": "MPICH 9", "processor": "abacus",
    }  # fmt: skip
    each = place.threads // place.node_count
    nodes = [list(range(i * each, (i + 1) * each)) for i in range(place.node_count)]
    launches = [Launch(1, "", 1.0, [], 1)]
    job = Job(place.threads, nodes, ["here"], about, launches=launches, cells=list(cells))
    return Result(["xupc", "tune"], "2026-11-21T00:00:00Z", jobs=[job])


def series(seed: int, best: Callable[[int], int], gain: float = 1.3, **how: Any) -> list[Cell]:
    """all_gather, with the best algorithm by size."""
    random = np.random.default_rng(seed)
    return [
        cell(random, {f: 9.0 if f == best(n) else 9.0 * gain for f in ALGORITHM_NAMES},
             "all_gather", n, **how)
        for n in SIZES
    ]  # fmt: skip


def ranges(rules: Iterable[Rule]) -> list[tuple[int | None, int | None, int]]:
    return [(r.when.min_bytes, r.when.max_bytes, r.algorithm) for r in rules]


def over(rules: tuple[Rule, ...]) -> Table:
    return Table("t", rules, {}, built_in())


# --- the rules ------------------------------------------------------------------------------------


def test_the_best_is_chosen_nearly_everywhere_and_nothing_gets_slower() -> None:
    """Random truths: the three algorithms cross each other, some are close together."""
    random = np.random.default_rng(20)
    names = [f"all_{name}" for name in ("broadcast", "scatter", "gather", "exchange", "reduce_mpi")]
    truths: dict[tuple[str, int], Truth] = {}
    for name in names:
        start, slope = random.normal(0, 0.3, 3), random.normal(0, 0.05, 3)
        for i, n in enumerate(SIZES):
            costs = 5.0 * np.exp(start + slope * i)
            truths[name, n] = dict(zip(ALGORITHM_NAMES, costs.tolist(), strict=True))
    measured = [cell(random, truth, *key, apart=0.01) for key, truth in truths.items()]
    [found] = tuned(result(measured))
    choices = over(found.rules).at(PLACE)
    lost, against = [], []
    for (name, n), truth in truths.items():
        chosen = truth[choices.choose(name.removeprefix("all_"), n)]
        lost.append(chosen / min(truth.values()))
        against.append(chosen / truth[MULTICORE])
    assert np.mean(np.array(lost) <= 1.05) >= 0.95
    assert max(against) <= 1.02
    departures = sum(min(t, key=t.__getitem__) != MULTICORE for t in truths.values())
    assert departures > len(truths) // 3  # there was something to find
    assert len(found.rules) <= 3 * len(names)


@pytest.mark.parametrize("seed", range(3))
def test_no_better_one_no_rule(seed: int) -> None:
    [found] = tuned(result(series(seed, lambda n: MULTICORE)))
    assert found.rules == ()
    [found] = tuned(result(series(seed, lambda n: PUSH, gain=1.0)))
    assert found.rules == ()
    assert found.changed == []
    assert found.gain_over_all == 1.0


def test_limits_lie_half_way_and_end_half_a_step_beyond() -> None:
    [found] = tuned(result(series(1, lambda n: PUSH if n < 1000 else PULL)))
    assert ranges(found.rules) == [(None, 1024, PUSH), (1025, 1048576, PULL)]
    [rule, _] = found.rules
    assert rule.when == When(
        max_bytes=1024, shape="2x4", family="mpich", transport="shm", oversubscribed=True
    )
    [found] = tuned(result(series(1, lambda n: PUSH if 100 < n < 1000 else MULTICORE)))
    assert ranges(found.rules) == [(65, 1024, PUSH)]
    [found] = tuned(result([c for c in series(1, lambda n: PUSH) if c.nbytes == 512]))
    assert ranges(found.rules) == [(363, 724, PUSH)]
    assert found.gain_there == pytest.approx(1.3, rel=0.03)


def test_a_little_more_at_one_size_is_not_worth_two_rules() -> None:
    def truth(n: int) -> Truth:
        return {PUSH: 9.0, PULL: 8.9 if n == 512 else 12.0, MULTICORE: 12.0}

    random = np.random.default_rng(4)
    cells = [cell(random, truth(n), "all_gather", n, apart=0.0005) for n in SIZES]
    [found] = tuned(result(cells))
    assert ranges(found.rules) == [(None, 1048576, PUSH)]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ({"apart": 0.2}, "not resolvable: the same call twice differs by"),
        ({"wrong": MULTICORE}, "multicore was not measured, or was wrong"),
    ],
)
def test_what_cannot_be_judged_stays(damage: dict[str, float], why: str) -> None:
    [found] = tuned(result(series(3, lambda n: PUSH, **damage)))
    assert found.rules == ()
    assert all(why in change.why_not for change in found.changes)
    once = series(3, lambda n: PUSH)
    for c in once:
        c.candidates.pop()
    [found] = tuned(result(once))
    assert {change.why_not for change in found.changes} == {"nothing was measured twice"}


@pytest.mark.parametrize("launches", [1, 2])
def test_few_launches_change_nothing(launches: int) -> None:
    [found] = tuned(result(series(3, lambda n: PUSH, launches=launches)))
    assert found.rules == ()
    assert {c.why_not for c in found.changes} == {f"too few launches: {launches}, at least 3"}


@pytest.mark.parametrize("launches", [3, 5])
def test_noise_changes_no_table(launches: int) -> None:
    random = np.random.default_rng(5)
    same = dict.fromkeys(ALGORITHM_NAMES, 9.0)
    cells = [cell(random, same, "all_gather", 8 + i, launches=launches, apart=0.02)
             for i in range(300)]  # fmt: skip
    [found] = tuned(result(cells))
    assert len(found.changed) <= 15


def test_a_wrong_algorithm_is_not_chosen_however_fast() -> None:
    [found] = tuned(result(series(3, lambda n: PUSH, wrong=PUSH)))
    assert found.rules == ()


def test_every_cell_of_a_size_must_gain() -> None:
    cells = series(5, lambda n: PUSH)
    other = series(6, lambda n: MULTICORE)
    for c in other:
        c.sync = "mysync"
    [found] = tuned(result(cells + other))
    assert found.rules == ()


def with_ring(cells: list[Cell], gain: Callable[[int], float]) -> list[Cell]:
    """Add a variant that was measured by name; it takes the time of MULTICORE / the gain."""
    for c in cells:
        default = c.candidate("MULTICORE")
        assert default is not None
        ns = [[int(t / gain(c.nbytes)) for t in launch] for launch in default.ns]
        c.candidates.append(
            Candidate("multicore:ring", OURS, "", "multicore:ring", ns=ns, wrong=[[]] * len(ns))
        )
    return cells


def test_a_variant_is_chosen_where_it_can_run() -> None:
    def gain(n: int) -> float:
        return 1.5 if n > 1000 else 0.8

    [found] = tuned(result(with_ring(series(1, lambda n: PULL), gain)))
    assert [(r.when.min_bytes, r.when.max_bytes, r.name, r.if_possible) for r in found.rules] == [
        (None, 1024, "pull", None), (1025, 1048576, "multicore:ring", True),
    ]  # fmt: skip
    cells = with_ring(series(1, lambda n: MULTICORE), gain)
    [found] = tuned(result(cells))
    assert [rule.name for rule in found.rules] == ["multicore:ring"]
    other = series(1, lambda n: MULTICORE)  # in another sync mode it could not run
    for c in other:
        c.sync = "mysync"
    [found] = tuned(result(cells + other))
    assert found.rules == ()


def test_other_kinds_of_cells_say_nothing() -> None:
    cells = series(5, lambda n: PUSH)
    for i, c in enumerate(cells):
        if i % 3 == 0:
            c.collective = "barrier"
        elif i % 3 == 1:
            c.team = "node"
        else:
            c.cold = True
    [found] = tuned(result(cells))
    assert found.changes == ()


def test_tuning_again_keeps_what_was_not_measured_or_cannot_be_judged() -> None:
    old = [
        Rule("gather", PUSH, When(max_bytes=1024, shape="2x4")),
        Rule("gather", PULL, When(min_bytes=300000, shape="2x4")),
        Rule("scatter", PULL, When(shape="2x4")),
    ]
    cells = [c for c in series(7, lambda n: PULL) if 512 <= c.nbytes <= 32768]
    noisy = series(8, lambda n: PULL, apart=0.3)[2]
    assert noisy.nbytes == 128
    [found] = tuned(result([noisy, *cells]), earlier=lambda place: old)
    assert ranges(r for r in found.rules if r.collective == "gather") == [
        (None, 256, PUSH), (257, 65536, PULL), (300000, None, PULL),
    ]  # fmt: skip
    assert ranges(r for r in found.rules if r.collective == "scatter") == [(None, None, PULL)]
    before = {change.nbytes: (change.before, change.after) for change in found.changes}
    assert before[128] == ("push", "push")
    assert before[512] == ("push", "pull")
    assert before[2048] == ("multicore", "pull")


def test_a_result_that_does_not_say_where_it_ran() -> None:
    bad = result(series(1, lambda n: PUSH))
    del bad.jobs[0].about["transport"]
    with pytest.raises(ValueError, match="does not have 'transport' of the job on 8 threads"):
        tuned(bad)


# --- the file -------------------------------------------------------------------------------------

OWN = """# my table
version = 1

# I know better
[[choose]]
collective = "all_scatter"
algorithm = "pull"

[tuning.default]
root_exchange_max = 5  # mine
"""


def tune(path: Path, found: Result, *options: str, status: int = 0) -> str:
    raw = path.with_name("raw.json")
    found.save(raw)
    done = CliRunner().invoke(cli.main, ["tune", "--from", str(raw), "-o", str(path), *options])
    assert done.exit_code == status, done.output
    return done.output


def test_the_users_own_lines_and_other_shapes_stay(tmp_path: Path) -> None:
    path = tmp_path / "more" / "tuning.toml"
    path.parent.mkdir()
    path.write_text(OWN)
    said = tune(path, result(series(1, lambda n: PUSH)))
    assert "2x4, mpich, shm, oversubscribed\n" in said
    assert "9 of 9 sizes changed: 1.30 times as fast there, 1.30 over all" in said
    assert "multicore -> push" in said
    assert f"wrote {path}; what was there is {path}.old" in said
    assert f"XUPC_TUNING={path}" in said
    assert path.with_name("tuning.toml.old").read_text() == OWN
    first = path.read_text()
    for line in OWN.splitlines():
        assert line in first.splitlines()
    assert "# 2026-11-21T00:00:00Z, here: MPICH 9, abacus; 1 launches" in first

    other = Place.of([8], "mpich", "shm", True)
    tune(path, result(series(1, lambda n: PULL), other))
    tune(path, result(series(1, lambda n: PULL if n > 1000 else MULTICORE)))
    table = load(read(path))
    chosen = [table.at(p).choose("gather", n) for p in (PLACE, other) for n in (8, 1 << 15)]
    assert chosen == [MULTICORE, PULL, PULL, PULL]
    assert table.at(PLACE).choose("scatter", 8) == PULL
    assert table.tuning(PLACE)["root_exchange_max"] == 5
    text = path.read_text()
    assert text.count("# >>> xupc tune: ") == 2
    assert text.replace("\n\n", "\n").endswith(OWN.split("version = 1\n")[1].replace("\n\n", "\n"))


def test_a_section_comes_before_own_entries_that_contradict_it(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('version=1 # so far\n[[choose]]\ncollective = "*"\nalgorithm = "pull"')
    tune(path, result(series(1, lambda n: PUSH)))
    choices = load(read(path)).at(PLACE)
    assert [choices.choose("gather", n) for n in (8, 1 << 22)] == [PUSH, PULL]


def test_a_new_file_and_a_dry_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.toml"
    said = tune(tmp_path / "t.toml", result(series(1, lambda n: PUSH)), "--dry-run")
    assert not (tmp_path / "t.toml").exists()
    shown = parse(said[said.index("# What xupc") :], "shown", built_in())
    path.parent.mkdir()
    tune(path, result(series(1, lambda n: PUSH)))
    assert load(read(path)).rules == shown.rules
    assert [p.name for p in path.parent.iterdir() if p.suffix in (".old", ".new")] == []


def test_what_goes_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    assert "nothing was measured" in tune(path, result([]), status=2)
    assert "WRONG RESULTS" in tune(path, result(series(1, lambda n: PUSH, wrong=PULL)), status=1)
    path.write_text("\n")
    assert TuningFile(path).new
    path.write_text("version = 2")
    assert "version: expected 1, got 2" in tune(path, result([]), status=4)
    path.write_text("version = 1\n# >>> xupc tune: a\n# >>> xupc tune: b\n# <<< xupc tune\n")
    with pytest.raises(ValueError, match="has no end"):
        TuningFile(path)


def test_a_rule_for_a_variant_leaves_other_calls_to_the_next_rule(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    said = tune(path, result(with_ring(series(1, lambda n: MULTICORE), lambda n: 1.5)))
    assert "multicore -> multicore:ring" in said
    assert 'algorithm = "multicore:ring"\nif_possible = true\n' in path.read_text()
    choices = load(read(path)).at(PLACE)
    assert choices.rule("gather", 8).name == "multicore:ring"
    assert choices.rule("gather", 8, lambda rule: False).name == "multicore"


def test_where_nothing_was_decided_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    said = tune(path, result(series(1, lambda n: PUSH, launches=2)))
    assert "none of 9 sizes could be judged (not judged: 9 too few launches)" in said
    assert f"nothing was decided: {path} is not written" in said
    said = tune(path, result(series(1, lambda n: MULTICORE)))
    assert "9 of 9 sizes judged: none is faster" in said
    assert not path.exists()
    tune(path, result(series(1, lambda n: PUSH)))
    before = path.read_text()
    said = tune(path, result(series(1, lambda n: PUSH)))
    assert "is not written" in said
    assert path.read_text() == before


def test_the_outline_is_short_and_v_has_every_size(tmp_path: Path) -> None:
    found = result(series(1, lambda n: PUSH if n < 1000 else PULL))
    short = tune(tmp_path / "a", found, "--dry-run").partition("# What xupc")[0]
    long = tune(tmp_path / "b", found, "--dry-run", "-v").partition("# What xupc")[0]
    assert len(short.splitlines()) <= 10
    assert re.search(r"all_gather  8 B to 512 B +multicore -> push", short), short
    assert long.count("multicore -> ") == 9 > short.count("multicore -> ")


def test_nothing_is_measured_that_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Plan] = []

    def measure(plan: Plan, *_: Any, **__: Any) -> tuple[Result, int]:
        asked.append(plan)
        return result(series(1, lambda n: PUSH)), 0

    monkeypatch.setattr(driver, "measure", measure)
    monkeypatch.setattr(tune_host, "measured_by", lambda *_: ({}, "nothing runs here"))
    done = CliRunner().invoke(cli.main, ["tune", "all_gather", "barrier", "--dry-run"])
    assert (done.exit_code, asked) == (2, [])
    assert "nothing to choose for barrier" in done.output
    done = CliRunner().invoke(cli.main, ["tune", "*gather", "b*", "--dry-run", "--nodes", "3,1"])
    assert done.exit_code == 0, done.output
    assert "barrier" not in asked[0].settings.collectives
    assert "allav_gather" in asked[0].settings.collectives
    assert asked[0].shapes == (Shape(4, "3,1"),)


@pytest.mark.parametrize("option", ["-o", "--json"])
def test_where_nothing_can_be_written_nothing_is_measured(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    words = ["tune", option, str(tmp_path / "file" / "table"), "--budget", "100m"]
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 2
    assert "there is no directory" in done.output


# --- the figures of the host ----------------------------------------------------------------------

FIGURES = {"direct_min": 131072, "direct_reduce": 1}  # decided; the others are as built in
USED = HostFigures(131072, 32768, 1, 0)
GAINS = [0.1, 0.1, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]  # of moves one way, both ways
LAUNCH = {
    "moves": [[gains] * 2 for gains in GAINS], "reductions": [0.5, 0.5], "past": [1.0, 1.0],
}  # fmt: skip


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Jobs that would have measured the host `here`."""
    jobs: list[tuple[Any, ...]] = []

    def measured_by(*job: Any) -> tuple[dict[str, Any], str]:
        jobs.append(job[:-1])
        return {"host": "here", "launch": LAUNCH}, ""

    monkeypatch.setattr(tune_host, "measured_by", measured_by)
    return jobs


JOB = "xupc.bench.host_probe"


def test_the_figures_of_the_host_are_kept_in_a_section(
    tmp_path: Path, probed: list[tuple[Any, ...]]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(OWN)
    words = ["tune", "--host-only", "-n", "4", "-o", str(path)]
    for _ in range(2):  # the second time the section is replaced
        done = CliRunner().invoke(cli.main, words)
        assert done.exit_code == 0, done.output
    assert probed == [(JOB, 4, "1x4")] * 2 * tune_host.HOST_LAUNCHES
    assert "host here: direct access from 128 KiB on, from 32 KiB where two" in done.output
    assert "reductions of any length; copies past the cache never" in done.output
    kept = "as built in, since nothing is better beyond doubt: direct_min_pair, nt_store_min"
    assert kept in done.output
    table = load(read(path))
    assert table.figures_of("here") == USED
    assert table.source_of("elsewhere") == BUILT_IN
    text = path.read_text()
    assert text.count("# >>> xupc tune: host here\n") == 1
    assert text.replace("\n\n", "\n").endswith(OWN.split("version = 1\n")[1].replace("\n\n", "\n"))
    tune(path, result(series(1, lambda n: PUSH)))  # rules do not touch it
    assert load(read(path)).figures_of("here") == USED


@pytest.mark.parametrize("load", [0.1, 99.0])
def test_figures_of_a_busy_host_are_marked(
    load: float, tmp_path: Path, probed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    path = tmp_path / "t.toml"
    done = CliRunner().invoke(cli.main, ["tune", "--host-only", "-n", "2", "-o", str(path)])
    marked = f"the load average was {load:.1f} on "
    assert (f"# {marked}" in path.read_text()) == (load > 1)
    assert (marked in done.output) == (load > 1)


def test_algorithms_are_measured_with_the_figures(
    tmp_path: Path, probed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[HostFigures] = []
    loads = [0.1]
    monkeypatch.setattr(os, "getloadavg", lambda: loads * 3)

    def measure(plan: Plan, *_: Any, **__: Any) -> tuple[Result, int]:
        assert probed == []
        assert plan.prepare is not None
        loads[:] = [99.0]  # by the trial of the algorithms
        plan.prepare.run(7.0)
        used.append(load(find()).figures_of("here"))
        return result(series(1, lambda n: PUSH)), 0

    monkeypatch.setattr(driver, "measure", measure)
    monkeypatch.setenv("XUPC_TUNING", str(tmp_path / "not there yet"))
    done = CliRunner().invoke(cli.main, ["tune", "all_gather", "-n", "2", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert used == [USED]
    assert probed == [(JOB, 2, "1x2")] * tune_host.HOST_LAUNCHES
    assert os.environ["XUPC_TUNING"] == str(tmp_path / "not there yet")
    assert '[host."here"]\ndirect_min = 131072\ndirect_reduce = 1\n' in done.output
    assert "others computed here" not in done.output


def test_a_budget_that_is_too_short_is_refused_in_one_line(
    tmp_path: Path, probed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any, **__: Any) -> None:
        raise TooShort("--budget 5s: expected at least 9s: give it more time")

    monkeypatch.setattr(driver, "measure", measure)
    words = ["tune", "all_gather", "-n", "2", "--budget", "5s", "-o", str(tmp_path / "t.toml")]
    done = CliRunner().invoke(cli.main, words)
    assert (done.exit_code, probed) == (2, [])
    assert done.output == "Error: --budget 5s: expected at least 9s: give it more time\n"


def test_an_own_entry_for_the_host_is_not_replaced(
    tmp_path: Path, probed: list[tuple[Any, ...]]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text('version = 1\n[host."here"]\ndirect_min = 5\n')
    done = CliRunner().invoke(cli.main, ["tune", "--host-only", "-n", "2", "-o", str(path)])
    assert done.exit_code == 2
    assert '[host."here"] stands among your own entries' in done.output


def test_a_host_that_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_host, "measured_by", lambda *_: ({"host": "here", "launch": None}, ""))
    path = tmp_path / "t.toml"
    done = CliRunner().invoke(cli.main, ["tune", "--host-only", "-n", "2", "-o", str(path)])
    assert done.exit_code == 4
    assert "the figures of this host were not measured: its threads have one core" in done.output
    assert not path.exists()


@pytest.mark.parametrize(
    "words", [["--from", "t.json"], ["-m", "8"], ["all_gather"], ["--json", "x"]]
)
def test_options_that_contradict_host_only(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "t.json").touch()
    words = [str(tmp_path / word) if word == "t.json" else word for word in words]
    done = CliRunner().invoke(cli.main, ["tune", "--host-only", *words])
    assert done.exit_code == 2
    assert ", which says what to measure" in done.output
