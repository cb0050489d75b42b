"""More nodes than send straight to each other: trees of nodes, and distances that double."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.launch import Result

PROGRAM = "tests/live/programs/many_nodes.py"


@pytest.mark.parametrize("nodes", ["12x1", "2,1,1,1,1,2,1,1,1,1"])
def test_results_on_many_nodes(live: Callable[..., Result], nodes: str) -> None:
    result = live(12, PROGRAM, nodes=nodes, timeout=90)
    assert result.stdout.split() == ["right"] * 12, result.report()
