"""Exclusive scans on real threads: shared and private arrays, values, plans, posted calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.soak import seed, share

PROGRAM = "tests/live/programs/exclusive_scans.py"


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [(1, None), (2, None), (4, None), (4, "2,2"), (5, "2,1,2"), (4, "cyclic:3")],
)
def test_every_form(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    words = [str(seed() + threads), str(share(60))]
    result = live(threads, PROGRAM, nodes=nodes, args=words, timeout=120)
    assert result.stdout.count("done") == threads, result.report()
