"""Every collective x every argument x the odd thread x the placement: N of N differences are found.

The table of calls is programs/differing_calls.py, the program programs/differing_call_trials.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.failing_jobs import by_thread
from support.launch import SLOW_ENGINE
from support.soak import amount, figure, seed, share

pytestmark = pytest.mark.soak

ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/differing_call_trials.py"


@pytest.mark.parametrize(
    ("threads", "nodes", "sample"),
    [
        (4, None, 150),
        pytest.param(2, None, 60, marks=ONCE),
        pytest.param(4, "3,1", 60, marks=ONCE),
        (4, "cyclic:2", 40),
        pytest.param(5, "2,1,2", 30, marks=ONCE),
    ],
)
def test_every_difference_is_found(
    live: Callable[..., Any], threads: int, nodes: str | None, sample: int
) -> None:
    few = SLOW_ENGINE or nodes is not None
    count = amount(share(sample // 2 if SLOW_ENGINE else sample), 600 if few else 0)
    options = json.dumps({"seed": seed(), "count": count, "odd": None})
    result = live(threads, PROGRAM, nodes=nodes, args=[options], timeout=amount(90, 1500))
    found = json.loads(result.stdout.rpartition("done: ")[2])
    figure(
        f"mismatches found, {threads} threads on {nodes or 'one node'}",
        f"{found['trials'] - found['failed']} of {found['trials']}, each on all threads, "
        f"the longest after {found['longest']:.2f} s ({found['slow']})",
    )
    assert found["failed"] == 0, result.report()


@pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])
def test_calls_on_different_teams_wait_in_a_circle(
    live: Callable[..., Any], nodes: str | None
) -> None:
    program = "tests/live/programs/calls_on_different_teams.py"
    result = live(3, program, nodes=nodes, expect="failure", via="xupc run")
    errors = by_thread(result.stderr)
    said = errors.count("HangError: threads wait for each other: ")
    said += errors.count("HangError: thread ")
    assert said >= 3, result.report()
    figure(f"calls on different teams, {nodes or 'one node'}", f"seen after {result.seconds:.1f} s")


@pytest.mark.parametrize(
    ("threads", "nodes", "sample", "whole"),
    [
        pytest.param(2, None, 2_000, 1_000_000, marks=ONCE),
        pytest.param(4, "3,1", 300, 30_000, marks=ONCE),
    ],
)
def test_good_calls_are_left_alone(
    live: Callable[..., Any], threads: int, nodes: str | None, sample: int, whole: int
) -> None:
    calls = amount(share(sample), whole)
    result = live(
        threads, "tests/live/programs/no_false_alarm.py", nodes=nodes,
        args=[str(calls), str(seed())], timeout=amount(60, 1500),
    )  # fmt: skip
    assert f"done: {calls}" in result.stdout
    figure(f"false alarms, {threads} threads on {nodes or 'one node'}", f"0 in {calls} good calls")
