"""Print an error of this thread: `xupc run` prints an error that several threads have once.

A thread sends its text to `xupc run`, if that runs on this machine, as a datagram to the socket of
the job (`cli/local_threads.py`)::

    error THREAD OF
    TEXT

Else, and if that fails in any way, the thread prints the text itself.
"""

from __future__ import annotations

import contextlib
import os
import sys

from .thread_ranges import range_text, ranges

__all__ = ["LONGEST", "heading", "print_error"]

LONGEST = 1 << 16  # bytes of a datagram; a longer text is printed by its thread
_PATIENCE = 2.0  # seconds that `xupc run` may take to read the messages of many threads


def heading(threads: list[int], total: int) -> str:
    """Return the words before an error that these threads have."""
    who = range_text(ranges(threads), most=len(threads))
    return f"xupc: thread{'s'[: len(threads) != 1]} {who} of {total}:"


def print_error(thread: int, total: int, text: str) -> None:
    """Print an error of one of `total` threads; nothing is raised. `text` ends with a newline."""
    if total > 1 and _sent(thread, total, text):
        return
    with contextlib.suppress(Exception):  # stderr may have no reader
        sys.stderr.write(f"{heading([thread], total)}{text}" if total > 1 else text.lstrip("\n "))
        sys.stderr.flush()


def _sent(thread: int, total: int, text: str) -> bool:
    """Send an error to `xupc run`; False if it is not there."""
    tag = os.environ.get("XUPC_JOB", "")
    if not tag or sys.platform != "linux":
        return False
    data = f"error {thread} {total}\n{text}".encode(errors="backslashreplace")
    if len(data) > LONGEST:
        return False
    try:
        import socket  # only here: most programs have no error

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_PATIENCE)
            sender.sendto(data, f"\0xupc-job-{tag}")
    except Exception:
        return False
    return True
