"""What a machine can do, found by trying."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from xupc.backends.native.native_core import core
from xupc.bench import host_decision, host_probe
from xupc.bench.host_decision import LONG, PAST, Launch
from xupc.tuning import probes
from xupc.tuning.host_figures import HUGE, NO_LIMIT, HostFigures

pytestmark = pytest.mark.skipif(core is None, reason="the native core tries")


class Comm:
    """A communicator of this process and perhaps others, which are made up."""

    def __init__(self, *others: tuple[int, int, bytes]) -> None:
        self.others = others

    def allgather(self, row: Any) -> list[Any]:
        return [row, *self.others]

    def Barrier(self) -> None:
        """Return at once: this is the only process."""


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_a_thread_reaches_itself() -> None:
    assert probes.pids_in_reach(Comm()) == [os.getpid()]


def test_a_process_of_the_same_number_is_not_taken_for_a_thread() -> None:
    room = (b"x" * probes.NONCE, b"y" * probes.NONCE)
    address = id(room[0]) + bytes.__basicsize__ - 1
    assert probes.pids_in_reach(Comm((os.getpid(), address, room[1]))) is None


def test_memory_that_may_be_read_only_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def across(pid: int, here: int, there: int, nbytes: int, out: bool) -> int:
        return 1 if out else core.across(pid, here, there, nbytes, out)

    monkeypatch.setattr(probes, "core", type("Core", (), {"across": staticmethod(across)}))
    assert probes.pids_in_reach(Comm()) is None


def test_who_is_gone_is_out_of_reach() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert probes.pids_in_reach(Comm((pid, 4096, b"z" * probes.NONCE))) is None


# --- figures of a host ----------------------------------------------------------------------------

USUAL = HostFigures(host_decision.SIZES[1], host_decision.SIZES[1], 0, 0)


def launches(
    rows: Sequence[Sequence[float]], reduced: Sequence[float] = (), past: Sequence[float] = ()
) -> list[Launch]:
    """One launch per row of gains, as logarithms by size, equal for both kinds of pages and moves.

    `reduced` and `past` are ratios, one per launch, equal for all sizes; without them 1.
    """
    ones = [1.0] * len(rows)
    return [
        Launch([[list(np.exp(row))] * 2] * 2, [r] * len(LONG), [p] * len(PAST))
        for row, r, p in zip(rows, reduced or ones, past or ones, strict=True)
    ]


@pytest.mark.parametrize(
    ("gains", "first"),
    [
        ([-1] * 5, 5),
        ([1] * 5, 0),
        ([-1] * 2 + [1] * 3, 2),
        ([-1, -1, -0.4, 1, -1.5], 5),
        ([-1] * 4 + [0.1], 4),
        ([-1] + [1] * 4, None),  # the usual one
    ],
)
def test_the_size_from_which_it_pays(gains: list[float], first: int | None) -> None:
    noise = [[gain + 0.01 * k for gain in gains] for k in range(3)]
    found = host_decision.decided(launches(noise), USUAL)
    size = None if first is None else [*host_decision.SIZES, 2 * host_decision.SIZES[-1]][first]
    assert (found.get("direct_min"), found.get("direct_min_pair")) == (size, size)


@pytest.mark.parametrize("rows", [[[-1] * 5] * 2, [[-1] * 5, [1] * 5, [-1] * 5, [1] * 5, [-1] * 5]])
def test_few_launches_and_launches_that_differ_decide_nothing(rows: list[list[float]]) -> None:
    ratios = [0.5, 1.5, 0.5, 1.5, 0.5][: len(rows)]
    assert host_decision.decided(launches(rows, ratios, ratios), USUAL) == {}


def test_long_blocks_are_likelier_in_huge_pages() -> None:
    def start(huge: float, small: float) -> int | None:
        noise = np.array([0.99, 1.0, 1.01])[:, None]
        both = np.stack([np.exp(noise * [huge] * 5), np.exp(noise * [small] * 5)], axis=1)
        return host_decision.best_start(both, host_decision.SIZES[0])

    assert start(1.1, -1) == host_decision.SIZES[2]  # the middle
    assert start(0.5, -1) == host_decision.SIZES[3]
    assert start(-1.1, 1) == 2 * host_decision.SIZES[-1]


@pytest.mark.parametrize(
    ("ratios", "taken"),
    [([0.7, 0.71, 0.72], True), ([0.88, 0.9, 0.92], False), ([0.5, 0.9, 0.6], False)],
)
def test_other_ways_are_taken_if_they_are_certainly_faster(
    ratios: list[float], taken: bool
) -> None:
    found = host_decision.decided(launches([[0.0] * 5] * 3, ratios), USUAL)
    assert found == ({"direct_reduce": 1} if taken else {})
    found = host_decision.decided(launches([[0.0] * 5] * 3, past=ratios), USUAL)
    assert found == ({"nt_store_min": PAST[0]} if taken else {})


def test_copies_past_the_cache_may_pay_from_the_larger_size_on() -> None:
    some = [Launch([[[1.0] * 5] * 2] * 2, [1.0] * 2, [1.0, r]) for r in (0.5, 0.51, 0.52)]
    assert host_decision.decided(some, USUAL) == {"nt_store_min": PAST[1]}


def test_tuned_sizes_are_least_ones() -> None:
    tuning = {
        "direct_min": 8, "direct_min_pair": 9000, "direct_min_alltoall": 10,
        "direct_min_shared_source": 100, "direct_reduce_max": 7, "x": 5,
    }  # fmt: skip
    assert HostFigures(32, 64, 0, 0).within(tuning, 4) == {
        "direct_min": 32, "direct_min_pair": 9000, "direct_min_alltoall": 64,
        "direct_min_shared_source": 100, "direct_reduce_max": 7, "x": 5,
    }  # fmt: skip


def test_blocks_of_long_arrays_are_taken_anyway() -> None:
    sizes = (
        "direct_min",
        "direct_min_pair",
        "direct_min_alltoall",
        "direct_min_shared_source",
        "direct_reduce_max",
    )
    tuning = dict.fromkeys(sizes, 1)
    never = HostFigures(2 * HUGE, 2 * HUGE, 1, 0)
    two, eight = never.within(tuning, 2), never.within(tuning, 8)
    assert (two["direct_min"], two["direct_min_pair"]) == (HUGE, HUGE // 2)
    assert eight["direct_min"] == eight["direct_min_alltoall"] == HUGE // 8
    assert two["direct_min_shared_source"] == eight["direct_min_shared_source"] == 2 * HUGE
    assert two["direct_reduce_max"] == eight["direct_reduce_max"] == NO_LIMIT


def test_ratios_of_copies_past_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: copies past the cache take 2 units, others 1, the longer ones 4."""
    now = [0]

    class Core:
        @staticmethod
        def copy_bytes(dst: int, src: int, nbytes: int, past: bool) -> None:
            now[0] += 2 if past else 4 if nbytes == PAST[1] else 1

    monkeypatch.setattr(host_probe, "core", Core)
    monkeypatch.setattr(host_probe.time, "perf_counter_ns", lambda: now[0])
    assert host_probe.past_the_cache() == [2.0, 0.5]
