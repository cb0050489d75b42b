"""The processes that simulate many cases, and messages about their progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["Progress", "failures_of", "naming", "workers"]

WORKERS = 2
SECONDS_BETWEEN = 120.0


def workers() -> ProcessPoolExecutor:
    """Some processes for cases."""
    return ProcessPoolExecutor(WORKERS)


def failures_of(cases: Sequence[Any], every: int) -> list[str]:
    """Run cases, one in so many under a random schedule too; failures as text."""
    failures = []
    for i, case in enumerate(cases):
        try:
            case.run(also=None if i % every else case.seed)
        except Exception as problem:
            failures.append(f"{case}\n  {type(problem).__name__}: {str(problem)[:3000]}")
    return failures


@contextmanager
def naming(case: object) -> Iterator[None]:
    """Add a case to an error that is raised inside."""
    try:
        yield
    except Exception as problem:
        problem.add_note(f"case: {case}")
        raise


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
