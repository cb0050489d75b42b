"""The layout of the control segment: its parts, their fields and their sizes.

For m threads on the machine and one or several machines::

    page 0        the locks on its bytes; the job, the machine, and the times of the last request
                  for positions and of the last report.
    line i        status of thread i. By the native core: operation, call, done, team. By Python:
                  agreements, whether it waits, its trouble, and when it last needed one-sided
                  accesses served.
    ring i        the last calls of thread i (by the native core), its requests for positions and
                  its answers.
    record i      pid, THREADS id, host name; as texts its trouble and what it waits for; its
                  Python line; the texts of its last calls; its calls on `xupc.Comm`, as JSON.
    hosts         the pid, id and host name of the lowest thread of every machine.
    places        the positions of the threads of every machine, as JSON.
    sync areas    one per node of this machine (by the native core).
    node tree     the tables of `tree.Tree`.
"""

from __future__ import annotations

import struct

import numpy as np

__all__ = [
    "AWAITED",
    "BROKEN",
    "CALL",
    "CALLS",
    "CALL_RING",
    "CROSSED",
    "DATA_HEAD",
    "DEAD",
    "EDGES",
    "EDGE_HEAD",
    "FINISHED",
    "HEAD",
    "HUNG",
    "ID",
    "INTERRUPTED",
    "LAST",
    "LINE",
    "MAGIC",
    "MOST_EDGES",
    "NOTE",
    "NOTE_BYTES",
    "NUMBER",
    "PAGE",
    "PLACES_BYTES",
    "POSTED",
    "RECORD",
    "RING",
    "RUNNING",
    "STATUS",
    "TEXTS",
    "TEXT_BYTES",
    "TROUBLE",
    "TROUBLE_BYTES",
    "WHERE",
    "WHERE_BYTES",
    "control_bytes",
]

# The trouble of a thread: its own, or one of the job that it has detected.
RUNNING, FINISHED, DEAD, HUNG, INTERRUPTED, BROKEN, CROSSED = range(7)

PAGE = 4096
LINE = 64
TEXTS = 128
TEXT_BYTES = 224
LAST = 64  # calls of a thread in a report
RING = 2 * LAST  # calls that are kept: the core may be overwriting the oldest
POSTED = 1  # stands for the end of a posted call that is in progress
MAGIC = 0x32306372_63707578
PLACES_BYTES = 8192
WHERE_BYTES = 256
ID = struct.Struct("<qq48s")  # pid, thread, host
NUMBER = struct.Struct("<Q")
DATA_HEAD = struct.Struct("<QQ")  # of data as JSON: their time, their bytes
TROUBLE_BYTES = 1024
# Offsets in a record.
TROUBLE = 128
AWAITED = TROUBLE + TROUBLE_BYTES
EDGES = AWAITED + TROUBLE_BYTES
MOST_EDGES = 58
EDGE_HEAD = struct.Struct("<QQQQ")  # looks, team, operation, number of threads
WHERE = EDGES + EDGE_HEAD.size + 4 * MOST_EDGES + 8
CALLS = WHERE + WHERE_BYTES
NOTE = CALLS + TEXTS * (NUMBER.size + TEXT_BYTES)
NOTE_BYTES = 4096
RECORD = NOTE + NOTE_BYTES
HEAD = np.dtype(
    [("magic", "u8"), ("job", "u8"), ("asked", "u8"), ("printed", "u8")]
    + [(name, "u4") for name in ("threads", "machines", "machine", "total")]
)
STATUS = np.dtype(
    [(name, "u8") for name in ("op", "call", "done", "team", "agreed", "ended")]
    + [(name, "u4") for name in ("waits", "asked", "elsewhere")]
    + [("trouble", "u2"), ("said", "u2")]
)
CALL = np.dtype([(name, "u8") for name in ("op", "what", "began", "ended")])
CALL_RING = np.dtype(
    [(name, "u8") for name in ("count", "wanted", "answered", "inside")]
    + [(name, "u8") for name in ("waits_since", "waits_op", "waits_team", "leaves")]
    + [("call", CALL, RING)]
)


def control_bytes(threads: int, machines: int, rest: int) -> int:
    """Return the size of the control segment of a machine with so many threads.

    `rest`: bytes of the last parts, the sync areas and the tree.
    """
    each = LINE + CALL_RING.itemsize + RECORD
    places = LINE + machines * (ID.size + PLACES_BYTES)
    return PAGE + threads * each + places + rest + PAGE
