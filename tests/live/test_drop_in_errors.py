"""Errors of programs written for mpi4py: their tracebacks have the program's lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.failing_jobs import by_thread

pytestmark = pytest.mark.launcher
PROGRAM = "tests/live/programs/drop_in_errors.py"
WARM_UP = 64
AFTER, BEFORE = WARM_UP + 1, 0
ONCE = pytest.mark.once
ERRORS = {
    "items": r"ValueError: expecting 2 items, got 1",
    "types": r"ValueError: mismatch in send and receive MPI datatypes",
    "posted": r"ValueError: mismatch in send and receive MPI datatypes",
    "pickle": r"(AttributeError|_?pickle\.PicklingError|PicklingError): Can't pickle .*",
    "longer": r"mpi4py\.MPI\.Exception: .*",
    "own": r"KeyError: 'an error of the program'",
    "differ": r".*MismatchError: Allreduce: .*",
    "interrupt": r"KeyboardInterrupt",
}
FRAME = re.compile(r'^  File "(.*)", line \d+, in (\S+)$', re.MULTILINE)
Live = Callable[..., Any]


@pytest.mark.parametrize(
    ("what", "calls"),
    [
        ("items", AFTER),
        ("interrupt", AFTER),
        ("own", BEFORE),
        *(
            pytest.param(what, calls, marks=ONCE)
            for what, calls in (
                ("types", BEFORE), ("posted", AFTER), ("pickle", AFTER), ("longer", AFTER),
                ("differ", AFTER),
            )
        ),
    ],
)  # fmt: skip
def test_the_lines_of_the_program_alone(live: Live, what: str, calls: int) -> None:
    """No frame of what starts the program, none of xupc, and one error, not two."""
    result = live(
        2, PROGRAM, args=[what, str(calls)], via="xupc run", launcher_args=["--mpi"], expect=None
    )
    assert result.returncode != 0, result.report()
    first = by_thread(result.stderr).split("xupc: thread ")[1]
    assert first.count("Traceback (most recent call last)") == 1, result.report()
    frames = [
        (file.rpartition("/")[2], function)
        for file, function in FRAME.findall(first)
        if not function.startswith("mpi4py.MPI.")
    ]
    program = PROGRAM.rpartition("/")[2]
    assert frames == [(program, "<module>"), (program, "fail")], result.report()
    assert re.search(rf"^{ERRORS[what]}", first, re.MULTILINE), result.report()


@pytest.mark.once
def test_all_lines_on_demand(live: Live) -> None:
    """``XUPC_TRACEBACK=full``."""
    result = live(
        2, PROGRAM, args=["own", "0"], via="xupc run", launcher_args=["--mpi"], expect=None,
        env={"XUPC_TRACEBACK": "full"},
    )  # fmt: skip
    assert "runpy" in result.stderr, result.report()
