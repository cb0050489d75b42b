"""Notes the processor seconds of each test, with all processes and jobs of the pool it uses."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ProcessorTimes", "tree_seconds"]

SHOWN = 30  # lines of a table
TICK = os.sysconf("SC_CLK_TCK")


def tree_seconds() -> float:
    """Return the processor seconds of this process and of its descendants, ended ones included.

    What a process leaves behind that outlives its parent counts until that parent ends.
    """
    used = 0.0
    for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(of)
        used += usage.ru_utime + usage.ru_stime
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) / TICK
    family = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return used + sum(seconds[pid] for pid in family if pid != os.getpid())


class ProcessorTimes:
    """A plugin that notes the processor seconds of each test of this process, and prints them."""

    title = "processor times"

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.before = self.start = 0.0

    def pytest_sessionstart(self) -> None:
        """Begin."""
        self.start = tree_seconds()

    def pytest_collection_finish(self) -> None:
        """Note what importing and collecting took."""
        self.before = tree_seconds()
        self.seconds["(collection)"] = self.before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note what a test took; its fixtures count for the first test that needs them."""
        try:
            return (yield)
        finally:
            now = tree_seconds()
            self.seconds[item.nodeid] = now - self.before
            self.before = now

    @property
    def found(self) -> dict[str, float]:
        """Return the seconds of each test of this process."""
        return self.seconds

    def add(self, more: Mapping[str, float]) -> None:
        """Add what a worker has noted."""
        for name, seconds in more.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def lines(self) -> list[str]:
        """Return two tables: the files, and the tests that take most."""
        files: dict[str, float] = {}
        for name, seconds in self.seconds.items():
            file = name.partition("::")[0]
            files[file] = files.get(file, 0.0) + seconds
        lines = [f"{sum(files.values()):9.1f} s in all"]
        for of in (files, self.seconds):
            ranked = sorted(of.items(), key=lambda pair: -pair[1])
            lines += [f"{seconds:9.1f} s  {name}" for name, seconds in ranked[:SHOWN]]
        return lines
