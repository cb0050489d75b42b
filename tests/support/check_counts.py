"""Counts the checks of a run: assertions that passed in test modules, and simulations of plans.

pytest has the hook `pytest_assertion_pass`, for which it would format each assertion, large results
among them. The call before that is counted here, so nothing is formatted. Modules that were
compiled without the hook lack the call: use a fresh folder for bytecode.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from functools import wraps
from typing import Any

import pytest
from _pytest.assertion import rewrite

from xupc.backends.simulator.simulator import Simulation

__all__ = ["CheckCounts"]


class CheckCounts:
    """A plugin that counts, in this process and in those that it forks."""

    title = "checks"

    def __init__(self, config: pytest.Config) -> None:
        if not config.getini("enable_assertion_pass_hook"):
            raise pytest.UsageError("--check-counts: add -o enable_assertion_pass_hook=true")
        self.assertions = 0
        self.simulations: Any = multiprocessing.Value("q")
        rewrite._check_if_assertion_pass_impl = self._passed
        kind: Any = Simulation
        run, count = kind.run, self.simulations

        @wraps(run)
        def counted(simulation: Simulation, **how: bool) -> None:
            with count.get_lock():
                count.value += 1
            run(simulation, **how)

        kind.run = counted

    def _passed(self) -> bool:
        self.assertions += 1
        return False

    @property
    def found(self) -> dict[str, int]:
        """Return the counts of this process."""
        return {"assertions": self.assertions, "simulations": self.simulations.value}

    def add(self, more: Mapping[str, int]) -> None:
        """Add what a worker has counted."""
        self.assertions += more.get("assertions", 0)
        self.simulations.value += more.get("simulations", 0)

    def lines(self) -> list[str]:
        """Return the counts as text."""
        return [", ".join(f"{number:,} {what}" for what, number in self.found.items())]
