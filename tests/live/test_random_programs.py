"""Random programs on real threads, many in one launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.random_programs.program import parse
from support.random_programs.shapes import KEPT, LABELS, launch_many, launch_these
from support.soak import WHOLE, amount, figure, seed, share

SAMPLE = {"0011": 24, "000": 60, "01201": 16}
WHOLE_SHAPE = 700
LAUNCH = 100


@pytest.mark.soak
@pytest.mark.parametrize("labels", LABELS if WHOLE else list(SAMPLE))
def test_programs_do_what_the_oracle_says(
    live: Callable[..., Any], tmp_path: Path, labels: str
) -> None:
    """Half of them with small chunks; 700 on each of 15 shapes, 10,500 in all, in the soak."""
    some = share(SAMPLE.get(labels, 0))
    count = amount(6, 100) if SLOW_ENGINE else amount(some, WHOLE_SHAPE)
    first, began = seed() * 1_000_000, time.monotonic()
    for i in range(0, count, LAUNCH):
        seeds = range(first + i, first + min(i + LAUNCH, count))
        half = len(seeds) // 2
        launch_many(live, tmp_path, labels, seeds[:half], timeout=250)
        launch_many(live, tmp_path, labels, seeds[half:], timeout=250, small=True)
    seconds = time.monotonic() - began
    figure(
        f"random programs, live, {len(labels)} threads on nodes {labels}",
        f"{count} of {count} right, seeds from {first} ({seconds:.0f} s)",
    )


@pytest.mark.once
@pytest.mark.parametrize("file", [
    pytest.param(file, id=file.stem) for file in sorted(KEPT.glob("*.txt"))
    if not file.stem.startswith("simulated_")
])  # fmt: skip
def test_programs_that_failed_once(live: Callable[..., Any], tmp_path: Path, file: Path) -> None:
    launch_these(live, tmp_path, [parse(file.read_text())] * 3)
