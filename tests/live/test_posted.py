"""Posted calls of several teams: their order, their ends, and errors if they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = "tests/live/programs/posted_calls.py"
ONCE = pytest.mark.once


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("what", "threads", "nodes"),
    [
        ("mixed", 4, "2x2"),
        pytest.param("mixed", 4, "3,1", marks=ONCE),
        ("crosswise", 2, None),
        ("crosswise", 3, "2,1"),
        ("behind_a_split", 4, None),
        pytest.param("behind_a_split", 4, "2x2", marks=ONCE),
        pytest.param("never_blocks", 2, None, marks=ONCE),
        ("never_blocks", 2, "1,1"),
        ("free_with_parts", 2, None),
        ("free_with_parts", 4, "2x2"),
        ("dropped", 3, None),
        pytest.param("dropped", 3, "2,1", marks=ONCE),
        pytest.param("dropped_elsewhere", 2, None, marks=ONCE),
        ("at_the_end", 3, None),
        pytest.param("at_the_end", 3, "2,1", marks=ONCE),
        ("dropped_on_a_part", 3, None),
        pytest.param("dropped_on_a_part", 4, "2x2", marks=ONCE),
        ("against_others", 2, None),
        ("against_others", 3, "2,1"),
        ("functions_inside", 2, "1,1"),
        pytest.param("context", 2, None, marks=ONCE),
        ("context", 2, "1,1"),
        ("difference_and_split", 3, "1,1,1"),
        pytest.param("numbers", 3, "2,1", marks=ONCE),
    ],
)
def test_posted(live: Callable[..., Any], what: str, threads: int, nodes: str | None) -> None:
    result = live(threads, PROGRAM, nodes=nodes, args=[what, "20"], timeout=60)
    assert result.stdout.count("done") == threads


def test_an_interrupt_between_the_steps_of_a_call(live: Callable[..., Any]) -> None:
    result = live(3, PROGRAM, args=["interrupted", "20"], expect=None, timeout=40)
    assert result.stdout.count("done") == 3, result.report()


@pytest.mark.waits
@ONCE
def test_the_timeout_holds_inside_mpi(live: Callable[..., Any]) -> None:
    result = live(3, PROGRAM, args=["stopped", "2"], expect="failure", timeout=40, via="xupc run")
    assert "HangError: split" in result.stderr, result.report()
