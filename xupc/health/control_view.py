"""Access to the parts of a control segment: its arrays, and the texts in its records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..pgas.segment import Segment
from .control_layout import (
    CALL_RING,
    HEAD,
    ID,
    LINE,
    PAGE,
    PLACES_BYTES,
    RECORD,
    STATUS,
    TEXTS,
)

__all__ = ["ControlView"]


class ControlView:
    """The parts of a control segment, as one thread of the machine sees them.

    Parameters
    ----------
    segment : Segment
        Mapped by every thread of the machine.
    index, threads : int
        The number of this thread among those of the machine, and how many those are.
    machines : int
        The number of machines in the job.
    """

    def __init__(self, segment: Segment, index: int, threads: int, machines: int) -> None:
        self.segment = segment
        self.index = index
        self.threads = threads
        self.machines = machines
        self.head: NDArray[np.void] = segment.array[: HEAD.itemsize].view(HEAD)
        start, end = PAGE, PAGE + threads * LINE
        self.status: NDArray[np.void] = segment.array[start:end].view(STATUS)
        start, end = end, end + threads * CALL_RING.itemsize
        self.rings: NDArray[np.void] = segment.array[start:end].view(CALL_RING)
        self._ring = start
        self._records = end
        self._hosts = self._records + threads * RECORD
        self._places = self._hosts + machines * ID.size
        end = self._places + machines * PLACES_BYTES
        self.sync_start = (end + LINE - 1) // LINE * LINE
        self._next_text = 0
        self._texts: list[tuple[int, str]] = [(0, "")] * TEXTS

    def _record(self, index: int) -> int:
        return self._records + index * RECORD

    def _write(self, at: int, text: str, room: int) -> None:
        data = text.encode(errors="replace")[: room - 1]
        self.segment.map[at : at + room] = data.ljust(room, b"\0")

    def _read(self, at: int, room: int) -> str:
        data = bytes(self.segment.map[at : at + room])
        return data.split(b"\0", 1)[0].decode(errors="replace")
