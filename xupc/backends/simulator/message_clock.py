"""The messages, one-sided reads and tickets of a call on the clock of a plan."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...topology.tree import Tree
from .activities import Act
from .network import Network
from .processors import Memory, Processors
from .rates import Rates
from .sim_program import Message, Moves, Program

__all__ = ["Lane", "MessageClock"]


@dataclass(slots=True)
class Lane:
    """One lane of a thread.

    Attributes
    ----------
    steps
        (kind, argument) of each step, as in `Program.lanes`.
    at
        The number of the next step.
    now
        The time in ns up to which the lane has run.
    since
        Since when it waits, in ns; None if it does not.
    seen, latest
        Of a wait for signals: how many of the ranks have sent theirs, and when the last of these.
    """

    rank: int
    steps: list[tuple[int, Any]]
    at: int = 0
    now: float = 0.0
    since: float | None = None
    seen: int = 0
    latest: float = 0.0


@dataclass(slots=True)
class _Ticket:
    """A ticket: the operations that it still waits for, when it is set, the lane that waits for it.

    `left` is -1 before its step has posted any operation.
    """

    left: int = -1
    time: float = 0.0
    lane: Lane | None = None


class MessageClock(ABC):
    """The part of the clock that carries messages, and its heap of what happens next.

    Entries of the same time run in the order of pushing. What comes before all entries runs at
    once, without an entry.
    """

    def __init__(
        self, programs: Sequence[Program], rates: Rates, memory: Memory | None, *, keep: bool
    ) -> None:
        self.programs = programs
        self.keep = keep
        self.rates = rates
        self.tree: Tree = programs[0].tree
        self.size = len(programs)
        self.node = self.tree.node_index.tolist()
        self.led = self.tree.node_count > 1 and programs[0].plan.led
        self.acts: list[Act] = []
        self.end = 0.0
        self.heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.pushed = 0
        self.tickets = [[_Ticket() for _ in range(p.plan.tickets)] for p in programs]
        self.posted: dict[Any, list[tuple[float, int]]] = defaultdict(list)
        self.network = Network(self.tree, rates)
        self.one_sided = any(p.plan.one_sided for p in programs)
        self.processors = Processors(self.tree, rates, memory)
        self.mpi = [0.0] * self.size  # when the MPI of a thread has done its last message
        self.at_work = [0.0] * self.size  # until when a thread loads and stores

    @abstractmethod
    def _advance(self, lane: Lane) -> None:
        """Run steps of a lane."""

    def _push(self, time: float, lane: Lane) -> None:
        if time > lane.now:
            lane.now = time
        self._at(lane.now, self._advance, lane)

    def _at(self, time: float, do: Callable[..., None], *arguments: object) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (time, self.pushed, do, arguments))

    def _then(self, time: float, do: Callable[..., None], *arguments: object) -> None:
        """End an entry with what comes at a time: at once if no other entry comes before."""
        if self.heap and self.heap[0][0] <= time:
            self._at(time, do, *arguments)
        else:
            do(*arguments)

    def _act(
        self, kind: str, rank: int, start: float, end: float, nbytes: int = 0, peer: int = -1
    ) -> None:
        if end > self.end:
            self.end = end
        if self.keep and end > start:
            self.acts.append(Act(kind, rank, start, end, nbytes, peer))

    # -- tickets and the network ---------------------------------------------------------------
    def _ticket(self, lane: Lane, number: int) -> float | None:
        """Return when a ticket was set; None if not yet: the ticket then resumes the lane."""
        ticket = self.tickets[lane.rank][number]
        if ticket.left == 0:
            return ticket.time
        ticket.lane = lane
        return None

    def _set(self, ticket: _Ticket, parts: int, time: float) -> None:
        """Complete one of the operations that a ticket waits for."""
        ticket.left = (parts if ticket.left < 0 else ticket.left) - 1
        if time > ticket.time:
            ticket.time = time
        if ticket.left == 0 and ticket.lane is not None:
            lane, ticket.lane = ticket.lane, None
            self._push(ticket.time, lane)

    def _exchange(self, lane: Lane, sends: bool, what: Any) -> None:
        channel, number, messages = what.channel, what.ticket, what.messages
        ticket = self.tickets[lane.rank][number]
        if not messages:
            self._set(ticket, 1, lane.now)
            return
        ticket.left = len(messages)
        for message in messages:
            self._post(lane, sends, channel, number, message)

    def _post(self, lane: Lane, sends: bool, channel: int, number: int, message: Message) -> None:
        """Post one side of a message; if the other side is posted, start the message."""
        if sends:
            cost = self._mpi(self.rates.send, message.nbytes)
            lane.now = self.processors.busy(self.node[lane.rank], lane.now, cost)[1]
        ends = (lane.rank, message.peer) if sends else (message.peer, lane.rank)
        theirs = self.posted[(*ends, channel, not sends)]
        if not theirs:
            self.posted[(*ends, channel, sends)].append((lane.now, number))
            return
        time, other = theirs.pop(0)
        tickets = (number, other) if sends else (other, number)
        start = max(lane.now, time)
        self._at(start, self._transfer, start, ends, tickets, message.nbytes)

    def _transfer(
        self, start: float, ends: tuple[int, int], tickets: tuple[int, int], nbytes: int
    ) -> None:
        sender = ends[0]
        begin, left = self.network.leave(sender, start, nbytes)
        self._at(left, self._set, self.tickets[sender][tickets[0]], 1, left)
        if nbytes:
            self._act("send", sender, begin, left, nbytes, ends[1])
        self._then(begin, self._comes, begin, left, ends, tickets[1], nbytes, "receive")

    def _comes(
        self, begin: float, left: float, ends: tuple[int, int], ticket: int, nbytes: int, kind: str
    ) -> None:
        """Take a message through the link of its receiver, which it reaches at `begin`.

        The network between the links holds what that link cannot take yet, so messages to other
        nodes need not wait for it.
        """
        there = self.network.reach(ends, begin, left, nbytes)
        if not self.led:
            there = self._carried(begin, there + self.rates.latency, ends, nbytes)
        self._then(there, self._arrives, begin, there, ends, ticket, nbytes, kind)

    def _carried(self, begin: float, there: float, ends: tuple[int, int], nbytes: int) -> float:
        """Return when cores of both nodes have carried a message that is `there` without them."""
        rates, work = self.rates, nbytes * self.rates.carry_byte
        if rates.carry or work:
            sender, receiver = (self.node[thread] for thread in ends)
            sent = self.processors.busy(sender, begin, rates.carry + work)[1]
            there = max(there, sent + max(0.0, rates.latency - rates.carry))
            there = max(there, self.processors.busy(receiver, begin, work)[1])
        return there

    def _arrives(
        self, begin: float, there: float, ends: tuple[int, int], ticket: int, nbytes: int,
        kind: str,
    ) -> None:  # fmt: skip
        """Complete a message or a read that has reached the node of its receiver."""
        sender, receiver = ends
        arrived = self._received(receiver, there, nbytes)
        if nbytes:
            self._act(kind, receiver, begin, arrived, nbytes, sender)
        self._then(arrived, self._set, self.tickets[receiver][ticket], 1, arrived)

    def _mpi(self, per_message: float, nbytes: int) -> float:
        """Return the ns of MPI's work on one side of a message."""
        return (0.0 if self.led else per_message) + nbytes * self.rates.per_byte

    def _received(self, thread: int, arrived: float, nbytes: int) -> float:
        """Return when MPI has received a message that reaches a thread's node at `arrived`."""
        if not self.led:  # its messages are those of the barrier, which has counted the turns
            arrived += self._turn(thread)
        cost = self._mpi(self.rates.receive, nbytes)
        if cost:
            ready = max(arrived, self.mpi[thread])
            arrived = self.mpi[thread] = self.processors.busy(self.node[thread], ready, cost)[1]
        return arrived

    def _turn(self, thread: int) -> float:
        """Return the ns until a thread that shares its core looks for messages, or for reads."""
        each = self.rates.serve_turn if self.one_sided else self.rates.turn
        return each * self.processors.others(self.node[thread])

    def _get(self, lane: Lane, number: int, moves: Moves) -> None:
        """Request blocks of other nodes one-sided, one after the other."""
        ticket, me = self.tickets[lane.rank][number], lane.rank
        ticket.left = max(1, len(moves.blocks))
        if not moves.blocks:
            self._at(lane.now, self._set, ticket, 1, lane.now)
        for (_, _, lo, hi), (_, thread, _, _) in moves.blocks:
            cost = self.rates.send + self.rates.read
            lane.now = self.processors.busy(self.node[me], lane.now, cost)[1]
            asked = lane.now + self.rates.latency
            self._at(asked, self._answer, asked, (thread, me), number, hi - lo)

    def _answer(self, start: float, ends: tuple[int, int], ticket: int, nbytes: int) -> None:
        """Send the bytes of a one-sided read; the request reaches their node at `start`."""
        if self.rates.serve:
            start = self._served(start, ends[0], nbytes)
            self._at(start, self._leaves, start, ends, ticket, nbytes)
        else:
            self._leaves(start, ends, ticket, nbytes)

    def _served(self, start: float, thread: int, nbytes: int) -> float:
        """Return when the MPI of a thread has answered a read of its memory.

        It does so when the thread has its turn, copies nothing and receives no other message.
        """
        rates = self.rates
        ready = max(start + self._turn(thread), self.mpi[thread], self.at_work[thread])
        cost = rates.serve + nbytes * rates.per_byte
        done = self.processors.busy(self.node[thread], ready, cost)[1]
        self.mpi[thread] = done + nbytes * rates.serve_byte
        return done

    def _leaves(self, start: float, ends: tuple[int, int], ticket: int, nbytes: int) -> None:
        """Send the answer of a read."""
        begin, left = self.network.leave(ends[0], start, nbytes)
        self._then(begin, self._comes, begin, left, ends, ticket, nbytes, "get")
