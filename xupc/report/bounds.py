"""Lines beside a collective's curves: what no call can beat, and the copy rate to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..bench.results import Cell, Job
from ..specs import UNEVEN, parse_name
from . import formatting
from .plans import Unplanned, root_of, team_of, tree_of

__all__ = ["Bound", "bounds_of", "crossing"]


@dataclass(frozen=True)
class Bound:
    """A line below which no time can be.

    Attributes
    ----------
    name
        A few words for the plot.
    why
        What it is, and why a curve cannot pass it.
    least
        ns that a cell takes at least.
    """

    name: str
    why: str
    least: Callable[[Cell], float]


def bounds_of(job: Job) -> list[Bound]:
    """Return the bounds that the job measured and that apply to it."""
    bounds = {k: v for k, v in job.bounds.items() if v > 0}
    found = []
    line = bounds.get("line latency ns")
    if line and job.threads > 1 and any(len(node) > 1 for node in job.nodes):
        why = (
            f"a cache line takes {formatting.time(line)} from core to core, measured here: "
            "no thread can know sooner of what another one did"
        )
        found.append(Bound("cache line", why, lambda cell: line))
    found += _copying(job, bounds)
    rate, latency = bounds.get("wire rate"), bounds.get("wire latency ns", 0.0)
    if rate and len(job.nodes) > 1:
        why = (
            f"the bytes that must enter or leave one node whatever the algorithm, at the "
            f"{formatting.rate(rate)} measured between node roots, after one latency of "
            f"{formatting.time(latency)}: no byte crosses sooner"
        )
        found.append(Bound("wire", why, lambda cell: latency + crossing(job, cell) / rate * 1e9))
    return found


def _copying(job: Job, bounds: dict[str, float]) -> list[Bound]:
    """Return a line to compare with: all cores copy all bytes delivered; 0 for reductions."""
    copy, of_node = bounds.get("copy rate"), bounds.get("node copy rate")
    cores = job.about.get("cores")
    workers = [min(len(n), cores) if isinstance(cores, int) else len(n) for n in job.nodes]
    if of_node:
        total, how = (
            of_node * len(job.nodes),
            f"{formatting.rate(of_node)} of all threads of a node",
        )
    elif copy:
        total, how = (
            copy * sum(workers),
            f"{formatting.rate(copy)} of one thread, times {sum(workers)}",
        )
    else:
        return []
    why = (
        f"a line to compare with, no bound: what the call delivers, at the copy rate measured here "
        f"({how}). That is of memory beyond the caches: data that fit into them can pass it"
    )
    return [Bound("copy", why, lambda cell: 0.0 if cell.op else cell.moved / total * 1e9)]


def crossing(job: Job, cell: Cell) -> int:
    """Return the most bytes that must enter or leave some node in a call, by any algorithm.

    0 where that cannot be said: of a permutation, or blocks of unknown sizes.
    """
    try:
        world = tree_of(job)
        team = team_of(world, cell)
        tree = world.sub(team)
        root = root_of(cell, tree.size)
    except (Unplanned, ValueError):
        return 0
    if tree.node_count < 2:
        return 0
    sizes = [tree.node_size(node) for node in range(tree.node_count)]
    try:
        form, spec = parse_name(cell.collective)
    except ValueError:  # the barrier, or a plan in place
        return 0
    if form in UNEVEN or (spec.whole and form == "all"):
        return 0
    return spec.crossing(sizes, tree.node_of(root), cell.nbytes)
