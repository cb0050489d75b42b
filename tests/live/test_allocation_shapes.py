"""Shared arrays with several axes on real threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, None), (4, "3,1")])
def test_rows_are_dealt(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, "tests/live/programs/shapes.py", nodes=nodes, timeout=60)
    assert result.stdout.count("done") == threads, result.report()
