"""How a simulated call begins, sets its tickets, and completes.

The calls of a thread on one team run in order. A call is complete when both lanes are at their
end and every ticket is set; then the next call of the same team begins.
"""

from __future__ import annotations

from .script import Await, Call, Post
from .state import Bound, Lane, Stream, Team, Traffic, UserThread, World

__all__ = [
    "begin_ticket",
    "complete_if_done",
    "complete_part",
    "enter_call",
    "set_ticket",
    "wait_ticket",
]


def enter_call(world: World, thread: UserThread, action: Call | Post | Await) -> bool:
    """Make or post a call, or wait for a posted one; True if the thread can continue."""
    name = "" if isinstance(action, Call) else action.name
    if not isinstance(action, Await):
        _enqueue(world, thread, action.call if isinstance(action, Post) else action, name)
        if isinstance(action, Post):
            return True
    if name in thread.complete:
        thread.known |= thread.complete[name]
        return True
    thread.awaits = name
    return False


def _enqueue(world: World, thread: UserThread, call: Call, name: str) -> None:
    team = world.all_threads if call.threads is None else call.threads
    stream = thread.streams.get(team)
    if stream is None:
        stream = thread.streams[team] = Stream(thread, team)
    thread.complete.pop(name, None)
    thread.calls += 1
    stream.queue.append((call, thread.known, name))
    if stream.call is None:
        _start(world, stream)


def _start(world: World, stream: Stream) -> None:
    """Begin the first call of a stream's queue."""
    call, known, stream.name = stream.queue.popleft()
    program = call.programs[stream.rank]
    plan = program.plan
    stream.call = call
    stream.known |= known
    stream.bound = _bind(world, call, stream.team)
    key = stream.team, stream.calls
    if key not in world.traffic:
        world.traffic[key] = Traffic(*key)
    stream.traffic = world.traffic[key]
    stream.tickets = [-1] * plan.tickets
    stream.ticket_known = [0] * plan.tickets
    stream.unset = plan.tickets
    stream.running = 2
    for lane in stream.lanes:
        which = lane.lane
        number = stream.thread.number
        lane.head = number, stream.calls, which, plan.lanes[which], program.name
        lane.steps = program.lanes[which]
        lane.end = len(lane.steps)
        lane.at = lane.seen = lane.epoch = 0
        lane.known = stream.known
        world.push(lane)


def _bind(world: World, call: Call, team: Team) -> Bound:
    """Find the operands of a call."""
    key = call.operands, team
    if key not in world.bound:
        world.bound[key] = [
            (base, [world.shadows[array][number] for number in team])
            for array, base in call.operands
        ]
    return world.bound[key]


def complete_if_done(world: World, stream: Stream) -> None:
    """Complete the call if both lanes are at their end and every ticket is set."""
    if stream.running or stream.unset:
        return
    known = stream.known | stream.lanes[0].known | stream.lanes[1].known
    for gained in stream.ticket_known:
        known |= gained
    stream.known = known
    stream.call = None
    stream.calls += 1
    stream.open.clear()
    user = stream.thread
    user.complete[stream.name] = known
    if user.awaits == stream.name:
        user.awaits = None
        user.known |= known
        world.push(user)
    if stream.queue:
        _start(world, stream)


# -- tickets ---------------------------------------------------------------------------
def begin_ticket(world: World, lane: Lane, ticket: int, parts: int) -> None:
    """Open a ticket that is set when `parts` operations are complete."""
    stream = lane.owner
    if stream.tickets[ticket] != -1:
        world.protocol.append(f"{lane.where}: ticket t{ticket} was in use already")
        stream.unset += stream.tickets[ticket] == 0
    stream.tickets[ticket] = parts
    stream.open[ticket] = lane.head, lane.at


def complete_part(world: World, stream: Stream, ticket: int, known: int) -> None:
    """Complete one of the operations that a ticket waits for; `known`: what its waiter learns."""
    stream.ticket_known[ticket] |= known
    left = stream.tickets[ticket]
    stream.tickets[ticket] = left - 1 if left > 0 else 0
    if left > 1:
        return
    stream.unset -= 1
    waiter = stream.waiting.pop(ticket, None)
    if waiter is not None:
        world.push(waiter)
    complete_if_done(world, stream)


def wait_ticket(world: World, lane: Lane, ticket: int) -> bool:
    """Wait until a ticket is set."""
    stream = lane.owner
    if stream.tickets[ticket]:
        stream.waiting[ticket] = lane
        return False
    lane.known |= stream.ticket_known[ticket]
    return True


def set_ticket(world: World, lane: Lane, ticket: int) -> bool:
    """Set a ticket for the other lane."""
    begin_ticket(world, lane, ticket, 1)
    lane.epoch = 0
    complete_part(world, lane.owner, ticket, lane.known)
    return True
