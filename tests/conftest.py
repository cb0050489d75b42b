"""Shared by all tests: markers by folder, Hypothesis profiles, the fixture for real threads."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.launch import BUSY, LIMIT, Result, launch
from support.pool import Pool, fits, repeat_command
from support.processor_times import ProcessorTimes
from support.progress import Progress
from support.rotation import Rotation
from support.selection import by_threads, long_ones_first, mark_cluster, mark_live
from support.soak import FIGURES, ONE_OF, seed
from support.speed import SLOW

HERE = Path(__file__).parent

# Under "ci" every run tries the same examples, and a slow machine is no failure.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Processes of pytest-xdist draw the same examples as the one that started them.
os.environ.setdefault("XUPC_TEST_SEED", str(seed()))
# Without buffers the pieces of a `print` are writes of their own, which mix with other threads'.
os.environ.pop("PYTHONUNBUFFERED", None)


TALLIES = "xupc-processor-times", "xupc-check-counts"  # plugins that an option adds


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that show where processor time goes, and how much is checked."""
    parser.addoption(
        "--processor-times", action="store_true",
        help="print the processor seconds of files and tests, with all processes they start",
    )  # fmt: skip
    parser.addoption(
        "--check-counts", action="store_true",
        help="print how many assertions passed and how many simulations ran",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Print the progress, in the process that reports; leave out what another run has."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "xupc-progress")
    if ONE_OF > 1:
        config.pluginmanager.register(Rotation(), "xupc-rotation")
    if config.option.processor_times:
        config.pluginmanager.register(ProcessorTimes(), TALLIES[0])
    if config.option.check_counts:
        from support.check_counts import CheckCounts

        config.pluginmanager.register(CheckCounts(config), TALLIES[1])


def _tallies(config: pytest.Config) -> list[Any]:
    """Return the plugins whose findings workers of pytest-xdist pass to the main process."""
    found = map(config.pluginmanager.get_plugin, TALLIES)
    return [plugin for plugin in found if plugin is not None]


def pytest_sessionstart() -> None:
    """Let SIGTERM end a session as Ctrl-C does, so that jobs and emulated clusters go with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in tests/live and tests/cluster; put what takes long first."""
    found: dict[str, list[pytest.Item]] = {"live": [], "cluster": []}
    for item in items:
        if item.path.is_relative_to(HERE):
            folder = item.path.relative_to(HERE).parts[0]
            if folder in found:
                item.add_marker(folder)
                found[folder].append(item)
    mark_live(found["live"])
    mark_cluster(found["cluster"])
    by_threads(items)
    long_ones_first(items)


def pytest_collection_finish() -> None:
    """Leave what pytest and its plugins hold out of collections: more than a quarter of the time.

    Simulated calls make very many objects; each full collection would look at all others, too. Few
    of them are in cycles, so collections are rare: a seventh of the time, and no more memory.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass figures and the pool to the main process, in a worker of pytest-xdist."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"], output["pool"] = FIGURES, str(POOL) if POOL.programs else ""
        output["tallies"] = {tally.title: tally.found for tally in _tallies(session.config)}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect a worker's figures and pool, in the main process of pytest-xdist."""
    output = getattr(node, "workeroutput", {})
    FIGURES.extend((promise, found) for promise, found in output.get("figures", ()))
    POOLS.extend(filter(None, [output.get("pool", "")]))
    for tally in _tallies(node.config):
        tally.add(output.get("tallies", {}).get(tally.title, {}))


POOL = Pool()
POOLS: list[str] = []  # of workers, as text


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Jobs that run the programs of live tests, until the end of the session."""
    yield POOL
    POOL.close()


def pytest_report_header() -> str:
    """Say how to repeat this run."""
    return f"XUPC_TEST_SEED={seed()} XUPC_TEST_SHARE=1/{ONE_OF} XUPC_TEST_SLOW={SLOW:g}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what the tests of trust found out, what the pool of ranks did, times and counts."""
    for tally in _tallies(config):
        terminalreporter.section(tally.title)
        for line in tally.lines():
            terminalreporter.write_line(line)
    if POOLS or POOL.programs:
        terminalreporter.section("pool of ranks")
        for pool in POOLS or [str(POOL)]:
            terminalreporter.write_line(pool)
    if FIGURES:
        terminalreporter.section(f"figures (XUPC_TEST_SEED={seed()})")
        for promise, found in FIGURES:
            terminalreporter.write_line(f"{promise}: {found}")


@pytest.fixture
def live(pool: Pool) -> Callable[..., Result]:
    """Run a program that must end by itself, with the expected exit status, and leave nothing.

    ``live(n, program, *, expect=0, own_job=None, **options)``: `expect` is an exit status,
    "failure" for any but 0, or None for all; the rest as for `support.launch.launch`. The failure
    shows all output. A program that is to end well runs in the pool (`support/pool.py`), unless it
    needs a job of its own: because it kills, forks, uses up what a process has, or looks at that.
    With another `expect` a job of its own is the default. `timeout` is for a machine that does
    nothing else: beside other jobs a program may take `BUSY` times as long.
    """

    def run(
        n: int, program: str | Path, *, expect: int | str | None = 0, own_job: bool | None = None,
        timeout: float = LIMIT, **options: Any,
    ) -> Result:  # fmt: skip
        __tracebackhide__ = True
        alone = expect != 0 if own_job is None else own_job
        pooled = not alone and fits(n, **options)
        run_it = pool.launch if pooled else launch
        result = run_it(n, program, timeout=BUSY * timeout, **options)
        if expect == "failure":
            good = result.returncode != 0
        else:
            good = expect is None or result.returncode == expect
        if not (good and result.clean):
            words = f"expected {expect!r}\n{result.report()}\n--- to repeat it\n{repeat_command()}"
            pytest.fail(words, pytrace=False)
        return result

    return run
