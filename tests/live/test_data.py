"""The collectives' data on real threads: every algorithm, sync mode, size and root."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import amount, sampled

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "sizes", "all_roots", "thin"),
    [
        pytest.param(1, None, [1, 8, 1023, 65537, 1 << 20], True, 1, marks=ONCE),
        pytest.param(2, None, [1, 8, 1023, 65537, (1 << 20) + 3], True, 1, marks=ONCE),
        pytest.param(3, None, [1, 8, 1023, 65537, 1 << 20], True, 2, marks=ONCE),
        pytest.param(4, None, [1, 8, 1023, 65537, (1 << 20) + 3], True, 1),
        pytest.param(7, None, [8, 1023, 65537], False, 1, marks=ONCE),
        pytest.param(8, None, [1, 8, 1023, 262147], False, 1, marks=ONCE),
        pytest.param(2, "2x1", [1, 8, 1023, 65537, 1 << 20], True, 1, marks=ONCE),
        pytest.param(4, "2x2", [1, 8, 1023, 65537, (1 << 20) + 3], True, 2, marks=ONCE),
        pytest.param(4, "3,1", [1, 8, 1023, 65537, 300_001], True, 2),
        pytest.param(4, "cyclic:2", [8, 1023, 65537, 300_001], True, 2, marks=ONCE),
        pytest.param(3, "1,1,1", [1, 8, 1023, 65537, 300_001], True, 2, marks=ONCE),
        pytest.param(8, "cyclic:3", [8, 1023, 65537], False, 2, marks=ONCE),
    ],
)
def test_every_case(
    live: Callable[..., Any],
    threads: int,
    nodes: str | None,
    sizes: list[int],
    all_roots: bool,
    thin: int,
) -> None:
    thin *= 8 if SLOW_ENGINE else amount(3, 1)
    options = {"sizes": sizes, "all_roots": all_roots, "thin": thin}
    result = live(
        threads,
        f"{PROGRAMS}/collectives_at_random.py",
        nodes=nodes,
        args=[json.dumps(options)],
        env={"XUPC_HEAP_SIZE": "256KiB"},
        timeout=90,
    )
    assert "done: " in result.stdout


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "repetitions"),
    [
        pytest.param(2, None, 60, marks=ONCE),
        (4, None, 16),
        pytest.param(5, None, 12, marks=ONCE),
        (3, "2,1", 4),
        pytest.param(4, "cyclic:2", 3, marks=ONCE),
    ],
)
def test_promises_of_the_sync_modes(
    live: Callable[..., Any], threads: int, nodes: str | None, repetitions: int
) -> None:
    count = 2 if SLOW_ENGINE else sampled(repetitions, 2)
    result = live(
        threads, f"{PROGRAMS}/sync_modes.py", nodes=nodes, args=[json.dumps(count)], timeout=90
    )
    assert "done: " in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        (4, None),
        pytest.param(3, "2,1", marks=ONCE),
        (4, "cyclic:2"),
    ],
)
def test_plans_and_pointers(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/plans.py", nodes=nodes, timeout=60)
    assert "done: " in result.stdout
