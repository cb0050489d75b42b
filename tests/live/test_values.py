"""Arrays of values on real threads: data, guards, differing calls, wrong arguments, scalars."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

PROGRAMS = "tests/live/programs"
SLOW_ENGINE = os.environ.get("XUPC_ENGINE") == "python"
ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes", "cases"),
    [
        pytest.param(1, None, 60, marks=ONCE),
        (2, None, 120),
        pytest.param(5, None, 80, marks=ONCE),
        pytest.param(4, "2x2", 80, marks=ONCE),
        (4, "cyclic:3", 80),
        pytest.param(3, "1,1,1", 60, marks=ONCE),
    ],
)
def test_every_form(live: Callable[..., Any], threads: int, nodes: str | None, cases: int) -> None:
    count = cases // 8 if SLOW_ENGINE else cases
    args = [str(count), str(10 * threads + len(nodes or ""))]
    result = live(threads, f"{PROGRAMS}/values.py", nodes=nodes, args=args, timeout=120)
    assert f"done: {count}" in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(1, None, marks=ONCE), (2, None), (3, "2,1")],
)
def test_scalars_and_errors(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/values_errors.py", nodes=nodes, timeout=120)
    assert "done" in result.stdout
