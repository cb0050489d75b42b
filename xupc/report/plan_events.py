"""A plan on the clock as trace events, which Perfetto opens."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence

from ..backends.simulator.activities import Act, Timeline
from ..call_trace.events import TraceEvents
from .figures import LANE_OF

__all__ = ["as_link", "plan_events"]

LANES = ("", ", sends", ", receives")
MOST_BYTES = 1 << 20  # of a link in a page


def plan_events(
    happened: Timeline, names: Mapping[int, str], nodes: Mapping[int, int]
) -> TraceEvents:
    """Return the activities of the threads in `names`: a process for each node."""
    events = TraceEvents()
    for node in sorted({nodes[rank] for rank in names}):
        events.process(node, f"node {node}, simulated")
    track = 0
    for rank, name in names.items():
        for lane, acts in _tracks(happened.of(rank)):
            place = nodes[rank], track
            events.track(*place, f"{name}{LANES[lane]}", track)
            for act in acts:
                events.slice(place, act.kind, act.start, act.end - act.start, "plan", _about(act))
            track += 1
    return events


def _about(act: Act) -> dict[str, int]:
    found = {"bytes": act.nbytes} if act.nbytes else {}
    return found if act.peer < 0 else {**found, "peer": act.peer}


def _tracks(acts: Sequence[Act]) -> Iterator[tuple[int, list[Act]]]:
    """Yield a lane and activities of it that do not overlap; the lane of copies always comes."""
    for lane in range(len(LANES)):
        tracks: list[list[Act]] = [] if lane else [[]]
        for act in acts:
            if LANE_OF.get(act.kind, 0) != lane:
                continue
            free = next((t for t in tracks if not t or t[-1].end <= act.start), None)
            if free is None:
                tracks.append(free := [])
            free.append(act)
        for track in tracks:
            yield lane, track


def as_link(events: TraceEvents) -> str:
    """Return the file as the address of a link in a page; "" if it is too long."""
    data = "".join(events.lines()).encode()
    if len(data) > MOST_BYTES:
        return ""
    return f"data:application/json;base64,{base64.b64encode(data).decode()}"
