"""Exchanges between neighbours on real threads: grids, random graphs, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.soak import seed

PROGRAM = "tests/live/programs/neighbours.py"
ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (2, None),
        pytest.param(6, None, marks=ONCE),
        (6, "3,1,2"),
        pytest.param(4, "1,1,1,1", marks=ONCE),
    ],
)
def test_neighbours(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    """Every check of the program."""
    result = live(threads, PROGRAM, nodes=nodes, args=[str(seed())], timeout=120)
    assert result.stdout.count("done") == threads
