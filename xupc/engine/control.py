"""The machine's control segment: liveness, what each thread does, and sync areas.

One per machine (threads that proved to share memory), even when ``XUPC_NODES``
splits it into several nodes. Layout, for m threads::

    page 0        header: magic, nonce, m
    line i        status of thread i: operation, call, done         (native core)
    record i      pid, THREADS id, host name, and the texts of its last calls
    sync areas    one per node of this machine                      (native core)

Byte i of the file carries thread i's lock: free means dead. Exactly one descriptor
on the file per process: closing another would drop the lock.
"""

from __future__ import annotations

import os
import struct

import numpy as np
from numpy.typing import NDArray

from ..memory.segment import Segment, hold_lock, lock_holder

__all__ = ["Control", "control_bytes"]

PAGE = 4096
LINE = 64
TEXTS = 64
TEXT_BYTES = 224
_ID = struct.Struct("<qq48s")  # pid, thread, host
_RECORD = 128 + TEXTS * TEXT_BYTES
_STATUS = np.dtype(
    {"names": ["op", "call", "done"], "formats": ["u8"] * 3, "offsets": [0, 8, 16], "itemsize": 64}
)


def control_bytes(threads: int, sync_bytes: int) -> int:
    """Size of the control segment for `threads` on this machine."""
    return PAGE + threads * (LINE + _RECORD) + sync_bytes + PAGE


class Control:
    """My view of the control segment.

    Parameters
    ----------
    segment : Segment
        Mapped by every thread of the machine.
    index, threads : int
        My number among the machine's threads, and theirs.
    """

    def __init__(self, segment: Segment, index: int, threads: int) -> None:
        self.segment = segment
        self.index = index
        self.threads = threads
        start = PAGE
        self.status: NDArray[np.void] = segment.array[start : start + threads * LINE].view(_STATUS)
        self._records = start + threads * LINE
        end = self._records + threads * _RECORD
        self.sync_start = (end + LINE - 1) // LINE * LINE
        self._next_text = 0
        self._texts = [""] * TEXTS

    def introduce(self, thread: int, host: str) -> None:
        """Write who I am and take my lock."""
        at = self._records + self.index * _RECORD
        name = host.encode()[:48]
        self.segment.map[at : at + _ID.size] = _ID.pack(os.getpid(), thread, name)
        hold_lock(self.segment.fd, self.index)

    def who(self, index: int) -> tuple[int, int, str]:
        """(pid, thread, host) of a machine's thread."""
        at = self._records + index * _RECORD
        pid, thread, host = _ID.unpack(self.segment.map[at : at + _ID.size])
        return pid, thread, host.rstrip(b"\0").decode(errors="replace")

    @property
    def status_address(self) -> int:
        """Where my status line is."""
        return self.segment.address + PAGE + self.index * LINE

    def note(self, text: str) -> int:
        """Publish the text of a call of mine; its number + 1, for the status line."""
        slot = self._next_text % TEXTS
        self._next_text += 1
        self._write(slot, text)
        return slot + 1

    def ensure(self, call: int, text: str) -> None:
        """The number of a call may have gone to another since: write its text again."""
        if self._texts[call - 1] != text:
            self._write(call - 1, text)

    def _write(self, slot: int, text: str) -> None:
        self._texts[slot] = text
        at = self._records + self.index * _RECORD + 128 + slot * TEXT_BYTES
        data = text.encode(errors="replace")[: TEXT_BYTES - 1]
        self.segment.map[at : at + TEXT_BYTES] = data.ljust(TEXT_BYTES, b"\0")

    def doing(self, index: int) -> str:
        """What a thread is doing, or did last, in words."""
        status = self.status[index]
        op, call, done = int(status["op"]), int(status["call"]), int(status["done"])
        if not call:
            return "outside xupc, before its first call"
        text = self._text(index, call)
        return f"outside xupc; its last call was {text}" if done == op else f"in {text}"

    def _text(self, index: int, call: int) -> str:
        at = self._records + index * _RECORD + 128 + (call - 1) % TEXTS * TEXT_BYTES
        data = bytes(self.segment.map[at : at + TEXT_BYTES])
        return data.split(b"\0", 1)[0].decode(errors="replace")

    def operation_of(self, index: int) -> int:
        """How many calls a thread has begun."""
        return int(self.status[index]["op"])

    def dead(self) -> list[int]:
        """Machine indices of threads whose lock is free."""
        fd = self.segment.fd
        gone = []
        for i in range(self.threads):
            if i != self.index and lock_holder(fd, i) is None:
                gone.append(i)
        return gone
