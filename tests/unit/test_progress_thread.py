"""The progress thread starts when it is first needed, by any caller, and never again."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from support.launch import BUSY

from xupc.runtime import async_queue
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
    deadline = time.monotonic() + BUSY * 10
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


def test_any_line_of_a_wake_up_can_be_interrupted_by_another(job: Any) -> None:
    """Finalizers and signal handlers run between two lines, in the daemon thread, too."""
    progress = Progress(job)

    def at_each_line(*_: object) -> Any:
        progress.serve(time.monotonic() + 60)
        return at_each_line

    def wake() -> None:
        sys.settrace(at_each_line)
        progress.wake()

    threading.settrace(at_each_line)  # of the daemon thread
    try:
        waker = threading.Thread(target=wake, daemon=True)
        waker.start()
        waker.join(BUSY * 10)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert not waker.is_alive()
    assert until(lambda: job.network.entered > 2)
    assert threads() == 1
    progress.stop()
    assert threads() == 0


def test_an_end_within_the_start_does_not_wait_for_ever(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler ends xupc before the daemon thread runs."""
    progress = Progress(job)
    start = threading.Thread.start

    def end_first(thread: threading.Thread) -> None:
        progress.stop()
        start(thread)

    monkeypatch.setattr(async_queue, "STARTS", 0.1)
    monkeypatch.setattr(threading.Thread, "start", end_first)
    progress.wake()
    assert until(lambda: not threads())
