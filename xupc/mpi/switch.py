"""The switch ``XUPC_COMM``: how the drop-in communicator works in this process."""

from __future__ import annotations

import os

from ..errors import show

__all__ = ["EXPLAIN", "FORCE", "OFF", "mode"]

OFF, FORCE, EXPLAIN = "off", "force", "explain"


def mode() -> str:
    """Return the value of ``XUPC_COMM``; "" if it is not set.

    "off" gives all calls to MPI, as does "" in this version. "force" gives to xupc every call that
    xupc can carry out. "explain" counts all calls, and thread 0 prints the counts at the end.

    Raises
    ------
    ValueError
        If it has another value.
    """
    value = os.environ.get("XUPC_COMM", "")
    if value not in ("", OFF, FORCE, EXPLAIN):
        raise ValueError(f"XUPC_COMM: expected off, force or explain, got {show(value)}")
    return value
