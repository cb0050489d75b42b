"""Processes that carry a mark in their environment: finding and killing them.

The launchers put threads into sessions and process groups of their own; the environment is the one
thing that all of them keep.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["kill_tagged", "tagged"]

_POLL = 0.02


def tagged(name: str, value: str) -> list[int]:
    """Return the ids of the living processes that were started with ``name=value``.

    This process is never among them.
    """
    entry = f"{name}={value}".encode()
    return [pid for pid, block in _environments() if pid != os.getpid() and entry in block]


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    proc = Path("/proc")
    if (proc / "self/environ").exists():
        for directory in proc.iterdir():
            if directory.name.isdigit():
                # A process that ended meanwhile, or somebody else's.
                with contextlib.suppress(OSError):
                    yield int(directory.name), (directory / "environ").read_bytes().split(b"\0")
        return
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            block = [f"{key}={value}".encode() for key, value in process.environ().items()]
            yield process.pid, block


def kill_tagged(name: str, value: str, *, patience: float = 5.0) -> list[int]:
    """Kill every process started with ``name=value``, again until none is left; return their ids.

    A process may start another while we look, so one pass is not enough.
    """
    killed: list[int] = []
    deadline = time.monotonic() + patience
    while pids := tagged(name, value):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in pids if pid not in killed]
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return killed
