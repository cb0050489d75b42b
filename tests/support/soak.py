"""How much the tests of trust try, with which seed, and the figures they print.

A test marked ``soak`` takes a sample in an ordinary run and the whole under ``scripts/soak``. It
reports its result, a number, with `figure`; all figures are printed at the end of the run, and
docs/reliability.md cites them. A run of ``scripts/test`` takes a share of the largest samples, with
a seed of the commit: `share` and `share_of` here, and `support.rotation` for parameters.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = [
    "FIGURES", "FULL_MATRIX", "ONE_OF", "WHOLE", "amount", "figure", "part", "sampled", "seed",
    "share", "share_of",
]  # fmt: skip

Trial = TypeVar("Trial")

WHOLE = bool(os.environ.get("XUPC_TEST_SOAK"))
FULL_MATRIX = bool(os.environ.get("XUPC_TEST_FULL_MATRIX"))
"""Whether simulated tests that sample a matrix of cases run all of it: minutes on two cores."""
SHARE = os.environ.get("XUPC_TEST_SHARE") or "1/1"
ONE_OF = 1 if WHOLE else int(SHARE.removeprefix("1/"))
"""A run has one of so many of what rotates: 1 is all of it."""
FIGURES: list[tuple[str, str]] = []

_SEED = int(os.environ.get("XUPC_TEST_SEED") or (random.randrange(1 << 31) if WHOLE else 1))


def amount(sample: int, whole: int) -> int:
    """Return how many trials to make: `sample`, or `whole` under scripts/soak."""
    return whole if WHOLE else sample


def sampled(whole: int, divisor: int) -> int:
    """Return how many random cases to try: a fraction, or all of them under scripts/soak."""
    return whole if WHOLE else max(1, whole // divisor)


def share(count: int) -> int:
    """Return how many of so many random cases a run tries, at least one: its seed draws others."""
    return max(1, count // ONE_OF)


def share_of(cases: Sequence[Trial]) -> list[Trial]:
    """Return a share of the cases, in their order: at least one, others for each seed."""
    drawn = random.Random(f"{seed()} {len(cases)}").sample(range(len(cases)), share(len(cases)))
    return [cases[i] for i in sorted(drawn)]


def part(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Return those of a part: every eighth from the third on if ``XUPC_TEST_SOAK_PART=3/8``.

    The parts add up, whatever their seeds, so a long test need not be run in one go.
    """
    number, parts = map(int, os.environ.get("XUPC_TEST_SOAK_PART", "1/1").split("/"))
    return trials[number - 1 :: parts] if WHOLE else trials


def seed() -> int:
    """Return this run's seed: ``XUPC_TEST_SEED``, or 1, or under scripts/soak a new one."""
    return _SEED


def figure(promise: str, found: str) -> None:
    """Have the run print, at its end, what a test found out about a promise."""
    FIGURES.append((promise, found))
