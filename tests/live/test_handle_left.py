"""A handle without a wait at the end of a program that otherwise succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = "tests/live/programs/handle_left.py"
WORDS = "finalize: handles without a wait: allav_gather_all"


@pytest.mark.parametrize("how", ["with", "exit"])
def test_the_end_warns(live: Callable[..., Any], how: str) -> None:
    """The results are there, so the status is 0; each thread warns once."""
    result = live(2, PROGRAM, args=[how], timeout=60, own_job=True)
    assert result.stderr.count(f"RuntimeWarning: {WORDS}") == 2, result.report()
    assert "was abandoned" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("how", "words"), [("finalize", WORDS), ("differ", "flags differs")])
def test_finalize_raises(live: Callable[..., Any], how: str, words: str) -> None:
    """And an error of the call is raised at any end."""
    result = live(2, PROGRAM, args=[how], timeout=60, own_job=True, expect="failure")
    assert words in result.stderr, result.report()
