"""Traced programs on other machines: traces written by hand, whose times are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import loggops

from xupc import cli
from xupc.api.algorithms import load_files
from xupc.call_trace.file import load_calls, write
from xupc.call_trace.join import Call, Trace
from xupc.call_trace.operations import groups
from xupc.export.program import program_graph
from xupc.export.schedule import scheduled
from xupc.predict import machine_file
from xupc.predict.candidates import Question, chosen, priced
from xupc.predict.program import ProgramTime, program_time
from xupc.tuning.selection_file import built_in

DEFAULT = machine_file.find("default")
MS = 1_000_000
WORLD = (0, 1, 2, 3)


def call(thread: int, op: int, name: str, began: float, ended: float, **more: object) -> Call:
    """Return a call of a thread; times in ms."""
    about = {"team": 0, "variant": "", "nbytes": 0, "posted": False, **more}
    return Call(
        thread, int(str(about["team"])), op, name, str(about["variant"]),
        int(str(about["nbytes"])), "a.py:1", round(began * MS), round(ended * MS), 0,
        round(ended * MS), 0, (0, 0), bool(about["posted"]), False, False,
    )  # fmt: skip


def traced(calls: Sequence[Call], level: int = 0) -> Trace:
    threads = [
        {"thread": t, "node": t // 2, "host": "h", "finalized": True} for t in WORLD
    ]
    return Trace(threads, list(calls), [], level, max(c.ended for c in calls), [])


def program() -> Trace:
    """Return 4 threads that start, compute for 1 to 4 ms, add up, compute for 2 ms, and meet."""
    reduce = {"nbytes": 4096, "variant": "multicore:nodes"}
    calls = []
    for t in WORLD:
        calls += [
            call(t, 1, "init", 0, 5), call(t, 2, "allav_reduce_all", 6 + t, 10, **reduce),
            call(t, 3, "split", 12, 13), call(t, 4, "barrier", 13, 13.5),
            call(t, 5, "finalize", 14, 15),
        ]  # fmt: skip
    return traced(calls)


def on(trace: Trace, nodes: str, threads: int, factor: float = 1.0) -> ProgramTime:
    load_files()
    asked = Question("", 0, nodes, threads, "mpich", "fabric")
    return program_time(trace, asked, DEFAULT, built_in(), factor)


# --- the trace ----------------------------------------------------------------------------------


def test_the_calls_of_a_file_are_those_that_were_written(tmp_path: Path) -> None:
    trace = program()
    trace.calls.append(call(1, 9, "all_gather", 3, 4, posted=True, nbytes=7))
    write(trace, tmp_path / "t.json")
    found = load_calls(tmp_path / "t.json")
    key = [(c.thread, c.op, c.name, c.nbytes, c.began, c.ended, c.posted) for c in found.calls]
    assert sorted(key) == sorted(
        (c.thread, c.op, c.name, c.nbytes, c.began, c.ended, c.posted) for c in trace.calls
    )
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match="expected a trace"):
        load_calls(tmp_path / "t.json")


def test_operations_are_in_the_order_of_each_thread() -> None:
    """Thread 0 calls on team 1 before it comes to the call of all, for which thread 3 waits."""
    calls = [
        call(0, 1, "barrier", 5, 6, team=1), call(1, 1, "barrier", 4, 6, team=1),
        *(call(t, 2, "barrier", 1 if t > 1 else 7, 8) for t in WORLD),
    ]  # fmt: skip
    assert [sorted(group.calls) for group in groups(calls)] == [[0, 1], [0, 1, 2, 3]]


def test_all_operations_come_even_if_threads_disagree() -> None:
    calls = [call(0, 1, "a", 0, 9), call(0, 2, "b", 1, 2), call(1, 2, "b", 0, 1),
             call(1, 1, "a", 2, 3)]  # fmt: skip
    assert len(list(groups(calls))) == 2


# --- its time -------------------------------------------------------------------------------------


def test_a_program_computes_waits_and_calls() -> None:
    found = on(program(), "2x2", 4)
    assert found.measured == 8.5 * MS  # from 5 to 13.5
    assert found.computing == (2.5 + 2) * MS
    assert found.waiting == 1.5 * MS  # for thread 3, which comes 3, 2, 1 and 0 ms later
    asked = Question("allav_reduce_all", 4096, "2x2", 4, "mpich", "fabric")
    reduce = priced(asked, chosen(asked, built_in()), DEFAULT, built_in())
    times = {c.name: c for c in found.calls}
    assert times["allav_reduce_all"].time == reduce.time
    assert times["allav_reduce_all"].measured == 1 * MS
    assert times["split"].missing == "it has no plan"
    assert times["split"].time == 1 * MS
    assert found.time == pytest.approx(
        6 * MS + reduce.time + 1 * MS + times["barrier"].time
    )
    assert found.low < found.time < found.high


def test_a_factor_scales_the_computation() -> None:
    whole, half = (on(program(), "2x2", 4, factor) for factor in (1.0, 0.5))
    assert half.computing == whole.computing / 2
    assert half.time == pytest.approx(whole.time - 3 * MS)


def test_teams_have_counterparts_on_other_nodes() -> None:
    calls = [call(t, 1, "init", 0, 1) for t in WORLD]
    members = {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (0, 3)}
    for team, threads in members.items():
        calls += [
            call(t, 2 * team, "allav_reduce_all", 2 * team, 2 * team + 1, team=team, nbytes=8)
            for t in threads
        ]
    found = {c.team: c for c in on(traced(calls), "8x4", 32).calls}
    assert set(found) == {"a node", "node roots", "other threads"}
    assert found["a node"].number == 2
    assert found["node roots"].time > found["a node"].time
    assert "counterpart" in found["other threads"].missing
    assert found["other threads"].time == 1 * MS


def test_a_program_on_many_nodes() -> None:
    found = on(program(), "1000x16", 16_000)
    times = {c.name: c for c in found.calls}
    assert times["barrier"].time > 10 * DEFAULT.rates().latency
    assert found.low < found.time < found.high


def test_a_trace_must_be_whole() -> None:
    for trace in (traced(program().calls, level=1), program()):
        trace.missing = [] if trace.level else [3]
        with pytest.raises(ValueError, match="expected a trace of all calls of all threads"):
            on(trace, "2x2", 4)


# --- its exports -----------------------------------------------------------------------------


def test_a_traced_program_is_exported_with_its_computation(tmp_path: Path) -> None:
    load_files()
    rates = DEFAULT.rates()
    graph, kept = program_graph(program(), "mpich", "fabric", built_in(), rates)
    assert kept == {"split": 1}
    _, schedule = scheduled(graph, rates)
    # thread 3 computes 4 ms before the sum, then 2 ms, and 1 ms of split
    assert 7 * MS < max(schedule.ends) < 7.2 * MS
    computed = sum(x.ns for x in graph.operations if x.what == "compute")
    assert computed == 4 * (2.5 + 2) * MS
    write(program(), tmp_path / "t.json")
    done = xupc("export", str(tmp_path / "t.json"), "--format", "goal", "-o", str(tmp_path / "g"))
    assert done.exit_code == 0, done.output
    assert "split (1)" in done.output
    ranks = loggops.read((tmp_path / "g").read_text())
    assert loggops.run(ranks, L=2000, o=400, G=0.08) == pytest.approx(7.1 * MS, rel=0.02)


# --- the commands ----------------------------------------------------------------------------


def xupc(*words: str) -> Result:
    return CliRunner().invoke(cli.main, words)


def test_the_command_prints_a_program(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    write(program(), Path(path))
    done = xupc("predict", path, "--nodes", "64x4", "--machine", "lumi-c")
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "4 threads on 2 nodes, 8.5 ms measured on nodes 64x4, machine lumi-c" in words
    assert "as measured, since it has no plan: split" in words
    data = json.loads(xupc("predict", path, "--nodes", "64x4", "--json").stdout)
    assert data["computing"] == 4.5 * MS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "missing.json", "--nodes", "2x2"], "there is no trace missing.json"),
        (["export", "missing.json", "--format", "goal", "-o", "x"], "there is no trace"),
        (["export", "TRACE", "--format", "chrome", "-o", "x"], "a trace is such a file already"),
        (["export", "TRACE", "--format", "goal", "-o", "x", "--nodes", "2x2"], "its own nodes"),
    ],
)
def test_wrong_traces_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    write(program(), tmp_path / "t.json")
    done = xupc(*(str(tmp_path / "t.json") if word == "TRACE" else word for word in words))
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
