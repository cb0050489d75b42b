"""The state of a simulation: its actors, the signals and messages of each call, its findings.

An actor is whatever can do a step of its own: a lane of a call, the user's program of a thread,
a message in flight, a one-sided read in flight. ``known`` is always a bit mask of the accesses
that an actor knows to have ended; see `race_detector`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .race_detector import Head, Place, Race, Shadow, Where
from .script import Action, Call, Memory
from .sim_program import Message, Moves

__all__ = [
    "Actor",
    "Bound",
    "Channel",
    "Lane",
    "Posted",
    "Reading",
    "Stream",
    "Team",
    "Traffic",
    "Transfer",
    "UserThread",
    "World",
]

Team = tuple[int, ...]
Bound = list[tuple[int, list[Shadow]]]
"""The place of each operand of a call: its offset, and by rank the array that holds it."""


class Lane:
    """An actor: one lane of the call that a thread is in.

    Attributes
    ----------
    head
        The common part of the places of its steps.
    seen
        How many of the threads of the current Wait have already signalled.
    epoch
        The bit of the lane's accesses since its last signal or message; 0: none yet.
    """

    __slots__ = ("at", "end", "epoch", "head", "known", "lane", "owner", "seen", "steps")

    def __init__(self, owner: Stream, lane: int) -> None:
        self.owner = owner
        self.lane = lane
        self.head: Head = (-1, -1, -1, (), "")
        self.steps: list[tuple[int, Any]] = []
        self.at = 0
        self.end = 0
        self.seen = 0
        self.known = 0
        self.epoch = 0

    @property
    def where(self) -> Where:
        """Return the step that the lane is at."""
        return Where.of((self.head, self.at))


class UserThread:
    """An actor: the user's program of a thread, which is its script.

    Attributes
    ----------
    complete
        The posted calls that are complete, and what they knew at their end.
    awaits
        The name of the posted call that the program waits for.
    """

    __slots__ = ("awaits", "calls", "complete", "known", "next", "number", "script", "streams")

    def __init__(self, number: int, script: Sequence[Action]) -> None:
        self.number = number
        self.script = script
        self.next = 0
        self.calls = 0
        self.known = 0
        self.streams: dict[Team, Stream] = {}
        self.complete: dict[str, int] = {}
        self.awaits: str | None = None


class Stream:
    """The calls of a thread on one team, and the call that it is in.

    Attributes
    ----------
    rank
        The thread's rank in the team.
    queue
        Calls to come: what the thread knew when it posted them, and their names.
    running
        The number of lanes that are not at their end.
    unset
        The number of tickets that are not set.
    tickets
        The messages that each ticket still waits for; 0: it is set; -1: it is not in use yet.
    ticket_known
        The knowledge that the thread gains from each ticket.
    open
        The step that sets each ticket.
    """

    __slots__ = (
        "bound",
        "call",
        "calls",
        "known",
        "lanes",
        "name",
        "open",
        "queue",
        "rank",
        "running",
        "team",
        "thread",
        "ticket_known",
        "tickets",
        "traffic",
        "unset",
        "waiting",
    )

    def __init__(self, thread: UserThread, team: Team) -> None:
        self.thread = thread
        self.team = team
        self.rank = team.index(thread.number)
        self.queue: deque[tuple[Call, int, str]] = deque()
        self.name = ""
        self.calls = 0
        self.known = 0
        self.call: Call | None = None
        self.bound: Bound = []
        self.traffic = Traffic(team, -1)
        self.lanes: tuple[Lane, ...] = (Lane(self, 0), Lane(self, 1))
        self.running = 0
        self.unset = 0
        self.tickets: list[int] = []
        self.ticket_known: list[int] = []
        self.waiting: dict[int, Lane] = {}
        self.open: dict[int, Place] = {}


class Channel:
    """The signals of one thread on one channel in a call, and the lanes that wait for them.

    Attributes
    ----------
    values, known
        The value of the channel after each signal, and what the thread knew then.
    named
        For each rank what the thread knew at the signals that name it.
    awaited
        The number of signals that each rank has waited for.
    """

    __slots__ = ("awaited", "known", "named", "values", "waiters")

    def __init__(self) -> None:
        self.values: list[int] = []
        self.known: list[int] = []
        self.named: dict[int, list[int]] = {}
        self.awaited: dict[int, int] = {}
        self.waiters: list[Lane] = []


Ends = tuple[int, int, int]
"""Sender, receiver and channel of a message."""
Posted = tuple[Stream, int, Message, int, Place]
"""A message posted by one side: that thread, its ticket, what it knew, and its step."""


class Traffic:
    """All signals and messages of one call."""

    __slots__ = ("call", "channels", "recvs", "sends", "team")

    def __init__(self, team: Team, call: int) -> None:
        self.team = team
        self.call = call
        self.channels: dict[tuple[int, int], Channel] = {}
        self.sends: dict[Ends, deque[Posted]] = {}
        self.recvs: dict[Ends, deque[Posted]] = {}

    def channel(self, rank: int, number: int) -> Channel:
        """Return a channel of a rank."""
        found = self.channels.get((rank, number))
        if found is None:
            found = self.channels[rank, number] = Channel()
        return found


class Transfer:
    """An actor: a matched pair of messages in flight."""

    __slots__ = ("channel", "recv", "send")

    def __init__(self, channel: int, send: Posted, recv: Posted) -> None:
        self.channel = channel
        self.send = send
        self.recv = recv


class Reading:
    """An actor: a Get in flight."""

    __slots__ = ("known", "moves", "thread", "ticket")

    def __init__(self, thread: Stream, ticket: int, moves: Moves, known: int) -> None:
        self.thread = thread
        self.ticket = ticket
        self.moves = moves
        self.known = known


Actor = Lane | UserThread | Transfer | Reading


class World:
    """What all actors share: memory, calls, barriers, findings.

    Attributes
    ----------
    push
        Make an actor ready to run.
    arrived, at_barrier
        The threads at a barrier of each team, and at a barrier of the user's.
    races, protocol, wrong
        The findings so far.
    """

    __slots__ = (
        "all_threads",
        "arrived",
        "at_barrier",
        "bit",
        "bound",
        "protocol",
        "push",
        "races",
        "shadows",
        "threads",
        "traffic",
        "wrong",
    )

    def __init__(
        self, memory: Memory, scripts: Sequence[Sequence[Action]], push: Callable[[Actor], None]
    ) -> None:
        self.push = push
        self.threads = [UserThread(number, script) for number, script in enumerate(scripts)]
        self.all_threads: Team = tuple(range(len(scripts)))
        self.bit = 1
        self.races: dict[tuple[Where, Where], Race] = {}
        self.protocol: list[str] = []
        self.wrong: list[str] = []
        self.shadows = {
            array: [Shadow(array, t, row, self.races) for t, row in enumerate(rows)]
            for array, rows in memory.items()
        }
        self.bound: dict[tuple[Any, ...], Bound] = {}
        self.traffic: dict[tuple[Team, int], Traffic] = {}
        self.arrived: dict[Team, list[tuple[Stream, str]]] = {}
        self.at_barrier: list[UserThread] = []

    def new_bit(self) -> int:
        """Return the bit of a new access."""
        self.bit <<= 1
        return self.bit
