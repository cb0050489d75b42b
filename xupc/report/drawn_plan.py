"""The plan of one measured call, carried out on a clock, for a report to draw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..backends.simulator.activities import Timeline
from ..backends.simulator.rates import DEFAULTS, rates_of
from ..backends.simulator.timeline import run
from ..bench.results import OURS, Candidate, Cell, Job
from ..byte_sizes import size_of
from ..specs import of_mpi
from ..topology.tree import Tree
from . import formatting
from .findings import call_text
from .plans import Unplanned, programs, root_of, team_of, tree_of

__all__ = ["Choice", "Drawn", "drawn", "has_choice"]

ROWS_DRAWN = 16
"""The most threads of a timeline."""


@dataclass(frozen=True)
class Choice:
    """Name the call whose plan a report draws; an empty algorithm fits any."""

    collective: str
    nbytes: int
    algorithm: str = ""

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Read ``COLLECTIVE/SIZE[/ALGORITHM]``; raise ValueError for any other text."""
        found = re.fullmatch(r"([^/]+)/(\d+ ?\w*)(?:/([A-Za-z][\w:]*))?", text)
        if found is None:
            raise ValueError(f"{text!r}: expected COLLECTIVE/SIZE[/ALGORITHM]")
        collective, size, algorithm = found.groups()
        return cls(of_mpi(collective) or collective, size_of(size), (algorithm or "").upper())

    def fits(self, cell: Cell, candidate: Candidate) -> bool:
        """Return whether the call is that of a cell and its candidate."""
        whole = candidate.algorithm.upper().split(" ")[0]
        names = whole, whole.split(":")[0], candidate.name.upper()
        return (
            cell.collective == self.collective
            and cell.nbytes == self.nbytes
            and (not self.algorithm or self.algorithm in names)
        )


@dataclass
class Drawn:
    """Hold a plan on a clock, or the reason why there is none."""

    title: str = ""
    notes: list[str] = field(default_factory=list)
    happened: Timeline | None = None
    rows: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    missing: str = ""


def _measured(job: Job) -> Iterator[tuple[Cell, Candidate]]:
    for cell in job.cells:
        for candidate in cell.of_kind(OURS):
            yield cell, candidate


def _chosen(job: Job, choice: Choice | None) -> tuple[Cell, Candidate] | None:
    """Return the call to draw: by default that of the largest cell with MULTICORE."""
    every = list(_measured(job))
    if choice is not None:
        return next((pair for pair in every if choice.fits(*pair)), None)
    multicore = [pair for pair in every if pair[1].algorithm.startswith("multicore")]
    return max(multicore, key=lambda pair: (pair[0].nbytes, pair[0].moved), default=None)


def has_choice(job: Job, choice: Choice) -> bool:
    """Return whether the call was measured in a job."""
    return _chosen(job, choice) is not None


def drawn(job: Job, choice: Choice | None) -> Drawn:
    """Return the chosen call's plan on a clock, or why there is none."""
    pair = _chosen(job, choice)
    if pair is None:
        return Drawn(missing="The call was not measured in this job.")
    cell, candidate = pair
    flag, colon, variant = candidate.algorithm.split(" ")[0].partition(":")
    by = f"{flag.upper()}{colon}{variant}"
    title = f"{call_text(cell)} by {by}" if by else call_text(cell)
    try:
        made = programs(job, cell, candidate)
    except Unplanned as e:
        return Drawn(title, missing=f"The plan is not drawn: {e}.")
    tree, world = made[0].tree, tree_of(job)
    several = tree.node_count > 1
    rates = rates_of(job.bounds, several)
    happened = run(made, rates)
    rows = _rows(tree, team_of(world, cell), root_of(cell, tree.size))
    notes = [
        "The plan carried out on a clock, not a measurement: copies at "
        f"{formatting.rate(rates.copy * 1e9)}, a cache line {formatting.time(rates.line)}"
        + (
            f", {formatting.rate(rates.wire * 1e9)} and "
            f"{formatting.time(rates.latency)} between nodes"
            if several
            else ""
        )
        + "; every thread has a core to itself, and copies do not slow each other down."
    ]
    if rates.assumed:
        which = ", ".join(f"{name} {DEFAULTS[name]:g}" for name in rates.assumed)
        notes.append(f"Assumed, since the file does not have them: {which}.")
    if len(rows) < tree.size:
        notes.append(
            f"{len(rows)} of {tree.size} threads are drawn: of each kind of node one node root "
            "and one other thread, and the root."
        )
    return Drawn(title, notes, happened, rows, {rank: tree.node_of(rank) for rank in rows})


def _rows(tree: Tree, threads: Sequence[int], root: int) -> dict[int, str]:
    """Return the ranks to draw and their names: all of a small team, else examples.

    Of each kind of node there are two threads. Kinds of nodes differ by size, and by whether the
    root is there.
    """
    if tree.size <= ROWS_DRAWN:
        shown = [rank for node in tree.nodes for rank in node]
    else:
        kinds: dict[tuple[int, bool], list[int]] = {}
        for node in range(tree.node_count):
            members = tree.members(node).tolist()
            kinds.setdefault((len(members), root in members), members[:2])
        shown = sorted({root, *(rank for some in kinds.values() for rank in some)})
    return {rank: _row_name(tree, threads, rank) for rank in shown}


def _row_name(tree: Tree, threads: Sequence[int], rank: int) -> str:
    node = tree.node_of(rank)
    if tree.node_count == 1:
        return f"thread {threads[rank]}"
    what = "node root of" if tree.node_root(node) == rank else "node"
    return f"{threads[rank]}, {what} {node}"
