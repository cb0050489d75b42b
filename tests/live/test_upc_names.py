"""The documents' examples in their own names, and typed names on data of another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ONCE = pytest.mark.once


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [
        pytest.param(1, None, marks=ONCE),
        pytest.param(3, None, marks=ONCE),
        (4, None),
        pytest.param(3, "2,1", marks=ONCE),
    ],
)
def test_the_documents_examples(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, "tests/live/programs/upc_names.py", nodes=nodes, timeout=90)
    assert "done: " in result.stdout


def test_none_is_left_out(live: Callable[..., Any]) -> None:
    assert "left out:\n" in live(2, "tests/live/programs/upc_names.py", timeout=90).stdout
