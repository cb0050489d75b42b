"""A waiting thread yields its core, whatever call it waits in and whatever thread it waits for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from support.launch import Result

from xupc.backends.native.native_core import core

NATIVE = core is not None and os.environ.get("XUPC_ENGINE", "auto") != "python"
PROGRAM = "tests/live/programs/processor_time_of_waits.py"


@pytest.mark.parametrize("nodes", [None, "2,2", "1,3"])
@pytest.mark.parametrize("late", [0, 3])
def test_who_waits_gives_its_core_away(
    live: Callable[..., Result], nodes: str | None, late: int
) -> None:
    """It sleeps, but for a look at MPI, or at its handles, now and then if some are under way."""
    result = live(4, PROGRAM, nodes=nodes, args=[str(late)])
    shares = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(shares) == 3 * 9, result.report()
    for name, _, share, _ in shares:
        sleeps = NATIVE and nodes is None and name != "handle"
        assert share < (0.1 if sleeps else 0.5), result.report()
