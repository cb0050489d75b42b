"""The signals, messages and one-sided reads of simulated calls, and what threads learn by them."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from .call_lifetime import begin_ticket, complete_part
from .data_movement import load, move, store, touch
from .race_detector import Where
from .sim_program import DATA, Exchange, Moves
from .state import Lane, Reading, Transfer, World

__all__ = [
    "check_signals",
    "deliver",
    "get",
    "read",
    "recv",
    "send",
    "signal",
    "wait",
]


# -- signals -----------------------------------------------------------------------------
def signal(world: World, lane: Lane, arg: tuple[int, int, tuple[int, ...]]) -> bool:
    """Raise a channel of the thread to a value, for some ranks."""
    number, value, to = arg
    channel = lane.owner.traffic.channel(lane.owner.rank, number)
    if channel.values and channel.values[-1] > value:
        world.protocol.append(
            f"{lane.where}: the channel stood at {channel.values[-1]} already"
        )
    channel.values.append(value)
    channel.known.append(lane.known)
    for rank in to:
        if rank in channel.named:
            channel.named[rank].append(lane.known)
        else:
            channel.named[rank] = [lane.known]
    lane.epoch = 0
    waiters, channel.waiters = channel.waiters, []
    for waiter in waiters:
        world.push(waiter)
    return True


def wait(world: World, lane: Lane, arg: tuple[int, int, tuple[int, ...]]) -> bool:
    """Wait until the channels of some ranks reach a value."""
    number, value, of = arg
    if value <= 0:
        return True
    stream = lane.owner
    while lane.seen < len(of):
        channel = stream.traffic.channel(of[lane.seen], number)
        named = channel.named.get(stream.rank, ())
        if len(named) < value or channel.values[-1] < value:
            channel.waiters.append(lane)
            return False
        first = bisect_left(channel.values, value)
        lane.known |= channel.known[first] & named[value - 1]
        channel.awaited[stream.rank] = max(channel.awaited.get(stream.rank, 0), value)
        lane.seen += 1
    lane.seen = 0
    return True


def check_signals(world: World) -> None:
    """Check that each signal has a waiter: some backends send a message for it."""
    for traffic in world.traffic.values():
        team = traffic.team
        for (of, number), channel in traffic.channels.items():
            for rank, signals in channel.named.items():
                awaited = channel.awaited.get(rank, 0)
                if rank != of and len(signals) > awaited:
                    world.protocol.append(
                        f"call {traffic.call}: thread {team[of]} signals channel {number} "
                        f"{len(signals)} times for thread {team[rank]}, which waits for {awaited}"
                    )


# -- messages ----------------------------------------------------------------------------
def send(world: World, lane: Lane, arg: Exchange) -> bool:
    """Post the messages of a Send or NetSignal."""
    _post(world, lane, arg, True)
    return True


def recv(world: World, lane: Lane, arg: Exchange) -> bool:
    """Post the receives of a Recv or NetWait."""
    _post(world, lane, arg, False)
    return True


def _post(world: World, lane: Lane, arg: Exchange, sends: bool) -> None:
    """Post messages at one end; start the transfer of those that the other end has posted."""
    stream, known, place = lane.owner, lane.known, (lane.head, lane.at)
    bit = world.new_bit()
    touch(world, stream.bound, arg.spans, not sends, known, bit, place)
    begin_ticket(world, lane, arg.ticket, len(arg.messages))
    stream.ticket_known[arg.ticket] |= known | bit
    lane.epoch = 0
    if not arg.messages:
        complete_part(world, stream, arg.ticket, 0)
    traffic, me = stream.traffic, stream.rank
    mine, theirs = traffic.sends, traffic.recvs
    if not sends:
        mine, theirs = theirs, mine
    for message in arg.messages:
        peer = message.peer
        ends = (me, peer, arg.channel) if sends else (peer, me, arg.channel)
        posted = stream, arg.ticket, message, known, place
        if waiting := theirs.get(ends):
            other = waiting.popleft()
            sent, received = (posted, other) if sends else (other, posted)
            world.push(Transfer(arg.channel, sent, received))
        else:
            mine.setdefault(ends, deque()).append(posted)


def deliver(world: World, transfer: Transfer) -> None:
    """Move the bytes of a matched pair of messages and complete it at both ends."""
    sender, send_ticket, sent, known, send_place = transfer.send
    receiver, recv_ticket, taken, _, recv_place = transfer.recv
    if sent.nbytes != taken.nbytes:
        world.protocol.append(
            f"message of {sent.nbytes} B meets a receive of {taken.nbytes} B:\n"
            f"    {Where.of(send_place)}\n    {Where.of(recv_place)}"
        )
    elif transfer.channel == DATA:
        store(receiver.bound, taken.blocks, load(sender.bound, sent.blocks))
    complete_part(world, receiver, recv_ticket, known)
    complete_part(world, sender, send_ticket, 0)


# -- one-sided reads -----------------------------------------------------------------------
def get(world: World, lane: Lane, arg: tuple[int, Moves]) -> bool:
    """Post a one-sided read."""
    ticket, moves = arg
    stream = lane.owner
    place = lane.head, lane.at
    bit = world.new_bit()
    touch(world, stream.bound, moves.reads, False, lane.known, bit, place)
    touch(world, stream.bound, moves.writes, True, lane.known, bit, place)
    begin_ticket(world, lane, ticket, 1)
    lane.epoch = 0
    world.push(Reading(stream, ticket, moves, lane.known | bit))
    return True


def read(world: World, reading: Reading) -> None:
    """Move the bytes of a one-sided read and complete it."""
    move(reading.thread, reading.moves)
    complete_part(world, reading.thread, reading.ticket, reading.known)
