"""Handles of calls that are over: what they raise, what they equal, when they warn."""

from __future__ import annotations

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
