"""Loops over `f(p + i*k)` on real threads: data, errors, differences, and what a loop leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE

ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        pytest.param(2, None, marks=ONCE),
        (3, "2,1"),
    ],
)
def test_calls_at_new_addresses(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    loop = 8 if SLOW_ENGINE else 16
    program = "tests/live/programs/new_addresses.py"
    result = live(threads, program, nodes=nodes, args=[str(loop)], timeout=90)
    assert f"done: {loop}" in result.stdout
