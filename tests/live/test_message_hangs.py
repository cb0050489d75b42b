"""Threads that all wait in calls of MPI: an error in place of a hang, with a limit of waits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.as_machines import MACHINES
from support.failing_jobs import by_thread
from support.launch import BUSY, launch
from support.speed import SLOW

from xupc.backends.native.native_core import core

pytestmark = pytest.mark.skipif(core is None, reason="the core finds that a thread has not moved")
PROGRAM = "tests/live/programs/message_hangs.py"
ONCE = pytest.mark.once
LIMIT = {"XUPC_TIMEOUT": f"{2 * SLOW:g}"}  # in which the threads have to start
Live = Callable[..., Any]

METHODS = {
    "receive_first": ["Recv"], "wait_all": ["Waitall", "recv"], "head_on": ["Send"],
    "collectives": ["Bcast", "Barrier"], "objects": ["probe", "recv"], "drop_in": ["Recv"],
}  # fmt: skip
LEGAL = [
    "sends_late", "sends_from_a_thread", "slow_ring", "many_short_calls", "with_another_job",
]  # fmt: skip


@pytest.mark.rotates
@pytest.mark.parametrize("machines", [None, pytest.param("2,1", marks=ONCE)])
@pytest.mark.parametrize("case", METHODS)
def test_every_thread_names_its_call(case: str, machines: str | None) -> None:
    env = {**LIMIT, MACHINES: machines}
    result = launch(3, PROGRAM, args=[case], env=env, via="xupc run", timeout=BUSY * 20)
    assert result.clean, result.report()
    assert result.returncode != 0, result.report()
    printed = by_thread(result.stderr)
    assert printed.count("HangError: thread ") == 3, result.report()
    assert printed.count("all threads of the job wait in calls of MPI") == 3, result.report()
    for method in METHODS[case]:
        assert f" s in {method}() of MPI" in printed, result.report()
        row = rf": {method}\(\) of MPI, (message_hangs.py:\d+|does not answer)"
        assert re.search(row, printed), result.report()
    assert "done" not in result.stdout


@pytest.mark.rotates
@pytest.mark.parametrize("machines", [None, pytest.param("2,1", marks=ONCE)])
@pytest.mark.parametrize("case", LEGAL)
def test_a_late_message_is_no_hang(case: str, machines: str | None) -> None:
    env = {**LIMIT, MACHINES: machines}
    result = launch(3, PROGRAM, args=[case], env=env, timeout=BUSY * 20)
    assert result.clean, result.report()
    assert (result.returncode, result.stdout.count("done")) == (0, 3), result.report()


def test_without_a_limit_one_thread_warns() -> None:
    result = launch(3, PROGRAM, args=["warned"], timeout=BUSY * 40)
    assert result.clean, result.report()
    assert result.stderr.count("all threads of the job wait in calls of MPI") == 1, result.report()
    assert "0-2: Recv() of MPI, message_hangs.py:" in result.stderr, result.report()
    assert "HangError" not in result.stderr, result.report()


def test_the_method_is_found_in_every_form_of_a_call(live: Live) -> None:
    result = live(1, "tests/live/programs/message_waits.py", own_job=True)
    assert "all forms" in result.stdout, result.report()
