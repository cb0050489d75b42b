"""The graph of a traced program: the plans of its calls, and its computation between them.

A trace does not have the root of a call, nor its type and operation: the root is the team's first
thread, and reductions add up float64. A call whose plan depends on more than its size is kept as
work that takes the time of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..backends.simulator.rates import Rates
from ..backends.simulator.sim_program import Program
from ..call_trace.join import Trace
from ..call_trace.operations import END, START, Group, groups
from ..plan.plan import barrier_plan
from ..predict.candidates import Question
from ..predict.program import BARRIER, collective_of
from ..report.plans import Unplanned
from ..topology.tree import Tree
from ..tuning.selection import Place, Table
from .builder import Builder
from .calls import programs_of_call
from .graph import Graph

__all__ = ["MOST_OPERATIONS", "program_graph"]

MOST_OPERATIONS: Final = 4_000_000

_Made = tuple[Sequence[Program], int]
"""Programs by rank, and the number of nodes that exchange barriers all to all."""


def program_graph(
    trace: Trace, family: str, transport: str, table: Table, rates: Rates
) -> tuple[Graph, Counter[str]]:
    """Return the graph of a traced program, and how many calls of which name are kept as work.

    Raises
    ------
    ValueError
        The trace lacks threads or calls, or has too many.
    """
    if trace.missing or trace.level:
        why = f"threads {trace.missing}" if trace.missing else "calls, of which some were dropped"
        raise ValueError(f"expected a trace of all calls of all threads; it lacks {why}")
    return _Traced(trace, family, transport, table, rates).graph()


class _Traced:
    """The calls of a trace while they are added."""

    def __init__(
        self, trace: Trace, family: str, transport: str, table: Table, rates: Rates
    ) -> None:
        by_thread = sorted(trace.threads, key=lambda about: int(about["thread"]))
        self.trace = trace
        self.tree = Tree([about["node"] for about in by_thread])
        self.family, self.transport, self.table = family, transport, table
        self.builder = Builder(self.tree, rates)
        self.left: dict[int, int] = {}  # when a thread left its last call
        self.kept: Counter[str] = Counter()
        self.known: dict[tuple[object, ...], _Made | None] = {}

    def graph(self) -> tuple[Graph, Counter[str]]:
        """Add all calls."""
        for group in groups(self.trace.calls):
            if group.first.name not in (START, END):
                self._add(group)
                if len(self.builder.operations) > MOST_OPERATIONS:
                    raise ValueError(f"expected a trace of at most {MOST_OPERATIONS} operations")
            self.left.update((thread, call.ended) for thread, call in group.calls.items())
        return self.builder.graph(), self.kept

    def _add(self, group: Group) -> None:
        made = self._programs(group)
        for thread, call in group.calls.items():
            gap = call.began - self.left.get(thread, call.began)
            if gap > 0:
                self.builder.work(thread, gap, "compute")
            if made is None:
                self.builder.work(thread, call.ended - call.began, call.name)
        if made is None:
            self.kept[group.first.name] += 1
        else:
            self.builder.call(made[0], sorted(group.calls), made[1])

    def _programs(self, group: Group) -> _Made | None:
        """Return the programs of a call; None if its plan cannot be made."""
        first, threads = group.first, tuple(sorted(group.calls))
        key = first.name, first.nbytes, first.variant, threads
        if key not in self.known:
            try:
                self.known[key] = self._made(group, self.tree.sub(threads))
            except (Unplanned, ValueError):
                self.known[key] = None
        return self.known[key]

    def _made(self, group: Group, tree: Tree) -> _Made:
        first = group.first
        collective = collective_of(first.name)
        if not collective:
            raise Unplanned(f"{first.name} has no plan")
        if collective == BARRIER:
            place = Place.of(tree.node_sizes, self.family, self.transport, oversubscribed=False)
            few = self.table.tuning(place)["few_nodes_max"]
            plans = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
            return plans, few
        question = Question(collective, first.nbytes, None, tree.size, self.family, self.transport)
        _, programs, tuning = programs_of_call(question, tree, self.table, first.variant)
        return programs, tuning["few_nodes_max"]
