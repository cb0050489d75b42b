"""The actors that have not reached their end, and what each of them waits for."""

from __future__ import annotations

from .race_detector import Where
from .sim_program import BARRIER, FUSED, NEED, WAIT
from .state import Lane, Stream, World

__all__ = ["blocked"]


def blocked(world: World) -> list[str]:
    """Describe each actor that has not reached its end, and what it waits for."""
    out = []
    for user in world.threads:
        streams = [stream for stream in user.streams.values() if stream.call is not None]
        for stream in streams:
            out += _blocked_in(world, stream)
        if streams:
            continue
        if user.awaits is not None:
            out.append(f"thread {user.number}: waits for {user.awaits!r}, not posted")
        elif user.next < len(user.script) or user in world.at_barrier:
            out.append(f"thread {user.number}: user barrier before call {user.calls}")
    return out


def _blocked_in(world: World, stream: Stream) -> list[str]:
    """Describe why a call does not complete."""
    out = [
        f"{lane.where}{_reason(world, lane)}"
        for lane in stream.lanes
        if lane.at < len(lane.steps)
    ]
    if not stream.running:
        out.append(
            f"thread {stream.thread.number}, call {stream.calls}: at the end of both lanes"
            + "".join(
                f", t{i} is not set ({_opener(stream, i) or 'no thread sets it'})"
                for i, left in enumerate(stream.tickets)
                if left
            )
        )
    return out


def _reason(world: World, lane: Lane) -> str:
    """Describe what a lane waits for; report a Wait that counts signals for other threads."""
    stream = lane.owner
    kind, arg = lane.steps[lane.at]
    if kind == NEED:
        where = _opener(stream, arg)
        return f" (set by {where})" if where is not None else " (which no thread has begun)"
    if kind == WAIT:
        number, value, of = arg
        source = of[lane.seen]
        reached = max(stream.traffic.channel(source, number).values, default=0)
        if reached >= value:
            text = (
                f"{lane.where}: thread {source} has signalled {value}, "
                f"but not {value} times for thread {stream.rank}"
            )
            world.protocol.append(text)
        return f" (thread {source} stands at {reached})"
    if kind in (BARRIER, FUSED):
        here = sorted(t.thread.number for t, _ in world.arrived.get(stream.team, ()))
        return f" (here: {here})"
    return ""


def _opener(stream: Stream, ticket: int) -> Where | None:
    """Return the step that sets a ticket."""
    place = stream.open.get(ticket)
    return None if place is None else Where.of(place)
