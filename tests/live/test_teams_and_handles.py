"""Teams and posted calls on real threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE, mpi_family
from support.soak import amount, sampled

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (4, None),
        (5, "3,2"),
        pytest.param(7, "3,1,3", marks=ONCE),
        pytest.param(8, "cyclic:3", marks=ONCE),
    ],
)
def test_random_teams(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    rounds = [2, 3] if SLOW_ENGINE else [amount(3, 5), amount(5, 8)]
    result = live(
        threads, f"{PROGRAMS}/teams.py", nodes=nodes, args=[json.dumps(rounds)], timeout=90
    )
    assert result.stdout.count("done, seed") == threads


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (4, None),
        (3, "2,1"),
        pytest.param(7, "cyclic:3", marks=ONCE),
    ],
)
def test_handles(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    rounds = 4 if SLOW_ENGINE else sampled(15, 2)
    result = live(
        threads, f"{PROGRAMS}/handles.py", nodes=nodes, args=[json.dumps(rounds)], timeout=90
    )
    assert "done: " in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(1, None, marks=ONCE), (3, None), (3, "2,1"), pytest.param(4, "2x2", marks=ONCE)],
)
def test_dropped_teams(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/dropped_teams.py", nodes=nodes, timeout=120)
    assert result.stdout.count("done: ") == threads, result.report()


@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (3, "2,1")])
def test_calls_that_differ_on_a_dropped_team(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    result = live(threads, f"{PROGRAMS}/dropped_teams.py", nodes=nodes, args=["differ"])
    assert result.stdout.count("done: ") == threads, result.report()


@pytest.mark.skipif(mpi_family() != "mpich", reason="Open MPI has communicators enough")
@pytest.mark.parametrize(
    ("threads", "nodes"), [(2, None), pytest.param(3, "2,1", marks=ONCE)]
)
def test_no_more_communicators(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    program = f"{PROGRAMS}/communicators_run_out.py"
    result = live(threads, program, nodes=nodes, timeout=90, own_job=True)
    assert result.stdout.count("done") == threads, result.report()
    enough = 1 if nodes is None else 3
    for free in (0, 1, 2):
        assert result.stdout.count(f"refused {free // enough}") >= threads, result.report()


@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (3, "2,1")])
def test_handles_are_awaited(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    """Tasks of asyncio wait for calls under way, and for plans."""
    result = live(threads, f"{PROGRAMS}/awaited.py", nodes=nodes)
    assert result.stdout.count("done") == threads, result.report()
