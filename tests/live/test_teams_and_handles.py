"""Teams and posted calls on real threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from launch import SLOW_ENGINE

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once


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
    rounds = [2, 3] if SLOW_ENGINE else [5, 8]
    result = live(
        threads, f"{PROGRAMS}/teams.py", nodes=nodes, args=[json.dumps(rounds)], timeout=90
    )
    assert result.stdout.count("done, seed") == threads


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
    rounds = 4 if SLOW_ENGINE else 15
    result = live(
        threads, f"{PROGRAMS}/handles.py", nodes=nodes, args=[json.dumps(rounds)], timeout=90
    )
    assert "done: " in result.stdout
