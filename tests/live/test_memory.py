"""The shared heap, shared arrays and pointers on real threads; start and end of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.launch import PROJECT, SLOW_ENGINE
from support.soak import WHOLE, amount

PROGRAMS = "tests/live/programs"
EXITS = f"{PROGRAMS}/exits_inside_with.py"
ONCE = pytest.mark.once
WHOLE_ONLY = [ONCE, pytest.mark.skipif(
    not WHOLE, reason="test_memory_trust does the same on several nodes; alone under scripts/soak"
)]  # fmt: skip
PLACES = pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (3, None),
        (4, "3,1"),
        pytest.param(4, "cyclic:2", marks=ONCE),
        pytest.param(3, "1,1,1", marks=ONCE),
    ],
)


@PLACES
def test_memory(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/memory.py", nodes=nodes, timeout=60)
    assert "done: " in result.stdout


@PLACES
def test_start_and_end(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(
        threads, f"{PROGRAMS}/start_and_end.py", nodes=nodes, timeout=60, own_job=True
    )  # it looks at what is imported before init
    assert result.stdout.count("ended: ") == threads


@pytest.mark.once
@pytest.mark.parametrize("status", [(), ("0",)])
def test_a_good_exit_inside_with_waits_for_all(live: Callable[..., Any], status: Any) -> None:
    result = live(3, EXITS, args=status)
    assert "late but not lost" in result.stdout
    assert not result.stderr


@pytest.mark.once
def test_a_bad_exit_inside_with_ends_the_job(live: Callable[..., Any]) -> None:
    live(3, EXITS, args=["3"], expect=3, via="xupc run")


@PLACES
def test_accesses_against_numpy(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    rounds = 3 if nodes or SLOW_ENGINE else 12
    args = [str(rounds), str(100 + threads)]
    result = live(threads, f"{PROGRAMS}/accesses_at_random.py", nodes=nodes, args=args, timeout=90)
    assert "done: " in result.stdout


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "cycles"),
    [pytest.param(2, None, 500, marks=ONCE), (3, None, 200), (3, "2,1", 100)],
)
def test_nothing_grows(
    live: Callable[..., Any], threads: int, nodes: str | None, cycles: int
) -> None:
    count = 100 if SLOW_ENGINE else min(cycles, amount(150, cycles))
    args = [str(count), "memory"]
    result = live(
        threads, f"{PROGRAMS}/memory_growth.py", nodes=nodes, args=args, timeout=90 + count / 5,
        own_job=True,
    )  # fmt: skip
    assert f"done: {count}" in result.stdout


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "cycles"),
    [(2, None, 150), pytest.param(3, "2,1", 60, marks=WHOLE_ONLY)],
)
def test_dropped_teams_are_given_back(
    live: Callable[..., Any], threads: int, nodes: str | None, cycles: int
) -> None:
    if nodes is None:
        cycles = amount(cycles, 5000)  # of two teams each
    args = [str(40 if SLOW_ENGINE else cycles), "dropped"]
    env = {"UCX_MEM_EVENTS": "n", "MALLOC_ARENA_MAX": "2"}
    result = live(
        threads, f"{PROGRAMS}/memory_growth.py", nodes=nodes, args=args, env=env,
        timeout=90 + cycles,
    )  # fmt: skip
    assert f"done: {args[0]}" in result.stdout


@pytest.mark.once
def test_importing_is_light() -> None:
    """No MPI, and nothing slower than numpy: the modules that come with it are few."""
    program = "tests/live/programs/modules_of_an_import.py"
    run = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True, timeout=60,
        cwd=PROJECT,
    )  # fmt: skip
    assert run.stdout.split() == []
