"""Collectives that one thread makes alone, on real threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE

ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes", "calls"),
    [
        pytest.param(1, None, 40, marks=ONCE),
        (3, None, 80),
        (4, "3,1", 16),
        pytest.param(5, "cyclic:3", 12, marks=ONCE),
    ],
)
def test_one_caller(
    live: Callable[..., Any], threads: int, nodes: str | None, calls: int
) -> None:
    count = str(calls // 4 if SLOW_ENGINE else calls)
    program = "tests/live/programs/one_sided.py"
    result = live(threads, program, nodes=nodes, args=[count], timeout=90)
    assert f"done: {count}" in result.stdout
