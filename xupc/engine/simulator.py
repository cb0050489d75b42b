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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plan.steps import Part, Ranks
from ..topology import Tree
from .folding import carry_out
from .programs import (
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
    Program,
    ProtocolError,
    SimulationError,
    Span,
    Swaps,
    Work,
)
from .races import Race, Shadow, Where

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


@dataclass(frozen=True, slots=True)
class UserWrite:
    """The thread's own program stores bytes into an array on any thread."""

    array: str
    thread: int
    lo: int
    data: bytes

    def __str__(self) -> str:
        hi = self.lo + len(self.data)
        return f"user writes {self.array}@{self.thread}[{self.lo}:{hi}]"


@dataclass(frozen=True, slots=True)
class UserRead:
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


Action = Call | Post | Await | UserWrite | UserRead | UserBarrier
Memory = Mapping[str, Sequence[bytearray]]


class _Lane:
    """An actor: one lane of the call that a thread is in."""

    __slots__ = ("at", "epoch", "known", "lane", "owner", "steps", "sub")

    def __init__(self, owner: _Stream, lane: int) -> None:
        self.owner = owner
        self.lane = lane
        self.steps: list[tuple[int, Any]] = []
        self.at = 0
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
        "call",
        "calls",
        "known",
        "lanes",
        "name",
        "open",
        "program",
        "queue",
        "rank",
        "running",
        "team",
        "thread",
        "tickets",
        "told",
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
        self.program: Program | None = None
        self.lanes = (_Lane(self, 0), _Lane(self, 1))
        self.running = 0  # lanes not at their end
        self.unset = 0  # tickets not set
        self.tickets: list[int] = []  # messages to come before it is set; 0: set; -1: not begun
        self.told: list[int] = []  # what a ticket tells
        self.waiting: dict[int, _Lane] = {}
        self.open: dict[int, Where] = {}  # who will set the ticket


class _Posted:
    """A message posted by one side."""

    __slots__ = ("known", "message", "thread", "ticket", "where")

    def __init__(
        self, thread: _Stream, ticket: int, message: Message, known: int, where: Where
    ) -> None:
        self.thread = thread
        self.ticket = ticket
        self.message = message
        self.known = known
        self.where = where


class _Transfer:
    """A matched pair of messages, under way."""

    __slots__ = ("key", "recv", "send")

    def __init__(self, key: tuple[Any, ...], send: _Posted, recv: _Posted) -> None:
        self.key = key
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
        self._memory = memory
        self._threads = [_Thread(number, script) for number, script in enumerate(scripts)]
        self._random = None if seed is None else random.Random(seed)
        self._queue: deque[_Actor] = deque()
        self._pool: list[_Actor] = []
        self._bit = 1
        self._races: dict[tuple[Where, Where], Race] = {}
        self._shadows = {
            array: [Shadow(array, t, self._races) for t in range(tree.size)] for array in memory
        }
        self._signals: dict[tuple[Team, int, int, int], list[tuple[int, Ranks, int]]] = {}
        self._heard: dict[tuple[Team, int, int, int, int], int] = {}
        self._listening: dict[tuple[Team, int, int, int], list[_Lane]] = {}
        self._sends: dict[tuple[Any, ...], deque[_Posted]] = {}
        self._recvs: dict[tuple[Any, ...], deque[_Posted]] = {}
        self._arrived: dict[Team, list[tuple[_Stream, str]]] = {}
        self._at_barrier: list[_Thread] = []  # of the user's own
        self._protocol: list[str] = []
        self._wrong: list[str] = []

    # -- running ---------------------------------------------------------------------
    def run(self) -> None:
        """Run everything; ProtocolError, RaceError, DeadlockError or WrongBytesError, or none."""
        for thread in self._threads:
            self._push(thread)
        if self._random is None:
            queue = self._queue
            while queue:
                self._turn(queue.popleft())
        else:
            pool = self._pool
            while pool:
                i = self._random.randrange(len(pool))
                pool[i], pool[-1] = pool[-1], pool[i]
                self._turn(pool.pop())
        self._judge()

    def _push(self, actor: _Actor) -> None:
        if self._random is None:
            self._queue.append(actor)
        else:
            self._pool.append(actor)

    def _turn(self, actor: _Actor) -> None:
        if isinstance(actor, _Lane):
            self._advance(actor)
        elif isinstance(actor, _Thread):
            self._user(actor)
        elif isinstance(actor, _Transfer):
            self._deliver(actor)
        else:
            thread = actor.thread
            assert thread.call is not None
            self._move(thread.call, actor.moves)
            self._complete(thread, actor.ticket, actor.known)

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
        for (team, call, of, channel), given in self._signals.items():
            told: dict[int, int] = {}
            for _, to, _ in given:
                for rank in to:
                    told[rank] = told.get(rank, 0) + 1
            for rank, times in told.items():
                heard = self._heard.get((team, call, of, channel, rank), 0)
                if rank != of and times > heard:
                    self._protocol.append(
                        f"call {call}: thread {team[of]} signals channel {channel} {times} times "
                        f"for thread {team[rank]}, which waits for {heard}"
                    )

    def _new_bit(self) -> int:
        self._bit <<= 1
        return self._bit

    # -- the user between calls --------------------------------------------------------
    def _user(self, thread: _Thread) -> None:
        """The next action of the script; calls start here."""
        while thread.next < len(thread.script):
            action = thread.script[thread.next]
            thread.next += 1
            if isinstance(action, Call | Post | Await):
                if self._call(thread, action):
                    continue
                return
            if isinstance(action, UserBarrier):
                self._user_barrier(thread)
                return
            writes = isinstance(action, UserWrite)
            data = action.data if isinstance(action, UserWrite) else action.expected
            where = Where(thread.number, thread.calls, -1, thread.next - 1, action, "")
            lo, hi = action.lo, action.lo + len(data)
            bit = self._new_bit()
            shadow = self._shadows[action.array][action.thread]
            shadow.touch(lo, hi, writes, thread.known, bit, where)
            thread.known |= bit
            memory = self._memory[action.array][action.thread]
            if writes:
                memory[lo:hi] = data
            elif memory[lo:hi] != data:
                odd = [i for i in range(lo, hi) if memory[i] != data[i - lo]]
                self._wrong.append(
                    f"{where}: {len(odd)} of {hi - lo} bytes are wrong, the first at {odd[0]}: "
                    f"expected {data[odd[0] - lo]:#04x}, found {memory[odd[0]]:#04x}"
                )
            if self._random is not None:
                self._push(thread)
                return

    def _call(self, thread: _Thread, action: Call | Post | Await) -> bool:
        """A call, posted or not, or the waiting for one; True if the thread can go on."""
        name = action.name if isinstance(action, Post | Await) else ""
        if not isinstance(action, Await):
            call = action.call if isinstance(action, Post) else action
            team = self._everybody if call.threads is None else call.threads
            stream = thread.streams.setdefault(team, _Stream(thread, team))
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
        thread.call = call
        thread.program = program
        thread.known |= known
        thread.tickets = [-1] * program.plan.tickets
        thread.told = [0] * program.plan.tickets
        thread.unset = program.plan.tickets
        thread.running = 2
        for lane, steps in zip(thread.lanes, program.lanes, strict=True):
            lane.steps = steps
            lane.at = lane.sub = lane.epoch = 0
            lane.known = thread.known
            self._push(lane)

    def _maybe_over(self, thread: _Stream) -> None:
        """An operation is over when both lanes are at their end and every ticket is set."""
        if thread.running or thread.unset:
            return
        thread.known |= thread.lanes[0].known | thread.lanes[1].known
        for told in thread.told:
            thread.known |= told
        thread.call = None
        thread.calls += 1
        thread.open.clear()
        user = thread.thread
        user.over[thread.name] = thread.known
        if user.awaits == thread.name:
            user.awaits = None
            user.known |= thread.known
            self._push(user)
        if thread.queue:
            self._start(thread)

    # -- steps ---------------------------------------------------------------------
    def _advance(self, lane: _Lane) -> None:
        """Steps of a lane until one blocks (or, at random, one step)."""
        thread = lane.owner
        steps = lane.steps
        while lane.at < len(steps):
            kind, arg = steps[lane.at]
            if kind in (COPY, WORK):
                self._by_hand(lane, arg)
            elif kind == SIGNAL:
                self._signal(lane, arg)
            elif kind == WAIT:
                if not self._wait(lane, arg):
                    return
            elif kind == NEED:
                if thread.tickets[arg]:
                    thread.waiting[arg] = lane
                    return
                lane.known |= thread.told[arg]
            elif kind == POST:
                self._begin(thread, arg, 1, self._where(lane))
                lane.epoch = 0
                self._complete(thread, arg, lane.known)
            elif kind in (SEND, RECV):
                self._exchange(lane, arg, kind == SEND)
            elif kind == GET:
                self._get(lane, arg)
            else:
                self._arrive(thread, f"call {thread.calls}")
                return
            lane.at += 1
            if self._random is not None:
                self._push(lane)
                return
        thread.running -= 1
        self._maybe_over(thread)

    def _where(self, lane: _Lane) -> Where:
        thread = lane.owner
        assert thread.program is not None
        step = thread.program.plan.lanes[lane.lane][lane.at]
        number = thread.thread.number
        return Where(number, thread.calls, lane.lane, lane.at, step, thread.program.name)

    def _touch(
        self, call: Call, spans: Sequence[Span], writes: bool, known: int, bit: int, where: Where
    ) -> None:
        for operand, rank, lo, hi in spans:
            array, base = call.operands[operand]
            number = self._number(call, rank)
            size = len(self._memory[array][number])
            if lo + base < 0 or hi + base > size:
                text = f"{array}@{number}[{lo + base}:{hi + base}] is beyond its {size} bytes"
                self._protocol.append(f"{where}: {text}")
            self._shadows[array][number].touch(lo + base, hi + base, writes, known, bit, where)

    @staticmethod
    def _number(call: Call, rank: int) -> int:
        """The thread of a rank."""
        return rank if call.threads is None else call.threads[rank]

    def _bytes(self, call: Call, operand: int, rank: int) -> tuple[bytearray, int]:
        """The memory that an operand is in on a thread, and where it begins there."""
        array, base = call.operands[operand]
        return self._memory[array][self._number(call, rank)], base

    def _move(self, call: Call, moves: Moves) -> None:
        for (op, rank, lo, hi), (from_op, from_rank, from_lo, from_hi) in moves.blocks:
            target, base = self._bytes(call, op, rank)
            source, from_base = self._bytes(call, from_op, from_rank)
            target[lo + base : hi + base] = source[from_lo + from_base : from_hi + from_base]

    def _swap(self, call: Call, what: Swaps) -> None:
        for pair in what.pairs:
            kept = []
            for operand, rank, lo, hi in pair:
                memory, base = self._bytes(call, operand, rank)
                kept.append(bytes(memory[lo + base : hi + base]))
            for (operand, rank, lo, hi), data in zip(pair, reversed(kept), strict=True):
                memory, base = self._bytes(call, operand, rank)
                memory[lo + base : hi + base] = data

    def _by_hand(self, lane: _Lane, what: Moves | Swaps | Work) -> None:
        """A step by loads and stores."""
        call = lane.owner.call
        assert call is not None
        if not lane.epoch:
            lane.epoch = self._new_bit()
            lane.known |= lane.epoch
        self._do(call, what, lane.known, lane.epoch, self._where(lane))

    def _do(
        self, call: Call, what: Moves | Swaps | Work, known: int, bit: int, where: Where
    ) -> None:
        self._touch(call, what.reads, False, known, bit, where)
        self._touch(call, what.writes, True, known, bit, where)
        if isinstance(what, Moves):
            self._move(call, what)
            return
        if isinstance(what, Swaps):
            self._swap(call, what)
            return
        dtype = call.kernel.dtype

        def view(part: Part, nelems: int) -> Any:
            memory, base = self._bytes(call, part.operand, part.thread)
            return np.frombuffer(memory, dtype, nelems, part.offset + base)

        carry_out(what.step, call.kernel, view)

    def _signal(self, lane: _Lane, arg: tuple[int, int, Ranks]) -> None:
        channel, value, to = arg
        thread = lane.owner
        key = (thread.team, thread.calls, thread.rank, channel)
        given = self._signals.setdefault(key, [])
        if given and given[-1][0] > value:
            self._protocol.append(
                f"{self._where(lane)}: the channel stood at {given[-1][0]} already"
            )
        given.append((value, to, lane.known))
        lane.epoch = 0
        for listener in self._listening.pop(key, ()):
            self._push(listener)

    def _wait(self, lane: _Lane, arg: tuple[int, int, tuple[int, ...]]) -> bool:
        channel, value, of = arg
        thread = lane.owner
        while lane.sub < len(of) and value > 0:
            key = (thread.team, thread.calls, of[lane.sub], channel)
            given = self._signals.get(key, ())
            enough = [known for stands, _, known in given if stands >= value]
            named = [known for _, to, known in given if thread.rank in to]
            if not enough or len(named) < value:
                self._listening.setdefault(key, []).append(lane)
                return False
            lane.known |= enough[0] & named[value - 1]
            heard = (*key, thread.rank)
            self._heard[heard] = max(self._heard.get(heard, 0), value)
            lane.sub += 1
        lane.sub = 0
        return True

    # -- tickets, messages, one-sided reads -------------------------------------------
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

    def _begin(self, thread: _Stream, ticket: int, parts: int, where: Where) -> None:
        if thread.tickets[ticket] != -1:
            self._protocol.append(f"{where}: ticket t{ticket} was in use already")
            thread.unset += thread.tickets[ticket] == 0
        thread.tickets[ticket] = parts
        thread.open[ticket] = where

    def _exchange(self, lane: _Lane, arg: Exchange, sends: bool) -> None:
        thread = lane.owner
        call = thread.call
        assert call is not None
        where = self._where(lane)
        bit = self._new_bit()
        self._touch(call, arg.spans, not sends, lane.known, bit, where)
        self._begin(thread, arg.ticket, len(arg.messages), where)
        thread.told[arg.ticket] |= lane.known | bit
        lane.epoch = 0
        if not arg.messages:
            self._complete(thread, arg.ticket, 0)
        mine, theirs = (self._sends, self._recvs) if sends else (self._recvs, self._sends)
        for message in arg.messages:
            pair = (thread.rank, message.peer) if sends else (message.peer, thread.rank)
            key = (thread.team, *pair, thread.calls, arg.channel)
            posted = _Posted(thread, arg.ticket, message, lane.known, where)
            if theirs.get(key):
                other = theirs[key].popleft()
                send, recv = (posted, other) if sends else (other, posted)
                self._push(_Transfer(key, send, recv))
            else:
                mine.setdefault(key, deque()).append(posted)

    def _deliver(self, transfer: _Transfer) -> None:
        send, recv = transfer.send, transfer.recv
        if send.message.nbytes != recv.message.nbytes:
            self._protocol.append(
                f"message of {send.message.nbytes} B meets a receive of {recv.message.nbytes} B:\n"
                f"    {send.where}\n    {recv.where}"
            )
        elif transfer.key[-1] == DATA:
            source, target = send.thread.call, recv.thread.call
            assert source is not None
            assert target is not None
            data = bytearray()
            for operand, rank, lo, hi in send.message.blocks:
                memory, base = self._bytes(source, operand, rank)
                data += memory[lo + base : hi + base]
            at = 0
            for operand, rank, lo, hi in recv.message.blocks:
                memory, base = self._bytes(target, operand, rank)
                memory[lo + base : hi + base] = data[at : at + hi - lo]
                at += hi - lo
        self._complete(recv.thread, recv.ticket, send.known)
        self._complete(send.thread, send.ticket, 0)

    def _get(self, lane: _Lane, arg: tuple[int, Moves]) -> None:
        ticket, moves = arg
        thread = lane.owner
        assert thread.call is not None
        where = self._where(lane)
        bit = self._new_bit()
        self._touch(thread.call, moves.reads, False, lane.known, bit, where)
        self._touch(thread.call, moves.writes, True, lane.known, bit, where)
        self._begin(thread, ticket, 1, where)
        lane.epoch = 0
        self._push(_Reading(thread, ticket, moves, lane.known | bit))

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

    def _arrive(self, thread: _Stream, what: str) -> None:
        arrived = self._arrived.setdefault(thread.team, [])
        arrived.append((thread, what))
        if len(arrived) < len(thread.team):
            self._compare_barriers()
            return
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
        del self._arrived[thread.team]
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
        call = executor.call
        assert call is not None
        bit = self._new_bit()
        for _kind, what in lane.steps[lane.at][1][1]:
            self._do(call, what, known | bit, bit, self._where(lane))
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
                    f", t{i} is not set ({thread.open.get(i, 'nobody sets it')})"
                    for i, left in enumerate(thread.tickets)
                    if left
                )
            )
        return out

    def _because(self, lane: _Lane) -> str:
        thread = lane.owner
        kind, arg = lane.steps[lane.at]
        if kind == NEED:
            where = thread.open.get(arg)
            return f" (set by {where})" if where is not None else " (which nobody has begun)"
        if kind == WAIT:
            channel, value, of = arg
            of_whom = of[lane.sub]
            given = self._signals.get((thread.team, thread.calls, of_whom, channel), ())
            if any(v >= value for v, _, _ in given):
                text = (
                    f"{self._where(lane)}: thread {of_whom} has signalled {value}, "
                    f"but not {value} times for thread {thread.rank}"
                )
                self._protocol.append(text)
            return f" (thread {of_whom} stands at {max((v for v, _, _ in given), default=0)})"
        if kind in (BARRIER, FUSED):
            here = sorted(t.thread.number for t, _ in self._arrived.get(thread.team, ()))
            return f" (here: {here})"
        return ""
