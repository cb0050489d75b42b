"""Memory and objects that calls use: changed, freed or called back meanwhile, in exact numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cases import checks
from support.launch import SLOW_ENGINE
from support.soak import WHOLE, amount

Live = Callable[..., Any]
MEMORY = "tests/live/programs/drop_in_memory.py"
NUMBERS = "tests/live/programs/exact_numbers.py"


MPI_OWN = frozenset(("lists_of_requests", "dropped", "forked", "attributes"))
"""Checks of what xupc keeps for the calls that it carries; mpi4py does not for those of MPI."""


def shapes() -> list[tuple[int, str | None, str]]:
    """Return threads, nodes and check for each test of the memory of calls."""
    found = [] if SLOW_ENGINE else [(2, None, check) for check in checks(MEMORY)]
    return found + [(3, "2,1", check) for check in checks(MEMORY) if check not in MPI_OWN]


@pytest.mark.rotates
@pytest.mark.parametrize(("n", "nodes", "check"), shapes())
def test_memory_of_calls(live: Live, n: int, nodes: str | None, check: str) -> None:
    """``XUPC_COMM=force``: a call has what it uses until it ends, whatever the program does."""
    words = [check, "--by-mpi"] if nodes else [check]
    result = live(n, MEMORY, args=words, nodes=nodes, env={"XUPC_COMM": "force"}, own_job=True)
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.soak
@pytest.mark.parametrize("kinds", [[], *([["each"]] if WHOLE else [])])
def test_exact_numbers(live: Live, kinds: list[str]) -> None:
    """Objects of MPI and xupc in any number: all calls work, and nothing grows."""
    words = [str(amount(40, 140)), str(amount(1, 2)), *kinds]
    env = {"XUPC_COMM": "force"}
    timeout = amount(60, 1800)
    result = live(2, NUMBERS, args=words, env=env, own_job=True, timeout=timeout)
    assert result.stdout.count("done") == 2, result.report()
