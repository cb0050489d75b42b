"""Make the graph of calls: walk through the plans of all threads until each of them is at its end.

The walk has no clock. A step becomes one operation or several, as soon as all that it waits for has
become one. Calls, copies, folds and cache lines take the time that they have on the clock when
nothing else runs there. What messages take is not in the graph: the reader's tool finds that out.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from ..backends.simulator import sim_program as steps
from ..backends.simulator.errors import ProtocolError
from ..backends.simulator.processors import Memory, Processors
from ..backends.simulator.rates import Rates
from ..backends.simulator.sim_program import Message, Moves, Program, Work
from ..plan.patterns import dissemination
from ..topology.tree import Tree
from .graph import RECEIVE, SEND, SERVED, WORK, Graph, Operation

__all__ = ["BARRIER_BYTES", "Builder"]

BARRIER_BYTES: Final = 32
"""The message of a barrier between two node roots."""
REQUEST, ANSWER, MEETING = -2, -3, -4
"""Channels of one-sided reads and of barriers; those of plans are DATA, which is -1, and up."""


class _Lane:
    """A lane of a thread in a call: its next step, and what that step waits for."""

    __slots__ = ("at", "begun", "ended", "far", "rank", "steps", "unit")

    def __init__(self, rank: int, unit: int, steps: list[tuple[int, Any]]) -> None:
        self.rank = rank
        self.unit = unit
        self.steps = steps
        self.at = 0
        self.ended: set[int] = set()
        self.begun: set[int] = set()
        self.far = False  # it has waited for another thread's signal since its last operation


class Builder:
    """Calls and work between them, added in an order in which all threads make them."""

    def __init__(self, tree: Tree, rates: Rates) -> None:
        self.tree = tree
        self.rates = rates
        self.node = tree.node_index.tolist()
        self.operations: list[Operation] = []
        self.last: list[set[int]] = [set() for _ in range(tree.size)]  # of each thread
        self._tags: Counter[tuple[int, int]] = Counter()  # messages between two nodes so far

    def graph(self) -> Graph:
        """Return what was added."""
        return Graph(self.tree, self.operations)

    def work(self, thread: int, ns: float, what: str) -> None:
        """Let a thread compute between two calls."""
        self.last[thread] = {
            self.add(Operation(WORK, thread, 0, what, 0, ns, ended=_sorted(self.last[thread])))
        }

    def call(
        self, programs: Sequence[Program], threads: Sequence[int], few_nodes_max: int = 0
    ) -> None:
        """Add a call of a team.

        Parameters
        ----------
        programs
            By rank of the team.
        threads
            The thread of each rank.
        few_nodes_max
            Node roots of so many nodes exchange the messages of a barrier all to all.

        Raises
        ------
        ProtocolError
            The plans do not fit together.
        """
        _Call(self, programs, threads, few_nodes_max).run()

    def add(self, operation: Operation) -> int:
        """Add an operation; return its number."""
        self.operations.append(operation)
        return len(self.operations) - 1

    def tag(self, sender: int, receiver: int) -> int:
        """Return the number of a further message between the nodes of two threads."""
        pair = self.node[sender], self.node[receiver]
        self._tags[pair] += 1
        return self._tags[pair] - 1


class _Call:
    """One call while it is added."""

    def __init__(
        self, builder: Builder, programs: Sequence[Program], threads: Sequence[int], few: int
    ) -> None:
        self.builder = builder
        self.programs = programs
        self.threads = threads
        self.few = few
        self.tree = programs[0].tree
        self.rates = builder.rates
        memory = Memory(programs) if self.rates.cached or self.rates.crossing else None
        self.processors = Processors(self.tree, self.rates, memory)
        self.tickets: list[list[tuple[set[int], set[int]] | None]] = [
            [None] * program.plan.tickets for program in programs
        ]
        self.open: list[set[int]] = [set() for _ in programs]  # messages not waited for yet
        self.signals: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.waiting: dict[Hashable, list[_Lane]] = defaultdict(list)
        self.arrived: list[_Lane] = []
        self.sides: Counter[tuple[Hashable, str]] = Counter()  # messages of two threads
        self.unmatched: dict[Hashable, tuple[int, str]] = {}  # tag and kind of the first side

    def run(self) -> None:
        """Walk through all lanes."""
        lanes = [
            _Lane(rank, unit, steps)
            for rank, program in enumerate(self.programs)
            for unit, steps in enumerate(program.lanes)
        ]
        begin = [self._begin(rank) for rank in range(len(self.programs))]
        for lane in lanes:
            lane.ended |= begin[lane.rank]
        self.ready = deque(lanes)
        while self.ready:
            lane = self.ready.popleft()
            while lane.at < len(lane.steps) and self._step(lane):
                lane.at += 1
            if lane.far and lane.at == len(lane.steps):
                lane.far = False
                self._work(lane, "wait", self.rates.line)
        left = [lane for lane in lanes if lane.at < len(lane.steps)]
        if left or self.unmatched:
            raise ProtocolError(
                f"{self.programs[0].name}: {len(left)} lanes wait for what no step sends, "
                f"{len(self.unmatched)} messages have one end"
            )
        for rank, thread in enumerate(self.threads):
            last = set(self.open[rank])
            for lane in lanes[2 * rank : 2 * rank + 2]:
                last |= lane.ended | lane.begun
            self.builder.last[thread] = last

    def _begin(self, rank: int) -> set[int]:
        """Return what a thread's lanes wait for at first: at most one operation."""
        thread = self.threads[rank]
        last = self.builder.last[thread]
        if len(last) > 1 or self.rates.call:
            self.builder.work(thread, self.rates.call, "call")
        return self.builder.last[thread]

    # -- steps -------------------------------------------------------------------------------
    def _step(self, lane: _Lane) -> bool:
        """Take one step; return False if it has to wait, and let that wake the lane."""
        kind, what = lane.steps[lane.at]
        if lane.far and kind != steps.WAIT:
            lane.far = False
            self._work(lane, "wait", self.rates.line)
        if kind in (steps.COPY, steps.WORK):
            self._move(lane, what)
        elif kind == steps.ACROSS:
            self._move(lane, self.programs[lane.rank].across(what, self.programs))
        elif kind == steps.SIGNAL:
            self._signal(lane, *what[:2])
        elif kind == steps.WAIT:
            return self._wait(lane, *what)
        elif kind == steps.NEED:
            return self._need(lane, what)
        elif kind == steps.POST:
            self.tickets[lane.rank][what] = set(lane.ended), set(lane.begun)
            self._wake(("ticket", lane.rank, what))
        elif kind == steps.GET:
            self._get(lane, *what)
        elif kind in (steps.BARRIER, steps.FUSED):
            return self._arrive(lane)
        else:
            self._exchange(lane, SEND if kind == steps.SEND else RECEIVE, what)
        return True

    def _wake(self, key: Hashable) -> None:
        self.ready.extend(self.waiting.pop(key, ()))

    def _work(self, lane: _Lane, what: str, ns: float, nbytes: int = 0) -> int:
        """Add work of a lane, after all that the lane waits for."""
        number = self.builder.add(
            Operation(
                WORK, self.threads[lane.rank], lane.unit, what, nbytes, ns,
                ended=_sorted(lane.ended), begun=_sorted(lane.begun - lane.ended),
            )
        )  # fmt: skip
        lane.ended, lane.begun = {number}, set()
        return number

    def _move(self, lane: _Lane, what: Any) -> None:
        spans = what.reads if isinstance(what, Work) else what.writes
        nbytes = sum(hi - lo for _, _, lo, hi in spans)
        if nbytes or self.rates.step:
            name = "fold" if isinstance(what, Work) else "copy"
            machine = self.tree.node_of(lane.rank) // self.processors.each
            rate = min(self.processors.rate(lane.rank, machine, what), self.rates.node_copy)
            self._work(lane, name, self.rates.step + nbytes / rate, nbytes)

    def _signal(self, lane: _Lane, channel: int, value: int) -> None:
        self.signals[lane.rank, channel].append((value, self._work(lane, "signal", 0.0)))
        self._wake(("signal", lane.rank, channel))

    def _wait(self, lane: _Lane, channel: int, value: int, of: Iterable[int]) -> bool:
        found: set[int] = set()
        far = False
        for rank in of:
            raised = self.signals[rank, channel]
            first = next((number for stands, number in raised if stands >= value), None)
            if first is None:
                self.waiting["signal", rank, channel].append(lane)
                return False
            found.add(first)
            far |= rank != lane.rank
        lane.ended |= found
        lane.far |= far
        return True

    def _need(self, lane: _Lane, ticket: int) -> bool:
        found = self.tickets[lane.rank][ticket]
        if found is None:
            self.waiting["ticket", lane.rank, ticket].append(lane)
            return False
        lane.ended |= found[0]
        lane.begun |= found[1]
        self.open[lane.rank] -= found[0]
        return True

    # -- messages ------------------------------------------------------------------------------
    def _exchange(self, lane: _Lane, kind: str, what: Any) -> None:
        numbers = {self._message(lane, kind, what.channel, m) for m in what.messages}
        self._set(lane.rank, what.ticket, numbers)

    def _set(self, rank: int, ticket: int, numbers: set[int]) -> None:
        """Let a ticket stand for operations."""
        self.tickets[rank][ticket] = numbers, set()
        self.open[rank] |= numbers
        self._wake(("ticket", rank, ticket))

    def _message(self, lane: _Lane, kind: str, channel: int, message: Message) -> int:
        """Post one side of a message of a lane; the lane goes on when it has begun."""
        number = self._side(
            kind, lane.rank, message.peer, channel, message.nbytes, lane.unit, lane.ended,
            lane.begun,
        )  # fmt: skip
        lane.ended, lane.begun = set(), {number}
        return number

    def _side(
        self, kind: str, rank: int, peer: int, channel: int, nbytes: int, unit: int,
        ended: set[int], begun: set[int],
    ) -> int:  # fmt: skip
        """Add one side of a message; both sides of the n-th on a channel get the same tag."""
        ends = (rank, peer) if kind == SEND else (peer, rank)
        sender, receiver = (self.threads[r] for r in ends)
        key = (*ends, channel)
        self.sides[key, kind] += 1
        match = key, self.sides[key, kind]
        first = self.unmatched.pop(match, None)
        if first is None:
            tag = self.builder.tag(sender, receiver)
            self.unmatched[match] = tag, kind
        else:
            tag = first[0]
        me, other = (sender, receiver) if kind == SEND else (receiver, sender)
        return self.builder.add(
            Operation(
                kind, me, unit, kind, nbytes, 0.0, other, tag, _sorted(ended),
                _sorted(begun - ended),
            )
        )  # fmt: skip

    def _get(self, lane: _Lane, ticket: int, moves: Moves) -> None:
        """Ask for blocks of other nodes: a request for each, and its answer."""
        numbers: set[int] = set()
        for (_, _, lo, hi), (_, owner, _, _) in moves.blocks:
            self._message(lane, SEND, REQUEST, Message(owner, (), 0))
            first = self.builder.last[self.threads[owner]]
            asked = self._side(RECEIVE, owner, lane.rank, REQUEST, 0, SERVED, first, set())
            answer = self._side(
                SEND, owner, lane.rank, ANSWER, hi - lo, SERVED, {asked}, set()
            )
            self.open[owner].add(answer)
            numbers.add(self._message(lane, RECEIVE, ANSWER, Message(owner, (), hi - lo)))
        self._set(lane.rank, ticket, numbers)

    # -- barriers ------------------------------------------------------------------------------
    def _arrive(self, lane: _Lane) -> bool:
        self.arrived.append(lane)
        if len(self.arrived) == len(self.programs):
            arrived, self.arrived = self.arrived, []
            self._meet({lane.rank: lane for lane in arrived})
            for other in arrived:
                other.at += 1
                self.ready.append(other)
        return False

    def _meet(self, lanes: dict[int, _Lane]) -> None:
        """Let all threads of each node arrive, node roots exchange messages, and all go on."""
        roots = [lanes[root] for root in self.tree.roots]
        for members, root in zip(self.tree.nodes, roots, strict=True):
            signals = {
                self._work(lanes[rank], "arrive", 0.0) for rank in members if rank != root.rank
            }
            root.ended |= signals
            self._work(root, "barrier", self.rates.line)
        for exchange in self._rounds(len(roots)):
            self._round(roots, exchange)
        self._bodies(lanes, roots[0])
        for members, root in zip(self.tree.nodes, roots, strict=True):
            first = self._work(root, "leave", 0.0)
            for rank in members:
                lanes[rank].ended.add(first)
                self._work(lanes[rank], "barrier", self.rates.line)

    def _rounds(self, n: int) -> Iterator[list[list[int]]]:
        """Yield for each round the positions that each of n positions sends to."""
        if 1 < n <= self.few:
            yield [[(v + k) % n for k in range(1, n)] for v in range(n)]
        elif n > 1:
            for to in zip(*(dissemination(v, n) for v in range(n)), strict=True):
                yield [[position] for position, _ in to]

    def _round(self, roots: list[_Lane], exchange: list[list[int]]) -> None:
        received: dict[int, set[int]] = defaultdict(set)
        before = [(set(root.ended), set(root.begun)) for root in roots]
        for v, targets in enumerate(exchange):
            for to in targets:
                ends = roots[v].rank, roots[to].rank
                sent = self._side(SEND, *ends, MEETING, BARRIER_BYTES, 0, *before[v])
                received[v].add(sent)
                received[to].add(
                    self._side(RECEIVE, *ends[::-1], MEETING, BARRIER_BYTES, 0, *before[to])
                )
        for v, root in enumerate(roots):
            root.ended, root.begun = received[v], set()

    def _bodies(self, lanes: dict[int, _Lane], root: _Lane) -> None:
        """Let one thread run the body of a fused barrier."""
        kind, what = root.steps[root.at]
        if kind != steps.FUSED:
            return
        by = root if what[0] is None else lanes[what[0]]
        by.ended |= root.ended
        for _, part in by.steps[by.at][1][1]:
            self._move(by, part)
        if by is not root:
            root.ended.add(self._work(by, "signal", 0.0))


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(numbers))
