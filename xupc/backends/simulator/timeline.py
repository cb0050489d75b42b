"""Compute when each thread copies, sends and waits in a call, by running its plans on a clock.

The simulator decides whether plans are right under every schedule; it has no notion of time. This
module runs the same programs (`xupc.backends.simulator.sim_program`) in the order of a clock, and
no byte moves:

* a copy runs at the copy rate, and so does the reading of a reduction. The threads of a node share
  its memory rate and its cores, if `Rates` has them: a step gets an equal share of what is in use
  when it begins, or waits for a core;
* a signal is visible one cache line latency later; a barrier ends two cache line latencies after
  the last thread has arrived; across nodes each round of its dissemination adds two wire latencies;
* a message leaves when both sides have posted it and the network of both nodes is free in that
  direction; it takes its bytes at the wire rate, and the latency after that. A one-sided read
  sends a request first, which takes one latency more;
* MPI takes time of the sending thread before a message leaves, and time of the receiving one, for
  one message after the other, before it is there.

The result shows the shape of a plan and a lower bound of its time. It is not a measurement.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...topology.tree import Tree
from .errors import ProtocolError
from .sim_program import (
    ACROSS,
    BARRIER,
    COPY,
    FUSED,
    GET,
    NEED,
    POST,
    SEND,
    SIGNAL,
    WAIT,
    WORK,
    Message,
    Moves,
    Program,
    Work,
)

__all__ = ["DEFAULTS", "Act", "Clock", "Lane", "Rates", "Timeline", "rates_of", "run"]

DEFAULTS = {
    "copy rate": 8e9,
    "line latency ns": 100.0,
    "wire rate": 1.25e9,
    "wire latency ns": 20e3,
}
"""The values that stand for bounds that were not measured."""


@dataclass(frozen=True)
class Rates:
    """The costs of steps, in bytes per ns and in ns.

    Attributes
    ----------
    copy, wire
        Rates of a thread's copies and of a node's network in each direction.
    line, latency
        Latencies of a cache line and of the network.
    assumed
        The bounds that were not measured.
    send, receive, per_byte
        Processor time of MPI: per message that a thread sends or receives, and per byte of either.
    node_copy
        Rate of the copies of all threads of a node together.
    cores
        Cores of a node; 0: one for each thread.
    """

    copy: float
    line: float
    wire: float
    latency: float
    assumed: tuple[str, ...] = ()
    send: float = 0.0
    receive: float = 0.0
    per_byte: float = 0.0
    node_copy: float = math.inf
    cores: int = 0


@dataclass(frozen=True)
class Act:
    """An activity that takes time of a thread or of its network.

    Attributes
    ----------
    thread
        A rank of the team.
    peer
        The other rank of a message; -1 of others.
    """

    kind: str
    thread: int
    start: float
    end: float
    nbytes: int = 0
    peer: int = -1


@dataclass
class Timeline:
    """All activities of a call; times in ns from its start."""

    acts: list[Act]
    end: float

    def of(self, thread: int) -> list[Act]:
        """Return the activities of a thread, by start."""
        return sorted(
            (act for act in self.acts if act.thread == thread), key=lambda a: (a.start, a.end)
        )

    def total(self, thread: int, kind: str) -> tuple[float, int]:
        """Return the ns and bytes that a thread spends on one kind of activity."""
        found = [act for act in self.acts if act.thread == thread and act.kind == kind]
        return sum(act.end - act.start for act in found), sum(act.nbytes for act in found)


def rates_of(bounds: Mapping[str, float], several_nodes: bool) -> Rates:
    """Return the rates for the measured bounds of a job; one node needs no wire rates."""
    usable = {k: v for k, v in bounds.items() if k in DEFAULTS and math.isfinite(v) and v > 0}
    values = {**DEFAULTS, **usable}
    needed = [name for name in DEFAULTS if several_nodes or "wire" not in name]
    return Rates(
        values["copy rate"] / 1e9,
        values["line latency ns"],
        values["wire rate"] / 1e9,
        values["wire latency ns"],
        tuple(name for name in needed if name not in usable),
    )


def run(programs: Sequence[Program], rates: Rates) -> Timeline:
    """Run a call of all threads of a team, all of which enter it at time 0."""
    return Clock(programs, rates).run()


@dataclass
class Lane:
    """One lane of a thread: its step, its time, and since when it waits."""

    rank: int
    steps: list[tuple[int, Any]]
    at: int = 0
    now: float = 0.0
    since: float | None = None


@dataclass
class _Ticket:
    """The time at which a ticket is set, the lane that waits for it, the operations left."""

    left: int = -1
    time: float = 0.0
    lane: Lane | None = None


class Clock:
    """A heap of lanes and transfers, the earliest first."""

    def __init__(self, programs: Sequence[Program], rates: Rates) -> None:
        self.programs = programs
        self.rates = rates
        self.tree: Tree = programs[0].tree
        self.size = len(programs)
        self.node = self.tree.node_index.tolist()
        self.acts: list[Act] = []
        self.end = 0.0
        self.heap: list[tuple[float, int, Any]] = []
        self.pushed = 0
        self.tickets = [[_Ticket() for _ in range(p.plan.tickets)] for p in programs]
        self.signals: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        self.listening: dict[tuple[int, int], list[Lane]] = defaultdict(list)
        self.posted: dict[Any, list[tuple[float, int]]] = defaultdict(list)
        nodes = range(self.tree.node_count)
        self.free = [[0.0 for _ in nodes] for _ in range(2)]  # network out, in
        self.mpi = [0.0] * self.size  # when the MPI of a thread has done its last message
        self.ends: list[list[float]] = [[] for _ in nodes]  # of copies
        self.cores = [[0.0] * rates.cores for _ in nodes]  # when each is free
        self.arrived: list[Lane] = []  # at the next barrier
        self.running = 0
        for rank, program in enumerate(programs):
            for steps in program.lanes:
                self.running += 1
                self._push(0.0, Lane(rank, steps))

    def run(self) -> Timeline:
        while self.heap:
            _, _, (do, *arguments) = heapq.heappop(self.heap)
            do(*arguments)
        if self.running:
            raise ProtocolError(f"{self.running} lanes wait for what no step sends")
        return Timeline(self.acts, self.end)

    def _push(self, time: float, lane: Lane) -> None:
        lane.now = max(lane.now, time)
        self._at(lane.now, self._advance, lane)

    def _at(self, time: float, *what: Any) -> None:
        self.pushed += 1  # entries of the same time run in the order of pushing
        heapq.heappush(self.heap, (time, self.pushed, what))

    def _act(
        self, kind: str, rank: int, start: float, end: float, nbytes: int = 0, peer: int = -1
    ) -> None:
        self.end = max(self.end, end)
        if end > start:
            self.acts.append(Act(kind, rank, start, end, nbytes, peer))

    # -- lanes ---------------------------------------------------------------------------------
    def _advance(self, lane: Lane) -> None:
        """Run one step; schedule the next one, so that all steps run in the order of the clock."""
        self.end = max(self.end, lane.now)
        if lane.at == len(lane.steps):
            self.running -= 1
            return
        kind, what = lane.steps[lane.at]
        if kind in (BARRIER, FUSED):
            self._arrive(lane)
            return
        if kind in (WAIT, NEED):
            ready = self._signalled_at(lane, what) if kind == WAIT else self._ticket(lane, what)
            if ready is None:
                lane.since = lane.now if lane.since is None else lane.since
                return
            since = lane.now if lane.since is None else lane.since
            lane.now, lane.since = max(lane.now, ready), None
            self._act("wait", lane.rank, since, lane.now)
        elif kind in (COPY, WORK):
            self._work(lane, what)
        elif kind == ACROSS:
            self._work(lane, self.programs[lane.rank].across(what, self.programs))
        elif kind == SIGNAL:
            self._signal(lane, what)
        elif kind == POST:
            self._set(self.tickets[lane.rank][what], 1, lane.now)
        elif kind == GET:
            self._get(lane, *what)
        else:
            self._exchange(lane, kind == SEND, what)
        lane.at += 1
        self._push(lane.now, lane)

    def _work(self, lane: Lane, what: Any) -> None:
        """Spend the time of a step by loads and stores."""
        nbytes = _weight(what)
        start, lane.now = self._copying(self.node[lane.rank], lane.now, nbytes)
        self._act(_name(what), lane.rank, start, lane.now, nbytes)

    def _copying(self, node: int, now: float, nbytes: int) -> tuple[float, float]:
        """Return when a copy begins and ends that a thread of a node makes from `now` on."""
        rates, cores, ends = self.rates, self.cores[node], self.ends[node]
        start = max(now, heapq.heappop(cores)) if cores else now
        rate = rates.copy
        if rates.node_copy != math.inf:
            while ends and ends[0] <= start:
                heapq.heappop(ends)
            rate = min(rate, rates.node_copy / (len(ends) + 1))
        end = start + nbytes / rate
        if rates.node_copy != math.inf:
            heapq.heappush(ends, end)
        if rates.cores:
            heapq.heappush(cores, end)
        return start, end

    def _signal(self, lane: Lane, what: tuple[int, int, Any]) -> None:
        channel, value, _ = what
        key = lane.rank, channel
        self.signals[key].append((value, lane.now + self.rates.line))
        for waiting in self.listening.pop(key, ()):
            self._push(lane.now + self.rates.line, waiting)

    def _signalled_at(self, lane: Lane, what: tuple[int, int, Iterable[int]]) -> float | None:
        """Return when all ranks have signalled; None if not yet: the next signal wakes the lane."""
        channel, value, of = what
        latest = 0.0
        for rank in of:
            key = rank, channel
            times = [time for stands, time in self.signals[key] if stands >= value]
            if not times:
                self.listening[key].append(lane)
                return None
            latest = max(latest, times[0] if rank != lane.rank else 0.0)
        return latest

    # -- barriers ------------------------------------------------------------------------------
    def _arrive(self, lane: Lane) -> None:
        self.arrived.append(lane)
        if len(self.arrived) == self.size:
            arrived, self.arrived = self.arrived, []
            self._meet(lane, arrived)

    def _meet(self, lane: Lane, arrived: Sequence[Lane]) -> None:
        """Let all threads go on after a barrier; `lane` has arrived last."""
        last = max(x.now for x in arrived)
        rounds = math.ceil(math.log2(self.tree.node_count))
        met = last + self.rates.line + 2 * rounds * self.rates.latency
        done = met
        by, bodies = self._fused(lane, arrived)
        for what in bodies:
            start, nbytes = done, _weight(what)
            done += nbytes / self.rates.copy
            self._act(_name(what), by, start, done, nbytes)
        for x in arrived:
            if x.rank != by or not bodies:
                self._act("barrier", x.rank, x.now, done + self.rates.line)
            else:
                self._act("barrier", x.rank, x.now, met)
                self._act("barrier", x.rank, done, done + self.rates.line)
            x.at += 1
            self._push(done + self.rates.line, x)

    @staticmethod
    def _fused(last: Lane, arrived: Sequence[Lane]) -> tuple[int, list[Any]]:
        """Return the rank that runs the body of a fused barrier, and the body."""
        kind, what = last.steps[last.at]
        if kind != FUSED:
            return -1, []
        executor = last if what[0] is None else next(x for x in arrived if x.rank == what[0])
        body = executor.steps[executor.at][1][1]
        return executor.rank, [part for _, part in body]

    # -- tickets and the network ---------------------------------------------------------------
    def _ticket(self, lane: Lane, number: int) -> float | None:
        """Return when a ticket was set; None if not yet: the ticket wakes the lane."""
        ticket = self.tickets[lane.rank][number]
        if ticket.left == 0:
            return ticket.time
        ticket.lane = lane
        return None

    def _set(self, ticket: _Ticket, parts: int, time: float) -> None:
        """Complete one of the operations that a ticket waits for."""
        ticket.left = (parts if ticket.left < 0 else ticket.left) - 1
        ticket.time = max(ticket.time, time)
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
        """Post one side of messages; the second side starts each of them."""
        if sends:
            lane.now += self._mpi(self.rates.send, message.nbytes)
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
        sender, receiver = ends
        begin, left = self._on_the_wire(start, self.node[sender], self.node[receiver], nbytes)
        arrived = self._received(receiver, left + self.rates.latency, nbytes)
        if nbytes:
            self._act("send", sender, begin, left, nbytes, receiver)
            self._act("receive", receiver, begin, arrived, nbytes, sender)
        for rank, ticket, time in zip(ends, tickets, (left, arrived), strict=True):
            self._at(time, self._set, self.tickets[rank][ticket], 1, time)

    def _mpi(self, per_message: float, nbytes: int) -> float:
        """Return the ns of MPI's work on one side of a message."""
        return per_message + nbytes * self.rates.per_byte

    def _received(self, thread: int, arrived: float, nbytes: int) -> float:
        """Return when MPI hands a message over that reaches a thread's node at a time."""
        cost = self._mpi(self.rates.receive, nbytes)
        if cost:
            arrived = self.mpi[thread] = max(arrived, self.mpi[thread]) + cost
        return arrived

    def _on_the_wire(
        self, start: float, source: int, target: int, nbytes: int
    ) -> tuple[float, float]:
        """Return when a message begins to leave its node, and when all of it has left."""
        out, into = self.free
        begin = max(start, out[source], into[target]) if nbytes else start
        left = begin + nbytes / self.rates.wire
        if nbytes:
            out[source] = into[target] = left
        return begin, left

    def _get(self, lane: Lane, number: int, moves: Moves) -> None:
        """Read blocks of other nodes, one after the other."""
        ticket = self.tickets[lane.rank][number]
        time = lane.now
        for (_, _, lo, hi), (_, thread, _, _) in moves.blocks:
            nbytes = hi - lo
            lane.now += self.rates.send
            asked = lane.now + self.rates.latency
            begin, left = self._on_the_wire(
                asked, self.node[thread], self.node[lane.rank], nbytes
            )
            arrived = self._received(lane.rank, left + self.rates.latency, nbytes)
            self._act("get", lane.rank, begin, arrived, nbytes, thread)
            time = max(time, arrived)
        self._at(time, self._set, ticket, 1, time)


def _weight(what: Any) -> int:
    """Return the bytes that a step costs: those a copy writes, those a reduction reads."""
    spans = what.reads if isinstance(what, Work) else what.writes
    return sum(hi - lo for _, _, lo, hi in spans)


def _name(what: Any) -> str:
    return "fold" if isinstance(what, Work) else "copy"
