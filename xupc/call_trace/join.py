"""Join the parts of all threads into one trace: calls in the order of one clock, and their totals.

This module finds the thread that a call waited for. A thread waits for its node root, the node root
for a message, its sender for a thread of its own node: the cause is the thread at the end of this
chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..json_text import DAMAGED
from .layout import (
    ANYONE,
    CLAIMED,
    FAILED,
    MEMBER,
    MOST_THREADS,
    POSTED,
    RANK,
    ROW,
    THREAD,
    awaited,
)
from .reading import ThreadPart, read_parts

__all__ = ["Call", "Total", "Trace", "join"]

MOST_EVENTS = 100_000
MOST_LEVEL = 63  # then one operation in 2^63 is kept
LATE = 0.5  # a thread is late if it comes after this part of another one's wait


@dataclass
class Call:
    """One call of one thread; times are ns since the first call of the job.

    Attributes
    ----------
    awaited
        The kind and the index of the thread that its longest wait was for.
    cause
        The thread at the end of the chain of waits; None if it waited for none.
    failed
        True if the call ended by an exception.
    running
        True if the call had not ended when the trace did.
    """

    thread: int
    team: int
    op: int
    name: str
    variant: str
    nbytes: int
    line: str
    began: int
    ended: int
    waited: int
    ready: int
    longest: int
    awaited: tuple[int, int]
    posted: bool
    failed: bool
    running: bool
    cause: int | None = None

    @property
    def wait_began(self) -> int:
        """Return the time at which the last wait began, taken as the longest one."""
        return self.ready - self.longest


@dataclass
class Total:
    """All calls of one kind at one line, of all threads."""

    line: str
    name: str
    variant: str
    calls: int = 0
    ns: int = 0
    waited: int = 0
    longest: int = 0
    nbytes: int = 0
    causes: dict[int, int] = field(default_factory=dict)


@dataclass
class Trace:
    """The calls that a job has recorded.

    Attributes
    ----------
    threads
        The description of each thread: thread, node, host, and whether it called finalize.
    level
        Calls of one operation in 2^level are in `calls`; the totals count all.
    missing
        Threads whose part was not found.
    elsewhere
        Calls of all threads that are not in the trace, since another library has carried them:
        "name", "why" and "calls".
    """

    threads: list[dict[str, Any]]
    calls: list[Call]
    totals: list[Total]
    level: int
    ns: int
    missing: list[int]
    elsewhere: list[dict[str, Any]] = field(default_factory=list)

    def check(self) -> None:
        """Raise ValueError if a file described a trace that cannot be."""
        _check_level(self.level)
        for name, numbers in (
            ("thread", [about["thread"] for about in self.threads]),
            ("node", [about["node"] for about in self.threads]),
            ("missing", self.missing),
        ):
            if not all(type(x) is int and 0 <= x < MOST_THREADS for x in numbers):
                raise ValueError(f"{name}: expected numbers from 0 to {MOST_THREADS - 1}")
        for row in self.elsewhere:
            if [type(row[key]) for key in ("name", "why", "calls")] != [str, str, int]:
                raise ValueError("elsewhere: expected names, reasons and numbers of calls")
        if not self.threads or len({about["thread"] for about in self.threads}) < len(self.threads):
            raise ValueError("threads: expected each thread once")


def _check_level(level: int) -> None:
    if type(level) is not int or not 0 <= level <= MOST_LEVEL:
        raise ValueError(f"level: expected 0 to {MOST_LEVEL}")


def join(folder: Path, most: int = MOST_EVENTS) -> Trace:
    """Return the trace of all parts in a folder, with at most about `most` calls.

    Raises
    ------
    ValueError
        The folder has no parts, or a damaged one.
    """
    parts = read_parts(folder)
    try:
        trace = _joined(parts, most)
        trace.check()
    except DAMAGED as e:
        raise ValueError(f"{folder}: damaged parts: {type(e).__name__}: {e}") from None
    return trace


def _joined(parts: Sequence[ThreadPart], most: int) -> Trace:
    """Return the trace of all parts."""
    level = _level(parts, most)
    totals = _totals(parts)
    start, end = _span(parts)
    calls = [call for part in parts for call in _calls(part, level, start, end)]
    calls.sort(key=lambda call: call.began)
    for call in calls:
        if call.running:
            _add_running(totals, call)
    _resolve(calls, parts)
    _share_causes(totals, calls)
    number = int(parts[0].about.get("threads", len(parts)))
    if number > MOST_THREADS:
        raise ValueError(f"{number} threads: expected at most {MOST_THREADS}")
    found = {part.thread for part in parts}
    return Trace(
        [_about(part) for part in parts],
        calls,
        sorted(totals.values(), key=lambda total: -total.ns),
        level,
        end - start,
        [thread for thread in range(number) if thread not in found],
        _elsewhere(parts),
    )


def _elsewhere(parts: Sequence[ThreadPart]) -> list[dict[str, Any]]:
    """Return the calls of all threads that another library has carried, most calls first."""
    calls: dict[tuple[str, str], int] = {}
    for name, why, number in (each for part in parts for each in part.elsewhere):
        calls[name, why] = calls.get((name, why), 0) + number
    order = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "why": why, "calls": number} for (name, why), number in order]


def _about(part: ThreadPart) -> dict[str, Any]:
    ended = len(part.clocks) > 1
    return {"thread": part.thread, "node": part.node, "host": part.host, "finalized": ended}


# -- times ---------------------------------------------------------------------------------------


def _span(parts: Sequence[ThreadPart]) -> tuple[int, int]:
    """Return the begin of the first call and the end of the last one."""
    begins, ends = [], []
    for part in parts:
        rows = np.concatenate([part.rows, part.open])
        if len(rows):
            begins.append(int(part.aligned(rows["began"]).min()))
            last = max(int(np.maximum(rows["ended"], rows["began"]).max()), part.seen)
            ends.append(int(part.aligned(np.array([last], np.uint64))[0]))
    return min(begins, default=0), max(ends, default=0)


def _stay(ops: NDArray[np.uint64], level: int) -> NDArray[np.bool_]:
    """Return which operations stay: `layout.stays` of an array."""
    number = ops ^ ops >> np.uint64(33)
    number = number * np.uint64(0xFF51AFD7ED558CCD)
    number ^= number >> np.uint64(33)
    found: NDArray[np.bool_] = number & np.uint64((1 << level) - 1) == 0
    return found


def _level(parts: Sequence[ThreadPart], most: int) -> int:
    level = max(part.level for part in parts)
    _check_level(level)
    while sum(int(_stay(part.rows["op"], level).sum()) for part in parts) > most:
        level += 1
    return level


# -- calls ---------------------------------------------------------------------------------------


def _calls(part: ThreadPart, level: int, start: int, end: int) -> Iterator[Call]:
    kept = part.rows[_stay(part.rows["op"], level)]
    yield from _made(part, kept, start, None)
    yield from _made(part, part.open, start, end)


def _made(part: ThreadPart, rows: NDArray[np.void], start: int, end: int | None) -> Iterator[Call]:
    """Yield the calls of rows; with `end`, they have not ended."""
    if not len(rows):
        return
    seen: set[tuple[int, int]] = set()
    times = {name: (part.aligned(rows[name]) - start).tolist() for name in ("began", "ready")}
    ends = part.aligned(np.maximum(rows["ended"], rows["began"])) - start
    for i, row in enumerate(rows.tolist()):
        values = dict(zip(ROW.names or (), row, strict=True))
        kind = part.kinds.get(values["kind"], {})
        team = int(kind.get("team", 0))
        if (team, values["op"]) in seen:  # the thread was killed while it dropped rows
            continue
        seen.add((team, values["op"]))
        yield Call(
            part.thread, team, values["op"], str(kind.get("name", "other calls")),
            str(kind.get("variant", "")), int(kind.get("nbytes", 0)),
            _line_text(part, values["line"]), times["began"][i],
            int(ends[i]) if end is None else end - start, values["waited"],
            times["ready"][i] if values["ready"] else times["began"][i], values["longest"],
            awaited(values["awaited"]), bool(values["state"] & (POSTED | CLAIMED)),
            bool(values["state"] & FAILED), end is not None,
        )  # fmt: skip


def _line_text(part: ThreadPart, number: int) -> str:
    line = part.lines.get(number)
    if line is None:
        return "other lines"
    return f"{line['file']}:{line['number']} in {line['function']}"


# -- totals --------------------------------------------------------------------------------------

_Key = tuple[str, str, str]


def _totals(parts: Sequence[ThreadPart]) -> dict[_Key, Total]:
    found: dict[_Key, Total] = {}
    for part in parts:
        for total in part.totals:
            _add(found, part, total)
        kinds, lines = part.rows["kind"], part.rows["line"]
        for key in np.unique(part.rows[["kind", "line"]]):
            rows = part.rows[(kinds == key["kind"]) & (lines == key["line"])]
            took = np.maximum(rows["ended"], rows["began"]) - rows["began"]
            _add(found, part, {
                "kind": key["kind"], "line": key["line"], "calls": len(rows), "ns": took.sum(),
                "waited": rows["waited"].sum(), "longest": rows["longest"].max(),
            })  # fmt: skip
    return found


def _add(found: dict[_Key, Total], part: ThreadPart, one: Any) -> None:
    kind = part.kinds.get(int(one["kind"]), {})
    key = (
        _line_text(part, int(one["line"])), str(kind.get("name", "other calls")),
        str(kind.get("variant", "")),
    )  # fmt: skip
    total = found.setdefault(key, Total(*key))
    total.calls += int(one["calls"])
    total.ns += int(one["ns"])
    total.waited += int(one["waited"])
    total.longest = max(total.longest, int(one["longest"]))
    total.nbytes += int(one["calls"]) * int(kind.get("nbytes", 0))


def _add_running(found: dict[_Key, Total], call: Call) -> None:
    """Add a call that had not ended: all of it counts as a wait."""
    key = call.line, call.name, call.variant
    total = found.setdefault(key, Total(*key))
    call.ready, call.waited = call.ended, call.ended - call.began
    call.longest = call.waited
    total.calls += 1
    total.ns += call.waited
    total.waited += call.waited
    total.longest = max(total.longest, call.waited)


def _share_causes(totals: dict[_Key, Total], calls: Sequence[Call]) -> None:
    """Add the waits of the calls that are known to the totals, by the thread that caused them."""
    for call in calls:
        total = totals.get((call.line, call.name, call.variant))
        if total is not None and call.cause is not None:
            total.causes[call.cause] = total.causes.get(call.cause, 0) + call.waited


# -- causes --------------------------------------------------------------------------------------

_Group = dict[int, Call]


def _resolve(calls: Sequence[Call], parts: Sequence[ThreadPart]) -> None:
    """Set the cause of each call that waited."""
    by_thread = {part.thread: part for part in parts}
    groups: dict[tuple[int, int], _Group] = defaultdict(dict)
    for call in calls:
        groups[call.team, call.op][call.thread] = call
    for call in calls:
        group = groups[call.team, call.op]
        if call.running or call.failed:
            call.cause = _absent(call, group, by_thread)
        if call.cause is None and call.waited and not call.running:
            call.cause = _cause(call, group, by_thread)


def _absent(call: Call, group: _Group, parts: dict[int, ThreadPart]) -> int | None:
    """Return a thread of the team that had not entered a call that did not end."""
    threads = parts[call.thread].teams.get(call.team, {}).get("threads") or sorted(parts)
    return next((int(thread) for thread in threads if int(thread) not in group), None)


def _cause(call: Call, group: _Group, parts: dict[int, ThreadPart]) -> int | None:
    """Follow the waits of a call to the thread that had not come, or did not wait itself."""
    at, seen = call, {call.thread}
    while True:
        thread = _direct(at, call, group, parts[at.thread])
        if thread is None or thread in seen:
            return thread if at is call else at.thread
        other = group.get(thread)
        if other is None or _late(other, call) or not _waited_then(other, call):
            return thread
        seen.add(thread)
        at = other


def _late(other: Call, call: Call) -> bool:
    return other.began > call.ready - LATE * call.longest


def _waited_then(other: Call, call: Call) -> bool:
    """Return whether another call waited during a good part of a call's longest wait."""
    return other.longest >= LATE * call.longest


def _direct(at: Call, call: Call, group: _Group, part: ThreadPart) -> int | None:
    """Return the thread that a call waited for itself."""
    kind, index = at.awaited
    team = part.teams.get(at.team, {})
    members = team.get("members", ())
    if kind == THREAD:
        return index
    if kind == MEMBER and index < len(members):
        return int(members[index])
    if kind == RANK:
        threads = team.get("threads")
        return index if threads is None else int(threads[index]) if index < len(threads) else None
    if kind == ANYONE:
        return _last(at, call, [group[t] for t in members if t in group and t != at.thread])
    return None


def _last(at: Call, call: Call, others: Sequence[Call]) -> int | None:
    """Return the last of a node's threads to come; if none was late, the one waiting longest."""
    if not others:
        return None
    last = max(others, key=lambda other: other.began)
    if _late(last, call):
        return last.thread
    far = [other for other in others if other.awaited[0] in (RANK, MEMBER, THREAD)]
    return max(far or [last], key=lambda other: other.longest).thread
