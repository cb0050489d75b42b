"""Planning at 10,000 nodes x 128 threads: no plan is O(threads), none takes long."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from simulated.matrix import MEANING, arguments

from xupc.algorithms import Entry, registered
from xupc.plan import Plan, Recorder
from xupc.plan.draw import step_text
from xupc.plan.steps import Ranks, Signal, Step
from xupc.topology import Tree

NODES, PER_NODE = 10_000, 128
TUNING = {
    "chunk": 131072,
    "ring": 131072,
    "tell": 131072,
    "message": 131072,
    "get_piece": 65536,
    "window": 16,
    "lead": 1024,
    "messages": 10000,
    "fuse": 4096,
    "chain": 65536,
    "flat": 8,
}
ROOT = 5 * PER_NODE + 3
THREADS = {
    "the root": ROOT,
    "its node root": 5 * PER_NODE,
    "a node root": 7000 * PER_NODE,
    "a plain thread": 7000 * PER_NODE + 77,
    "the last thread": NODES * PER_NODE - 1,
}
SIZES = {"8 B": 8, "1 MiB": 1 << 20}
MOST_BYTES = 10 * 10**6
MOST_STEPS = 100_000
HANGS = 5.0

PLACEMENTS: dict[str, Callable[[], NDArray[np.int32]]] = {
    "blocks": lambda: np.repeat(np.arange(NODES, dtype=np.int32), PER_NODE),
    "cyclic": lambda: np.tile(np.arange(NODES, dtype=np.int32), PER_NODE),
}


@pytest.fixture(scope="module", params=list(PLACEMENTS))
def tree(request: pytest.FixtureRequest) -> Tree:
    """10,000 nodes, their threads in a row or dealt round."""
    return Tree(PLACEMENTS[request.param]())


class Bounded(Recorder):
    """A recorder that gives up before memory does."""

    def _add(self, step: Step) -> None:
        super()._add(step)
        if sum(map(len, self._lanes)) > MOST_STEPS:
            raise TooManyStepsError(f"more than {MOST_STEPS} steps, the next {step_text(step)}")


class TooManyStepsError(Exception):
    """A plan grows with the number of threads, or of bytes."""


def _plan(entry: Entry, me: int, tree: Tree, nbytes: int) -> Plan:
    sync = ("my", "my")  # the most steps
    recorder = Bounded(me, tree, sync, TUNING)
    entry.function(recorder, *arguments(entry.collective, tree.size, ROOT, nbytes))
    return recorder.plan(entry.collective, entry.name)


CASES = [
    pytest.param(e, size, id=f"{e.collective}-{e.name}-{size}")
    for e in registered()
    for size in SIZES
    if size == "8 B" or MEANING[e.collective].rooted
]


@pytest.mark.parametrize(("entry", "size"), CASES)
def test_plans_stay_small(
    entry: Entry, size: str, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under 10 MB for each kind of thread; the time is printed."""
    figures = []
    for who, me in THREADS.items():
        began = time.perf_counter()
        _plan(entry, me, tree, SIZES[size])
        seconds = time.perf_counter() - began
        tracemalloc.start()
        plan = _plan(entry, me, tree, SIZES[size])
        nbytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        figures.append((who, sum(map(len, plan.lanes)), nbytes, seconds))
    with capsys.disabled():
        _, steps, nbytes, seconds = max(figures, key=lambda f: f[2])
        slowest = max(f[3] for f in figures)
        print(
            f"\n{entry.collective} {entry.name} {size}: at most {steps} steps, "
            f"{nbytes / 1e6:.3f} MB, {slowest * 1e3:.1f} ms",
            end="",
        )
    for who, _, nbytes, seconds in figures:
        assert nbytes < MOST_BYTES, f"{who}: {nbytes / 1e6:.1f} MB"
        assert seconds < HANGS, f"{who}: {seconds:.1f} s"


def test_the_measure_sees_a_large_plan() -> None:
    """A plan of 100,000 steps would not pass unnoticed."""
    tracemalloc.start()
    plan = tuple(Signal(0, Ranks(0), i) for i in range(100_000))
    nbytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan) == 100_000
    assert nbytes > 4 * 10**6
