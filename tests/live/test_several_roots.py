"""Calls with several roots per node in jobs: even and uneven nodes, nodes of fewer threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = "tests/live/programs/several_roots.py"


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("nodes", "roots", "engine"),
    [
        ("2x3", "2,3", "native"),
        ("3,1,2", "2,4", "native"),
        pytest.param("cyclic:2", "2", "native", marks=pytest.mark.once),
        pytest.param("2x2", "2,3", "python", marks=pytest.mark.once),
    ],
)
def test_calls(live: Callable[..., Any], nodes: str, roots: str, engine: str) -> None:
    """Every byte is right, in all forms."""
    threads = 4 if nodes == "2x2" else 6
    done = live(threads, PROGRAM, args=[roots], nodes=nodes, env={"XUPC_ENGINE": engine})
    shared = "broadcast broadcast_in_place exchange gather_all reduce_mpi_all"
    private = "broadcast exchange exchange_in_place gather_all reduce_all"
    expected = [*shared.split(), *(f"allav_{name}" for name in private.split())]
    assert done.stdout.split() == sorted(expected)
