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
  cost of MPI per message. The last barrier of another ALLSYNC call joins only the threads of each
  node, unless threads read one-sided or a user's function may raise (`ends_by_node`).
* **Messages.** A message leaves when both sides have posted it and the sender's link is free. Its
  bytes pass the sender's link at the wire rate and, at the same time or as soon as it is free, the
  receiver's. They arrive one latency later (`network`: several links, and bytes that an idle link
  carries at once). A one-sided read sends a request first, which takes one latency more.
* **MPI.** It takes time of the sending thread before a message leaves. It takes time of the
  receiving thread, for one message after the other, before the message is there.
* **Cores that carry messages.** A part of the latency may be work of a core of the sender's node.
  Each byte may be work of a core at either end while it is on its way. The system's TCP is an
  example. Alone that takes no longer; with more threads than cores it waits for a core. There a
  thread also looks for messages only when the other threads of its core have done so.
* **Served reads.** Where the network cannot read memory, the thread with that memory serves the
  read: when it has its turn on a core, copies nothing, and handles no other message.

The result shows the shape of a plan and a lower bound of its time. It is not a measurement.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...plan.plan import Plan
from ...plan.steps import DirectGet, DirectPut
from .activities import Timeline
from .errors import ProtocolError
from .message_clock import Lane, MessageClock
from .processors import Memory
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

    def end_in_a_row(self, rates: Rates, pause: float) -> float:
        """Return the end of the call in ns, where the same call has ended `pause` ns before."""
        first = Clock(self, rates, keep=False)
        end = first.run().end
        if first.network.idle_after(end, end + pause):
            return end
        again = Clock(self, rates, keep=False)
        again.network.carried = first.network.later(end + pause)
        return again.run().end


class Clock(MessageClock):
    """The clock of a call: a heap of what happens next, the earliest first.

    An entry is a lane that runs its next step, or a stage of a message (`message_clock`).

    Parameters
    ----------
    keep
        Whether the timeline has the activities, not only the end.
    """

    def __init__(self, call: Prepared, rates: Rates, *, keep: bool = True) -> None:
        memory = call.memory if rates.cached or rates.crossing else None
        super().__init__(call.programs, rates, memory, keep=keep)
        self.call = call
        self.signals: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        self.listening: dict[tuple[int, int], list[Lane]] = defaultdict(list)
        self.arrived: list[Lane] = []  # at the next barrier
        self.parts = self.tree.node_count > 1 and ends_by_node(self.programs[0].plan)
        self.parted: dict[int, list[Lane]] = defaultdict(list)  # at such a last barrier
        self.roots = frozenset(map(int, self.tree.roots))
        self.met = 0  # barriers that all threads have left
        self.running = 0  # lanes that have steps left
        for rank, program in enumerate(self.programs):
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
        self.at_work[lane.rank] = max(self.at_work[lane.rank], lane.now)
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
        if self.parts and lane.at == len(lane.steps) - 1:
            self._arrive_last(lane)
            return
        self.arrived.append(lane)
        if len(self.arrived) == self.size:
            arrived, self.arrived = self.arrived, []
            self._meet(lane, arrived)

    def _arrive_last(self, lane: Lane) -> None:
        """Arrive at a last barrier that joins only the threads of each node."""
        node = self.node[lane.rank]
        here = self.parted[node]
        here.append(lane)
        if len(here) == self.tree.node_size(node):
            self._meet(lane, here)

    def _meet(self, lane: Lane, arrived: Sequence[Lane]) -> None:
        """Let all threads go on after a barrier; `lane` has arrived last."""
        first = self.led and not self.met
        self.met += 1
        met = max(x.now for x in arrived) + self.rates.line
        if first or not (self.led or len(arrived) < self.size):
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
        rounds = math.ceil(math.log2(nodes))
        cost = (nodes - 1 if few else 1) * (rates.carry or rates.send + rates.receive)
        for _ in range(1 if few else rounds):
            ends = [self.processors.busy(node, met, cost)[1] for node in range(nodes)]
            met = max(ends) + max(0.0, rates.latency - rates.carry)
        crowd = max(self.processors.others(node) for node in range(nodes)) if rates.turn else 0.0
        return met + (nodes - 1 if few else rounds) * crowd * rates.turn

    @staticmethod
    def _fused(last: Lane, arrived: Sequence[Lane]) -> tuple[int, list[Any]]:
        """Return the rank that runs the body of a fused barrier, and the body."""
        kind, what = last.steps[last.at]
        if kind != FUSED:
            return -1, []
        executor = last if what[0] is None else next(x for x in arrived if x.rank == what[0])
        body = executor.steps[executor.at][1][1]
        return executor.rank, [part for _, part in body]


def ends_by_node(plan: Plan) -> bool:
    """Return whether the last barrier of a call on several nodes joins only those of each node."""
    return (
        plan.sync == ("all", "all")
        and len(plan.lanes[0]) > 1  # one step alone is a barrier
        and not (plan.led or plan.one_sided)
        and (plan.kernel is None or plan.kernel.func is None)  # a function may raise
    )


def _weight(what: Any) -> int:
    """Return the bytes that a step costs: those a copy writes, those a reduction reads."""
    spans = what.reads if isinstance(what, Work) else what.writes
    return sum(hi - lo for _, _, lo, hi in spans)


def _name(what: Any) -> str:
    return "fold" if isinstance(what, Work) else "copy"
