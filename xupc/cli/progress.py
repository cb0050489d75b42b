"""How far a measurement is: for people, and for logs."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

import click

__all__ = ["PATIENCE", "Progress"]

PATIENCE = 2.0
"""Seconds of a computation without a word about its progress."""
_EVERY = 10.0  # seconds between two lines in a log


class Progress:
    """Show a bar with the time left on a terminal, or a line now and then in a log.

    `after`: the bar or the first line appears after so many seconds, so short work has none.
    """

    def __init__(self, command: str = "xupc bench", after: float = 0.0) -> None:
        self._command = command
        self._after = after
        self._stack = ExitStack()
        self._bar: Any = None
        self._done = 0.0
        self._began = time.monotonic()
        self._next = self._began + (after or _EVERY)  # when a line is due in a log

    def __enter__(self) -> Progress:
        if not self._after:
            self._open()
        return self

    def _open(self) -> None:
        """Show the bar if there is a terminal."""
        if sys.stderr.isatty():
            bar = click.progressbar(
                length=1000, label=self._command, show_eta=True, file=sys.stderr,
                item_show_func=lambda what: what or "",
            )  # fmt: skip
            self._bar = self._stack.enter_context(bar)

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def show(self, done: float, what: str) -> None:
        """Show the completed share, from 0 to 1, and what is being measured."""
        if self._bar is None and time.monotonic() - self._began >= self._after:
            self._open()
        if self._bar is not None:
            self._bar.update(int(1000 * done) - int(1000 * self._done), what)
            self._done = done
            return
        now = time.monotonic()
        if now > self._next:
            self._next = now + _EVERY
            text = f"{self._command}: {what}: {done:.0%}"
            if done > 0:
                text += f", about {_words((now - self._began) * (1 - done) / done)} left"
            click.echo(text, err=True)


def _words(seconds: float) -> str:
    """Return a time like ``45 s``, ``12 min`` or ``2 h 05 min``."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
