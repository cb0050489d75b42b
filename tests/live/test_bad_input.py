"""Bad arguments raise the named error on every thread, and nothing is broken afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        pytest.param(2, None, marks=ONCE),
        (4, None),
        (3, "2,1"),
        pytest.param(4, "cyclic:2", marks=ONCE),
    ],
)
def test_every_bad_argument(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, "tests/live/programs/bad_input.py", nodes=nodes, timeout=150)
    assert "done: " in result.stdout
