"""The variants on a circulant graph of nodes, in jobs: many nodes of one thread, uneven nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = "tests/live/programs/circulant.py"


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("threads", "nodes", "engine"),
    [
        (6, "6x1", "native"),
        (7, "3,1,3", "native"),
        pytest.param(7, "cyclic:3", "native", marks=pytest.mark.once),
        pytest.param(5, "5x1", "python", marks=pytest.mark.once),
    ],
)
def test_shared_arrays(live: Callable[..., Any], threads: int, nodes: str, engine: str) -> None:
    done = live(threads, PROGRAM, nodes=nodes, env={"XUPC_ENGINE": engine})
    expected = "broadcast gather_all gather_all_x reduce_mpi reduce_mpi_all reduce_scatter"
    assert done.stdout.split() == expected.split()
