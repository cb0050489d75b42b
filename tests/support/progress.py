"""Prints, while tests run, how many are over, and about how long the others will take."""

from __future__ import annotations

import time
from typing import Any

import pytest

__all__ = ["Progress", "clock"]

EVERY = 20.0  # seconds between two lines
KEPT = "xupc/seconds"  # of each test in earlier runs, in pytest's cache


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds."""
    whole = round(max(0.0, seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class Progress:
    """A plugin of the process that reports: of the only one, or of the one that has workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        # without pytest's cacheprovider the attribute is missing
        self.cache: pytest.Cache | None = getattr(config, "cache", None)
        self.known: dict[str, float] = self.cache.get(KEPT, {}) if self.cache is not None else {}
        self.left: set[str] = set()
        self.all = 0
        self.took: dict[str, float] = {}
        self.began = self.said = time.monotonic()

    def _expect(self, names: list[str]) -> None:
        if not self.all:
            self.left, self.all = set(names), len(names)
            self.began = self.said = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: note what will run."""
        if not self.config.option.collectonly:
            self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Take the tests that will run from the first worker."""
        self._expect(list(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that is over, and print a line from time to time."""
        name = report.nodeid.partition("@")[0]
        self.took[name] = self.took.get(name, 0.0) + report.duration
        if report.when != "teardown":
            return
        self.left.discard(name)
        now = time.monotonic()
        if self.left and now - self.said > EVERY:
            self.said = now
            self._say(now)

    def _say(self, now: float) -> None:
        over = self.all - len(self.left)
        mean = sum(self.took.values()) / max(1, over)
        done = sum(self.known.get(name, mean) for name in self.took)
        rest = sum(self.known.get(name, mean) for name in self.left)
        left = clock(rest / done * (now - self.began)) if done else "?"
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f" {over} of {self.all} tests, about {left} left")

    def pytest_sessionfinish(self) -> None:
        """Remember the times for the next run."""
        if self.took and self.cache is not None:
            self.cache.set(KEPT, {**self.known, **self.took})
