"""All threads' plans in one process over plain memory: any placement, no MPI.

Each lane of each thread is an actor that does its steps in order; messages in
flight are actors too.  Besides moving the bytes, the simulator decides three
things that a run on a real machine can at best stumble over:

* **races**: two accesses to the same bytes, one of them a write, that nothing
  orders (`races`), the user's own between the calls included;
* **deadlock**: nobody can move;
* **misuse of the protocol**: messages that do not fit, a wait for somebody who
  signals to others only, threads in different calls at a barrier.

Waits are deterministic, so none of the three depends on the schedule.  Where an
engine has a choice, the worst is assumed:

1. A Send reads its source from posting to its ticket, and its ticket is set only
   when the message has been taken; yet the ticket tells the sender nothing about
   the receiver.  A Recv writes from posting to its ticket, which tells the receiver
   all that the sender knew when it posted.
2. A Get reads and writes from posting to its ticket; its target learns nothing.
3. A Wait for v is woken by the first signal of v or more, and by the v-th that names
   the waiter (engines without shared words count messages), whichever comes later; it
   learns what the writer knew at the earlier of the two.
4. Messages match in order per sender, receiver, team, operation and channel.

Calls may be on teams, and posted: then they are carried out in order, those of one team
after each other, at a time of their own; between posting and waiting the thread's own
program and the call know nothing of each other.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ...plan.steps import BlockRef, DirectGet, DirectPut
from ...reduction.reduce_steps import carry_out
from ...topology.tree import Tree
from .race_detector import Head, Place, Race, Shadow, Where
from .sim_program import (
    ACROSS,
    BARRIER,
    COPY,
    DATA,
    FUSED,
    GET,
    NEED,
    POST,
    RECV,
    SEND,
    SIGNAL,
    WAIT,
    WORK,
    Exchange,
    Message,
    Moves,
    Offering,
    Program,
    ProtocolError,
    SimulationError,
    Span,
    Swaps,
    Work,
)

__all__ = [
    "Await",
    "Call",
    "DeadlockError",
    "Post",
    "Program",
    "ProtocolError",
    "RaceError",
    "Simulation",
    "SimulationError",
    "UserBarrier",
    "UserRead",
    "UserWrite",
    "WrongBytesError",
]


class RaceError(SimulationError):
    """Accesses that nothing orders; `findings` are Race tuples."""


class DeadlockError(SimulationError):
    """Nobody can move; `findings` name each blocked actor and its step."""


class WrongBytesError(SimulationError):
    """A user read something else than it should have."""


@dataclass(frozen=True, slots=True)
class Call:
    """A collective call: every thread's program, and where operand i is: (array, base).

    `kernel` says what its reductions do to values. `threads` are those of the team it is on, by
    rank; programs and operands are by rank. Default: all.
    """

    programs: Sequence[Program]
    operands: tuple[tuple[str, int], ...]
    kernel: Any = None
    threads: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """A call that the thread goes on without waiting for, under a name of the thread's own."""

    call: Call
    name: str


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until a posted call is over."""

    name: str


class UserWrite(NamedTuple):
    """The thread's own program stores bytes into an array on any thread."""

    array: str
    thread: int
    lo: int
    data: bytes

    def __str__(self) -> str:
        hi = self.lo + len(self.data)
        return f"user writes {self.array}@{self.thread}[{self.lo}:{hi}]"


class UserRead(NamedTuple):
    """The thread's own program reads bytes, and expects these."""

    array: str
    thread: int
    lo: int
    expected: bytes

    def __str__(self) -> str:
        hi = self.lo + len(self.expected)
        return f"user reads {self.array}@{self.thread}[{self.lo}:{hi}]"


@dataclass(frozen=True, slots=True)
class UserBarrier:
    """A barrier of the user's own."""

    def __str__(self) -> str:
        return "user barrier"


ByHand = Moves | Swaps | Work | Offering
Action = Call | Post | Await | UserWrite | UserRead | UserBarrier
Memory = Mapping[str, Sequence[bytearray]]


class _Lane:
    """An actor: one lane of the call that a thread is in."""

    __slots__ = ("at", "end", "epoch", "head", "known", "lane", "owner", "steps", "sub")

    def __init__(self, owner: _Stream, lane: int) -> None:
        self.owner = owner
        self.lane = lane
        self.head: Head = (-1, -1, -1, (), "")  # of the places of its steps
        self.steps: list[tuple[int, Any]] = []
        self.at = 0
        self.end = 0
        self.sub = 0  # how many of a Wait's threads have been seen
        self.known = 0
        self.epoch = 0  # the bit of my accesses since I last told anybody anything


class _Thread:
    """An actor: the thread's own program, its script."""

    __slots__ = ("awaits", "calls", "known", "next", "number", "over", "script", "streams")

    def __init__(self, number: int, script: Sequence[Action]) -> None:
        self.number = number
        self.script = script
        self.next = 0
        self.calls = 0
        self.known = 0
        self.streams: dict[Team, _Stream] = {}
        self.over: dict[str, int] = {}  # posted calls that are, and what they knew then
        self.awaits: str | None = None


Team = tuple[int, ...]
Bound = list[tuple[int, list[Shadow]]]
"""Where each operand of a call is: its base, and by rank the array that it is in."""


class _Stream:
    """The calls of a thread on one team, and the one that it is in.

    Attributes
    ----------
    rank
        The thread's place in the team.
    queue
        Calls to come: what the thread knew when it posted them, and their names.
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
        "tickets",
        "told",
        "traffic",
        "unset",
        "waiting",
    )

    def __init__(self, thread: _Thread, team: Team) -> None:
        self.thread = thread
        self.team = team
        self.rank = team.index(thread.number)
        self.queue: deque[tuple[Call, int, str]] = deque()
        self.name = ""
        self.calls = 0
        self.known = 0
        self.call: Call | None = None
        self.bound: Bound = []
        self.traffic = _Traffic(team, -1)
        self.lanes: tuple[_Lane, ...] = (_Lane(self, 0), _Lane(self, 1))
        self.running = 0  # lanes not at their end
        self.unset = 0  # tickets not set
        self.tickets: list[int] = []  # messages to come before it is set; 0: set; -1: not begun
        self.told: list[int] = []  # what a ticket tells
        self.waiting: dict[int, _Lane] = {}
        self.open: dict[int, Place] = {}  # who will set the ticket


class _Channel:
    """What one thread signals on one channel in a call, and who waits for it.

    Attributes
    ----------
    stands, known
        Where the channel stood after each signal, and what the thread knew then.
    named
        For each rank what the thread knew at the signals that name it.
    heard
        How many signals a rank has waited for.
    """

    __slots__ = ("heard", "known", "listening", "named", "stands")

    def __init__(self) -> None:
        self.stands: list[int] = []
        self.known: list[int] = []
        self.named: dict[int, list[int]] = {}
        self.heard: dict[int, int] = {}
        self.listening: list[_Lane] = []


Ends = tuple[int, int, int]
"""Sender, receiver and channel of a message."""
Posted = tuple[_Stream, int, Message, int, Place]
"""A message posted by one side: that thread, its ticket, what it knew."""


class _Traffic:
    """All signals and messages of one call."""

    __slots__ = ("call", "channels", "recvs", "sends", "team")

    def __init__(self, team: Team, call: int) -> None:
        self.team = team
        self.call = call
        self.channels: dict[tuple[int, int], _Channel] = {}
        self.sends: dict[Ends, deque[Posted]] = {}
        self.recvs: dict[Ends, deque[Posted]] = {}

    def channel(self, rank: int, number: int) -> _Channel:
        """A rank's channel."""
        found = self.channels.get((rank, number))
        if found is None:
            found = self.channels[rank, number] = _Channel()
        return found


class _Transfer:
    """A matched pair of messages, under way."""

    __slots__ = ("channel", "recv", "send")

    def __init__(self, channel: int, send: Posted, recv: Posted) -> None:
        self.channel = channel
        self.send = send
        self.recv = recv


class _Reading:
    """A Get under way."""

    __slots__ = ("known", "moves", "thread", "ticket")

    def __init__(self, thread: _Stream, ticket: int, moves: Moves, known: int) -> None:
        self.thread = thread
        self.ticket = ticket
        self.moves = moves
        self.known = known


_Actor = _Lane | _Thread | _Transfer | _Reading


class Simulation:
    """Scripts of calls and user accesses, one per thread, run to their end.

    Parameters
    ----------
    tree
        Who is on which node.
    memory
        ``memory[array][thread]`` are the bytes of an array on a thread.
    scripts
        ``scripts[thread]``: its actions in order.  The calls on a team must be the same on all
        its threads. There is no barrier between them but what the calls or `UserBarrier` make.
    seed
        None: round robin, each actor as far as it goes. A number: a random actor
        takes one step, again and again.
    """

    def __init__(
        self,
        tree: Tree,
        memory: Memory,
        scripts: Sequence[Sequence[Action]],
        seed: int | None = None,
    ) -> None:
        if len(scripts) != tree.size:
            raise ValueError(f"{tree.size} threads, {len(scripts)} scripts")
        self._everybody = tuple(range(tree.size))
        self._threads = [_Thread(number, script) for number, script in enumerate(scripts)]
        self._random = None if seed is None else random.Random(seed)
        self._queue: deque[_Actor] = deque()
        self._pool: list[_Actor] = []
        self._push: Callable[[_Actor], None] = (
            self._queue.append if seed is None else self._pool.append
        )
        self._bit = 1
        self._races: dict[tuple[Where, Where], Race] = {}
        self._shadows = {
            array: [Shadow(array, t, row, self._races) for t, row in enumerate(rows)]
            for array, rows in memory.items()
        }
        self._bound: dict[tuple[Any, ...], Bound] = {}
        self._traffic: dict[tuple[Team, int], _Traffic] = {}
        self._arrived: dict[Team, list[tuple[_Stream, str]]] = {}
        self._at_barrier: list[_Thread] = []  # of the user's own
        self._protocol: list[str] = []
        self._wrong: list[str] = []

    # -- running ---------------------------------------------------------------------
    def run(self) -> None:
        """Run everything; ProtocolError, RaceError, DeadlockError or WrongBytesError, or none."""
        try:
            self._carry_out()
            self._judge()
        finally:
            # cut the circles, so that all is freed at once: plans are large
            for thread in self._threads:
                for stream in thread.streams.values():
                    stream.lanes = ()
                thread.streams.clear()

    def _carry_out(self) -> None:
        for thread in self._threads:
            self._push(thread)
        if self._random is None:
            queue = self._queue
            while queue:
                actor = queue.popleft()
                _TURNS[type(actor)](self, actor)
        else:
            pool, chance = self._pool, self._random.random
            while pool:
                i = int(chance() * len(pool))
                pool[i], pool[-1] = pool[-1], pool[i]
                actor = pool.pop()
                _TURNS[type(actor)](self, actor)

    def _judge(self) -> None:
        stuck = self._stuck()
        if self._protocol:
            raise ProtocolError(*self._protocol)
        if self._races:
            raise RaceError(*self._races.values())
        if stuck:
            raise DeadlockError(f"deadlock: {len(stuck)} blocked", *stuck)
        if self._wrong:
            raise WrongBytesError(*self._wrong)
        self._check_signals()
        if self._protocol:
            raise ProtocolError(*self._protocol)

    def _check_signals(self) -> None:
        """Nobody was told anything that he did not wait for: engines may have to send it."""
        for traffic in self._traffic.values():
            team = traffic.team
            for (of, number), channel in traffic.channels.items():
                for rank, told in channel.named.items():
                    heard = channel.heard.get(rank, 0)
                    if rank != of and len(told) > heard:
                        self._protocol.append(
                            f"call {traffic.call}: thread {team[of]} signals channel {number} "
                            f"{len(told)} times for thread {team[rank]}, which waits for {heard}"
                        )

    def _new_bit(self) -> int:
        self._bit <<= 1
        return self._bit

    # -- the user between calls --------------------------------------------------------
    def _user(self, thread: _Thread) -> None:
        """The next action of the script; calls start here."""
        script = thread.script
        head = thread.number, thread.calls, -1, script, ""
        while thread.next < len(script):
            action = script[thread.next]
            at = thread.next
            thread.next += 1
            if isinstance(action, UserWrite):
                array, number, lo, data = action
                shadow = self._shadows[array][number]
                self._access(thread, shadow, lo, lo + len(data), True, (head, at))
                shadow.memory[lo : lo + len(data)] = data
            elif isinstance(action, UserRead):
                array, number, lo, data = action
                shadow = self._shadows[array][number]
                self._access(thread, shadow, lo, lo + len(data), False, (head, at))
                if shadow.memory[lo : lo + len(data)] != data:
                    self._find_wrong(shadow.memory, lo, data, Where.of((head, at)))
            elif isinstance(action, UserBarrier):
                self._user_barrier(thread)
                return
            else:
                if not self._call(thread, action):
                    return
                head = thread.number, thread.calls, -1, script, ""
                continue
            if self._random is not None:
                self._push(thread)
                return

    def _access(
        self, thread: _Thread, shadow: Shadow, lo: int, hi: int, writes: bool, place: Place
    ) -> None:
        """The thread's own, of some bytes of an array."""
        if lo < 0 or hi > shadow.size:
            self._beyond(shadow, lo, hi, place)
            return
        bit = self._new_bit()
        shadow.touch(lo, hi, writes, thread.known, bit, place)
        thread.known |= bit

    def _find_wrong(self, memory: bytearray, lo: int, data: bytes, where: Where) -> None:
        """Say where memory is not what it should be."""
        odd = [i for i, x in enumerate(data) if memory[lo + i : lo + i + 1] != bytes([x])]
        found = memory[lo + odd[0] : lo + odd[0] + 1].hex() or "nothing"
        self._wrong.append(
            f"{where}: {len(odd)} of {len(data)} bytes are wrong, the first at {lo + odd[0]}: "
            f"expected {data[odd[0]]:#04x}, found 0x{found}"
        )

    def _call(self, thread: _Thread, action: Call | Post | Await) -> bool:
        """A call, posted or not, or the waiting for one; True if the thread can go on."""
        name = "" if isinstance(action, Call) else action.name
        if not isinstance(action, Await):
            call = action.call if isinstance(action, Post) else action
            team = self._everybody if call.threads is None else call.threads
            stream = thread.streams.get(team)
            if stream is None:
                stream = thread.streams[team] = _Stream(thread, team)
            thread.over.pop(name, None)
            thread.calls += 1
            stream.queue.append((call, thread.known, name))
            if stream.call is None:
                self._start(stream)
            if isinstance(action, Post):
                return True
        if name in thread.over:
            thread.known |= thread.over[name]
            return True
        thread.awaits = name
        return False

    def _start(self, thread: _Stream) -> None:
        """Begin the first call of a stream's queue."""
        call, known, thread.name = thread.queue.popleft()
        program = call.programs[thread.rank]
        plan = program.plan
        thread.call = call
        thread.known |= known
        thread.bound = self._bind(call, thread.team)
        key = thread.team, thread.calls
        if key not in self._traffic:
            self._traffic[key] = _Traffic(*key)
        thread.traffic = self._traffic[key]
        thread.tickets = [-1] * plan.tickets
        thread.told = [0] * plan.tickets
        thread.unset = plan.tickets
        thread.running = 2
        for lane in thread.lanes:
            which = lane.lane
            number = thread.thread.number
            lane.head = number, thread.calls, which, plan.lanes[which], program.name
            lane.steps = program.lanes[which]
            lane.end = len(lane.steps)
            lane.at = lane.sub = lane.epoch = 0
            lane.known = thread.known
            self._push(lane)

    def _bind(self, call: Call, team: Team) -> Bound:
        """Find the operands of a call."""
        key = call.operands, team
        if key not in self._bound:
            self._bound[key] = [
                (base, [self._shadows[array][number] for number in team])
                for array, base in call.operands
            ]
        return self._bound[key]

    def _maybe_over(self, thread: _Stream) -> None:
        """An operation is over when both lanes are at their end and every ticket is set."""
        if thread.running or thread.unset:
            return
        known = thread.known | thread.lanes[0].known | thread.lanes[1].known
        for told in thread.told:
            known |= told
        thread.known = known
        thread.call = None
        thread.calls += 1
        thread.open.clear()
        user = thread.thread
        user.over[thread.name] = known
        if user.awaits == thread.name:
            user.awaits = None
            user.known |= known
            self._push(user)
        if thread.queue:
            self._start(thread)

    # -- steps ---------------------------------------------------------------------
    def _advance(self, lane: _Lane) -> None:
        """Steps of a lane until one blocks (or, at random, one step)."""
        steps, end = lane.steps, lane.end
        while lane.at < end:
            kind, what = steps[lane.at]
            if not _STEPS[kind](self, lane, what):
                return
            lane.at += 1
            if self._random is not None:
                self._push(lane)
                return
        lane.owner.running -= 1
        self._maybe_over(lane.owner)

    @staticmethod
    def _where(lane: _Lane) -> Where:
        return Where.of((lane.head, lane.at))

    def _touch(
        self, bound: Bound, spans: Sequence[Span], writes: bool, known: int, bit: int, place: Place
    ) -> None:
        for operand, rank, lo, hi in spans:
            base, shadows = bound[operand]
            shadow = shadows[rank]
            lo += base
            hi += base
            if lo < 0 or hi > shadow.size:
                self._beyond(shadow, lo, hi, place)
            else:
                shadow.touch(lo, hi, writes, known, bit, place)

    def _beyond(self, shadow: Shadow, lo: int, hi: int, place: Place) -> None:
        self._protocol.append(
            f"{Where.of(place)}: {shadow.name}[{lo}:{hi}] is beyond its {shadow.size} bytes"
        )

    def _by_hand(self, lane: _Lane, what: ByHand) -> bool:
        """A step by loads and stores."""
        epoch = lane.epoch
        if not epoch:
            epoch = lane.epoch = self._new_bit()
            lane.known |= epoch
        self._do(lane.owner, what, lane.known, epoch, (lane.head, lane.at))
        return True

    def _do(
        self, thread: _Stream, what: ByHand, known: int, bit: int, place: Place
    ) -> None:
        self._touch(thread.bound, what.reads, False, known, bit, place)
        self._touch(thread.bound, what.writes, True, known, bit, place)
        _BY_HAND[type(what)](self, thread, what)

    def _across(self, lane: _Lane, step: DirectGet | DirectPut) -> bool:
        """A copy from or to others' private memory, and a look at where that is."""
        stream = lane.owner
        assert stream.call is not None
        programs = stream.call.programs
        return self._by_hand(lane, programs[stream.rank].across(step, programs))

    def _offer(self, thread: _Stream, offering: Offering) -> None:
        """Nothing moves."""

    def _move(self, thread: _Stream, moves: Moves) -> None:
        bound = thread.bound
        for (operand, rank, lo, hi), (from_operand, from_rank, from_lo, from_hi) in moves.blocks:
            base, shadows = bound[operand]
            from_base, from_shadows = bound[from_operand]
            source = from_shadows[from_rank].memory
            shadows[rank].memory[lo + base : hi + base] = source[
                from_lo + from_base : from_hi + from_base
            ]

    def _swap(self, thread: _Stream, what: Swaps) -> None:
        for a, b in what.pairs:
            kept = _load(thread.bound, (a,)), _load(thread.bound, (b,))
            _store(thread.bound, (a,), kept[1])
            _store(thread.bound, (b,), kept[0])

    def _reduce(self, thread: _Stream, what: Work) -> None:
        assert thread.call is not None
        kernel = thread.call.kernel
        bound = thread.bound

        def view(part: BlockRef, nelems: int) -> Any:
            base, shadows = bound[part.operand]
            memory = shadows[part.thread].memory
            return np.frombuffer(memory, kernel.dtype, nelems, part.offset + base)

        carry_out(what.step, kernel, view)

    def _signal(self, lane: _Lane, arg: tuple[int, int, tuple[int, ...]]) -> bool:
        number, value, to = arg
        channel = lane.owner.traffic.channel(lane.owner.rank, number)
        if channel.stands and channel.stands[-1] > value:
            self._protocol.append(
                f"{self._where(lane)}: the channel stood at {channel.stands[-1]} already"
            )
        channel.stands.append(value)
        channel.known.append(lane.known)
        for rank in to:
            if rank in channel.named:
                channel.named[rank].append(lane.known)
            else:
                channel.named[rank] = [lane.known]
        lane.epoch = 0
        listening, channel.listening = channel.listening, []
        for listener in listening:
            self._push(listener)
        return True

    def _wait(self, lane: _Lane, arg: tuple[int, int, tuple[int, ...]]) -> bool:
        number, value, of = arg
        if value <= 0:
            return True
        thread = lane.owner
        while lane.sub < len(of):
            channel = thread.traffic.channel(of[lane.sub], number)
            named = channel.named.get(thread.rank, ())
            if len(named) < value or channel.stands[-1] < value:
                channel.listening.append(lane)
                return False
            first = bisect_left(channel.stands, value)
            lane.known |= channel.known[first] & named[value - 1]
            channel.heard[thread.rank] = max(channel.heard.get(thread.rank, 0), value)
            lane.sub += 1
        lane.sub = 0
        return True

    # -- tickets, messages, one-sided reads -------------------------------------------
    def _need(self, lane: _Lane, ticket: int) -> bool:
        thread = lane.owner
        if thread.tickets[ticket]:
            thread.waiting[ticket] = lane
            return False
        lane.known |= thread.told[ticket]
        return True

    def _post(self, lane: _Lane, ticket: int) -> bool:
        self._begin(lane, ticket, 1)
        lane.epoch = 0
        self._complete(lane.owner, ticket, lane.known)
        return True

    def _complete(self, thread: _Stream, ticket: int, told: int) -> None:
        """One of the things that the ticket waits for is done."""
        thread.told[ticket] |= told
        left = thread.tickets[ticket]
        thread.tickets[ticket] = left - 1 if left > 0 else 0
        if left > 1:
            return
        thread.unset -= 1
        waiter = thread.waiting.pop(ticket, None)
        if waiter is not None:
            self._push(waiter)
        self._maybe_over(thread)

    def _begin(self, lane: _Lane, ticket: int, parts: int) -> None:
        thread = lane.owner
        if thread.tickets[ticket] != -1:
            self._protocol.append(f"{self._where(lane)}: ticket t{ticket} was in use already")
            thread.unset += thread.tickets[ticket] == 0
        thread.tickets[ticket] = parts
        thread.open[ticket] = lane.head, lane.at

    def _send(self, lane: _Lane, arg: Exchange) -> bool:
        self._exchange(lane, arg, True)
        return True

    def _recv(self, lane: _Lane, arg: Exchange) -> bool:
        self._exchange(lane, arg, False)
        return True

    def _exchange(self, lane: _Lane, arg: Exchange, sends: bool) -> None:
        """Post messages at one end; those that the other end has posted are under way."""
        thread, known, place = lane.owner, lane.known, (lane.head, lane.at)
        bit = self._new_bit()
        self._touch(thread.bound, arg.spans, not sends, known, bit, place)
        self._begin(lane, arg.ticket, len(arg.messages))
        thread.told[arg.ticket] |= known | bit
        lane.epoch = 0
        if not arg.messages:
            self._complete(thread, arg.ticket, 0)
        traffic, me = thread.traffic, thread.rank
        mine, theirs = traffic.sends, traffic.recvs
        if not sends:
            mine, theirs = theirs, mine
        for message in arg.messages:
            peer = message.peer
            ends = (me, peer, arg.channel) if sends else (peer, me, arg.channel)
            posted = thread, arg.ticket, message, known, place
            if waiting := theirs.get(ends):
                other = waiting.popleft()
                send, recv = (posted, other) if sends else (other, posted)
                self._push(_Transfer(arg.channel, send, recv))
            else:
                mine.setdefault(ends, deque()).append(posted)

    def _deliver(self, transfer: _Transfer) -> None:
        sender, send_ticket, sent, known, send_place = transfer.send
        receiver, recv_ticket, taken, _, recv_place = transfer.recv
        if sent.nbytes != taken.nbytes:
            self._protocol.append(
                f"message of {sent.nbytes} B meets a receive of {taken.nbytes} B:\n"
                f"    {Where.of(send_place)}\n    {Where.of(recv_place)}"
            )
        elif transfer.channel == DATA:
            _store(receiver.bound, taken.blocks, _load(sender.bound, sent.blocks))
        self._complete(receiver, recv_ticket, known)
        self._complete(sender, send_ticket, 0)

    def _get(self, lane: _Lane, arg: tuple[int, Moves]) -> bool:
        ticket, moves = arg
        thread = lane.owner
        place = lane.head, lane.at
        bit = self._new_bit()
        self._touch(thread.bound, moves.reads, False, lane.known, bit, place)
        self._touch(thread.bound, moves.writes, True, lane.known, bit, place)
        self._begin(lane, ticket, 1)
        lane.epoch = 0
        self._push(_Reading(thread, ticket, moves, lane.known | bit))
        return True

    def _read(self, reading: _Reading) -> None:
        self._move(reading.thread, reading.moves)
        self._complete(reading.thread, reading.ticket, reading.known)

    # -- barriers --------------------------------------------------------------------
    def _user_barrier(self, thread: _Thread) -> None:
        here = self._at_barrier
        here.append(thread)
        if len(here) < len(self._threads):
            self._compare_barriers()
            return
        known = 0
        for t in here:
            known |= t.known
        self._at_barrier = []
        for t in here:
            t.known |= known
            self._push(t)

    def _compare_barriers(self) -> None:
        """All threads are at a barrier, but not at the same."""
        calls = self._arrived.get(self._everybody, [])
        users = self._at_barrier
        if calls and users and len(calls) + len(users) == len(self._threads):
            seen = [f"thread {t.thread.number} in {what}" for t, what in calls]
            seen += [f"thread {t.number} in user barrier before call {t.calls}" for t in users]
            self._protocol.append(f"different calls at a barrier: {', '.join(seen)}")

    def _barrier(self, lane: _Lane, arg: Any) -> bool:
        """The last one to arrive has all go on."""
        thread = lane.owner
        arrived = self._arrived.setdefault(thread.team, [])
        arrived.append((thread, f"call {thread.calls}"))
        if len(arrived) < len(thread.team):
            self._compare_barriers()
        else:
            self._release(arrived)
        return False

    def _release(self, arrived: list[tuple[_Stream, str]]) -> None:
        first, expected = arrived[0]
        if any(what != expected for _, what in arrived):
            seen = ", ".join(f"thread {t.thread.number} in {what}" for t, what in arrived)
            self._protocol.append(f"different calls at a barrier: {seen}")
            return  # nobody goes on
        known = 0
        for t, _ in arrived:
            known |= t.lanes[0].known
        kinds = {t.lanes[0].steps[t.lanes[0].at][0] for t, _ in arrived}
        if len(kinds) > 1:
            self._protocol.append(f"a barrier meets a fused one: {self._where(first.lanes[0])}")
            return
        if kinds == {FUSED}:
            known |= self._fused(arrived, known)
        del self._arrived[first.team]
        for t, _ in arrived:
            lane = t.lanes[0]
            lane.known |= known
            lane.epoch = 0
            lane.at += 1
            self._push(lane)

    def _fused(self, arrived: Sequence[tuple[_Stream, str]], known: int) -> int:
        """The middle of a fused barrier, done by somebody who knows what all knew."""
        last = arrived[-1][0]
        by, _, body = last.lanes[0].steps[last.lanes[0].at][1]
        for t, _ in arrived:
            other, _, others = t.lanes[0].steps[t.lanes[0].at][1]
            if other != by or (by is None and others != body):
                self._protocol.append(f"fused differently: {self._where(t.lanes[0])}")
        executor = last if by is None else next(t for t, _ in arrived if t.rank == by)
        lane = executor.lanes[0]
        bit = self._new_bit()
        for _kind, what in lane.steps[lane.at][1][1]:
            self._do(executor, what, known | bit, bit, (lane.head, lane.at))
        return bit

    # -- the end ---------------------------------------------------------------------
    def _stuck(self) -> list[str]:
        """Everybody who has not come to his end, and what he waits for."""
        out = []
        for user in self._threads:
            streams = [stream for stream in user.streams.values() if stream.call is not None]
            for stream in streams:
                out += self._stuck_in(stream)
            if streams:
                continue
            if user.awaits is not None:
                out.append(f"thread {user.number}: waits for {user.awaits!r}, not posted")
            elif user.next < len(user.script) or user in self._at_barrier:
                out.append(f"thread {user.number}: user barrier before call {user.calls}")
        return out

    def _stuck_in(self, thread: _Stream) -> list[str]:
        """Why a call does not come to its end."""
        out = [
            f"{self._where(lane)}{self._because(lane)}"
            for lane in thread.lanes
            if lane.at < len(lane.steps)
        ]
        if not thread.running:
            out.append(
                f"thread {thread.thread.number}, call {thread.calls}: at the end of both lanes"
                + "".join(
                    f", t{i} is not set ({_opener(thread, i) or 'nobody sets it'})"
                    for i, left in enumerate(thread.tickets)
                    if left
                )
            )
        return out

    def _because(self, lane: _Lane) -> str:
        thread = lane.owner
        kind, arg = lane.steps[lane.at]
        if kind == NEED:
            where = _opener(thread, arg)
            return f" (set by {where})" if where is not None else " (which nobody has begun)"
        if kind == WAIT:
            number, value, of = arg
            of_whom = of[lane.sub]
            stands = max(thread.traffic.channel(of_whom, number).stands, default=0)
            if stands >= value:
                text = (
                    f"{self._where(lane)}: thread {of_whom} has signalled {value}, "
                    f"but not {value} times for thread {thread.rank}"
                )
                self._protocol.append(text)
            return f" (thread {of_whom} stands at {stands})"
        if kind in (BARRIER, FUSED):
            here = sorted(t.thread.number for t, _ in self._arrived.get(thread.team, ()))
            return f" (here: {here})"
        return ""


def _opener(thread: _Stream, ticket: int) -> Where | None:
    """Who will set a ticket."""
    place = thread.open.get(ticket)
    return None if place is None else Where.of(place)


def _load(bound: Bound, blocks: Sequence[Span]) -> bytes:
    """The bytes of blocks, one after the other."""
    data = []
    for operand, rank, lo, hi in blocks:
        base, shadows = bound[operand]
        data.append(shadows[rank].memory[lo + base : hi + base])
    return b"".join(data)


def _store(bound: Bound, blocks: Sequence[Span], data: bytes) -> None:
    """Bytes to blocks, one after the other."""
    at = 0
    for operand, rank, lo, hi in blocks:
        base, shadows = bound[operand]
        shadows[rank].memory[lo + base : hi + base] = data[at : at + hi - lo]
        at += hi - lo


_TURNS: Final[dict[type[Any], Callable[[Simulation, Any], None]]] = {
    _Lane: Simulation._advance,
    _Thread: Simulation._user,
    _Transfer: Simulation._deliver,
    _Reading: Simulation._read,
}
"""What actors do when it is their turn."""

_STEPS: Final[dict[int, Callable[[Simulation, _Lane, Any], bool]]] = {
    COPY: Simulation._by_hand,
    WORK: Simulation._by_hand,
    ACROSS: Simulation._across,
    SIGNAL: Simulation._signal,
    WAIT: Simulation._wait,
    SEND: Simulation._send,
    RECV: Simulation._recv,
    GET: Simulation._get,
    NEED: Simulation._need,
    POST: Simulation._post,
    BARRIER: Simulation._barrier,
    FUSED: Simulation._barrier,
}
"""How a lane carries out each kind of step: True if it goes on."""

_BY_HAND: Final[dict[type[Any], Callable[[Simulation, _Stream, Any], None]]] = {
    Moves: Simulation._move,
    Swaps: Simulation._swap,
    Work: Simulation._reduce,
    Offering: Simulation._offer,
}
