"""The process between a launcher and a thread's program."""

from __future__ import annotations

import os
import signal

import pytest

from xupc.cli.rank_wrapper import Watch


@pytest.mark.parametrize(
    ("number", "passed_on", "asked"),
    [
        (signal.SIGINT, True, True),
        (signal.SIGTERM, True, True),
        (signal.SIGHUP, True, True),
        (signal.SIGQUIT, True, False),
        (signal.SIGUSR2, True, False),
        (signal.SIGUSR1, False, False),  # hydra sends it to the survivors of a death
    ],
)
def test_signals_that_the_program_gets(
    monkeypatch: pytest.MonkeyPatch, number: int, passed_on: bool, asked: bool
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    watch = Watch()
    watch.child = 12345
    watch.on_signal(number, None)
    assert sent == [(12345, number)] * passed_on
    assert watch.asked is asked
