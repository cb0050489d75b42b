"""One thread that a launcher starts: ``threads_of_a_launcher.py CASE [ARGUMENT..]``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from xupc.cli.launcher import SESSIONS


def well() -> None: ...


def fails() -> None:
    raise SystemExit(9)


def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves_a_session_file(above: str, seen: str) -> None:
    """Leave a file where the launcher keeps its sessions, write the place, and be killed."""
    place = Path(os.environ[SESSIONS])
    assert place.parent == Path(above)
    assert not list(place.iterdir())
    (place / "left").touch()
    Path(seen).write_text(str(place))
    os.kill(os.getpid(), signal.SIGKILL)


def has_no_place_for_sessions() -> None:
    assert SESSIONS not in os.environ


def has_ordinary_signals() -> None:
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def sleeps() -> None:
    time.sleep(600)


def leaves_a_child() -> None:
    if os.fork() == 0:
        sleeps()


CASES = {f.__name__: f for f in (
    well, fails, crashes, leaves_a_session_file, has_no_place_for_sessions,
    has_ordinary_signals, sleeps, leaves_a_child,
)}  # fmt: skip
CASES[sys.argv[1]](*sys.argv[2:])
