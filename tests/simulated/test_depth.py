"""Small calls on many nodes: no more messages come one after the other than log2 of the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from simulated.matrix import ENTRIES, arguments
from simulated.reductions import FORMS, Job, Symbols, plans_of
from simulated.test_scale import TUNING
from simulated.values import JOINS, MOVES, One, plan_of

from xupc.algorithms.registry import Entry
from xupc.flags import MULTICORE
from xupc.plan.plan import Plan
from xupc.plan.recorder import trace
from xupc.plan.steps import (
    Barrier,
    Get,
    NetSignal,
    NetWait,
    Ranks,
    Recv,
    Send,
    SetTicket,
    Signal,
    Step,
    Wait,
    WaitTicket,
)
from xupc.topology.tree import Tree

NODES, PER_NODE = 64, 2
ROUNDS = (NODES - 1).bit_length()
"""log2 of the nodes."""

class Lane:
    """A lane of a thread, and how many messages lie behind it."""

    def __init__(self, me: int, steps: Sequence[Step], tickets: dict[int, object]) -> None:
        self.me, self.steps, self.tickets = me, steps, tickets
        self.pc = self.depth = 0


class Depths:
    """Plans carried out by counting: of what a step waits for, the longest way of messages."""

    def __init__(self, plans: Sequence[Plan], tree: Tree) -> None:
        self.tree = tree
        self.lanes = []
        for me, plan in enumerate(plans):
            tickets: dict[int, object] = {}
            self.lanes += [Lane(me, steps, tickets) for steps in plan.lanes]
        self.sent: dict[object, list[int]] = defaultdict(list)
        self.taken: dict[object, int] = defaultdict(int)
        self.words: dict[object, list[tuple[int, int]]] = defaultdict(list)

    def run(self) -> int:
        """The longest way."""
        while any(self._moved(lane) for lane in self.lanes):
            pass
        assert all(lane.pc == len(lane.steps) for lane in self.lanes), "deadlock"
        return max(max([lane.depth, *map(self._at, lane.tickets.values())]) for lane in self.lanes)

    def _at(self, ticket: object) -> int:
        """The depth of what a ticket stands for: known, or of messages that have been sent."""
        if isinstance(ticket, list):
            return max((self.sent[key][i] for key, i in ticket), default=0)
        assert isinstance(ticket, int)
        return ticket

    def _moved(self, lane: Lane) -> bool:
        begin = lane.pc
        while lane.pc < len(lane.steps) and self._do(lane, lane.steps[lane.pc]):
            lane.pc += 1
        return lane.pc > begin

    def _far(self, lane: Lane, ranks: Ranks) -> list[int]:
        mine = self.tree.node_of(lane.me)
        return [rank for rank in ranks if self.tree.node_of(rank) != mine]

    def _do(self, lane: Lane, step: Step) -> bool:
        """False: it has to wait."""
        match step:
            case Send() | NetSignal():
                for to in self._far(lane, step.to):
                    self.sent[self._kind(step), lane.me, to].append(lane.depth + 1)
                lane.tickets[step.ticket] = lane.depth
            case Recv() | NetWait():
                awaited = []
                for of in self._far(lane, step.of):
                    key = self._kind(step), of, lane.me
                    awaited.append((key, self.taken[key]))
                    self.taken[key] += 1
                lane.tickets[step.ticket] = awaited
            case Get():
                lane.tickets[step.ticket] = lane.depth + 2
            case SetTicket():
                lane.tickets[step.ticket] = lane.depth
            case WaitTicket():
                found = lane.tickets.get(step.ticket)
                if found is None:
                    return False
                if isinstance(found, list) and any(len(self.sent[k]) <= i for k, i in found):
                    return False
                lane.depth = max(lane.depth, self._at(found))
            case Signal():
                for to in step.to:
                    self.words[step.channel, lane.me, to].append((step.value, lane.depth))
            case Wait():
                for of in step.of:
                    words = self.words[step.channel, of, lane.me]
                    depths = [depth for value, depth in words if value >= step.value]
                    if not depths:
                        return False
                    lane.depth = max(lane.depth, depths[0])
            case Barrier():
                raise AssertionError("a barrier of all inside of a call without ALLSYNC")
        return True

    @staticmethod
    def _kind(step: Step) -> object:
        """Messages match in order for each sender, receiver and channel."""
        return step.channel if isinstance(step, (NetSignal, NetWait)) else "data"


def depth_of(plans: Sequence[Plan], tree: Tree) -> int:
    """Of the messages of a call, how many come one after the other."""
    return Depths(plans, tree).run()


@pytest.fixture(scope="module")
def tree() -> Tree:
    """More nodes than `few_nodes_max`."""
    return Tree([node for node in range(NODES) for _ in range(PER_NODE)])


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.flag == MULTICORE], ids=lambda e: e.collective
)
def test_moves(entry: Entry, tree: Tree) -> None:
    name = entry.collective
    given = arguments(name, tree.size, 1, 8)
    plans = [
        trace(entry.function, entry.name, name, me, tree, ("no", "no"), TUNING, given)
        for me in range(tree.size)
    ]
    assert 1 <= depth_of(plans, tree) <= ROUNDS


@pytest.mark.parametrize("form", FORMS)
def test_reductions(form: str, tree: Tree) -> None:
    dealt = 0, 0, 1
    job = Job(form, tree.size, *dealt, tree.size, 0, False, dealt)
    plans = plans_of(job, MULTICORE, tree, ("no", "no"), TUNING, Symbols(ordered=False))
    assert 1 <= depth_of(plans, tree) <= 2 * ROUNDS  # up a tree and down again


@pytest.mark.parametrize("form", MOVES + JOINS)
def test_arrays_of_values(form: str, tree: Tree) -> None:
    one = One(form, MULTICORE, 1, 8, False)
    plans = [plan_of(one, me, tree, TUNING, Symbols(ordered=False)) for me in range(tree.size)]
    assert 1 <= depth_of(plans, tree) <= 2 * ROUNDS
