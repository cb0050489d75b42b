"""The clock around a call, a load between two calls, and the file of what was measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from xupc.backends.native.native_core import core

__all__ = ["Lines", "keep_busy", "timer_of"]


def keep_busy(rounds: int) -> None:
    """Compute for some time without use of the caches."""
    total = 0
    for k in range(rounds):
        total += k * k


def _timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int, int]:
    """Return the clock before and after a call."""
    clock = time.perf_counter_ns
    begin = clock()
    function(*arguments)
    return begin, clock()


def timer_of(team: Any) -> Callable[..., tuple[int, int]]:
    """Return the timer of calls: the core's, at half the cost, if its clock is Python's."""
    same = "CLOCK_MONOTONIC)" in time.get_clock_info("perf_counter").implementation
    return core.timed if team.native and same else _timed


class Lines:
    """Write a file of JSON lines; each is in the file when `write` returns."""

    def __init__(self, path: Path) -> None:
        self.file: IO[str] = path.open("w", encoding="utf-8")

    def write(self, found: dict[str, Any]) -> None:
        """Write one more line."""
        self.file.write(json.dumps(found, separators=(",", ":")) + "\n")
        self.file.flush()
