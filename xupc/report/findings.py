"""The findings of a job's cells: the fastest candidate, its lead, and xupc against its peers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..algorithms.registry import names_variant
from ..bench.results import FLOOR, OURS, PEER, Candidate, Cell, Job
from ..bench.stats import (
    LEAST,
    RESOLVABLE,
    Estimate,
    Ratio,
    geometric_mean,
    median,
    ratio,
    verdict,
)
from ..specs import mpi_name
from . import formatting

__all__ = [
    "CHOSEN",
    "PLANNED",
    "VERDICTS",
    "Findings",
    "Standing",
    "Versus",
    "Winner",
    "judged",
    "label",
    "with_mpi",
    "warnings",
]

CHOSEN = "xupc"
"""The candidate in which the library chooses the algorithm."""
PLANNED = "plan"
"""The candidate that replays a plan: the same steps with less around them."""
VERDICTS = "win", "parity", "unclear", "LOSS", "not resolvable"
CLEAR = 1.1
"""An interval within this of 1, to either side, says that two are level; wider, it is unclear."""
BUSY = 0.5
"""A load per core before a launch that deserves a word."""


@dataclass(frozen=True)
class Versus:
    """Hold a candidate of xupc, `ours`, against a peer; a ratio above 1 is in xupc's favour."""

    peer: str
    ours: str
    ratio: Ratio
    verdict: str


@dataclass(frozen=True)
class Winner:
    """Hold the fastest candidate of a cell.

    Attributes
    ----------
    name
        An algorithm's name or a peer's.
    ours
        Whether it is one of xupc's.
    next
        The next fastest that is something else; empty if there is no other.
    margin
        Time of the next one / time of this one; None if there is no other.
    tied
        Whether the margin's interval reaches 1.
    level
        Whether it is within `CLEAR` of 1 besides; a tie that is not is unclear.
    resolvable
        Whether the A/A spread is small enough to say so.
    against_peers
        xupc's choice against the best peer; None without peers.
    """

    name: str
    ours: bool
    next: str
    margin: Ratio | None
    tied: bool
    level: bool
    resolvable: bool
    against_peers: Versus | None


@dataclass
class Standing:
    """Hold a cell and its findings."""

    cell: Cell
    times: dict[str, Estimate] = field(default_factory=dict)
    spread: float | None = None
    versus: list[Versus] = field(default_factory=list)
    winner: Winner | None = None


def _standing(cell: Cell, decidable: bool) -> Standing:
    standing = Standing(cell, spread=cell.spread)
    for candidate in cell.candidates:
        if candidate.measured:
            standing.times[candidate.name] = median(candidate.medians)
    ours = _reference(cell)
    for peer in cell.of_kind(PEER):
        if ours is None:
            break
        found = ratio(peer.medians, ours.medians)
        if found is not None:
            said = judged(found, standing.spread) if decidable else "not resolvable"
            standing.versus.append(Versus(peer.name, ours.name, found, said))
    standing.winner = _winner(standing, decidable)
    return standing


def judged(found: Ratio, spread: float | None) -> str:
    """Return one of `VERDICTS` for a ratio, by the A/A spread of its cell."""
    said = verdict(found, spread)
    return "unclear" if said == "parity" and not _is_level(found) else said


def _is_level(found: Ratio | None) -> bool:
    """Return whether an interval holds 1 and nothing that is further away than `CLEAR`."""
    return found is not None and 1 / CLEAR <= found.low <= 1.0 <= found.high <= CLEAR


def _counted(job: Job) -> tuple[Job, bool]:
    """Return a job without its disturbed launches, and whether the others permit verdicts.

    If they are too few, the job is as it was: there are times then, but no verdict.
    """
    out = {k for k, launch in enumerate(job.launches) if launch.disturbed}
    if out and len(job.launches) - len(out) < LEAST:
        return job, False
    cells = [replace(c, candidates=[_without(x, out) for x in c.candidates]) for c in job.cells]
    return (replace(job, cells=cells) if out else job), True


def _without(candidate: Candidate, launches: set[int]) -> Candidate:
    """Return a candidate without its times in some launches."""
    ns = [[] if k in launches else times for k, times in enumerate(candidate.ns)]
    kept = [[] if k in launches else row for k, row in enumerate(candidate.kept)]
    return replace(candidate, ns=ns, kept=kept, visits=[])


def _reference(cell: Cell) -> Candidate | None:
    """Return the candidate that is compared with peers: where the library chooses, if measured."""
    ours = list(cell.of_kind(OURS))
    return next((c for c in ours if c.name == CHOSEN), ours[0] if ours else None)


def label(candidate: Candidate) -> str:
    """Return the algorithm flag if ours carries the candidate out, else its own name.

    The variants of a flag are one label, since the default one changes with the size. A candidate
    that is a variant by name has a label of its own.
    """
    if names_variant(candidate.name):
        return candidate.name
    word = candidate.algorithm.partition(":")[0].partition(" ")[0].upper()
    return word if candidate.kind == OURS and word else candidate.name


def with_mpi(title: str, cell: Cell) -> str:
    """Return a title with MPI's name of the call behind it, if MPI has one."""
    try:
        name = mpi_name(cell.collective)
    except ValueError:  # a file may name anything
        return title
    return f"{title} · {name}" if name else title


def call_text(cell: Cell) -> str:
    """Return a cell's call with the size of its blocks."""
    return f"{cell.title} of {formatting.size(cell.nbytes)}" if cell.nbytes else cell.title


def _rivals(cell: Cell) -> dict[str, Candidate]:
    """Return one candidate per way to do a call: several names of one algorithm count once.

    A replayed plan is not among them: it is another way to call, not to do it.
    """
    rivals: dict[str, Candidate] = {}
    for kind in (OURS, PEER):
        for candidate in cell.of_kind(kind):
            if candidate.name != PLANNED:
                rivals.setdefault(label(candidate), candidate)
    return rivals


def _winner(standing: Standing, decidable: bool) -> Winner | None:
    rivals = _rivals(standing.cell)
    if not rivals:
        return None
    times = standing.times
    order = sorted(rivals, key=lambda name: times[rivals[name].name].value)
    best = rivals[order[0]]
    margin, second = None, ""
    if len(order) > 1:
        second = order[1]
        margin = ratio(rivals[second].medians, best.medians)
    return Winner(
        order[0],
        best.kind == OURS,
        second,
        margin,
        margin is not None and not margin.low > 1.0,
        _is_level(margin),
        decidable
        and standing.spread is not None
        and standing.spread <= RESOLVABLE
        and not (margin is not None and math.isnan(margin.low)),
        min(standing.versus, key=lambda v: v.ratio.value, default=None),
    )


class Findings:
    """Hold the findings of a job's cells.

    Attributes
    ----------
    decidable
        Whether enough launches were not disturbed by other processes. Only those count then; else
        there is no verdict.
    standings
        Of all cells, in their order.
    peers
        Names, in the order in which they come.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        counted, self.decidable = _counted(job)
        self.standings = [_standing(cell, self.decidable) for cell in counted.cells]
        self.peers = list(dict.fromkeys(v.peer for s in self.standings for v in s.versus))

    @cached_property
    def groups(self) -> dict[str, list[Standing]]:
        """The standings of each collective and its arguments, by the size of a block."""
        groups: dict[str, list[Standing]] = {}
        for standing in self.standings:
            groups.setdefault(standing.cell.title, []).append(standing)
        for group in groups.values():
            group.sort(key=lambda s: s.cell.nbytes)
        return groups

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of a block, ascending."""
        return sorted({s.cell.nbytes for s in self.standings})

    def counts(self, peer: str | None = None) -> dict[str, int]:
        """Return how many comparisons have which verdict, with one peer or all."""
        found = [v.verdict for v in self._versus(peer)]
        return {name: found.count(name) for name in VERDICTS}

    def mean(self, peer: str | None = None) -> float:
        """Return the geometric mean of the ratios, those of noisy cells included; nan of none.

        There is none where other processes have disturbed too many launches.
        """
        return geometric_mean(v.ratio.value for v in self._versus(peer) if self.decidable)

    def ours(self, peer: str) -> str:
        """Return what of xupc's was compared with a peer: xupc, if the library chose everywhere."""
        names = list(dict.fromkeys(v.ours for v in self._versus(peer)))
        if names == [CHOSEN]:
            return CHOSEN
        return "xupc's " + " or ".join("own choice" if n == CHOSEN else n for n in names)

    def _versus(self, peer: str | None) -> Iterator[Versus]:
        for standing in self.standings:
            yield from (v for v in standing.versus if peer in (None, v.peer))

    def candidates(self, group: Sequence[Standing]) -> list[Candidate]:
        """Return the candidates measured anywhere in a group, once each: ours, peers, the floor."""
        found: dict[str, Candidate] = {}
        for kind in (OURS, PEER, FLOOR):
            for standing in group:
                for candidate in standing.cell.of_kind(kind):
                    found.setdefault(candidate.name, candidate)
        return list(found.values())


def warnings(job: Job) -> list[str]:
    """Return the warnings that a reader of a job's figures needs first."""
    found = []
    if job.about.get("oversubscribed"):
        cores = job.about.get("cores")
        of = f" on {formatting.count(cores, 'core')}" if isinstance(cores, int) else ""
        found.append(
            f"Oversubscribed: {job.threads} threads{of}. Times include waiting for a core."
        )
    wrong = [
        f"{cell.title}, {cell.nbytes} B, {c.name} (threads {', '.join(map(str, threads))})"
        for cell in job.cells
        for c in cell.candidates
        if (threads := sorted({t for launch in c.wrong for t in launch}))
    ]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        found.append(f"WRONG RESULTS: {'; '.join(wrong[:5])}{more}.")
    return [*found, *_unmeasured(job), *_busy(job)]


def _unmeasured(job: Job) -> list[str]:
    """Return a sentence that names the calls without figures."""
    calls = [f"{title} of {', '.join(map(formatting.size, sizes))}" if any(sizes) else title
             for title, sizes in job.unmeasured.items()]  # fmt: skip
    if not calls:
        return []
    return [f"Not measured, since the launches ended before: {'; '.join(calls)}."]


def _busy(job: Job) -> list[str]:
    cores = job.about.get("cores")
    if not isinstance(cores, int) or cores < 1:
        return []
    shares = [launch.others for launch in job.launches]
    if disturbed := sum(launch.disturbed for launch in job.launches):
        most = max(share or 0.0 for share in shares)
        left_out = len(shares) - disturbed >= LEAST
        return [f"The machine was busy: other processes took up to {most:.0%} of the cores' time "
                f"in {disturbed} of {len(shares)} launches. "
                + ("They do not count." if left_out else
                   "Times are those of all launches, and there are no verdicts.")]  # fmt: skip
    if None not in shares:  # a load that has gone before the measuring is none
        return []
    loads = [launch.load[0] for launch in job.launches if launch.load]
    if not loads or max(loads) <= BUSY * cores:
        return []
    return [f"The machine was busy: a load of {max(loads):.1f} on {cores} cores before a launch."]
