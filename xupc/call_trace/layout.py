"""The layout of a thread's part of a trace, as `backends/native/call_trace.h` writes it.

A part is two files: ``thread-N.rows`` (the head, totals, rows of calls) and ``thread-N.names`` (a
line of JSON for each text that rows refer to by number).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = [
    "ANYONE", "CAPACITY", "CLAIMED", "FAILED", "HEAD", "HEAD_BYTES", "MAGIC", "MEMBER",
    "MOST_THREADS", "NOBODY",
    "PARTS", "POSTED", "RANK", "ROW", "THREAD", "TOTAL", "TOTALS", "awaited", "folder_of", "stays",
]  # fmt: skip

MAGIC = 0x31306563_61727475
MOST_THREADS = 1 << 22  # more are no job: a list of them takes half a GiB
CAPACITY = 1 << 14  # rows of a thread
TOTALS = 1 << 12
HEAD_BYTES = 4096
PARTS = ".parts"  # the end of the name of the folder of parts

# The thread that a call waited for: a kind, and an index in the lower 24 bits.
NOBODY, MEMBER, ANYONE, RANK, THREAD = (kind << 24 for kind in range(5))

# The state of a call: it runs while the program does something else; the program waits for such a
# call; it ended by an exception.
POSTED, CLAIMED, FAILED = 1, 2, 4

ROW = np.dtype(
    [("op", "u8"), ("kind", "u4"), ("line", "u4")]
    + [(name, "u8") for name in ("began", "ended", "waited", "ready", "longest")]
    + [("awaited", "u4"), ("state", "u4")]
)
TOTAL = np.dtype(
    [("kind", "u4"), ("line", "u4")]
    + [(name, "u8") for name in ("calls", "ns", "waited", "longest")]
    + [("unused", "u8", 3)]
)
HEAD = np.dtype(
    [(name, "u8") for name in ("magic", "size", "capacity", "count", "level", "calls", "seen")]
    + [("unused", "u8"), ("open", ROW)]
)
_MASK = (1 << 64) - 1


def awaited(value: int) -> tuple[int, int]:
    """Return the kind and the index of the thread that a call waited for."""
    return value & ~0xFFFFFF, value & 0xFFFFFF


def _hash(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    return number ^ number >> 33


def stays(op: int, level: int) -> bool:
    """Return whether the row of an operation stays when one in 2^level does."""
    return not _hash(op) & ((1 << level) - 1)


def folder_of(trace: Path) -> Path:
    """Return the folder of the parts of a trace."""
    return trace.with_name(trace.name + PARTS)
