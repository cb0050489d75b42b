"""Wait until something holds, with a time limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["PATIENCE", "await_end", "await_file", "job_folder", "state", "until"]

PATIENCE = 90.0  # seconds; it protects from a hang alone
POLL = 0.005  # seconds between two looks


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Poll until the condition holds; TimeoutError, with `what` in it, after a time limit."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:g} s: {what}")
        time.sleep(POLL)


def await_file(path: Path | str) -> None:
    """Wait until a file exists."""
    until(lambda: os.path.exists(path), f"{path} exists")


def job_folder() -> Path:
    """Return a folder of this job's own, for files that are handshakes; none in the pool."""
    return Path(os.environ["XUPC_TEST_STACKS"])


def state(pid: int) -> str:
    """Return the letter that /proc shows for a process, "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0].strip("ZX")
    except OSError:
        return ""


def await_end(pid: int) -> None:
    """Wait until a process of this machine has ended."""
    until(lambda: not state(pid), f"process {pid} has ended")
