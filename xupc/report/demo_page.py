"""The page of `xupc demo`: a comparison, two pictures, a node tree, a plan and an error."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.results import OURS, PICTURE, Candidate, Cell, Job, Result
from ..bench.settings import Shape
from ..specs import mpi_name
from . import formatting
from .drawn_plan import Drawn, drawn
from .figures import timeline, tree
from .findings import Findings, Versus, warnings
from .formatting import size, time
from .page import rendered
from .plans import tree_of
from .ratio_chart import compared, ratio_chart

__all__ = ["PEER_NAME", "Row", "Story", "doubts", "headline", "render", "rows_of"]

PEER_NAME = "mpi4py"
UNDECIDED = "not resolvable", "unclear"


@dataclass(frozen=True)
class Story:
    """Hold what the steps of a demonstration have found.

    Attributes
    ----------
    result
        Measurements of one job beside mpi4py.
    shape
        The threads and nodes of the program that filtered the picture.
    block
        The bytes of a thread's rows of the picture.
    before, after
        The picture and its edges, as PNG.
    filtered, mismatch
        What the two programs have printed: one line for each algorithm; the error.
    """

    result: Result
    shape: Shape
    block: int
    before: bytes
    after: bytes
    filtered: Sequence[str]
    mismatch: str


@dataclass(frozen=True)
class Row:
    """Hold one call beside the peer's, in words."""

    call: str
    mpi: str
    block: str
    ours: str
    peer: str
    ratio: str
    interval: str
    verdict: str

    @property
    def words(self) -> list[str]:
        """Return the columns of a line of text."""
        ratio = f"{self.ratio} ({self.interval})"
        return [self.call, self.mpi, self.block, self.ours, self.peer, ratio, self.verdict]


def rows_of(findings: Findings) -> list[Row]:
    """Return the calls that were compared with mpi4py's."""
    return [
        Row(
            standing.cell.collective, mpi_name(standing.cell.collective),
            size(standing.cell.nbytes), time(standing.times[versus.ours].value),
            time(standing.times[PEER_NAME].value), f"{versus.ratio.value:.2f}",
            versus.ratio.interval(), versus.verdict,
        )
        for group in findings.groups.values()
        for standing, versus in compared(group, PEER_NAME)
    ]  # fmt: skip


def headline(findings: Findings) -> str:
    """Return in one sentence how xupc compares with mpi4py, losses and doubts included."""
    found = [versus for _, versus in compared(findings.standings, PEER_NAME)]
    if not found:
        return f"Nothing was compared with {PEER_NAME}"
    won = [v for v in found if v.verdict == "win"]
    lost = [v for v in found if v.verdict == "LOSS"]
    doubtful = sum(v.verdict in UNDECIDED for v in found)
    if not findings.decidable:
        return f"No verdict on xupc and {PEER_NAME}: other processes disturbed the launches"
    said = f"xupc is faster than {PEER_NAME} in {len(won)} of {len(found)} measurements"
    said += _range(won)
    said += f", slower in {len(lost)}" + _range(lost, inverse=True)
    return said + (f"; {doubtful} cannot be decided" if doubtful else "")


def doubts(result: Result) -> list[str]:
    """Return what a reader of the figures should know besides, as sentences."""
    found = [words for job in result.jobs for words in warnings(job)]
    if not all(job.about.get("native core") for job in result.jobs):
        found.insert(0, "The Python engine ran, which is many times slower (see xupc info).")
    return [*found, *(f"{note[:1].upper()}{note[1:]}." for note in result.notes)]


def _range(found: Sequence[Versus], *, inverse: bool = False) -> str:
    """Return the least and the greatest ratio, in parentheses."""
    ratios = sorted(1 / v.ratio.value if inverse else v.ratio.value for v in found)
    if not ratios:
        return ""
    ends = list(dict.fromkeys(f"{r:.1f}" for r in (ratios[0], ratios[-1])))
    return f" ({' to '.join(ends)} times)"


def render(story: Story) -> str:
    """Return the whole page; MissingError without jinja2."""
    job = story.result.jobs[0]
    findings = Findings(job)
    nodes = [list(threads) for threads in story.shape.placed]
    cluster = Job(story.shape.threads, nodes, [], job.about, {}, job.bounds)
    plan = _plan(cluster, story.block)
    spec = ratio_chart([s for g in findings.groups.values() for s in g], PEER_NAME)
    return rendered(
        "demo.html",
        story=story,
        headline=headline(findings),
        job=job,
        rows=rows_of(findings),
        warnings=doubts(story.result),
        spec=spec,
        charts=spec is not None,
        tree=tree(tree_of(cluster), cluster),
        plan=plan,
        timeline="" if plan.happened is None else timeline(plan.happened, plan.rows),
        about=[
            (name, formatting.fact(value))
            for name, value in job.about.items()
            if name != PICTURE
        ],
        before=base64.b64encode(story.before).decode(),
        after=base64.b64encode(story.after).decode(),
    )


def _plan(cluster: Job, block: int) -> Drawn:
    """Return on a clock the scatter of the picture's rows by MULTICORE."""
    cell = Cell("all_scatter", block, block * cluster.threads, root="0")
    cell.candidates = [Candidate("MULTICORE", OURS, "", "multicore", ns=[[1]])]
    cluster.cells = [cell]
    return drawn(cluster, None)
