"""Shared by all tests: markers by folder, Hypothesis profiles, the fixture for real threads."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from launch import Result, launch
from soak import FIGURES, seed
from support.pool import Pool, fits, repeat_command

HERE = Path(__file__).parent

# Under "ci" every run tries the same examples, and a slow machine is no failure.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--together DIR``: for runs at the same time that share the tests between them."""
    parser.addoption(
        "--together", type=Path, metavar="DIR",
        help="run the tests that no other run with this folder has taken",
    )  # fmt: skip


def pytest_sessionstart() -> None:
    """Let SIGTERM end a session as Ctrl-C does, so that jobs and emulated clusters go with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in tests/live and tests/cluster after its folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            folder = item.path.relative_to(HERE).parts[0]
            if folder in ("live", "cluster"):
                item.add_marker(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--together``: take a test, and the next one before it runs, until all are taken."""
    folder: Path | None = session.config.getoption("--together")
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None

    def ours() -> Iterator[pytest.Item]:
        for i, item in enumerate(session.items):
            with contextlib.suppress(FileExistsError):
                (folder / str(i)).mkdir()
                yield item

    taken = ours()
    item = next(taken, None)
    while item is not None:
        following = next(taken, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


POOL = Pool()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Jobs that run the programs of live tests, until the end of the session."""
    yield POOL
    POOL.close()


def pytest_report_header() -> str:
    """Say how to repeat this run."""
    return f"XUPC_TEST_SEED={seed()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests of trust found out, and what the pool of ranks did."""
    if POOL.programs:
        terminalreporter.section("pool of ranks")
        terminalreporter.write_line(str(POOL))
    if FIGURES:
        terminalreporter.section(f"figures (XUPC_TEST_SEED={seed()})")
        for promise, found in FIGURES:
            terminalreporter.write_line(f"{promise}: {found}")


@pytest.fixture
def live(pool: Pool) -> Callable[..., Result]:
    """Run a program that must end by itself, with the expected exit status, and leave nothing.

    ``live(n, program, *, expect=0, own_job=False, **options)``: `expect` is an exit status,
    "failure" for any but 0, or None for all; the rest as for `launch.launch`. The failure's message
    shows all output. A program that is to end well runs in the pool (`support/pool.py`), unless it
    needs a job of its own: because it kills, forks, uses up what a process has, or looks at that.
    """

    def run(
        n: int, program: str | Path, *, expect: int | str | None = 0, own_job: bool = False,
        **options: Any,
    ) -> Result:  # fmt: skip
        __tracebackhide__ = True
        pooled = expect == 0 and not own_job and fits(n, **options)
        result = (pool.launch if pooled else launch)(n, program, **options)
        if expect == "failure":
            good = result.returncode != 0
        else:
            good = expect is None or result.returncode == expect
        if not (good and result.clean):
            words = f"expected {expect!r}\n{result.report()}\n--- to repeat it\n{repeat_command()}"
            pytest.fail(words, pytrace=False)
        return result

    return run
