"""Slots of messages whose lengths only their senders know: without MPI's calls."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import mpi4py; mpi4py.rc(initialize=False, finalize=False)
from xupc.mpi import slots

def head(k):
    return slots.HEAD.unpack_from(memory, k * 768)

limit = 1 << 16
for longest in (0, 1, 488, 489, 744, 745, 1000, 1001, 10_000, 40_000, slots.ROOM):
    size = slots.slot_bytes(longest, limit)
    room = size - slots.HEAD.size
    assert longest <= room and (size <= 512 or size < 1.5 * (longest + 25)), (longest, size)
for longest in (slots.ROOM + 1, 1 << 40):
    assert slots.slot_bytes(longest, limit) == slots.LEAST
assert slots.slot_bytes(1000, 512) == slots.LEAST
assert slots.slot_bytes(1000, 1024) == 1024

for threads in (1, 2, 3, 5, 64, 700):
    for first in (None, 1, 489, 490, 1000, 5000, 40_000, 1 << 30):
        limit = slots.slot_limit(threads, first)
        assert limit == slots.slot_bytes(limit - slots.HEAD.size, limit), (threads, first)
        assert 512 <= limit <= slots.LONGEST and (limit == 512 or threads * limit <= 1 << 18)
        assert limit == 512 or first is None or limit - slots.HEAD.size < first
        if first is not None:  # the next longer slot has room for what MPI carries
            more = limit * 3 // 2 if limit & limit - 1 == 0 else limit * 4 // 3
            assert more * threads > 1 << 18 or more > slots.LONGEST or more - 24 >= first

memory = memoryview(bytearray(b"?" * 3 * 768))
long = bytes(range(256)) * 4
slots._fill(memory, 768, [(b"", 0), (b"abc", 7), (long, 2 * 1024)])
fits, most, total, numbers, bodies = slots._received(memory, 768)
assert (fits, most, total) == (False, 1024, 3 * 1027)  # as of three threads
assert numbers == [0, 7, 2048] and bodies == [b"", b"abc", None]
assert bytes(memory[2 * 768 + 24:]) == long[: 768 - 24]
fits, *rest = slots._received(memory[:768], 768)
assert not fits and rest == [1024, 1027, [0], [b""]]
slots._fill(memory, 768, [(b"", 0), (b"abc", 7), (long, 2 * 1024)], 50)
assert slots._received(memory, 768)[2] == 3 * 1077  # with what is beside them
print("done")
"""


def test_sizes_heads_and_messages() -> None:
    """A slot has room for its message; what does not fit is marked on all threads alike."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "done", done.stderr
