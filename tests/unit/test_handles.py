"""Handles of calls that are over: what they raise, what they equal, when they warn."""

from __future__ import annotations

import asyncio
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from xupc.api import handles


class Over:
    """Stand in for a call that is over, as far as a handle looks at it."""

    done = True
    call = "all_gather()"

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.abandoned = False
        self.team = SimpleNamespace(job=SimpleNamespace(unfinished={self}, broken=None))

    def abandon(self) -> None:
        self.abandoned = True


def handle(error: BaseException | None = None) -> Any:
    return handles.Handle(Over(error))  # type: ignore[arg-type]


def test_wait_raises_the_error_of_the_call() -> None:
    failed = handle(ValueError("of the call"))
    for way in (failed.wait, failed.test, failed.wait):
        with pytest.raises(ValueError, match="of the call"):
            way()


def test_wait_all_raises_the_first_error_and_waits_for_all() -> None:
    three = [handle(ValueError("first")), handle(KeyError("second")), handle()]
    with pytest.raises(ValueError, match="first"):
        handles.wait_all(three)
    assert all(each == handles.COMPLETE for each in three)


def test_a_call_that_is_over_is_complete_after_wait_alone() -> None:
    good = handle()
    assert good.done
    assert good != handles.COMPLETE
    good.wait()
    assert good == handles.COMPLETE


class Later(Over):
    """Stand in for a call that is over after some tests."""

    def __init__(self, tests: int, error: BaseException | None = None) -> None:
        super().__init__(error)
        self.tests = tests
        job = self.team.job
        job.check, job.check_outside, job.progress = (lambda *a, **k: None), print, self.progress

    def progress(self, wait: bool) -> None:
        self.tests -= 1

    @property
    def done(self) -> bool:  # type: ignore[override]
        return self.tests <= 0


@pytest.mark.parametrize("tests", [0, 5, 103])
def test_a_handle_can_be_awaited_while_other_tasks_run(tests: int) -> None:
    late = handles.Handle(Later(tests))  # type: ignore[arg-type]
    steps = 0

    async def other() -> None:
        nonlocal steps
        while not late.done:
            steps += 1
            await asyncio.sleep(0)

    async def both() -> None:
        running = asyncio.create_task(other())
        await asyncio.sleep(0)
        await late
        await handles.COMPLETE
        await running

    asyncio.run(both())
    assert late == handles.COMPLETE
    assert steps >= tests // 2


def test_await_raises_the_error_of_the_call() -> None:
    late = handles.Handle(Later(2, ValueError("of the call")))  # type: ignore[arg-type]

    async def wait() -> None:
        await late

    with pytest.raises(ValueError, match="of the call"):
        asyncio.run(wait())


@pytest.mark.parametrize("waits", [True, False])
def test_only_a_handle_that_was_not_waited_for_warns(waits: bool) -> None:
    call = Over()
    posted = handles._UnderWay(call)  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if waits:
            posted.wait()
        del posted
    assert call.abandoned != waits
    assert len(found) == (not waits)
    assert all("the handle of all_gather() was abandoned" in str(w.message) for w in found)
