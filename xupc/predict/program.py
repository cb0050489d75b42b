"""A traced program on another machine: its own computation, and the modelled time of its calls.

The traced threads stand for all threads. Each computes between its calls as long as it did, times a
factor; a call begins when the last thread of its team has entered, and takes what the selection
table's variant takes on the other shape, with blocks of the same bytes. Other calls, such as
allocations, take the time that they took. A team is all threads, those of a node, or one of each
node; other teams take the time of the trace, too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from ..algorithms import registry
from ..backends.simulator.sim_program import Program
from ..backends.simulator.timeline import run
from ..call_trace.join import Trace
from ..call_trace.operations import END, START, Group, groups, nodes_of
from ..plan.plan import barrier_plan
from ..records import record
from ..report import formatting
from ..report.plans import Unplanned
from ..specs import of_mpi
from ..topology.tree import Tree
from ..tuning.selection import Table, public_name
from .candidates import Candidate, Question, chosen, priced
from .machine_file import Machine
from .price import Price, Traffic
from .scaling import Measured, TooLarge, predict

__all__ = ["CallTime", "ProgramTime", "collective_of", "program_time"]

BARRIER = "barrier"
_WORLD, _NODE, _ROOTS, _OTHER = "all threads", "a node", "node roots", "other threads"


@record
class CallTime:
    """Calls of one kind, whose times are in ns each.

    Attributes
    ----------
    team
        Which threads make the call.
    number
        Operations; each is a call of all threads of its team.
    measured
        The median, from the last thread's entry on.
    time, low, high
        On the other machine; as measured if `missing` says why there is no price.
    """

    name: str
    nbytes: int
    team: str
    number: int
    measured: float
    time: float
    low: float
    high: float
    variant: str = ""
    bound: str = ""
    missing: str = ""


@record
class ProgramTime:
    """A program; times in ns, from the end of its first call on.

    Attributes
    ----------
    measured
        The time in the trace.
    computing
        The mean time of a thread between its calls.
    waiting
        The mean time that a thread waits for others to enter its calls.
    """

    measured: float
    time: float
    low: float
    high: float
    computing: float
    waiting: float
    calls: list[CallTime]


_Kind = tuple[str, int, str]
"""The name, the bytes and the team of a call."""


def collective_of(name: str) -> str:
    """Return the collective of a call's name in a trace; "" if it is none that has variants."""
    if name.lower() == BARRIER:
        return BARRIER
    known = {public_name(each) for each in registry.collectives()}
    found = name if name in known else of_mpi(name)
    return found if found in known else ""


def program_time(
    trace: Trace, question: Question, machine: Machine, table: Table, factor: float = 1.0,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> ProgramTime:  # fmt: skip
    """Return the time of a traced program on other nodes of another machine.

    Parameters
    ----------
    question
        The nodes, the MPI and the transport; its collective and its size do not matter.
    factor
        The time of computation there, as a multiple of that in the trace.
    progress
        It gets the share that is done, and the call that is next.

    Raises
    ------
    ValueError
        The trace lacks threads or calls.
    """
    if trace.missing or trace.level:
        why = f"threads {trace.missing}" if trace.missing else "calls, of which some were dropped"
        raise ValueError(f"expected a trace of all calls of all threads; it lacks {why}")
    ordered = [group for group in groups(trace.calls) if group.first.name != END]
    if not ordered:
        raise ValueError("expected a trace with calls, got one without")
    team_of = _teams(trace)
    kinds: dict[_Kind, list[Group]] = defaultdict(list)
    for group in ordered:
        if group.first.name != START:
            first = group.first
            kinds[first.name, first.nbytes, team_of(group)].append(group)
    times: dict[_Kind, CallTime] = {}
    for kind, each in kinds.items():
        progress(len(times) / len(kinds), f"{kind[0]}, {formatting.size(kind[1])}")
        times[kind] = _call_time(kind, each, question, machine, table)

    def replayed(pick: Callable[[CallTime], float]) -> tuple[float, float, float]:
        ends = {kind: pick(found) for kind, found in times.items()}
        return _replay(ordered, lambda g: ends[g.first.name, g.first.nbytes, team_of(g)], factor)

    time, computing, waiting = replayed(lambda call: call.time)
    low, high = (replayed(pick)[0] for pick in (lambda c: c.low, lambda c: c.high))
    began = min((g.first.ended for g in ordered if g.first.name == START), default=0)
    measured = max(call.ended for g in ordered for call in g.calls.values()) - began
    calls = sorted(times.values(), key=lambda call: -call.time * call.number)
    return ProgramTime(measured, time, low, high, computing, waiting, calls)


def _teams(trace: Trace) -> Callable[[Group], str]:
    """Return the function that names the team of a group."""
    nodes = nodes_of(trace)
    named: dict[frozenset[int], str] = {frozenset(node): _NODE for node in nodes}
    named[frozenset(node[0] for node in nodes)] = _ROOTS
    named[frozenset(thread for node in nodes for thread in node)] = _WORLD
    return lambda group: named.get(frozenset(group.calls), _OTHER)


def _replay(
    ordered: Sequence[Group], cost: Callable[[Group], float], factor: float
) -> tuple[float, float, float]:
    """Return the end of the last thread, and the mean times of computing and waiting."""
    clock: dict[int, float] = defaultdict(float)
    left: dict[int, int] = {}  # when a thread left its last call, in the trace
    computing = waiting = 0.0
    for group in ordered:
        if group.first.name == START:
            left.update((thread, call.ended) for thread, call in group.calls.items())
            continue
        entered = {}
        for thread, call in group.calls.items():
            gap = max(0, call.began - left.get(thread, call.began)) * factor
            computing += gap
            entered[thread] = clock[thread] + gap
            left[thread] = max(call.ended, left.get(thread, 0))
        last = max(entered.values())
        end = last + cost(group)
        for thread, time in entered.items():
            waiting += last - time
            clock[thread] = end
    threads = max(1, len(clock))
    return max(clock.values(), default=0.0), computing / threads, waiting / threads


def _call_time(
    kind: _Kind, found: Sequence[Group], question: Question, machine: Machine, table: Table
) -> CallTime:
    """Return the time of the calls of one kind on the other nodes."""
    name, nbytes, team = kind
    number, measured = len(found), float(statistics.median(group.ns for group in found))
    try:
        price = _priced(name, nbytes, team, question, machine, table)
        if price.price is None:
            raise Unplanned(price.missing)
    except (Unplanned, TooLarge) as reason:
        return CallTime(
            name, nbytes, team, number, measured, measured, measured, measured,
            missing=str(reason),
        )  # fmt: skip
    return CallTime(
        name, nbytes, team, number, measured, price.time, price.low, price.high, price.name,
        price.price.bound,
    )  # fmt: skip


def _priced(
    name: str, nbytes: int, team: str, question: Question, machine: Machine, table: Table
) -> Candidate:
    """Return the price of a call of a team on the other nodes."""
    collective = collective_of(name)
    if not collective:
        raise Unplanned("it has no plan")
    if team == _OTHER:
        raise Unplanned("its team has no counterpart on other nodes")
    tree = question.tree
    shape = {
        _WORLD: (question.nodes, question.threads),
        _NODE: (None, tree.largest_node),
        _ROOTS: (f"{tree.node_count}x1", tree.node_count),
    }[team]
    asked = Question(collective, nbytes, *shape, question.family, question.transport)
    if collective == BARRIER:
        return _barrier(asked, machine)
    return priced(asked, chosen(asked, table), machine, table)


def _barrier(question: Question, machine: Machine) -> Candidate:
    """Return the price of a barrier, of which each thread's plan is one step."""
    tree = question.tree
    shape = tree.node_count, tree.largest_node

    def at(shape: tuple[int, int]) -> list[Program]:
        exact = tree if shape[0] * shape[1] == tree.size else None
        on = exact or Tree(np.repeat(np.arange(shape[0], dtype=np.int32), shape[1]))
        return [Program(barrier_plan(rank, on.size), on) for rank in range(on.size)]

    found = predict(
        shape, lambda s: Measured(run(at(s), machine.rates()).end), lambda s: s[0] * s[1]
    )
    ends = [run(at(found.sample), rates).end for rates in (
        machine.fastest(), machine.rates(), machine.slowest())]  # fmt: skip
    low, high = (found.time * ends[k] / ends[1] if ends[1] else 0.0 for k in (0, 2))
    bound = "wire latency" if tree.node_count > 1 else "cache lines"
    price = Price(BARRIER, found.time, low, high, bound, 1.0, Traffic(0, 0))
    return Candidate(BARRIER, price, found.sample, found.time, low, high, how=found.how)

