"""Read the parts that the threads of a job have written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..json_text import DAMAGED, parsed
from .layout import HEAD, HEAD_BYTES, MAGIC, ROW, TOTAL, TOTALS

__all__ = ["ThreadPart", "read_parts"]


@dataclass
class ThreadPart:
    """The calls that one thread has recorded.

    Attributes
    ----------
    thread, node, host
        Where it ran.
    about
        The line of the file of names that describes the thread and its job.
    clocks
        ``(time, offset)``: what was to be added to its clock then, in ns.
    kinds, lines, teams
        The texts that rows refer to, by number.
    level
        Rows of one operation in 2^level were kept.
    seen
        When the thread was last known to wait, by its clock; 0 if it never was.
    totals, rows
        The calls whose rows were dropped, and calls that ended.
    open
        The row of the call that the thread was in at its end, or no row.
    elsewhere
        ``(name, reason, calls)``: those that another library has carried, without rows.
    """

    thread: int
    node: int
    host: str
    about: dict[str, Any]
    level: int
    seen: int
    totals: NDArray[np.void]
    rows: NDArray[np.void]
    open: NDArray[np.void]
    clocks: list[tuple[int, int]] = field(default_factory=list)
    kinds: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)
    teams: dict[int, dict[str, Any]] = field(default_factory=dict)
    elsewhere: list[tuple[str, str, int]] = field(default_factory=list)

    def aligned(self, times: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return times of this thread's clock as times of thread 0's."""
        at, offsets = zip(*self.clocks, strict=True)
        here = times.astype(np.int64)
        shift = np.interp(here - at[0], np.array(at) - at[0], offsets)
        found: NDArray[np.int64] = here + shift.astype(np.int64)
        return found


def read_parts(folder: Path) -> list[ThreadPart]:
    """Return the parts in a folder by thread.

    Raises
    ------
    ValueError
        The folder has no part, or a file is none.
    """
    parts = [_read(path) for path in folder.glob("thread-*.names")]
    if not parts:
        raise ValueError(f"{folder}: expected parts of a trace (thread-0.names ...), found none")
    return sorted(parts, key=lambda part: part.thread)


def _read(path: Path) -> ThreadPart:
    names = list(_names(path))
    rows = path.with_suffix(".rows")
    if not names or "thread" not in names[0]:
        raise ValueError(f"{path}: expected the description of a thread in its first line")
    try:
        data = np.fromfile(rows, np.uint8)
    except OSError as e:
        raise ValueError(f"{rows}: {e.strerror}") from None
    part = _part(rows, names[0], data)
    try:
        for line in names[1:]:
            _take(part, line)
    except DAMAGED as e:
        raise ValueError(f"{path}: damaged: {type(e).__name__}: {e}") from None
    return part


def _names(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of names; the last one may be cut short."""
    for line in path.read_bytes().splitlines():
        try:
            found = parsed(line)
        except ValueError:
            return
        if isinstance(found, dict):
            yield found


def _part(path: Path, about: dict[str, Any], data: NDArray[np.uint8]) -> ThreadPart:
    start = HEAD_BYTES + TOTALS * TOTAL.itemsize
    if len(data) < start or data[: HEAD.itemsize].view(HEAD)["magic"][0] != MAGIC:
        raise ValueError(f"{path}: expected a part of a trace, got another file")
    head = data[: HEAD.itemsize].view(HEAD)[0]
    whole = (len(data) - start) // ROW.itemsize * ROW.itemsize  # the last row may be cut short
    rows = data[start : start + whole].view(ROW)[: int(head["count"])]
    totals = data[HEAD_BYTES:start].view(TOTAL)
    now = head["open"]
    try:
        return ThreadPart(
            int(about["thread"]), int(about["node"]), str(about["host"]), about,
            int(head["level"]), int(head["seen"]), totals[totals["calls"] > 0], rows,
            np.array([now] if now["op"] else [], ROW),
            [(int(about["at"]), int(about["offset"]))],
        )  # fmt: skip
    except DAMAGED as e:
        raise ValueError(f"{path}: the description of the thread lacks {e}") from None


def _take(part: ThreadPart, line: dict[str, Any]) -> None:
    for what, where in (("kind", part.kinds), ("line", part.lines), ("team", part.teams)):
        if what in line:
            where[int(line[what])] = line
            return
    if "elsewhere" in line:
        part.elsewhere = [
            (str(name), str(why), int(calls)) for name, why, calls in line["elsewhere"]
        ]
    if "clock" in line:
        part.clocks.append((int(line["at"]), int(line["clock"])))
