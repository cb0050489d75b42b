"""Calls that differ between threads are found and named, and calls that do not are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import amount, sampled

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(2, None, marks=ONCE),
        pytest.param(3, None, marks=ONCE),
        (4, None),
        (3, "2,1"),
        pytest.param(3, "1,1,1", marks=ONCE),
        pytest.param(4, "cyclic:2", marks=ONCE),
        pytest.param(7, "4,3", marks=ONCE),
    ],
)
def test_every_difference(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    times = "1" if nodes or SLOW_ENGINE else str(amount(1, 3))
    result = live(threads, f"{PROGRAMS}/mismatch.py", nodes=nodes, args=[times], timeout=120)
    assert "done: " in result.stdout


@pytest.mark.waits
@pytest.mark.parametrize(
    "nodes", [None, "2,1", pytest.param("1,1,1", marks=ONCE)]
)
def test_errors_that_are_caught(live: Callable[..., Any], nodes: str | None) -> None:
    result = live(3, f"{PROGRAMS}/caught_errors.py", nodes=nodes)
    assert result.stdout.count("done") == 3


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "calls"),
    [
        pytest.param(2, None, 100_000, marks=ONCE),
        (4, None, 20_000),
        pytest.param(3, "2,1", 8_000, marks=ONCE),
        (4, "cyclic:2", 4_000),
    ],
)
def test_no_false_alarm(
    live: Callable[..., Any], threads: int, nodes: str | None, calls: int
) -> None:
    count = calls // 20 if SLOW_ENGINE else sampled(calls, 10)
    args = [str(count), str(20_240_611 + threads)]
    result = live(threads, f"{PROGRAMS}/no_false_alarm.py", nodes=nodes, args=args, timeout=120)
    assert f"done: {count}" in result.stdout


@pytest.mark.waits
@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(3, None, marks=ONCE), (3, "2,1"), pytest.param(4, "cyclic:2", marks=ONCE)],
)
def test_being_late_is_no_mismatch(live: Callable[..., Any], threads: int, nodes: str) -> None:
    result = live(threads, f"{PROGRAMS}/late_threads.py", nodes=nodes, timeout=90)
    assert "done: " in result.stdout


@pytest.mark.waits
@pytest.mark.parametrize("whose", ["world", pytest.param("team", marks=ONCE), "in each call"])
def test_no_notice_stays_on_a_freed_communicator(live: Callable[..., Any], whose: str) -> None:
    """The thread that was late has not read the notices when the communicator ends."""
    result = live(3, f"{PROGRAMS}/message_left.py", nodes="2,1", args=[whose])
    assert result.stdout.count("done") == 3, result.report()
