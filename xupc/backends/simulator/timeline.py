"""Compute when each thread copies, sends and waits in a call, by running its plans on a clock.

The simulator decides whether plans are right under every schedule; it has no notion of time. This
module runs the same programs (`xupc.backends.simulator.sim_program`) in the order of a clock, and
no byte moves. The values below are those of `Rates`; all times are in ns.

* **Copies and reductions.** The bytes of a copy, and those that a reduction reads, take their time
  at the rate of where they are: the thread's own cache, the cache of another core, or memory
  (`processors`). The threads of a machine share its memory rate and its cores, if `Rates` has them.
  A step gets an equal share of the memory rate among the steps that run when it begins. It waits
  for a core if none is free.
* **Calls and steps.** A call takes time of each thread before its first step, and each step takes
  some besides its bytes. With more threads than cores, a thread that enters the call or has waited
  takes the time of a switch; but for as many as there are cores of those that enter, and of those
  that arrive last at a barrier, which run.
* **Signals and barriers.** A signal is visible one cache line latency later. A barrier ends two
  cache line latencies after the last thread has arrived. Across nodes its messages add to that: one
  round from all node roots to all others on few nodes, else the rounds of a dissemination. A led
  call sends its data in the messages of its barrier, so its own messages have no latency and no
  cost of MPI per message.
* **Messages.** A message leaves when both sides have posted it and the sender's link is free. Its
  bytes pass the sender's link at the wire rate and, at the same time or as soon as it is free, the
  receiver's. They arrive one latency later (`network`: several links, and bytes that an idle link
  carries at once). A one-sided read sends a request first, which takes one latency more.
* **MPI.** It takes time of the sending thread before a message leaves. It takes time of the
  receiving thread, for one message after the other, before the message is there.

The result shows the shape of a plan and a lower bound of its time. It is not a measurement.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...plan.steps import DirectGet, DirectPut
from ...topology.tree import Tree
from .activities import Act, Timeline
from .errors import ProtocolError
from .network import Network
from .processors import Memory, Processors
from .rates import Rates
from .sim_program import (
    ACROSS,
    BARRIER,
    COPY,
    FUSED,
    NEED,
    POST,
    RECV,
    SEND,
    SIGNAL,
    WAIT,
    WORK,
    Message,
    Moves,
    Program,
    Work,
)

__all__ = ["Clock", "Lane", "Prepared", "run"]


FEW_NODES = 8
"""Nodes up to which each node root sends to all others in a barrier.

It is `few_nodes_max` of the built-in table.
"""


def run(programs: Sequence[Program], rates: Rates) -> Timeline:
    """Run a call of all threads of a team, all of which enter it at time 0."""
    return Clock(Prepared(programs), rates).run()


class Prepared:
    """Hold the programs of a call, and what follows from them whatever the rates are."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self._across: dict[tuple[int, int], Moves] = {}

    @cached_property
    def memory(self) -> Memory:
        """Return what the plans do to memory."""
        return Memory(self.programs)

    def across(self, rank: int, step: DirectGet | DirectPut) -> Moves:
        """Return what a step of a thread copies from or to blocks that others expose."""
        found = self._across.get((rank, id(step)))
        if found is None:
            found = self._across[rank, id(step)] = self.programs[rank].across(step, self.programs)
        return found

    def end(self, rates: Rates) -> float:
        """Return the end of the call in ns, as `run` does, without its activities."""
        return Clock(self, rates, keep=False).run().end


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


class Clock:
    """The clock of a call: a heap of what happens next, the earliest first.

    An entry is a lane that runs its next step, or a stage of a message. Entries of the same time
    run in the order of pushing. What comes before all entries runs at once, without an entry.

    Parameters
    ----------
    keep
        Whether the timeline has the activities, not only the end.
    """

    def __init__(self, call: Prepared, rates: Rates, *, keep: bool = True) -> None:
        self.call = call
        programs = self.programs = call.programs
        self.keep = keep
        self.rates = rates
        self.tree: Tree = programs[0].tree
        self.size = len(programs)
        self.node = self.tree.node_index.tolist()
        self.acts: list[Act] = []
        self.end = 0.0
        self.heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.pushed = 0
        self.tickets = [[_Ticket() for _ in range(p.plan.tickets)] for p in programs]
        self.signals: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        self.listening: dict[tuple[int, int], list[Lane]] = defaultdict(list)
        self.posted: dict[Any, list[tuple[float, int]]] = defaultdict(list)
        self.network = Network(self.tree, rates)
        self.mpi = [0.0] * self.size  # when the MPI of a thread has done its last message
        memory = call.memory if rates.cached or rates.crossing else None
        self.processors = Processors(self.tree, rates, memory)
        self.arrived: list[Lane] = []  # at the next barrier
        self.led = self.tree.node_count > 1 and programs[0].plan.led
        self.roots = frozenset(map(int, self.tree.roots))
        self.met = 0  # barriers that all threads have left
        self.running = 0  # lanes that have steps left
        for rank, program in enumerate(programs):
            begin = self.processors.enter(self.node[rank])
            for steps in program.lanes:
                self.running += 1
                self._push(begin, Lane(rank, steps))

    def run(self) -> Timeline:
        heap, pop = self.heap, heapq.heappop
        while heap:
            _, _, do, arguments = pop(heap)
            do(*arguments)
        if self.running:
            raise ProtocolError(f"{self.running} lanes wait for what no step sends")
        return Timeline(self.acts, self.end)

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

    # -- lanes ---------------------------------------------------------------------------------
    def _advance(self, lane: Lane) -> None:
        """Run steps while no entry comes before them: all run in the order of the clock."""
        heap, steps, last = self.heap, lane.steps, len(lane.steps)
        while True:
            if lane.now > self.end:
                self.end = lane.now
            if lane.at == last:
                self.running -= 1
                return
            kind, what = steps[lane.at]
            if kind in (BARRIER, FUSED):
                self._arrive(lane)
                return
            if kind in (WAIT, NEED):
                if not self._wait(lane, kind, what):
                    return
            else:
                self._run(lane, kind, what)
            lane.at += 1
            if heap and heap[0][0] <= lane.now:
                self._at(lane.now, self._advance, lane)
                return

    def _wait(self, lane: Lane, kind: int, what: Any) -> bool:
        """Return whether what a step waits for is there; if so, let the lane go on from then."""
        ready = self._signalled_at(lane, what) if kind == WAIT else self._ticket(lane, what)
        if lane.since is None:
            lane.since = lane.now
        if ready is None:
            return False
        since, lane.since = lane.since, None
        if ready > since:
            ready = self.processors.resume(self.node[lane.rank], max(lane.now, ready))
        if ready > lane.now:
            lane.now = ready
        self._act("wait", lane.rank, since, lane.now)
        return True

    def _run(self, lane: Lane, kind: int, what: Any) -> None:
        """Run a step that waits for nothing."""
        if kind in (SEND, RECV):
            self._exchange(lane, kind == SEND, what)
        elif kind in (COPY, WORK):
            self._work(lane, what)
        elif kind == ACROSS:
            self._work(lane, self.call.across(lane.rank, what))
        elif kind == SIGNAL:
            self._signal(lane, what)
        elif kind == POST:
            self._set(self.tickets[lane.rank][what], 1, lane.now)
        else:
            self._get(lane, *what)

    def _work(self, lane: Lane, what: Any) -> None:
        """Spend the time of a step by loads and stores."""
        nbytes = _weight(what)
        node = self.node[lane.rank]
        start, lane.now = self.processors.work(lane.rank, node, lane.now, what, nbytes)
        self._act(_name(what), lane.rank, start, lane.now, nbytes)

    def _signal(self, lane: Lane, what: tuple[int, int, Any]) -> None:
        channel, value, _ = what
        key = lane.rank, channel
        self.signals[key].append((value, lane.now + self.rates.line))
        for waiting in self.listening.pop(key, ()):
            self._push(lane.now + self.rates.line, waiting)

    def _signalled_at(self, lane: Lane, what: tuple[int, int, Sequence[int]]) -> float | None:
        """Return when all ranks have signalled; None: not yet, the next signal resumes the lane.

        A lane that is resumed goes on from the rank that it waited for, so each rank is read once.
        """
        channel, value, of = what
        for at in range(lane.seen, len(of)):
            rank = of[at]
            time = self._raised_at((rank, channel), value)
            if time is None:
                lane.seen = at
                self.listening[rank, channel].append(lane)
                return None
            if rank != lane.rank and time > lane.latest:
                lane.latest = time
        latest, lane.seen, lane.latest = lane.latest, 0, 0.0
        return latest

    def _raised_at(self, key: tuple[int, int], value: int) -> float | None:
        """Return when a rank has raised a channel to a value; None if it has not. Values ascend."""
        signals = self.signals[key]
        first = bisect_left(signals, (value,))
        return signals[first][1] if first < len(signals) else None

    # -- barriers ------------------------------------------------------------------------------
    def _arrive(self, lane: Lane) -> None:
        self.arrived.append(lane)
        if len(self.arrived) == self.size:
            arrived, self.arrived = self.arrived, []
            self._meet(lane, arrived)

    def _meet(self, lane: Lane, arrived: Sequence[Lane]) -> None:
        """Let all threads go on after a barrier; `lane` has arrived last."""
        first = self.led and not self.met
        self.met += 1
        met = max(x.now for x in arrived) + self.rates.line
        if not self.led or first:
            met = self._exchanged(met)
        done = met
        by, bodies = self._fused(lane, arrived)
        for what in bodies:
            start, nbytes = done, _weight(what)
            done = self.processors.work(by, self.node[by], start, what, nbytes)[1]
            self._act(_name(what), by, start, done, nbytes)
        leave = done + self.rates.line
        on_core = self.processors.last((x.now, x.rank, self.node[x.rank]) for x in arrived)
        for x in arrived:
            if x.rank != by or not bodies:
                self._act("barrier", x.rank, x.now, leave)
            else:
                self._act("barrier", x.rank, x.now, met)
                self._act("barrier", x.rank, done, leave)
            x.at += 1
            sleeps_on = first and x.rank not in self.roots
            runs = sleeps_on or x.rank in on_core
            self._push(leave if runs else self.processors.resume(self.node[x.rank], leave), x)

    def _exchanged(self, met: float) -> float:
        """Return when node roots have the messages of a barrier that all nodes reach at `met`."""
        nodes, rates = self.tree.node_count, self.rates
        if nodes == 1:
            return met
        few = nodes <= FEW_NODES
        cost = (nodes - 1 if few else 1) * (rates.send + rates.receive)
        for _ in range(1 if few else math.ceil(math.log2(nodes))):
            ends = [self.processors.busy(node, met, cost)[1] for node in range(nodes)]
            met = max(ends) + rates.latency
        return met

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
            there += self.rates.latency
        self._then(there, self._arrives, begin, there, ends, ticket, nbytes, kind)

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
        cost = self._mpi(self.rates.receive, nbytes)
        if cost:
            ready = max(arrived, self.mpi[thread])
            arrived = self.mpi[thread] = self.processors.busy(self.node[thread], ready, cost)[1]
        return arrived

    def _get(self, lane: Lane, number: int, moves: Moves) -> None:
        """Request blocks of other nodes one-sided, one after the other."""
        ticket, me = self.tickets[lane.rank][number], lane.rank
        ticket.left = max(1, len(moves.blocks))
        if not moves.blocks:
            self._at(lane.now, self._set, ticket, 1, lane.now)
        for (_, _, lo, hi), (_, thread, _, _) in moves.blocks:
            lane.now = self.processors.busy(self.node[me], lane.now, self.rates.send)[1]
            asked = lane.now + self.rates.latency
            self._at(asked, self._answer, asked, (thread, me), number, hi - lo)

    def _answer(self, start: float, ends: tuple[int, int], ticket: int, nbytes: int) -> None:
        """Send the bytes of a one-sided read; the request reaches their node at `start`."""
        begin, left = self.network.leave(ends[0], start, nbytes)
        self._then(begin, self._comes, begin, left, ends, ticket, nbytes, "get")


def _weight(what: Any) -> int:
    """Return the bytes that a step costs: those a copy writes, those a reduction reads."""
    spans = what.reads if isinstance(what, Work) else what.writes
    return sum(hi - lo for _, _, lo, hi in spans)


def _name(what: Any) -> str:
    return "fold" if isinstance(what, Work) else "copy"
