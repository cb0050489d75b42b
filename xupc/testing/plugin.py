"""Run tests under pytest as jobs of threads: options, the marker ``xupc``, the fixture.

A marked test runs in no thread of pytest's own process. `runner` starts a job, each thread of which
is a pytest of its own (`rank.py`), and reports one result for all threads.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from .settings import FOLDER, runs_as_job, setting_of

if TYPE_CHECKING:
    from ..api.team import Team
    from .runner import Runner

__all__ = ["xupc_team"]

_TIMEOUT = 60.0  # seconds for a test
_RUNNER: pytest.StashKey[Runner] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xupc", "tests as jobs of threads (xupc)")
    group.addoption(
        "--xupc-np", type=int, metavar="N",
        help="run every test as a job of N threads; the marker xupc(np=...) of a test comes first",
    )  # fmt: skip
    group.addoption(
        "--xupc-nodes", metavar="SPEC", help='emulate nodes in these jobs, such as "2x2"'
    )
    group.addoption(
        "--xupc-timeout", type=float, metavar="SECONDS", default=_TIMEOUT,
        help="kill the job of a test that takes longer than this (default: %(default)s)",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    words = "run the test as a job of np threads, one run for each number if np is a list"
    config.addinivalue_line("markers", f"xupc(np=2, nodes=None, timeout=60): {words}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each number of threads of a list."""
    marker = metafunc.definition.get_closest_marker("xupc")
    numbers = None if marker is None else marker.kwargs.get("np")
    if isinstance(numbers, (list, tuple)):
        if "xupc_np" not in metafunc.fixturenames:
            metafunc.fixturenames.append("xupc_np")
        metafunc.parametrize("xupc_np", numbers, ids=[f"np={n}" for n in numbers])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse wrong arguments before the first test runs."""
    for item in items:
        if runs_as_job(item):
            setting_of(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test as a job if it is marked, or if all tests are to run so."""
    if FOLDER in os.environ or not runs_as_job(item):
        return None
    if _RUNNER not in item.config.stash:
        from .runner import Runner

        item.config.stash[_RUNNER] = Runner(item.config)
    follows = nextitem if nextitem is not None and runs_as_job(nextitem) else None
    item.config.stash[_RUNNER].run(item, follows)
    item.session._setupstate.teardown_exact(nextitem)  # of tests before it that were no jobs
    return True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the jobs; one that does not end well fails the session."""
    if _RUNNER not in session.config.stash:
        return
    session.config.stash[_RUNNER].close()
    if session.config.stash[_RUNNER].ends and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how jobs ended that did not end well after their last test."""
    ends = config.stash[_RUNNER].ends if _RUNNER in config.stash else []
    if ends:
        terminalreporter.section("jobs that did not end well")
    for words in ends:
        terminalreporter.write_line(words)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the jobs of a session that was interrupted."""
    if _RUNNER in config.stash:
        config.stash[_RUNNER].kill()
        del config.stash[_RUNNER]


@pytest.fixture
def xupc_team() -> Team:
    """Return the team of all threads of the job; `xupc.init` starts it if no test has."""
    import xupc

    return xupc.init()
