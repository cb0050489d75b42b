"""What `xupc bench` measures, expects, collects and prints, without any job."""

from __future__ import annotations

import fcntl
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from xupc.backends.native.native_core import core
from xupc.bench import driver, osu_text, stats, suites
from xupc.bench.collect import Collector, lines_of, wrong_results
from xupc.bench.oracle import COLLECTIVES, Work
from xupc.bench.results import OURS, PEER, Result
from xupc.bench.settings import (
    Settings,
    cases,
    flags_of,
    named,
    root_of,
    sizes_between,
)
from xupc.byte_sizes import size_of
from xupc.cli import main
from xupc.cli.bench import Output
from xupc.cli.mpi import LaunchError
from xupc.flags import IN_MYSYNC, OUT_MYSYNC, OUT_NOSYNC, PULL
from xupc.specs import SPECS, parse_name

# ---- what must come of a call --------------------------------------------------------------------

PYTHON = {
    "ADD": lambda a, b: a + b,
    "MULT": lambda a, b: a * b,
    "XOR": lambda a, b: a ^ b,
    "LOGAND": lambda a, b: int(bool(a) and bool(b)),
    "MAX": max,
}


def plain(what: str, blocks: list[list[list[Any]]], me: int, root: int, op: str, values: bool):
    """From blocks[thread][number], element by element, in plain Python."""
    threads, n = len(blocks), len(blocks[0][0])
    first = [blocks[t][0] for t in range(threads)]
    join = PYTHON.get(op)

    def fold(row: list[Any]) -> Any:
        if not row:  # what an exclusive scan begins with
            return {"MULT": 1, "LOGAND": 1, "MAX": -math.inf}.get(op, 0)
        total = row[0]
        for x in row[1:]:
            total = join(total, x)
        return total

    flat = [x for block in first for x in block]
    match what:
        case "broadcast":
            return first[root]
        case "broadcast_in_place":
            return [] if me == root else first[root]
        case "scatter":
            return blocks[root][me]
        case "gather":
            return flat if me == root else []
        case "gather_all":
            return flat
        case "exchange":
            return [x for t in range(threads) for x in blocks[t][me]]
        case "permute":
            return first[threads - 1 - me]
        case "reduce_scatter":
            return [fold([blocks[t][me][i] for t in range(threads)]) for i in range(n)]
    ranges = {
        "prefix_reduce": range(me + 1),
        "suffix_reduce": range(me, threads),
        "exclusive_prefix_reduce": range(me),
        "exclusive_suffix_reduce": range(me + 1, threads),
    }
    if values or "mpi" in what:
        if what in ("reduce", "reduce_mpi") and me != root:
            return []
        among = ranges.get(what, range(threads))
        return [fold([first[t][i] for t in among]) for i in range(n)]
    if what == "prefix_reduce":
        return [fold(flat[: me * n + i + 1]) for i in range(n)]
    if what == "suffix_reduce":
        return [fold(flat[me * n + i :]) for i in range(n)]
    if what == "exclusive_prefix_reduce":
        return [fold(flat[: me * n + i]) for i in range(n)]
    if what == "exclusive_suffix_reduce":
        return [fold(flat[me * n + i + 1 :]) for i in range(n)]
    return [] if what == "reduce" and me != root else [fold(flat)]


@pytest.mark.parametrize(
    ("what", "values"),
    [
        (name, form == "allav")
        for form in ("all", "allav")
        for name, spec in SPECS.items()
        if form in spec.forms
    ],
)
def test_expected_is_what_plain_python_says(what: str, values: bool) -> None:
    kinds = [("int64", "ADD"), ("int32", "XOR"), ("float64", "MAX"), ("uint8", "LOGAND")]
    kinds += [("float32", "ADD"), ("float64", "MULT")]
    for dtype, op in kinds if SPECS[what].computes else [("uint8", "")]:
        for threads in (1, 2, 3, 5):
            for me in range(threads):
                root = (threads + 1) // 2 % threads
                work = Work(what, 4, np.dtype(dtype), op, root, me, threads, values)
                blocks = [
                    [work.block(t, k, salt=3).tolist() for k in range(threads)]
                    for t in range(threads)
                ]
                pieces = [np.empty(0, dtype), *work.expected(3)]
                found = np.concatenate(pieces)
                assert found.dtype == dtype
                assert found.tolist() == plain(what, blocks, me, root, op, values)
                assert len(found) == work.found
                given = [x for k in range(work.given) for x in blocks[me][k]]
                assert work.contributed(3).tolist() == given


def test_contents_differ_where_a_mistake_could_hide() -> None:
    work = Work("exchange", 16, np.dtype("u1"), "", 0, 0, 4)
    blocks = {
        work.block(t, k, salt).tobytes() for t in range(4) for k in range(4) for salt in (1, 2)
    }
    assert len(blocks) == 32


def test_every_collective_of_the_library_can_be_measured() -> None:
    import xupc

    there = {n for n in dir(xupc) if n.startswith(("all_", "allav_", "allv_"))} - {
        "all_alloc",
        "all_free",
        "all_neighbour_exchange",  # plans alone: benchmarks/neighbours.py measures them
        "allav_neighbour_exchange",
    }
    by_flag = {name for name in COLLECTIVES if "exclusive" in name}
    assert there == set(COLLECTIVES) - {"barrier"} - by_flag
    assert {name.replace("exclusive_", "") for name in by_flag} < there
    assert parse_name("all_scatter_v") == ("v", SPECS["scatter"])
    assert parse_name("all_broadcast_in_place") == ("all", SPECS["broadcast_in_place"])
    with pytest.raises(ValueError, match="all_nothing"):
        parse_name("all_nothing")


# ---- settings ------------------------------------------------------------------------------------


def test_sizes() -> None:
    good = {"8": 8, "8B": 8, "64K": 65536, "64KiB": 65536, "2m": 2 << 20, "1G": 1 << 30,
            "1.5k": 1536, " 1 MB": 1 << 20, "2TiB": 2 << 40}  # fmt: skip
    assert {word: size_of(word) for word in good} == good
    for word in ("", "K", "-1", "1.K", ".5K", "8X", "8i", "1KK", "0x8", "\u0668", "8\u212a"):
        with pytest.raises(ValueError, match="no size"):
            size_of(word)
    with pytest.raises(ValueError, match="no size"):
        size_of("9" * 5000)
    assert sizes_between(1, 8) == (1, 2, 4, 8)
    assert sizes_between(3, 20) == (3, 6, 12)
    for low, high in ((0, 8), (9, 8)):
        with pytest.raises(ValueError):
            sizes_between(low, high)


def test_cells_are_the_combinations_that_make_sense() -> None:
    settings = Settings(
        collectives=("barrier", "all_gather", "allav_reduce", "allv_reduce", "all_reduce"),
        sizes=(4, 8),
        dtypes=("float64", "int32"),
        ops=("ADD", "XOR"),
        syncs=("allsync", "mysync"),
    )
    found = [(c.collective, c.nbytes, c.dtype, c.op, c.sync) for c in cases(settings)]
    assert len(found) == len(set(found))
    assert found.count(("barrier", 0, "", "", "")) == 1
    assert [f for f in found if f[0] == "all_gather"] == [
        ("all_gather", n, "uint8", "", s) for n in (4, 8) for s in ("allsync", "mysync")
    ]
    assert [f for f in found if f[0] == "allav_reduce"] == [
        ("allav_reduce", 4, "int32", "ADD", "allsync"),
        ("allav_reduce", 4, "int32", "XOR", "allsync"),
        ("allav_reduce", 8, "float64", "ADD", "allsync"),
        ("allav_reduce", 8, "int32", "ADD", "allsync"),
        ("allav_reduce", 8, "int32", "XOR", "allsync"),
    ]
    assert [f for f in found if f[0] == "allv_reduce"] == [
        ("allv_reduce", 8, "float64", "ADD", "allsync")
    ]
    assert Settings.from_json(settings.to_json()) == settings


def test_flags_and_roots_and_names() -> None:
    assert flags_of("auto", "allsync") == 0
    assert flags_of("PULL", "mysync") == PULL | IN_MYSYNC | OUT_MYSYNC
    assert flags_of("auto", "allsync/nosync") == OUT_NOSYNC
    assert root_of(Settings(root="rotate"), 3) == (0, 1, 2)
    assert root_of(Settings(root="last"), 3) == (2,)
    assert root_of(Settings(root="1"), 3) == (1,)
    assert named(["all_g*l", "barrier", "all_gather_all"]) == ("all_gather_all", "barrier")
    with pytest.raises(ValueError, match="'nothing' is no collective"):
        named(["nothing"])


# ---- collecting ----------------------------------------------------------------------------------

HEAD = {"about": {"xupc": "1", "oversubscribed": False, "timer ns": 100.0}, "hosts": ["a"]}


def begin(seed: int = 1, names: tuple[str, ...] = ("xupc", "mpi4py")) -> dict[str, Any]:
    kinds = {"mpi4py": PEER}
    cell = {
        "collective": "all_gather", "nbytes": 8, "moved": 16, "root": "0",
        "candidates": [{"name": n, "kind": kinds.get(n, OURS), "call": n} for n in names],
    }  # fmt: skip
    return {
        "threads": 2, "nodes": [[0, 1]], "began": "t", "seed": seed, "clock": "monotonic",
        "cells": [cell],
    }  # fmt: skip


def collected(*lines: dict[str, Any]) -> Result:
    collector = Collector()
    for line in json.loads(json.dumps(lines)):
        collector.take(line)
    assert collector.job is not None
    return Result(["xupc", "bench"], "t", jobs=[collector.job])


def test_two_launches_the_second_cut_short() -> None:
    result = collected(
        HEAD, begin(1), {"cell": 0, "ns": [[1, 2], [3]], "wrong": [[], []], "skew ns": 5.0},
        {"cell": 0, "ns": [[4], []]}, {"cell": 0, "ns": [[], []], "wrong": [[], [1]]},
        {"seconds": 2.0, "load": [0.1, 0.2]},
        HEAD, {"bounds": {"copy rate": 7.0}}, begin(2), {"cell": 0, "ns": [[9], [8]]},
    )  # fmt: skip
    job = result.jobs[0]
    assert [launch.seed for launch in job.launches] == [1, 2]
    assert job.launches[0].seconds == 2.0
    ours, peer = job.cells[0].candidates
    assert ours.ns == [[1, 2, 4], [9]]
    assert peer.ns == [[3], [8]]
    assert peer.wrong == [[1], []]
    assert job.clock == {"kind": "monotonic", "entry skew ns": 5.0}
    assert job.bounds == {"copy rate": 7.0}
    assert list(wrong_results(result, (OURS,))) == []
    assert "mpi4py on thread 1" in next(wrong_results(result, (PEER,)))


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(lines_of(path)) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    found = list(lines_of(path))
    assert [line["a"] for line, _ in found] == [1, 2]
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert [line["a"] for line, _ in lines_of(path, found[-1][1])] == [3]


# ---- printing ------------------------------------------------------------------------------------


def test_osu_lines_are_a_size_and_a_latency() -> None:
    times = {"cell": 0, "ns": [[2000] * 20, [3000] * 20], "wrong": [[], [1]]}
    result = collected(HEAD, begin(), times, HEAD, begin(), times)
    result.complete = False
    out = osu_text.osu(result, full=True, check=True)
    rows = [line.split() for line in out.splitlines() if line and not line.startswith("#")]
    assert [row[:2] for row in rows] == [["8", "2.00"], ["8", "3.00"]]
    assert [row[-1] for row in rows] == ["Pass", "Fail"]
    assert rows[0][-2] == "1.50"
    assert rows[0][4] == "8.00"  # 16 bytes in 2 us
    assert "# incomplete" in out
    table = [line.split(",") for line in osu_text.table_csv(result).splitlines()]
    assert len({len(row) for row in table}) == 1
    row = dict(zip(table[0], table[1], strict=True))
    assert (row["candidate"], row["median us"], row["peer/this"]) == ("xupc", "2.000", "1.5000")


def test_the_header_says_what_the_interval_is() -> None:
    visit = {"cell": 0, "ns": [[2000] * 20, [3000] * 20]}
    once = osu_text.osu(collected(HEAD, begin(), visit))
    assert "1 launch: an interval needs 3" in once
    assert re.search(r"^8 +2.00 +- +- ", once, re.MULTILINE)
    for n in (3, 5):
        assert f"95% interval over {n} launches" in osu_text.osu(
            collected(*(HEAD, begin(), visit) * n)
        )


@pytest.mark.parametrize("launches", [3, 5, 10])
def test_intervals_hold_the_truth_as_often_as_they_say(launches: int) -> None:
    random = np.random.default_rng(7)
    times = random.lognormal(math.log(1e6), 0.1, (1500, launches))
    held = [0, 0]
    for each in times:
        found = stats.median([[t] for t in each])
        against = stats.ratio([[t] for t in each], [[1e6]] * launches)
        assert against is not None
        held[0] += found.low <= 1e6 <= found.high
        held[1] += against.low <= 1.0 <= against.high
    assert all(0.92 <= n / len(times) <= 0.98 for n in held), held


@pytest.mark.parametrize(("launches", "reach"), [(3, 4.302653), (5, 2.776445), (12, 2.200985)])
def test_intervals_are_student_s(launches: int, reach: float) -> None:
    """`reach`: from a table of Student's distribution for launches - 1 degrees of freedom."""
    values = [1.0 + 0.03 * k for k in range(launches)]
    found = stats.ratio([[1e6 * v] for v in values], [[1e6]] * launches)
    logs = [math.log(v) for v in values]
    mean = math.fsum(logs) / launches
    variance = math.fsum((x - mean) ** 2 for x in logs) / (launches - 1)
    half = reach * math.sqrt(variance / launches)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(
        (math.exp(mean - half), math.exp(mean + half)), rel=1e-6
    )


def test_the_worst_of_several_gets_a_wider_interval() -> None:
    above, below = [[104], [106], [103], [107], [101]], [[100]] * 5
    one, of_four = stats.ratio(above, below), stats.ratio(above, below, 0.05 / 4)
    assert one is not None
    assert of_four is not None
    assert one.low > 1.0 > of_four.low - 0.01
    assert of_four.high - of_four.low > 1.3 * (one.high - one.low)


@pytest.mark.parametrize(
    ("low", "value", "high", "expected"),
    [
        (1.01, 1.2, 1.4, "win"), (0.99, 1.2, 1.4, "parity"), (1.0, 1.2, 1.4, "parity"),
        (0.7, 0.9, 1.01, "parity"), (0.7, 0.9, 1.0, "parity"), (0.7, 0.9, 0.99, "LOSS"),
    ],
)  # fmt: skip
def test_the_whole_interval_decides(low: float, value: float, high: float, expected: str) -> None:
    assert stats.verdict(stats.Ratio(value, low, high), 0.0) == expected


@pytest.mark.parametrize("launches", [1, 2])
def test_few_launches_have_no_interval_and_no_verdict(launches: int) -> None:
    found = stats.ratio([[200] * 9] * launches, [[100] * 9] * launches)
    assert found is not None
    assert str(found) == "2.00 (-)"
    assert stats.verdict(found, 0.0) == "not resolvable"
    some = stats.ratio([[200] * 9] * 3, [[100] * 9] * 3)
    assert some is not None
    assert stats.verdict(some, 0.0) == "win"


def test_which_algorithm_was_chosen_is_said_by_size() -> None:
    line = begin(names=("xupc",))
    line["cells"].append({**line["cells"][0], "nbytes": 16})
    line["cells"][0]["candidates"] = [{**line["cells"][0]["candidates"][0], "algorithm": "pull"}]
    line["cells"][1]["candidates"] = [{**line["cells"][0]["candidates"][0], "algorithm": "push"}]
    times = [{"cell": k, "ns": [[2000] * 9]} for k in (0, 1)]
    assert "xupc by pull (8), push (16)" in osu_text.osu(collected(HEAD, line, *times))


def test_nothing_is_measured_twice_nothing_can_be_resolved() -> None:
    found = stats.Ratio(2.0, 1.9, 2.1)
    assert stats.verdict(found, None) == "not resolvable"
    assert stats.verdict(found, 0.01) == "win"
    assert stats.ratio([[1], []], [[], [1]]) is None
    assert stats.ratio([[0, 0], [6]], [[0], [3]]).value == 1.5
    assert stats.spread([[]], [[1]]) is None


def test_opposite_differences_do_not_cancel_each_other() -> None:
    assert stats.spread([[110], [100]], [[100], [110]]) == pytest.approx(0.1)


def test_width_of_a_median_is_that_of_its_ranks() -> None:
    """The 95% interval of the median of 100 values goes from the 40th to the 61st."""
    assert stats.width(range(1, 101)) == pytest.approx(20 / 51, abs=2 / 51)
    assert stats.width([5] * 100) == 0


def test_an_interval_covers_the_spread_between_launches() -> None:
    steady = [[1000 + k % 7 for k in range(200)] for _ in range(5)]
    shifted = [[t + 100 * i for t in times] for i, times in enumerate(steady)]
    one, other = stats.median(steady), stats.median(shifted)
    assert one.low <= one.value <= one.high
    assert one.high - one.low < 10
    assert other.low < 1110
    assert other.high > 1290


def test_the_testbeds_of_the_documents() -> None:
    suite = suites.SUITES["mtu"]
    assert [s.threads for s in suite.shapes] == list(range(2, 16))
    assert suite.settings.sizes == (256 * 4, 65536 * 4)
    assert len(suite.settings.collectives) == 12
    assert [(s.threads, s.nodes) for s in suites.SUITES["xupc"].shapes] == [
        (16, None),
        (64, "4x16"),
    ]
    lines = [HEAD, begin(names=("PUSH", "PULL"))]
    other = json.loads(json.dumps(lines[1]["cells"][0]))
    other["collective"] = "all_gather_x"
    lines[1]["cells"].append(other)
    lines += [{"cell": k, "ns": [[9_000_000, 1100, 3100], [7, 5100, 5100]]} for k in (0, 1)]
    out = suites.mtu_table(collected(*lines)).splitlines()[-1].split()
    assert out == ["gather", "2", "2", *("1.00", "2.00", "5.00", "5.00") * 2]
    lines[-1]["ns"][0] = []
    out = suites.mtu_table(collected(*lines)).splitlines()[-1].split()
    assert out == ["gather", "2", "2", "1.00", "2.00", "5.00", "5.00", "-", "5.00", "5.00"]
    rates = suites.bandwidth_table(collected(*lines))
    assert re.search(r"^8 +5.16 ", rates, re.MULTILINE)  # 16 bytes in 3.1 us


# ---- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "'nothing' is no collective; there are barrier, all_broadcast"),
        (["all_brodcast"], "did you mean all_broadcast"),
        (["-m", "9:8"], "ascending"),
        (["-m", "x"], "no size"),
        (["-n", "0"], "expected numbers of threads"),
        (["-n", "2,x"], "expected numbers of threads"),
        (["-n", "4", "--nodes", "3x2"], "--nodes"),
        (["--flags", "SHOVE"], "'SHOVE': expected some of auto, PULL"),
        (["--sync", "maybe"], "'maybe': expected allsync"),
        (["--dtype", "U8x"], "no numpy type"),
        (["--dtype", "str"], "a type of numbers"),
        (["--op", "FUNC"], "'FUNC': expected some of ADD"),
        (["--root", "x"], "a thread's number, last or rotate"),
        (["-n", "2", "--root", "2"], "there is no thread 2"),
        (["--budget", "soon"], "expected a time"),
        (["--budget", "0"], "expected a time"),
        (["--json", "/none/r.json"], "there is no directory /none"),
        (["all_reduce", "-m", "3:3"], "nothing to measure"),
        (["all_reduce", "--op", "XOR"], "nothing to measure"),
        (["-m", "0,8"], "at least 1"),
        (["--cold", "--loop"], "--cold and --loop"),
        (["--append"], "needs --json"),
        (["-n", "4", "--nodes", "2x2", "--team", "roots", "--root", "2"], "no thread 2 among 2"),
        (["-n", "4", "--nodes", "3,1", "--team", "node", "--root", "1"], "no thread 1 among 1"),
        (["--mpiexec-args", "'"], "No closing quotation"),
        (["all_permute", "Bcast", "--api", "mpi4py"], "all_permute: no method of xupc.Comm"),
        (["allav_suffix_reduce", "--api", "mpi4py"], "allav_suffix_reduce: no method of"),
        (["all_gather", "--api", "mpi4py"], "all_gather: no method of xupc.Comm"),
        (["--plan", "--api", "mpi4py"], "--plan: xupc.Comm has no such choice"),
        (["--flags", "PUSH", "--api", "mpi4py"], "--flags: xupc.Comm has no such choice"),
        (["--sync", "nosync", "--api", "mpi4py"], "--sync: xupc.Comm has no such choice"),
        (["--suite", "mtu", "--api", "mpi4py"], "a suite measures xupc's own calls"),
        (["Allreduce", "-T", "bool", "--op", "ADD", "--api", "mpi4py"], "nothing to measure"),
        (["--api", "mpi"], "'mpi' is not one of 'xupc', 'mpi4py'"),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["bench", *words])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.skipif(core is None, reason="no native core")
def test_the_core_times_a_call_by_python_s_clock() -> None:
    found: list[tuple[int, ...]] = []
    before = time.perf_counter_ns()
    begin, end = core.timed(lambda *a: found.append(a), (1, 2))
    assert before <= begin <= end <= time.perf_counter_ns()
    assert found == [(1, 2)]
    with pytest.raises(ZeroDivisionError):
        core.timed(divmod, (1, 0))


def test_a_sudden_end_keeps_the_file_there_is(tmp_path: Path) -> None:
    path, table = tmp_path / "r.json", tmp_path / "r.csv"
    good = collected(HEAD, begin(), {"cell": 0, "ns": [[2000] * 9, [3000] * 9]})
    output = Output(
        {
            "json_file": path,
            "csv_file": table,
            "suite": None,
            "full": False,
            "tail": False,
            "check": False,
            "compact": False,
        }
    )
    output.write_measured(good)
    before = path.read_bytes(), table.read_bytes()
    assert b"xupc" in before[1]
    output.write_measured(collected(HEAD, begin()))
    assert (path.read_bytes(), table.read_bytes()) == before


@pytest.mark.parametrize("words", [["bench", "--json"], ["bench", "--csv"], ["tune", "--json"]])
def test_a_file_that_exists_is_not_replaced(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is refused before it measures: an hour's result stays."""
    asked: list[object] = []

    def measure(*_: object, **__: object) -> None:
        asked.append("measured")
        raise LaunchError("nothing runs here")

    monkeypatch.setattr(driver, "measure", measure)
    path = tmp_path / "r"
    path.write_text("an earlier result", encoding="utf-8")
    command, option = words
    table = ["-o", str(tmp_path / "table")] if command == "tune" else []
    given = [command, "all_gather", "-n", "2", "-m", "8", *table, option, str(path)]
    done = CliRunner().invoke(main, given)
    assert (done.exit_code, asked) == (2, []), done.output
    assert f"{option} {path}: expected a new file, but it exists" in done.output
    assert path.read_text(encoding="utf-8") == "an earlier result"
    done = CliRunner().invoke(main, [*given, "--force"])
    assert (done.exit_code, asked) == (4, ["measured"]), done.output
    if command == "bench":  # which would read it, and add to it
        done = CliRunner().invoke(main, [*given, "--append", "--json", str(tmp_path / "new")])
        assert (done.exit_code, asked) == (4, ["measured"] * 2), done.output


def test_two_runs_do_not_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    words = ["bench", "all_gather", "-n", "2", "-m", "8", "--json", str(path), "--append"]
    with (tmp_path / "r.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "another run adds launches" in done.output
