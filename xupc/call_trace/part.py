"""A thread's part of a trace: the files that it writes while the program runs."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import CAPACITY, HEAD, HEAD_BYTES, MAGIC, ROW, TOTAL, TOTALS, stays

__all__ = ["Numbers", "Part"]

MOST_NUMBERS = 4096  # texts of a kind


class Numbers:
    """Numbers of texts: each is written to the file of names when it is first seen.

    After `MOST_NUMBERS` texts, number 0 stands for all others.
    """

    def __init__(self, what: str, write: Callable[[dict[str, Any]], None]) -> None:
        self.what = what
        self._write = write
        self._known: dict[Hashable, int] = {}

    def of(self, key: Hashable, about: dict[str, Any]) -> int:
        """Return the number of a text; `about` is what the file says of it."""
        number = self._known.get(key)
        if number is None:
            if len(self._known) == MOST_NUMBERS:
                return 0
            number = self._known[key] = len(self._known) + 1
            self._write({self.what: number, **about})
        return number


class Part:
    """The files of one thread, mapped into memory.

    What is written there stays if the process is killed.

    Parameters
    ----------
    folder : Path
        It exists; files of an earlier trace in it are replaced.
    capacity : int
        The number of rows; more calls than that are thinned.
    """

    def __init__(self, folder: Path, thread: int, capacity: int = CAPACITY) -> None:
        totals = HEAD_BYTES + TOTALS * TOTAL.itemsize
        size = totals + capacity * ROW.itemsize
        self._names = _new(folder / f"thread-{thread}.names")
        fd = _new(folder / f"thread-{thread}.rows")
        try:
            if hasattr(os, "posix_fallocate"):  # a store must not fail because the disk is full
                os.posix_fallocate(fd, 0, size)
            else:  # macOS
                os.ftruncate(fd, size)
            # mapped until `close`: the core writes there
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        every = np.frombuffer(self._map, np.uint8)
        every[:: mmap.PAGESIZE] = 0  # a page's first store takes a microsecond: not in a call
        self.head: NDArray[np.void] = every[: HEAD.itemsize].view(HEAD)
        self.totals: NDArray[np.void] = every[HEAD_BYTES:totals].view(TOTAL)
        self.rows: NDArray[np.void] = every[totals:].view(ROW)
        self.head["magic"], self.head["size"], self.head["capacity"] = MAGIC, size, capacity
        self.kinds = Numbers("kind", self.say)
        self.lines = Numbers("line", self.say)

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Return the addresses of the head, the totals and the rows."""
        return self.head.ctypes.data, self.totals.ctypes.data, self.rows.ctypes.data

    def say(self, about: dict[str, Any]) -> None:
        """Append a line to the file of names."""
        with contextlib.suppress(OSError):  # a full disk costs names, not the program
            os.write(self._names, json.dumps(about).encode() + b"\n")

    def close(self) -> None:
        """Give the files back, when nothing more is recorded; what is written stays."""
        os.close(self._names)
        self._names = -1
        del self.head, self.totals, self.rows, self._map  # the arrays hold the mapping

    # -- what the native core does itself ------------------------------------------------
    def begin(self, op: int, kind: int, line: int) -> NDArray[np.void]:
        """Return the row of a call that begins."""
        row = np.zeros(1, ROW)
        row["op"], row["kind"], row["line"] = op, kind, line
        row["began"] = time.monotonic_ns()
        self.head["open"] = row
        return row

    def waited(self, row: NDArray[np.void], since: int, awaited: int) -> None:
        """Note a wait of a call that ends now."""
        now = time.monotonic_ns()
        row["waited"] += now - since
        row["ready"] = now
        if now - since >= row["longest"][0]:
            row["longest"], row["awaited"] = now - since, awaited

    def see(self) -> int:
        """Note that this thread waits; return the time."""
        now = time.monotonic_ns()
        self.head["seen"] = now
        return now

    def end(self, row: NDArray[np.void]) -> None:
        """Keep the row of a call that has ended."""
        row["ended"] = time.monotonic_ns()
        self._keep(row)
        if self.head["open"]["op"] == row["op"]:
            self.head["open"]["op"] = 0

    def _keep(self, row: NDArray[np.void]) -> None:
        head = self.head[0]
        head["calls"] += 1
        while head["count"] == head["capacity"]:
            self._thin()
        if not stays(int(row["op"][0]), int(head["level"])):
            self._add(row[0])
            return
        self.rows[int(head["count"])] = row[0]
        head["count"] += 1

    def _thin(self) -> None:
        """Drop about half of the rows."""
        head = self.head[0]
        head["level"] += 1
        level, rows = int(head["level"]), self.rows[: int(head["count"])]
        keep = np.array([stays(op, level) for op in rows["op"].tolist()], bool)
        for row in rows[~keep]:
            self._add(row)
        kept = rows[keep]
        self.rows[: len(kept)] = kept
        head["count"] = len(kept)

    def _add(self, row: np.void) -> None:
        """Add a call to the totals, linear from the first place."""
        for total in self.totals[:-1]:
            if not total["calls"]:
                total["kind"], total["line"] = row["kind"], row["line"]
            if (total["kind"], total["line"]) == (row["kind"], row["line"]):
                break
        else:
            total = self.totals[-1]
        total["calls"] += 1
        total["ns"] += max(0, int(row["ended"]) - int(row["began"]))
        total["waited"] += row["waited"]
        total["longest"] = max(total["longest"], row["longest"])


def _new(path: Path) -> int:
    """Return the descriptor of a new file; a file of an earlier trace is removed first."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
