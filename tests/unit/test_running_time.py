"""The time of a wait, without that in which the process was stopped."""

from __future__ import annotations

import time

import pytest

from xupc.backends.running_time import GAP_NS, RunningTime


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic_ns", found)
    return found


def test_time_between_looks_counts(clock: Clock) -> None:
    running = RunningTime()
    for _ in range(40):
        clock.now += GAP_NS // 4
        running.look()
    assert running.look() == pytest.approx(10 * GAP_NS * 1e-9)


def test_a_stop_counts_as_one_gap(clock: Clock) -> None:
    running = RunningTime()
    clock.now += GAP_NS // 2
    running.look()
    clock.now += 3600 * GAP_NS
    assert running.look() == pytest.approx(1.5 * GAP_NS * 1e-9)
    assert running.since == 5_000 + 3599 * GAP_NS
    clock.now += GAP_NS // 2
    assert running.look() == pytest.approx(2.0 * GAP_NS * 1e-9)
