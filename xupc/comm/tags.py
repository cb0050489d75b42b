"""The tags of MPI messages.

A tag is ``operation % 1024 * 16 + kind`` in the low 14 bits. Kind 0 is data, 1-13 are the empty
messages of signal channels, 14 barriers, 15 control messages. Where MPI's tags are wide enough, the
bits above hold bits of the call's fingerprint: messages of calls that differ never match, so a
mismatch cannot truncate or corrupt data.
"""

from __future__ import annotations

__all__ = [
    "AGAIN",
    "BARRIER",
    "CONTROL",
    "DATA",
    "KINDS",
    "LOW_BITS",
    "RESYNC",
    "SIGNAL",
    "STALL",
    "TURNS",
    "tag_of",
]

DATA, SIGNAL, BARRIER, CONTROL = 0, 1, 14, 15
KINDS, TURNS = 16, 1024
AGAIN = CONTROL  # tags of control messages have RESYNC added, so this value is free
LOW_BITS = 15
RESYNC = TURNS * KINDS  # added to CONTROL: records of a mismatch, and the report about it
STALL = RESYNC + TURNS * KINDS - 2


def tag_of(operation: int, kind: int) -> int:
    """Return the low bits of the tag of one operation's messages of a kind."""
    return operation % TURNS * KINDS + kind
