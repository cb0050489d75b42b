"""The progress thread starts when it is first needed, by any caller, and never again."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from xupc.runtime.async_queue import Progress


class Network:
    """Counts the calls that enter MPI."""

    def __init__(self) -> None:
        self.entered = 0

    def enter(self) -> None:
        self.entered += 1


@pytest.fixture
def job() -> Any:
    return SimpleNamespace(broken=None, pending=[], network=Network())


def threads() -> int:
    return sum(t.name == "xupc-progress" for t in threading.enumerate())


def until(what: Any) -> bool:
    deadline = time.monotonic() + 10
    while not what() and time.monotonic() < deadline:
        time.sleep(0.001)
    return bool(what())


def test_it_starts_once_however_many_ask(job: Any) -> None:
    progress = Progress(job)
    assert threads() == 0
    line = threading.Barrier(8)

    def ask() -> None:
        line.wait()
        progress.serve(time.monotonic() + 60)

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for each in askers:
        each.start()
    for each in askers:
        each.join()
    assert threads() == 1
    assert until(lambda: job.network.entered > 2)
    progress.stop()
    assert threads() == 0


@pytest.mark.parametrize("served", [False, True], ids=["never started", "started before"])
def test_who_asks_after_the_end_starts_nothing(job: Any, served: bool) -> None:
    progress = Progress(job)
    if served:
        progress.serve(time.monotonic() + 60)
        assert until(lambda: job.network.entered)
    progress.stop()
    before = job.network.entered
    progress.serve(time.monotonic() + 120)
    progress.wake()
    time.sleep(0.01)
    assert threads() == 0
    assert job.network.entered == before
