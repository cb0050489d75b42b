"""Traces of jobs: it is known beforehand which thread is late, and the trace must name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.failing_jobs import by_thread
from support.launch import PROJECT, RUNS, launch

from xupc.call_trace.file import load
from xupc.call_trace.join import Trace, join
from xupc.call_trace.layout import folder_of

ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/late_thread.py"
PYTHON = {"XUPC_ENGINE": "python"}
Live = Callable[..., Any]


def line(name: str, program: str = PROGRAM) -> str:
    """The text of a trace for a line that is marked with a name."""
    rows = (PROJECT / program).read_text().splitlines()
    number = next(i for i, row in enumerate(rows, 1) if row.endswith(f"# LINE {name}"))
    return f":{number} in <module>"


def traced(
    live: Live, path: Path, late: int, way: str = "ends", *, nodes: str | None = "2,1", n: int = 3,
    env: dict[str, str] | None = None, expect: int | str = 0,
) -> Any:  # fmt: skip
    """Run the program with a trace; one that ends well runs in the pool."""
    env = {"XUPC_TRACE": str(path), **(env or {})}
    return live(n, PROGRAM, args=[str(late), way], nodes=nodes, env=env, expect=expect)


def blamed(trace: Trace, at: str) -> set[int]:
    """The threads that calls at a line waited for, most of the time."""
    totals = [total for total in trace.totals if total.line.endswith(at)]
    causes: dict[int, int] = {}
    for total in totals:
        assert total.waited <= total.ns
        for thread, ns in total.causes.items():
            causes[thread] = causes.get(thread, 0) + ns
    whole = sum(causes.values())
    return {thread for thread, ns in causes.items() if ns > 0.8 * whole}


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("late", "nodes", "env"),
    [
        (0, "2,1", {}), (1, "2,1", {}), (2, "2,1", {}), (2, None, {}),
        pytest.param(1, None, {}, marks=ONCE), pytest.param(1, "2,1", PYTHON, marks=ONCE),
    ],
)  # fmt: skip
def test_a_trace_names_the_thread_that_was_late(
    live: Live, late: int, nodes: str | None, env: dict[str, str], tmp_path: Path
) -> None:
    for turn in range(RUNS):  # a busy machine may have another thread come even later
        path = tmp_path / f"{turn}.json"
        traced(live, path, late, nodes=nodes, env=env)
        assert not folder_of(path).exists()
        slices = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
        mine = [e for e in slices if e.get("args", {}).get("line", "").endswith(line("late"))]
        assert sorted(e["tid"] for e in mine) == [0, 1, 2]
        others = [e["args"] for e in mine if e["tid"] != late]
        if all(e.get("waited for thread") == late for e in others):
            break
    assert blamed(load(path), line("late")) == {late}
    assert all(e["waited for thread"] == late and e["bytes"] == 64 for e in others)
    assert all(e["waited ns"] > 10_000_000 for e in others)  # a wait is seen after 50 ms
    assert {e["args"]["variant"].partition(":")[0] for e in mine} <= {"pull", "push", "multicore"}


@ONCE
def test_a_line_is_found_below_more_frames_than_the_core_remembers(
    live: Live, tmp_path: Path
) -> None:
    program = "tests/live/programs/deep_stack.py"
    path = tmp_path / "t.json"
    live(2, program, env={"XUPC_TRACE": str(path)})
    (total,) = [t for t in load(path).totals if t.line.endswith(line("deep", program))]
    assert total.calls == 2 * 3


@pytest.mark.parametrize("nodes", ["2,1", pytest.param(None, marks=ONCE)])
def test_a_posted_call_waits_only_while_the_program_does(
    live: Live, nodes: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    traced(live, path, 1, "posted", nodes=nodes)
    assert blamed(load(path), line("posted")) == {1}


@pytest.mark.parametrize("env", [{}, pytest.param(PYTHON, marks=ONCE)])
def test_after_a_kill_the_parts_have_all_calls(
    live: Live, env: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    traced(live, path, 1, "killed", env=env, expect="failure")
    assert not path.exists()
    trace = join(folder_of(path))
    running = [call for call in trace.calls if call.running]
    assert [call.line for call in running if not call.line.endswith(line("late"))] == []
    ended = [call for call in trace.calls if call.thread == 1 and call.name == "all_broadcast"]
    assert len(ended) == 1
    inside = [call for call in trace.calls if call.line.endswith(line("late"))]
    assert {call.thread for call in inside} == {0, 2}
    assert {call.cause for call in inside} == {1}


def test_xupc_run_joins_what_a_dead_job_leaves(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    given = ["--trace", str(path)]
    result = launch(
        3, PROGRAM, args=["1", "killed"], nodes="2,1", via="xupc run", launcher_args=given
    )
    assert result.returncode != 0
    assert f"{path} has the calls up to the end of each thread" in result.stderr
    assert blamed(load(path), line("late")) == {1}
    result = launch(3, PROGRAM, args=["1", "ends"], via="xupc run", launcher_args=given)
    assert result.returncode == 2
    assert "expected a new file, but it exists" in result.stderr
    given.append("--force")
    plain = tmp_path / "plain.py"
    plain.write_text("print('without xupc')\n")
    result = launch(1, plain, via="xupc run", launcher_args=given)
    assert "nothing was recorded" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize("what", ["many", pytest.param("plain", marks=ONCE)])
def test_a_trace_counts_the_calls_that_mpi_carried(what: str, tmp_path: Path) -> None:
    """Those of the warm-up; a program without others has no trace."""
    path = tmp_path / "t.json"
    program = "tests/live/programs/mpi_program.py"
    given = ["--mpi", "--trace", str(path)]
    result = launch(2, program, args=[what], via="xupc run", launcher_args=given)
    if what == "plain":
        assert "nothing was recorded: no communicator opened a team" in result.stderr
        return
    trace = load(path)
    (beside,) = trace.elsewhere
    assert (beside["name"], beside["calls"]) == ("Barrier", 2 * 64), trace.elsewhere
    assert beside["why"].startswith("warm-up"), trace.elsewhere
    assert sum(total.calls for total in trace.totals if total.name == "barrier") == 2 * 3


@ONCE
def test_many_calls_take_a_bounded_file_and_are_all_counted(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    traced(live, path, 1, "many", n=2, nodes=None)
    trace = load(path)
    (total,) = [total for total in trace.totals if total.line.endswith(line("many"))]
    assert total.calls == 2 * 20_000
    assert total.nbytes == total.calls * 64
    assert trace.level >= 1
    assert path.stat().st_size < 40e6


@pytest.mark.rotates
@pytest.mark.parametrize("case", ["a directory", "no directory", "a file in the way"])
def test_a_bad_path_is_an_error_on_every_thread(live: Live, case: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    if case == "a directory":
        path.mkdir()
    elif case == "no directory":
        path = tmp_path / "none" / "t.json"
    else:
        folder_of(path).write_text("")
    result = traced(live, path, 1, expect="failure")
    words = "ValueError: init: XUPC_TRACE: expected a file that can be written, got"
    assert by_thread(result.stderr).count(words) == 3, result.report()


@pytest.mark.parametrize("env", [{}, pytest.param(PYTHON, marks=ONCE)])
def test_nothing_stays_open(live: Callable[..., Any], env: dict[str, str], tmp_path: Path) -> None:
    env = {"XUPC_TRACE": str(tmp_path / "t.json"), **env}
    result = live(2, "tests/live/programs/traces_close.py", env=env)
    assert result.stdout.count("closed") == 2, result.report()


@pytest.mark.parametrize("env", [{}, PYTHON])
def test_hooks_get_each_call_once(live: Live, env: dict[str, str]) -> None:
    result = live(2, "tests/live/programs/hooks.py", env=env)
    assert result.stdout.count("good") == 2, result.report()
