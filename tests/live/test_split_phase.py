"""A thread that has notified keeps no other waiting, whatever it does until it waits itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.launch import SOON, Result, launch

PROGRAM = "tests/live/programs/notify_and_wait.py"


@pytest.mark.parametrize("nodes", [None, "2x1"])
def test_threads_that_wait_for_each_other_are_told_at_once(nodes: str | None) -> None:
    result = launch(2, PROGRAM, nodes=nodes, args=["crosswise"])
    assert result.returncode != 0, result.report()
    assert "threads wait for each other" in result.stderr, result.report()
    assert result.seconds < SOON, result.report()


@pytest.mark.parametrize("nodes", [None, "3x1", "2,1", "1,2"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_another_team_meets_between_notify_and_wait(
    live: Callable[..., Result], nodes: str | None, first: int
) -> None:
    result = live(3, PROGRAM, nodes=nodes, args=["another_team", str(first)])
    assert result.stdout.split() == 3 * ["done"], result.report()


@pytest.mark.parametrize(
    ("threads", "nodes"), [(3, None), (4, "2x2"), (11, "11x1")], ids=["one node", "2x2", "11x1"]
)
def test_a_thread_is_away_between_notify_and_wait(
    live: Callable[..., Result], tmp_path: Path, threads: int, nodes: str | None
) -> None:
    """It comes back when all others have ended their waits; 11 nodes need several rounds."""
    args = ["away", "0", "1", str(tmp_path)]
    result = live(threads, PROGRAM, nodes=nodes, args=args)
    assert sorted(result.stdout.split()) == ["back", *(threads - 1) * ["over"]], result.report()
