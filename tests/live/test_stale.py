"""Copies of pointers whose memory was freed, and pointers that are kept in a team's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/stale_pointers.py"
PLACES = pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])


def run(live: Callable[..., Any], case: str, nodes: str | None) -> None:
    result = live(3, PROGRAM, args=[case], nodes=nodes)
    assert result.stdout.count("done: all") == 3, result.report()


@PLACES
def test_pointers_in_a_team_s_array(live: Callable[..., Any], nodes: str | None) -> None:
    """They lead to any heap; those that lead to none are refused."""
    run(live, "pointers_in_an_array", nodes)


@PLACES
def test_freed_twice_through_a_copy(live: Callable[..., Any], nodes: str | None) -> None:
    run(live, "freed_twice", nodes)


@PLACES
def test_memory_of_a_freed_team(live: Callable[..., Any], nodes: str | None) -> None:
    run(live, "memory_of_a_freed_team", nodes)
