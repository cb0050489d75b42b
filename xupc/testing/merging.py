"""One report for all threads of a test: its outcome, what differs, the output of each thread."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)

from ..health.thread_ranges import range_text, ranges
from .jobs import Run

__all__ = ["merged", "not_started", "recorded"]

_MOST = 3  # failures shown besides the first, and texts of output
_STRICT = "[XPASS(strict)]"  # begins the text of a test that was expected to fail
_Report = tuple[int, pytest.TestReport]


def merged(item: pytest.Item, run: Run) -> list[pytest.TestReport]:
    """Return the reports of a test: one for each phase, of all threads together."""
    found = [_of_phase(item, run, phase) for phase in _phases(item, run)]
    if run.why and not any(report.failed for report in found):
        found.insert(1, _ended(item, run))
    elif run.why:
        _add_why(next(report for report in found if report.failed), run)
    shown = next((report for report in found if report.failed), None)
    shown = shown or next((report for report in found if report.when == "call"), None)
    if shown is not None:
        shown.sections += _outputs(run)
    return found


def _phases(item: pytest.Item, run: Run) -> list[list[_Report]]:
    """Return the reports of all threads by phase; a test with subtests has several of one."""
    found: dict[tuple[str, int], list[_Report]] = {}
    counts: dict[tuple[int, str], int] = {}
    for thread, data in run.reports:
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        number = counts[thread, report.when] = counts.get((thread, report.when), 0) + 1
        found.setdefault((report.when, number), []).append((thread, report))
    order = {"setup": 0, "call": 1, "teardown": 2}
    return [found[key] for key in sorted(found, key=lambda key: (order[key[0]], key[1]))]


def _of_phase(item: pytest.Item, run: Run, reports: Sequence[_Report]) -> pytest.TestReport:
    """Return the report of a phase: failed if any thread failed, skipped if all skipped.

    A failure that the test's mark expects counts if it comes on any thread.
    """
    expected = [each for each in reports if each[1].skipped and hasattr(each[1], "wasxfail")]
    failed = [each for each in reports if each[1].failed and not (expected and _strict(each[1]))]
    passed = [each for each in reports if each[1].passed]
    chosen = (failed or expected or passed or reports)[0][1]
    chosen.duration = max(report.duration for _, report in reports)
    if failed:
        _show_failures(chosen, failed, run.threads)
    return chosen


def _strict(report: pytest.TestReport) -> bool:
    return isinstance(report.longrepr, str) and report.longrepr.startswith(_STRICT)


def _show_failures(chosen: pytest.TestReport, failed: Sequence[_Report], threads: int) -> None:
    """Write into the first failure its thread and the others, and add those that differ."""
    first, same = failed[0][0], str(chosen.longrepr)
    others: dict[str, list[int]] = {}
    for thread, report in failed[1:]:
        others.setdefault(str(report.longrepr), []).append(thread)
    alike = [first, *others.pop(same, [])]
    more = sorted(thread for each in others.values() for thread in each)
    words = f"{_named(alike, threads)} failed" + (f"; otherwise {_named(more)}" if more else "")
    _head(chosen, words, first)
    texts = list(others.items())
    chosen.sections += [(_named(which), text) for text, which in texts[:_MOST]]
    if left := sorted(thread for _, which in texts[_MOST:] for thread in which):
        chosen.sections.append((f"{_named(left)} failed, too", ""))


def _head(report: pytest.TestReport, words: str, thread: int) -> None:
    """Put words before a failure, and the thread before its line in pytest's summary."""
    longrepr = report.longrepr
    if not isinstance(longrepr, ExceptionChainRepr):
        report.longrepr = f"{words}\n{longrepr}"
        return
    traceback = longrepr.reprtraceback
    traceback.reprentries = [ReprEntryNative([f"{words}\n"]), *traceback.reprentries]
    if longrepr.reprcrash is not None:
        longrepr.reprcrash.message = f"thread {thread}: {longrepr.reprcrash.message}"


def _named(threads: Iterable[int], total: int | None = None) -> str:
    """Return "thread 1" or "threads 0, 2-3", of how many."""
    which = sorted(threads)
    name = f"thread{'s'[: len(which) != 1]} {range_text(ranges(which))}"
    return name if total is None else f"{name} of {total}"


def _ended(item: pytest.Item, run: Run) -> pytest.TestReport:
    """Return the failure of a test that did not end on all threads."""
    words = f"{run.why}\n" + (f"{_named(run.missing, run.threads)} did not end the test\n")
    return _failure(item, words, "call", run.where)


def _add_why(report: pytest.TestReport, run: Run) -> None:
    """Add to a failure why other threads did not end the test."""
    others = f" ({_named(run.missing)})" if run.missing else ""
    report.sections.append((f"{run.why}{others}", run.where))


def not_started(item: pytest.Item, why: str) -> pytest.TestReport:
    """Return the failure of a test whose job has not started."""
    return _failure(item, why, "setup")


def _failure(item: pytest.Item, words: str, when: str, where: str = "") -> pytest.TestReport:
    path, line, _ = item.location
    place = ReprFileLocation(path, (line or 0) + 1, words.strip().splitlines()[0])
    text = ReprTraceback([ReprEntryNative([words])], None, "native")
    return pytest.TestReport(
        nodeid=item.nodeid, location=item.location, keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed", longrepr=ExceptionChainRepr([(text, place, None)]), when=when,  # type: ignore[arg-type]
        sections=[("where the threads are", where)] if where else [],
    )  # fmt: skip


def _outputs(run: Run) -> list[tuple[str, str]]:
    """Return sections with the output of threads, failed ones first; equal output once."""
    bad = {*run.missing, *(thread for thread, r in run.reports if r["outcome"] == "failed")}
    texts: dict[str, list[int]] = {}
    for thread in sorted(range(len(run.output)), key=lambda thread: thread not in bad):
        if run.output[thread].strip():
            texts.setdefault(run.output[thread], []).append(thread)
    found = [(f"output of {_named(which)}", text) for text, which in texts.items()]
    most = max(_MOST, len(bad)) + 1
    if len(found) > most:
        found[most:] = [(f"{len(found) - most} more outputs are left out", "")]
    if run.launcher.strip():
        found.append(("output of the launcher", run.launcher))
    return found


def recorded(what: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``pytest_warning_recorded`` for a warning of a thread."""
    kind: Any = UserWarning
    try:
        for name in (None, *what["name"].split(".")):
            kind = importlib.import_module(what["module"]) if name is None else getattr(kind, name)
    except (ImportError, AttributeError):  # a class of the test itself
        kind = UserWarning
    message = warnings.WarningMessage(
        message=kind(what["text"]), category=kind, filename=what["file"], lineno=what["line"]
    )
    return {
        "warning_message": message, "when": what["when"], "nodeid": what["nodeid"],
        "location": None,
    }  # fmt: skip
