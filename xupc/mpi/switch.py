"""The switch ``XUPC_COMM``: how the drop-in communicator works in this process."""

from __future__ import annotations

import os

from ..errors import show

__all__ = ["AUTO", "EXPLAIN", "FORCE", "OFF", "from_the_first_call", "mode"]

AUTO, OFF, FORCE, EXPLAIN = "auto", "off", "force", "explain"


def mode() -> str:
    """Return the value of ``XUPC_COMM``; "auto" if it is not set.

    "auto" gives to xupc the calls that it carries out faster, on communicators with many calls.
    "explain" does so too, counts all calls, and thread 0 prints the counts at the end. "force"
    gives to xupc every call that xupc can carry out. "off" gives all calls to MPI.

    Raises
    ------
    ValueError
        If it has another value.
    """
    value = os.environ.get("XUPC_COMM") or AUTO
    if value not in (AUTO, OFF, FORCE, EXPLAIN):
        raise ValueError(f"XUPC_COMM: expected auto, off, force or explain, got {show(value)}")
    return value


def from_the_first_call() -> bool:
    """Return whether xupc starts at the first call of a communicator, without a warm-up.

    With ``XUPC_TIMEOUT`` it does, too: until xupc runs, a wait in MPI has no limit.
    """
    return mode() == FORCE or bool(os.environ.get("XUPC_TIMEOUT"))
