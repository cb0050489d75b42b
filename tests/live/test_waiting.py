"""A waiting thread yields its core, whatever call it waits in and whatever thread it waits for."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest
from support import waiting
from support.launch import Result

from xupc.backends.native.native_core import core

NATIVE = core is not None and os.environ.get("XUPC_ENGINE", "auto") != "python"


@pytest.mark.parametrize("nodes", [None, "2,2", "1,3"])
@pytest.mark.parametrize("late", [0, 3])
def test_who_waits_gives_its_core_away(
    live: Callable[..., Result], nodes: str | None, late: int
) -> None:
    """It sleeps, but for a look at MPI, or at its handles, now and then if some are under way."""

    def limit(call: str) -> float:
        sleeps = NATIVE and nodes is None and call != "handle"
        return 0.1 if sleeps else 0.5

    waiting.check_waits(partial(live, 4, waiting.PROGRAM, nodes=nodes, args=[str(late)]), 3, limit)
