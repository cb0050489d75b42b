"""IN_PLACE on real threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import sampled

ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "cases"),
    [
        pytest.param(1, None, 60, marks=ONCE),
        (3, None, 200),
        pytest.param(4, None, 200, marks=ONCE),
        (4, "3,1", 80),
        pytest.param(4, "cyclic:2", 60, marks=ONCE),
        pytest.param(5, "2,2,1", 60, marks=ONCE),
    ],
)
def test_in_place(live: Callable[..., Any], threads: int, nodes: str | None, cases: int) -> None:
    count = str(cases // 4 if SLOW_ENGINE else sampled(cases, 3))
    program = "tests/live/programs/in_place.py"
    result = live(threads, program, nodes=nodes, args=[count], timeout=120)
    assert f"done: {count}" in result.stdout
