"""Errors of threads on their way through `xupc run`: equal ones once, and none is lost."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xupc.cli.local_threads import LocalThreads
from xupc.cli.thread_errors import ThreadErrors
from xupc.errors import death_text, thread_name
from xupc.health.error_report import LONGEST, print_error


@contextmanager
def printed(tmp_path: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    """Yield a descriptor to print to, and what reads all that was printed."""
    path = tmp_path / "stderr"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        yield fd, lambda: path.read_text(encoding="utf-8")
    finally:
        os.close(fd)


def test_equal_errors_are_printed_once(tmp_path: Path) -> None:
    """As soon as all threads have reported; the numbers of the threads stand before each."""
    with printed(tmp_path) as (fd, text):
        errors = ThreadErrors(fd)
        for thread, error in ((2, "A\n"), (0, "A\n"), (3, "B\n"), (1, "A\n"), (5, "A\n")):
            errors.take(f"error {thread} 6\n\n{error}".encode())
            errors.print()
            assert text() == ""
        errors.take(b"error 4 6\n C\n")
        assert errors.first == 2
        errors.print()
        assert text() == (
            "xupc: threads 0-2, 5 of 6:\nA\nxupc: thread 3 of 6:\nB\nxupc: thread 4 of 6: C\n"
        )


def test_an_error_does_not_wait_for_threads_that_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xupc.cli.thread_errors.QUIET", 0.0)
    with printed(tmp_path) as (fd, text):
        errors = ThreadErrors(fd)
        errors.take(b"error 1 4\n\nA\n")
        errors.print()
        errors.print(all_there_are=True)
        assert text() == "xupc: thread 1 of 4:\nA\n"


def test_an_error_goes_to_xupc_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Or, if that has ended, or the text is too long for a message, to stderr."""
    tag = uuid.uuid4().hex
    monkeypatch.setenv("XUPC_JOB", tag)
    with printed(tmp_path) as (fd, text):
        threads = LocalThreads(tag, 0, fd)
        print_error(1, 2, "\nshort\n")
        print_error(0, 2, "\nshort\n")
        print_error(0, 2, f"\n{'x' * LONGEST}\n")
        threads.drain()
        threads.errors.print()
        assert text() == "xupc: threads 0-1 of 2:\nshort\n"
        assert capfd.readouterr().err == f"xupc: thread 0 of 2:\n{'x' * LONGEST}\n"
        threads.close()
        print_error(1, 2, "\nlate\n")
        print_error(0, 1, "\nalone\n")
        assert capfd.readouterr().err == "xupc: thread 1 of 2:\nlate\nalone\n"
        assert threads.failures == []


def test_deaths_in_words() -> None:
    name = thread_name(3, "h", 12)
    assert death_text(name, "in init") == "thread 3 (host h, pid 12) died in init"
    assert death_text(name) == "thread 3 (host h, pid 12) died"
    assert death_text(name, "x", "why") == "thread 3 (host h, pid 12) ended the job: why"
