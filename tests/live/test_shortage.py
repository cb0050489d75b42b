"""Descriptors or address space run short on one thread: an error on all, and on it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to set limits")
ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/resource_limits.py"


@pytest.mark.parametrize(
    ("call", "victim", "what", "more", "nodes"),
    [
        ("growth", 1, "space", 20 << 20, None),
        ("array", 0, "descriptors", 0, None),
        ("broadcast", 1, "descriptors", 0, None),
        pytest.param("growth", 0, "space", 20 << 20, None, marks=ONCE),
        pytest.param("growth", 0, "descriptors", 0, None, marks=ONCE),
        pytest.param("growth", 2, "descriptors", 0, "2,1", marks=ONCE),
        pytest.param("array", 0, "space", 20 << 20, None, marks=ONCE),
        pytest.param("array", 1, "space", 20 << 20, "2,1", marks=ONCE),
        pytest.param("array", 2, "descriptors", 0, "2,1", marks=ONCE),
        pytest.param("broadcast", 2, "space", 90 << 20, None, marks=ONCE),
        pytest.param("broadcast", 1, "descriptors", 0, "2,1", marks=ONCE),
    ],
)
def test_a_thread_runs_short(
    live: Callable[..., Any],
    tmp_path: Path,
    call: str,
    victim: int,
    what: str,
    more: int,
    nodes: str | None,
) -> None:
    args = ["one_call", call, str(victim), what, str(more)]
    for named in ("0", "1"):
        env = {"XUPC_SHM_DIR": str(tmp_path), "XUPC_NAMED_SEGMENTS": named}
        result = live(3, PROGRAM, args=args, nodes=nodes, env=env)
        assert result.stdout.count("refused: ") == 3, result.report()
        assert result.stdout.count("done: again") == 3, result.report()
        assert list(tmp_path.iterdir()) == []


def test_teams_until_descriptors_run_out(live: Callable[..., Any]) -> None:
    """Each thread's limit ends another thread's turn: all see the same error."""
    result = live(3, PROGRAM, args=["many_teams"], own_job=True)  # the limits stay
    assert result.stdout.count("refused: ") == 3, result.report()
    assert result.stdout.count("team.free()") == result.stdout.count("ulimit -n") == 3
    assert result.stdout.count("done: again") == 3, result.report()
