"""The content of a report on each job, the same for the page and for Markdown."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..bench.results import PICTURE, Job, Result
from ..topology.tree import Tree
from . import formatting
from .advice import Advice, advised
from .bounds import Bound, bounds_of
from .drawn_plan import Choice, Drawn, drawn
from .findings import CLEAR, Findings, call_text, warnings
from .formatting import fact
from .plans import Unplanned, tree_of
from .tables import Matrix, network_note, network_table, ratios, times, winners

__all__ = ["HOW", "Content", "Section", "job_content"]

HOW = (
    "A repetition's time is the longest over all threads. A curve shows the median over launches "
    "of the median over each launch's repetitions. Its 95% interval is Student's, of the "
    "logarithms of one number per launch, so it covers what differs from launch to launch; fewer "
    "than three launches give none.",
    "A ratio is the peer's time / xupc's, above 1 where xupc is faster, taken within each launch: "
    "both ran in it, interleaved. Win: the whole interval is above 1. LOSS: all of it is below 1. "
    "Parity: it holds 1, and nothing beyond 10% to either side. Unclear: it holds 1 and more than "
    "that. Not resolvable: the same call under two names (A/A) differs by more than 5% in a "
    "typical launch, or there were fewer than three launches: no verdict.",
    "Launches in which other processes took more than 5% of the cores' time do not count, neither "
    "for times nor for verdicts, if three others are left. Else times are those of all launches, "
    "and there is no verdict.",
)


@dataclass
class Content:
    """Hold everything that a report says of a job."""

    job: Job
    findings: Findings
    summary: str
    warnings: list[str]
    advice: list[Advice]
    winners: Matrix | None
    times: Matrix
    ratios: list[Matrix]
    network: Matrix | None
    network_note: str
    bounds: list[Bound]
    tree: Tree | None
    tree_note: str
    picture: str
    drawn: Drawn
    provenance: list[tuple[str, str]]


@dataclass
class Section:
    """Hold the name of a result's file and the content of its jobs."""

    name: str
    result: Result
    jobs: list[Content]

    @property
    def warnings(self) -> list[str]:
        """Return the warnings that concern all jobs."""
        incomplete = "The measurement is incomplete; what is there is good."
        return [*([] if self.result.complete else [incomplete]), *self.result.notes]


def job_content(result: Result, job: Job, choice: Choice | None) -> Content:
    """Return everything that a report says of a job."""
    findings = Findings(job)
    tree, note = _tree(job)
    network = network_table(findings)
    return Content(
        job,
        findings,
        _summary(findings),
        warnings(job),
        advised(findings),
        winners(findings),
        times(findings),
        [ratios(findings, peer) for peer in findings.peers],
        network,
        network_note(job, network),
        bounds_of(job),
        tree,
        note,
        str(job.about.get(PICTURE, "")),
        drawn(job, choice),
        _provenance(result, job),
    )


# --- sentences ------------------------------------------------------------------------------------


def _summary(findings: Findings) -> str:
    """Return in sentences what was compared, with the outcome."""
    job, standings = findings.job, [s for s in findings.standings if s.times]
    if not standings:
        return "Nothing was measured."
    sizes = sorted({s.cell.nbytes for s in standings} - {0})
    span = ""
    if sizes:
        ends = [formatting.size(sizes[0]), formatting.size(sizes[-1])]
        span = f", blocks of {' to '.join(dict.fromkeys(ends))}"
    said = (
        f"{formatting.count(len(standings), 'cell')} of "
        f"{formatting.count(len({s.cell.title for s in standings}), 'kind')} of call{span}, "
        f"in {formatting.count(len(job.launches), 'launch')}."
    )
    if not findings.peers:
        return f"{said} No peer was measured, so this compares xupc's own algorithms only."
    return " ".join([said, *(_against(findings, peer) for peer in findings.peers)])


def _against(findings: Findings, peer: str) -> str:
    counts, ours, mean = findings.counts(peer), findings.ours(peer), findings.mean(peer)
    said = (
        f"Against {peer} {ours} wins {counts['win']}, is level within {CLEAR - 1:.0%} in "
        f"{counts['parity']}, loses {counts['LOSS']}; {counts['unclear']} are unclear, and "
        f"{counts['not resolvable']} cannot be resolved"
    )
    if not math.isnan(mean):
        said += f"; the geometric mean of all ratios is {mean:.2f} (above 1: {ours} is faster)"
    said += "."
    lost = [
        (v.ratio.value, s.cell)
        for s in findings.standings
        for v in s.versus
        if v.peer == peer and v.verdict == "LOSS"
    ]
    if lost:
        worst, cell = min(lost, key=lambda pair: pair[0])
        said += f" The largest loss is {call_text(cell)}, {worst:.2f}."
    return said


def _tree(job: Job) -> tuple[Tree | None, str]:
    try:
        tree = tree_of(job)
    except Unplanned as e:
        return None, f"The node tree is not drawn: {e}."
    if tree.node_count == 1:
        return (
            tree,
            f"{formatting.count(tree.size, 'thread')} that share memory. The one on top is "
            "the node root.",
        )
    sizes = sorted({tree.node_size(node) for node in range(tree.node_count)})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return tree, (
        f"{tree.node_count} nodes of {each} threads. Threads of a node share memory; node roots, "
        "on top, speak for their nodes between nodes."
    )


# --- where it comes from --------------------------------------------------------------------------


def _provenance(result: Result, job: Job) -> list[tuple[str, str]]:
    found = [("command", " ".join(result.command)), ("created", result.created)]
    found += [(name, fact(value)) for name, value in job.about.items() if name != PICTURE]
    found.append(("hosts", ", ".join(dict.fromkeys(job.hosts)) or "not in the file"))
    clock = {k: v for k, v in job.clock.items() if k != "kind"}
    kind = {
        "monotonic": "one machine's monotonic clock",
        "offsets": "several machines' clocks, their offsets estimated",
    }.get(str(job.clock.get("kind")), "not in the file")
    found.append(("clock", "; ".join([kind, *(f"{k} {fact(v)}" for k, v in clock.items())])))
    bounds = [
        f"{name.removesuffix(' ns')} {_bound(name, value)}" for name, value in job.bounds.items()
    ]
    found.append(("bounds", "; ".join(bounds) or "not measured"))
    return found


def _bound(name: str, value: float) -> str:
    return formatting.time(value) if name.endswith(" ns") else formatting.rate(value)
