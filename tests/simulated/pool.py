"""The processes that simulate many cases, and messages about their progress."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor

import pytest

__all__ = ["Progress", "workers"]

WORKERS = 2
SECONDS_BETWEEN = 120.0


def workers() -> ProcessPoolExecutor:
    """Some processes for cases."""
    return ProcessPoolExecutor(WORKERS)


class Progress:
    """Prints now and then how much is done, past pytest's capture."""

    def __init__(self, capsys: pytest.CaptureFixture[str], what: str, total: int) -> None:
        self._capsys = capsys
        self._what = what
        self._total = total
        self._began = self._told = time.monotonic()

    def tell(self, done: int, failures: int) -> None:
        """Print a line if the last one is old enough."""
        now = time.monotonic()
        if now - self._told < SECONDS_BETWEEN:
            return
        self._told = now
        seconds = now - self._began
        with self._capsys.disabled():
            print(
                f"\n{self._what}: {done:,} of {self._total:,} after {seconds / 60:.0f} min "
                f"({done / seconds:.0f}/s), {failures} fail",
                end="",
                flush=True,
            )
