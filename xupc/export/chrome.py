"""Trace events of a plan on the clock, which Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..backends.simulator.rates import Rates
from ..backends.simulator.sim_program import Program
from ..backends.simulator.timeline import run
from ..report.plan_events import plan_events

__all__ = ["lines"]


def lines(programs: Sequence[Program], rates: Rates, about: str) -> Iterator[str]:
    """Yield the file: a process for each node, tracks for the lanes of each thread."""
    tree = programs[0].tree
    names = {rank: f"thread {rank}" for rank in range(tree.size)}
    nodes = dict(enumerate(tree.node_index.tolist()))
    yield from plan_events(run(programs, rates), names, nodes).lines({"xupc plan": about})
