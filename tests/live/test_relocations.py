"""The `_v` and `_x` forms on real threads: lists of all kinds, wrong ones, plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import amount

ONCE = pytest.mark.once
SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("threads", "nodes", "sizes", "thin"),
    [
        pytest.param(1, None, [1, 40], 8, marks=ONCE),
        pytest.param(3, "2,1", [40], 24, marks=ONCE),
        pytest.param(3, None, [1, 40, 40_000], 3, marks=SOAK),
        pytest.param(4, "2x2", [1, 40, 20_000], 4, marks=[ONCE, SOAK]),
        pytest.param(4, "3,1", [40, 20_000], 4, marks=SOAK),
        pytest.param(7, "cyclic:3", [40, 5000], 8, marks=[ONCE, SOAK]),
        pytest.param(3, "1,1,1", [40, 20_000], 8, marks=[ONCE, SOAK]),
    ],
)
def test_lists(
    live: Callable[..., Any], threads: int, nodes: str | None, sizes: list[int], thin: int
) -> None:
    options = {"sizes": sizes, "thin": thin * (8 if SLOW_ENGINE else amount(2, 1))}
    result = live(
        threads,
        "tests/live/programs/relocations.py",
        nodes=nodes,
        args=[json.dumps(options)],
        env={"XUPC_HEAP_SIZE": "256KiB"},
        timeout=90,
    )
    assert "done: " in result.stdout
