"""Code of the user's that comes within a call, and what it may do there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.launch import SLOW_ENGINE

PROGRAM = "tests/live/programs/user_code_in_calls.py"
ONCE = pytest.mark.once
# Else a call that both threads have left on different teams, one each, is not to be had.
LED = pytest.mark.skipif(SLOW_ENGINE, reason="no native core")


@pytest.mark.parametrize(
    ("what", "threads", "nodes"),
    [
        ("finalizers", 3, None),
        ("finalizers", 2, "1,1"),
        ("in_a_thread_of_xupc", 2, None),
        ("in_a_thread_of_xupc", 2, "1,1"),
        ("freed_in_a_function", 2, "1,1"),
        pytest.param("freed_in_a_function", 2, None, marks=ONCE),
        ("allocated_in_a_function", 2, None),
        pytest.param("each_others_memory", 2, "1,1", marks=LED),
        ("odd_errors", 3, "2,1"),
        ("where_it_was_posted", 2, "1,1"),
        ("waited_again", 2, None),
        pytest.param("waited_again", 2, "1,1", marks=ONCE),
        ("between_the_lines", 2, "1,1"),
        pytest.param("no_finalizer", 1, None, marks=ONCE),
        pytest.param("late_with_warnings_as_errors", 2, None, marks=ONCE),
    ],
)
def test_inside(
    live: Callable[..., Any], tmp_path: Path, what: str, threads: int, nodes: str | None
) -> None:
    """Without errors, but where the job is to break."""
    expect = None if what == "waited_again" else 0
    own = what == "each_others_memory"  # it chooses MPI's thread level
    result = live(
        threads, PROGRAM, nodes=nodes, args=[what, str(tmp_path)], expect=expect, timeout=60,
        own_job=own,
    )  # fmt: skip
    assert result.stdout.count("done") == threads, result.report()


@pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])
def test_the_status_of_an_interrupt(
    live: Callable[..., Any], tmp_path: Path, nodes: str | None
) -> None:
    """A thread that waited for the interrupted one has another status, and may end first."""
    args = ["interrupted_first", str(tmp_path)]
    result = live(3, PROGRAM, nodes=nodes, args=args, expect=130, timeout=40, via="xupc run")
    assert "KeyboardInterrupt" in result.stderr, result.report()
