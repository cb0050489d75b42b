"""The tick timer."""

from __future__ import annotations

import time

import numpy as np
import pytest

import xupc


def test_ticks_never_go_back() -> None:
    ticks = [xupc.ticks_now() for _ in range(10_000)]
    assert ticks == sorted(ticks)
    assert ticks[0] < ticks[-1]


def test_ticks_are_in_range() -> None:
    assert xupc.TICK_MIN < xupc.TICK_MAX
    assert xupc.TICK_MIN <= xupc.ticks_now() <= xupc.TICK_MAX


def test_an_interval_is_real_time() -> None:
    begin = time.monotonic_ns()
    start = xupc.ticks_now()
    time.sleep(0.01)
    ns = xupc.ticks_to_ns(xupc.ticks_now() - start)
    assert 9_000_000 <= ns <= time.monotonic_ns() - begin + 1000


@pytest.mark.parametrize("ticks", [0, 1, 2**53 + 1, 2**63 + 1, xupc.TICK_MAX])
def test_conversion_is_exact(ticks: int) -> None:
    assert xupc.ticks_to_ns(ticks) == ticks
    converted = xupc.ticks_to_ns(np.uint64(ticks))
    assert type(converted) is int
    assert converted == ticks


@pytest.mark.parametrize("ticks", [1.5, "1", None])
def test_only_integers_are_ticks(ticks: object) -> None:
    with pytest.raises(TypeError):
        xupc.ticks_to_ns(ticks)  # type: ignore[arg-type]
