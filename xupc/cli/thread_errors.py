"""Errors that the threads of a job report to `xupc run`, printed once for all that have the same.

Threads often raise the same error at about the same time. So an error waits a moment for others.
Each is printed whole; equal ones, one time, after the numbers of their threads.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import IO

from ..health.error_report import heading

__all__ = ["ThreadErrors", "descriptor_of"]

QUIET = 0.3  # seconds without another error, after which those that came are printed


class ThreadErrors:
    """Hold errors that have come and are not printed yet.

    Parameters
    ----------
    descriptor : int
        Where to print; negative: nowhere.

    Attributes
    ----------
    first : int or None
        The thread whose error came first; None if none has come.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.first: int | None = None
        self._threads: dict[tuple[int, str], list[int]] = {}  # by number of threads, and text
        self._last = 0.0

    def take(self, data: bytes) -> None:
        """Take a message of `health.error_report`."""
        head, _, text = data.partition(b"\n")
        thread, total = (int(word) for word in head.split()[1:])
        self._threads.setdefault((total, text.decode(errors="replace")), []).append(thread)
        self._last = time.monotonic()
        if self.first is None:
            self.first = thread

    def print(self, *, all_there_are: bool = False) -> None:
        """Print what has come, if no other is expected."""
        if not self._threads:
            return
        total = next(iter(self._threads))[0]
        came = sum(map(len, self._threads.values()))
        if all_there_are or came >= total or time.monotonic() - self._last > QUIET:
            errors, self._threads = self._threads, {}
            for (total, text), threads in sorted(errors.items(), key=lambda item: min(item[1])):
                self._write(f"{heading(threads, total)}{text}".encode(errors="replace"))

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a closed stderr
            while data and self._descriptor >= 0:
                data = data[os.write(self._descriptor, data) :]


def descriptor_of(stderr: IO[bytes] | int | None, stdout: IO[bytes] | int | None) -> int:
    """Return the descriptor that a job's stderr is; negative if it is read nowhere."""
    if stderr is None:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        return 2
    if stderr == subprocess.STDOUT:
        return 1 if stdout is None else descriptor_of(stdout, None)
    return stderr if isinstance(stderr, int) else stderr.fileno()
