"""Shared by all tests: markers by folder, Hypothesis profiles, the fixture for real threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from launch import Result, launch
from soak import FIGURES, seed

HERE = Path(__file__).parent

# Under "ci" every run tries the same examples, and a slow machine is no failure.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--share 1/2``: the first of two halves, for two runs at the same time."""
    parser.addoption("--share", default="1/1", metavar="I/N", help="run every N-th test, from I on")


def pytest_sessionstart() -> None:
    """Let SIGTERM end a session as Ctrl-C does, so that jobs and emulated clusters go with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave our share; mark everything in tests/live and tests/cluster after its folder."""
    first, step = map(int, config.getoption("--share").split("/"))
    config.hook.pytest_deselected(items=[x for i, x in enumerate(items) if i % step != first - 1])
    items[:] = items[first - 1 :: step]
    for item in items:
        if item.path.is_relative_to(HERE):
            folder = item.path.relative_to(HERE).parts[0]
            if folder in ("live", "cluster"):
                item.add_marker(folder)


def pytest_report_header() -> str:
    """Say how to repeat this run."""
    return f"XUPC_TEST_SEED={seed()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests of trust found out."""
    if FIGURES:
        terminalreporter.section(f"figures (XUPC_TEST_SEED={seed()})")
        for promise, found in FIGURES:
            terminalreporter.write_line(f"{promise}: {found}")


@pytest.fixture
def live() -> Callable[..., Result]:
    """Run a job that must end by itself, with the expected exit status, and leave nothing.

    ``live(n, program, *, expect=0, **options)``: `expect` is an exit status, "failure" for any but
    0, or None for all; the rest as for `launch.launch`. The failure's message shows all output.
    """

    def run(n: int, program: str | Path, *, expect: int | str | None = 0, **options: Any) -> Result:
        __tracebackhide__ = True
        result = launch(n, program, **options)
        if expect == "failure":
            good = result.returncode != 0
        else:
            good = expect is None or result.returncode == expect
        if not (good and result.clean):
            pytest.fail(f"expected {expect!r}\n{result.report()}", pytrace=False)
        return result

    return run
