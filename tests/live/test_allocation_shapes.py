"""Shared arrays with several axes on real threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, None), (4, "3,1")])
def test_rows_are_dealt(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, "tests/live/programs/shapes.py", nodes=nodes, timeout=60)
    assert result.stdout.count("done") == threads, result.report()


@pytest.mark.parametrize("threads", [1, 2])
def test_range_errors_count_in_elements(live: Callable[..., Any], threads: int) -> None:
    result = live(threads, "tests/live/programs/range_errors.py", timeout=60)
    assert result.stdout.count("done") == threads, result.report()
