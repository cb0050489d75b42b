"""The file of a trace: trace events of all calls, and a summary beside them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..given_files import contents_of
from ..json_text import DAMAGED, parsed
from .events import TraceEvents
from .join import Call, Total, Trace, join
from .layout import folder_of

__all__ = ["join_parts", "load", "load_calls", "write"]

MOST_ARROWS = 2000
SHORT_NS = 2000  # shorter waits get no slice of their own
VERSION = 1
MOST_BYTES = 1 << 29  # of a file; an event has some hundred bytes, and there are 100,000


def join_parts(target: Path, folder: Path | None = None) -> Trace:
    """Join the parts of a trace into its file, and remove them if none is missing.

    Raises
    ------
    ValueError
        There are no parts, or they are damaged.
    OSError
        The file cannot be written.
    """
    folder = folder_of(target) if folder is None else folder
    trace = join(folder)
    write(trace, target)
    if not trace.missing and folder == folder_of(target):
        shutil.rmtree(folder, ignore_errors=True)
    return trace


def write(trace: Trace, target: Path) -> None:
    """Write a trace beside its place first, so that no reader finds half of it."""
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(_events(trace).lines({"xupc": _summary(trace)}))
        beside.replace(target)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def load(path: Path) -> Trace:
    """Return the trace in a file, without its calls; of a folder, join its parts.

    Raises
    ------
    ValueError
        It is no trace of xupc.
    """
    return join(path) if path.is_dir() else _read(path, calls=False)


def load_calls(path: Path) -> Trace:
    """Return the trace in a file with its calls; the threads that they waited for are not kept.

    Raises
    ------
    ValueError
        It is no trace of xupc.
    """
    return join(path) if path.is_dir() else _read(path, calls=True)


def _read(path: Path, *, calls: bool) -> Trace:
    """Return the trace in a file, with its calls or without; ValueError if it is none."""
    try:
        whole = parsed(contents_of(path, MOST_BYTES))
        data = whole["xupc"]
        totals = [Total(**{**row, "causes": _numbered(row["causes"])}) for row in data["totals"]]
        trace = Trace(
            data["threads"], [], totals, data["level"], data["ns"], data["missing"],
            data.get("elsewhere", []),
        )  # fmt: skip
        trace.check()
        if calls:
            most = max(about["thread"] for about in trace.threads) + 1
            events = (event for event in whole["traceEvents"] if event.get("cat") in _CALLS)
            trace.calls += (_call(event, most) for event in events)
    except DAMAGED:
        raise ValueError(f"{path}: expected a trace that XUPC_TRACE has made") from None
    return trace


_CALLS = ("call", "posted")  # categories of their events


def _call(event: dict[str, Any], most: int) -> Call:
    """Return the call of an event that `_draw` has made."""
    args = event["args"]
    began, took = round(event["ts"] * 1000), round(event["dur"] * 1000)
    waited = int(args["waited ns"])
    return Call(
        int(event["tid"]) % most, int(args["team"]), int(args["operation"]), str(event["name"]),
        str(args["variant"]), int(args["bytes"]), str(args["line"]), began, began + took, waited,
        began + int(args["data ready ns"]), waited, (0, 0), event["cat"] == "posted",
        "ended by an error" in args, "had not ended" in args, args.get("waited for thread"),
    )  # fmt: skip


def _numbered(causes: dict[str, int]) -> dict[int, int]:
    return {int(thread): ns for thread, ns in causes.items()}


def _summary(trace: Trace) -> dict[str, Any]:
    return {
        "version": VERSION,
        "threads": trace.threads,
        "level": trace.level,
        "ns": trace.ns,
        "missing": trace.missing,
        "elsewhere": trace.elsewhere,
        "totals": [asdict(total) for total in trace.totals],
    }


def _events(trace: Trace) -> TraceEvents:
    events = TraceEvents()
    places = {about["thread"]: (about["node"], about["thread"]) for about in trace.threads}
    for node, host in sorted({(about["node"], about["host"]) for about in trace.threads}):
        events.process(node, f"node {node} ({host})")
    for thread, place in places.items():
        events.track(*place, f"thread {thread}", thread)
    for call, place in _placed(events, trace, places):
        _draw(events, call, place)
    _draw_arrows(events, trace, places)
    return events


def _placed(
    events: TraceEvents, trace: Trace, places: dict[int, tuple[int, int]]
) -> Iterator[tuple[Call, tuple[int, int]]]:
    """Yield calls and their places; posted ones overlap others, so they have more tracks."""
    ends: dict[int, list[int]] = {}
    most = max(places) + 1
    for call in trace.calls:
        node, thread = places[call.thread]
        if not call.posted:
            yield call, (node, thread)
            continue
        lanes = ends.setdefault(thread, [])
        lane = next((k for k, end in enumerate(lanes) if end <= call.began), len(lanes))
        place = node, (lane + 1) * most + thread
        if lane == len(lanes):
            lanes.append(0)
            events.track(*place, f"thread {thread}, posted", thread)
        lanes[lane] = call.ended
        yield call, place


def _draw(events: TraceEvents, call: Call, place: tuple[int, int]) -> None:
    args: dict[str, Any] = {
        "variant": call.variant, "bytes": call.nbytes, "line": call.line, "team": call.team,
        "operation": call.op, "waited ns": call.waited, "data ready ns": call.ready - call.began,
    }  # fmt: skip
    if call.cause is not None:
        args["waited for thread"] = call.cause
    if call.posted:
        args["posted"] = True
    if call.failed:
        args["ended by an error"] = True
    if call.running:
        args["had not ended"] = True
    kind = "posted" if call.posted else "call"
    events.slice(place, call.name, call.began, call.ended - call.began, kind, args)
    if call.waited >= SHORT_NS and not call.posted:
        begin = max(call.began, call.ready - call.waited)
        whom = "" if call.cause is None else f" for thread {call.cause}"
        events.slice(place, f"waits{whom}", begin, call.ready - begin, "wait")


def _draw_arrows(events: TraceEvents, trace: Trace, places: dict[int, tuple[int, int]]) -> None:
    """Draw an arrow from the thread that came late to each thread that waited for it."""
    calls = {(call.team, call.op, call.thread): call for call in trace.calls}
    longest = sorted((c for c in trace.calls if c.cause is not None), key=lambda c: -c.longest)
    for call in longest[:MOST_ARROWS]:
        assert call.cause is not None
        other = calls.get((call.team, call.op, call.cause))
        if other is not None and call.longest >= SHORT_NS and not (call.posted or other.posted):
            begin = places[other.thread], min(float(other.began), float(call.ready))
            events.arrow("arrives", begin, (places[call.thread], call.ready))
