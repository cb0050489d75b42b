"""Arrays that a node's threads share, on real threads."""

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
        (3, None),
        (4, "3,1"),
        pytest.param(5, "cyclic:3", marks=ONCE),
    ],
)
def test_node_arrays(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    count = "10" if SLOW_ENGINE else "40"
    program = "tests/live/programs/node_arrays.py"
    result = live(threads, program, nodes=nodes, args=[count], timeout=90)
    assert f"done: {count}" in result.stdout


@pytest.mark.once
def test_named_segments_leave_nothing(live: Callable[..., Any]) -> None:
    """Segments with names, as used without support for files without names, leave no file."""
    program = "tests/live/programs/node_arrays.py"
    result = live(3, program, nodes="2,1", args=["5"], env={"XUPC_NAMED_SEGMENTS": "1"})
    assert "done: 5" in result.stdout


@pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])
def test_what_cannot_be_made_is_told_on_all(live: Callable[..., Any], nodes: str | None) -> None:
    """A dtype that cannot be sent, shapes that numpy cannot make: before anything is made."""
    program = "tests/live/programs/refused_node_arrays.py"
    result = live(3, program, nodes=nodes)
    assert result.stdout.count("refused: ") == 12, result.report()
