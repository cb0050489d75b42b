"""The price of a call: its modelled time on a machine, what bounds it, and what it sends.

All plans of the call run on the clock of `xupc.backends.simulator.timeline`. Nothing is measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..algorithms.conditions import CallFacts
from ..algorithms.registry import Variant
from ..backends.simulator.processors import Processors
from ..backends.simulator.rates import Rates
from ..backends.simulator.sim_program import GET, SEND, Program
from ..backends.simulator.timeline import Prepared
from ..plan.plan import Plan
from ..plan.steps import Get, NetSignal, NetWait, Recv, Send, Signal, Step, Wait
from ..records import record
from ..report.plans import maker
from .machine_file import Machine

__all__ = [
    "COSTS", "Price", "Traffic", "bound_of", "gains", "price", "price_of", "programs_of",
    "steps_of", "traffic", "work_of",
]  # fmt: skip

_BLOCKS: Final = 4  # of a message, whose work is about that of a step
_FREE = Rates(math.inf, 0.0, math.inf, 0.0)

COSTS: Final[dict[str, tuple[str, ...]]] = {
    "copies": (
        "copy", "node_copy", "cores", "nodes", "dealt", "cached", "cache", "crossing", "fold",
        "scan",
    ),
    "cache lines": ("line",),
    "wire rate": ("wire", "burst", "links", "split"),
    "wire latency": ("latency",),
    "MPI's time": (
        "send", "receive", "per_byte", "carry", "carry_byte", "cores", "nodes", "dealt",
    ),
    "one-sided reads": ("read", "serve", "serve_byte", "cores", "nodes", "dealt"),
    "calls and steps": ("call", "step", "cores", "nodes", "dealt"),
    "threads without a core": ("switch", "turn", "serve_turn", "cores", "nodes", "dealt"),
}  # fmt: skip
"""What can bound a call, and the costs of the clock that belong to it."""
_MPI: Final = "send", "receive", "per_byte", "carry", "carry_byte"
_HALVES: Final[dict[str, float]] = {
    "copy": 2.0, "node_copy": 2.0, "wire": 2.0, "line": 0.5, "latency": 0.5, "send": 0.5,
    "receive": 0.5, "per_byte": 0.5, "cached": 2.0, "cache": 2.0, "crossing": 2.0, "fold": 2.0,
    "scan": 2.0, "call": 0.5, "step": 0.5, "switch": 0.5, "carry": 0.5, "carry_byte": 0.5,
    "turn": 0.5, "read": 0.5, "serve": 0.5, "serve_byte": 0.5, "serve_turn": 0.5,
}  # fmt: skip


@record
class Traffic:
    """Hold what a call sends between nodes.

    Attributes
    ----------
    messages
        Their number, those without data included.
    busiest
        The bytes of the node that sends or receives most, in one direction.
    """

    messages: int
    busiest: int


@record
class Price:
    """The modelled time of a call by one variant, in ns, with its range.

    Attributes
    ----------
    bound
        The key of `COSTS` that takes longest if all others are free.
    share
        That time as a share of the whole.
    """

    variant: str
    time: float
    low: float
    high: float
    bound: str
    share: float
    traffic: Traffic


def steps_of(programs: Sequence[Program]) -> int:
    """Return the number of steps of all threads."""
    return sum(len(lane) for program in programs for lane in program.lanes)


def work_of(variant: Variant, call: CallFacts, enough: int) -> int:
    """Estimate the work of pricing a call by a variant: the steps of all threads, and their peers.

    The plans of some threads stand for all of them: of the first two on the first node, which has
    the root, on one in the middle and on the last one.

    Parameters
    ----------
    enough
        Work of which more need not be known: plans of further threads are not made then.
    """
    make, tree = maker(variant, call), call.tree
    last = tree.node_count - 1

    def on(node: int) -> int:
        first, *others = map(int, tree.members(node)[:2])
        return _work(make(first)) + (tree.node_size(node) - 1) * sum(_work(make(x)) for x in others)

    found = 0
    for node in dict.fromkeys((last, tree.node_count // 2)):
        if last and found <= enough:
            found = max(found, last * on(node))
    return found if found > enough else found + on(0)


def _work(plan: Plan) -> int:
    return sum(1 + _peers(step) for lane in plan.lanes for step in lane)


def _peers(step: Step) -> int:
    """Return what a step adds to the work: its peers, and the blocks of their messages."""
    match step:
        case Send(to=ranks) | Recv(of=ranks):
            blocks = sum(each.columns * each.rows for each in step.blocks)
            return ranks.count * (1 + blocks // _BLOCKS)
        case Signal(to=ranks) | NetSignal(to=ranks) | Wait(of=ranks) | NetWait(of=ranks):
            return ranks.count
        case Get():
            return step.count
    return 0


def programs_of(variant: Variant, call: CallFacts) -> list[Program]:
    """Return the programs of all threads of a call by a variant."""
    make = maker(variant, call)
    return [Program(make(rank), call.tree) for rank in range(call.size)]


def price(variant: Variant, call: CallFacts, machine: Machine) -> Price:
    """Return the price of a call by a variant on a machine."""
    return price_of(variant.name, Prepared(programs_of(variant, call)), machine)


def price_of(name: str, call: Prepared, machine: Machine, time: float | None = None) -> Price:
    """Return the price of a call whose programs are there, by the variant of a name.

    `time`: its time in ns, if that is known.
    """
    time = call.end(machine.rates()) if time is None else time
    low, high = (call.end(rates) for rates in (machine.fastest(), machine.slowest()))
    bound, alone = _bound_of(call, machine.rates())
    share = alone / time if time else 0.0
    return Price(name, time, low, high, bound, min(1.0, share), traffic(call.programs))


def _can_cost(call: Prepared, rates: Rates) -> Iterator[str]:
    """Yield the keys of `COSTS` that can take time of a call; the others are free in it."""
    tree = call.programs[0].tree
    several = tree.node_count > 1
    needed = {
        "cache lines": rates.line > 0,
        "wire rate": several,
        "wire latency": several and rates.latency > 0,
        "MPI's time": several and any(getattr(rates, cost) > 0 for cost in _MPI),
        "one-sided reads": several and _reads(call) and (rates.read or rates.serve) > 0,
        "calls and steps": (rates.call or rates.step) > 0,
        "threads without a core": (rates.switch or rates.turn or rates.serve_turn) > 0
        and any(Processors(tree, rates, None).crowded),
    }
    return (name for name in COSTS if needed.get(name, True))


def _reads(call: Prepared) -> bool:
    """Return whether a call reads memory of other nodes one-sided."""
    return any(program.plan.one_sided for program in call.programs)


def bound_of(programs: Sequence[Program], rates: Rates) -> tuple[str, float]:
    """Return the key of `COSTS` that takes longest if all others are free, and its time in ns."""
    return _bound_of(Prepared(programs), rates)


def _bound_of(call: Prepared, rates: Rates) -> tuple[str, float]:
    alone = dict.fromkeys(COSTS, 0.0)
    for name in _can_cost(call, rates):
        costs = {cost: getattr(rates, cost) for cost in COSTS[name]}
        alone[name] = call.end(replace(_FREE, **costs))
    bound = max(alone, key=lambda name: alone[name])
    return bound, alone[bound]


def gains(call: Prepared, rates: Rates, whole: float) -> dict[str, float]:
    """Return by which share a call gets shorter if each of `COSTS` is halved.

    `whole`: its time in ns.
    """
    found = dict.fromkeys(COSTS, 0.0)
    for name in _can_cost(call, rates) if whole else ():
        halved = [cost for cost in COSTS[name] if cost in _HALVES]
        better = {cost: getattr(rates, cost) * _HALVES[cost] for cost in halved}
        found[name] = 1 - call.end(replace(rates, **better)) / whole
    return found


def traffic(programs: Sequence[Program]) -> Traffic:
    """Count the messages between nodes, and the bytes of the busiest direction of a node."""
    node = programs[0].tree.node_of
    moved: Counter[tuple[str, int]] = Counter()
    messages = 0
    for program in programs:
        me = node(program.plan.rank)
        for to, nbytes in _sent(program):
            messages += 1
            moved["out", me] += nbytes
            moved["in", node(to)] += nbytes
        for of, nbytes in _fetched(program):
            messages += 2  # a request and its answer
            moved["out", node(of)] += nbytes
            moved["in", me] += nbytes
    return Traffic(messages, max(moved.values(), default=0))


def _sent(program: Program) -> Iterable[tuple[int, int]]:
    for lane in program.lanes:
        for kind, what in lane:
            if kind == SEND:
                yield from ((message.peer, message.nbytes) for message in what.messages)


def _fetched(program: Program) -> Iterable[tuple[int, int]]:
    for lane in program.lanes:
        for kind, what in lane:
            if kind == GET:
                yield from ((of, hi - lo) for _, (_, of, lo, hi) in what[1].blocks)
