"""The `_v` calls on private arrays on real threads: calls, plans, posted calls, teams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = "tests/live/programs/uneven_values.py"


@pytest.mark.parametrize(
    ("threads", "nodes"), [(1, None), (2, None), (4, None), (4, "2,2"), (3, "2,1")]
)
def test_every_form(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, PROGRAM, nodes=nodes, args=[str(threads), "40"], timeout=120)
    assert result.stdout.count("done") == threads, result.report()


@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (2, None), (3, None), (4, "2,2")])
def test_calls_that_repeat_earlier_ones(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    program = "tests/live/programs/uneven_repeated.py"
    result = live(threads, program, nodes=nodes, timeout=120)
    assert result.stdout.count("done") == threads, result.report()


@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (4, "3,1")])
def test_sizes_that_differ(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    """Every thread raises an error that names the thread and both numbers, and continues."""
    program = "tests/live/programs/uneven_values_errors.py"
    result = live(threads, program, nodes=nodes, timeout=120)
    assert result.stdout.count("done") == threads, result.report()
