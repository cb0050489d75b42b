"""Exchanges between neighbours on real threads: grids, random graphs, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.soak import seed
from support.speed import SLOW

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


@pytest.mark.rotates
@pytest.mark.parametrize("nodes", [None, pytest.param("2,2", marks=ONCE)])
@pytest.mark.parametrize(
    ("how", "words"), [("dies", "DeadThreadError: thread 1"), ("waits", "HangError")]
)
def test_a_thread_does_not_come(
    live: Callable[..., Any], how: str, words: str, nodes: str | None
) -> None:
    """Its neighbours report its death, or the call that they wait in."""
    result = live(
        4, "tests/live/programs/neighbours_fail.py", nodes=nodes, args=[how], via="xupc run",
        env={"XUPC_TIMEOUT": f"{3 * SLOW:g}"}, expect="failure",
    )  # fmt: skip
    assert words in result.stderr, result.report()
    assert "allav_neighbour_exchange" in result.stderr, result.report()
