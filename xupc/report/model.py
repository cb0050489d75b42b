"""What a report says, the same for the page and for Markdown: sentences, tables, drawings' data."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..backends.simulator.timeline import DEFAULTS, Timeline, rates_of, run
from ..bench.results import OURS, Candidate, Cell, Job, Result
from ..topology.tree import Tree
from . import formatting
from .bounds import Bound, bounds_of
from .findings import CHOSEN, CLEAR, Findings, Standing, Versus, label, warnings
from .plans import Unplanned, programs, root_of, team_of, tree_of
from .regression import (
    BETTER,
    REGRESSION,
    SAME,
    UNCLEAR,
    UNRESOLVED,
    Change,
    Comparison,
    compare,
)

PLACE = (
    "processor", "cores", "kernel", "mpi", "mpi4py", "python", "numpy", "transport",
    "thread level", "native core", "binding",
)  # fmt: skip
"""What two results should have in common, of `Job.about`, for only the code to differ."""
ROWS_DRAWN = 16
"""Threads of a timeline."""

__all__ = [
    "HOW",
    "Choice",
    "Content",
    "Drawn",
    "Entry",
    "Matrix",
    "Regressions",
    "Section",
    "has_choice",
    "job_content",
    "regressions",
]

MARKS = {
    "win": "▲", "parity": "=", "LOSS": "▼ LOSS", "not resolvable": "?",
    REGRESSION: "▼ REGRESSION", BETTER: "▲", SAME: "=", UNCLEAR: "~", UNRESOLVED: "?",
}  # fmt: skip
_STEPS = 1.05, 1.25, 2.0, 4.0

HOW = (
    "A repetition's time is the longest over all threads. A curve shows the median over launches "
    "of the median over each launch's repetitions. Its 95% interval is Student's, of the "
    "logarithms of one number per launch, so it covers what differs from launch to launch; one "
    "launch gives none.",
    "A ratio is the peer's time / xupc's, above 1 where xupc is faster, taken within each launch: "
    "both ran in it, interleaved. Win: the whole interval is above 1. LOSS: all of it is below 1. "
    "Parity: it holds 1. Not resolvable: the same call under two names (A/A) differs by more than "
    "5% in a typical launch, or there was one launch, so that the cell says nothing.",
)


@dataclass(frozen=True)
class Choice:
    """The call whose plan is to be drawn, as the user names it; an empty algorithm is any."""

    collective: str
    nbytes: int
    algorithm: str = ""

    @classmethod
    def parse(cls, text: str) -> Choice:
        """From ``COLLECTIVE/NBYTES[/ALGORITHM]``; ValueError if it is not like that."""
        found = re.fullmatch(r"([^/]+)/(\d+) ?(B|KiB|MiB|GiB)?(?:/([A-Za-z]+))?", text)
        if found is None:
            raise ValueError(f"{text!r}: expected COLLECTIVE/NBYTES[/ALGORITHM]")
        collective, number, unit, algorithm = found.groups()
        factor = 1 << 10 * ("B", "KiB", "MiB", "GiB").index(unit or "B")
        return cls(collective, int(number) * factor, (algorithm or "").upper())

    def fits(self, cell: Cell, candidate: Candidate) -> bool:
        """Whether it is one of a cell's candidates."""
        words_ = candidate.algorithm.upper().split(" ")
        return (
            cell.collective == self.collective
            and cell.nbytes == self.nbytes
            and (not self.algorithm or self.algorithm in (words_[0], candidate.name.upper()))
        )


@dataclass(frozen=True)
class Entry:
    """A cell of a table: up to three lines and a CSS class that says what it means."""

    first: str = ""
    second: str = ""
    third: str = ""
    class_: str = ""


@dataclass(frozen=True)
class Matrix:
    """A table of rows by sizes; `legend` says what its colours mean."""

    caption: str
    sizes: list[str]
    rows: list[tuple[str, list[Entry]]]
    corner: str = "collective"
    legend: str = ""


@dataclass
class Drawn:
    """A plan on a clock, or why there is none."""

    title: str = ""
    notes: list[str] = field(default_factory=list)
    happened: Timeline | None = None
    rows: dict[int, str] = field(default_factory=dict)
    missing: str = ""


@dataclass
class Content:
    """All that is said of a job."""

    job: Job
    findings: Findings
    summary: str
    warnings: list[str]
    winners: Matrix | None
    ratios: list[Matrix]
    network: Matrix | None
    network_note: str
    bounds: list[Bound]
    tree: Tree | None
    tree_note: str
    drawn: Drawn
    provenance: list[tuple[str, str]]


@dataclass
class Section:
    """A result's file and what its jobs say."""

    name: str
    result: Result
    jobs: list[Content]

    @property
    def warnings(self) -> list[str]:
        """What concerns all jobs."""
        incomplete = "The measurement is incomplete; what is there is good."
        return [*([] if self.result.complete else [incomplete]), *self.result.notes]


@dataclass
class Regressions:
    """A second result against a first one; `comparable`: at least one cell says something."""

    old: str
    new: str
    summary: list[str]
    tables: list[Matrix]
    found: list[tuple[str, Change]]
    comparable: bool


def job_content(result: Result, job: Job, choice: Choice | None) -> Content:
    """All that is said of a job."""
    findings = Findings(job)
    tree, note = _tree(job)
    network = _network(findings)
    return Content(
        job,
        findings,
        _summary(findings),
        warnings(job),
        _winners(findings),
        [_ratios(findings, peer) for peer in findings.peers],
        network,
        _network_note(job, network),
        bounds_of(job),
        tree,
        note,
        _drawn(job, choice),
        _provenance(result, job),
    )


# --- sentences ------------------------------------------------------------------------------------


def _summary(findings: Findings) -> str:
    """What was compared and how it came out."""
    job, standings = findings.job, findings.standings
    if not standings:
        return "Nothing was measured."
    sizes = [n for n in findings.sizes if n]
    span = ""
    if sizes:
        ends = [formatting.size(sizes[0]), formatting.size(sizes[-1])]
        span = f", blocks of {' to '.join(dict.fromkeys(ends))}"
    said = (
        f"{formatting.count(len(standings), 'cell')} of "
        f"{formatting.count(len(findings.groups), 'kind')} of call{span}, "
        f"in {formatting.count(len(job.launches), 'launch')}."
    )
    if not findings.peers:
        return f"{said} No peer was measured, so this compares xupc's own algorithms only."
    return " ".join([said, *(_against(findings, peer) for peer in findings.peers)])


def _against(findings: Findings, peer: str) -> str:
    counts, ours, unclear = findings.counts(peer), findings.ours(peer), findings.unclear(peer)
    said = (
        f"Against {peer} {ours} wins {counts['win']}, is level within {CLEAR - 1:.0%} in "
        f"{counts['parity'] - unclear}, loses {counts['LOSS']}; {unclear} are unclear, and "
        f"{counts['not resolvable']} cannot be resolved; the geometric mean "
        f"of all ratios is {findings.mean(peer):.2f} (above 1: {ours} is faster)."
    )
    lost = [
        (v.ratio.value, s.cell)
        for s in findings.standings
        for v in s.versus
        if v.peer == peer and v.verdict == "LOSS"
    ]
    if lost:
        worst, cell = min(lost, key=lambda pair: pair[0])
        said += f" The largest loss is {_call(cell)}, {worst:.2f}."
    return said


def _call(cell: Cell) -> str:
    return f"{cell.title} of {formatting.size(cell.nbytes)}" if cell.nbytes else cell.title


# --- tables ---------------------------------------------------------------------------------------


def _matrix(findings: Findings, caption: str, entry: Callable[[Standing], Entry]) -> Matrix:
    rows = []
    for title, group in findings.groups.items():
        by_size = {standing.cell.nbytes: standing for standing in group}
        rows.append((title, [entry(by_size[n]) if n in by_size else Entry() for n in
                             findings.sizes]))  # fmt: skip
    return Matrix(caption, _heads(findings.sizes), rows)


def _heads(sizes: Sequence[int]) -> list[str]:
    return [formatting.size(n) if n else "no data" for n in sizes]


def _step(ratio: float) -> int:
    """How strong a colour: 0 to 4."""
    return sum(max(ratio, 1 / ratio) >= limit for limit in _STEPS)


def _winners(findings: Findings) -> Matrix | None:
    if not any(standing.winner for standing in findings.standings):
        return None
    said = (
        "The fastest way to do each call, and below it how many times as long the next best takes. "
        "= and tie: equal within the interval, which holds 1. ▼: a peer is fastest. ?: not "
        "resolvable."
    )
    whose = {findings.ours(peer) for peer in findings.peers}
    ours = "what the library chooses by itself" if whose <= {CHOSEN} else " or ".join(sorted(whose))
    legend = (
        f"The colour is {ours} against the best peer: blue where xupc "
        "is faster, orange with a frame where a peer is."
    )
    return replace(_matrix(findings, said, _winner), legend=legend if findings.peers else "")


def _winner(standing: Standing) -> Entry:
    winner = standing.winner
    if winner is None:
        return Entry()
    if not winner.resolvable:
        return Entry(f"{winner.name} ?", "not resolvable", f"A/A {_percent(standing)}", "noisy")
    shade = ""
    if winner.against_peers is not None:
        side = "win" if winner.against_peers >= 1 else "loss"
        shade = f"{side}{_step(winner.against_peers)}"
    if winner.margin is None:
        return Entry(winner.name, "", "", shade)
    if winner.tied:
        return Entry(winner.name, f"= {winner.next}", "tie", f"tie {shade}")
    sign = "" if winner.ours else "▼ "
    lost = "" if winner.ours else "lost "
    margin = formatting.margin(winner.margin.value)
    return Entry(f"{sign}{winner.name}", margin, f"before {winner.next}", lost + shade)


def _percent(standing: Standing) -> str:
    return "not measured" if standing.spread is None else f"{100 * standing.spread:.1f}%"


def _ratios(findings: Findings, peer: str) -> Matrix:
    def entry(standing: Standing) -> Entry:
        versus = next((v for v in standing.versus if v.peer == peer), None)
        return Entry() if versus is None else _versus(versus)

    spreads = [s.spread for s in findings.standings if s.spread is not None]
    noise = "A/A was not measured."
    if spreads:
        noise = (
            f"The same call under two names differs by {statistics.median(spreads):.1%} in a "
            f"typical cell, by {max(spreads):.1%} in the noisiest."
        )
    said = f"Time of {peer} / time of {findings.ours(peer)}, and its 95% interval. {noise}"
    return _matrix(findings, said, entry)


def _versus(versus: Versus) -> Entry:
    r, kind = versus.ratio, versus.verdict
    shade = f"{'win' if r.value >= 1 else 'loss'}{_step(r.value)}"
    class_ = {"parity": "tie", "LOSS": f"lost {shade}", "not resolvable": "noisy"}.get(kind, shade)
    return Entry(f"{r.value:.2f} {MARKS[kind]}", r.interval(" to "), "", class_)


def _network(findings: Findings) -> Matrix | None:
    """A row for each algorithm that moves anything between nodes."""
    rows: dict[str, list[Entry]] = {}
    for title, group in findings.groups.items():
        for candidate in findings.candidates(group):
            name = f"{title}, {label(candidate)}"
            known = {
                s.cell.nbytes: c.network_bytes
                for s in group
                if (c := s.cell.candidate(candidate.name)) is not None
            }
            if candidate.kind != OURS or name in rows or not any(known.values()):
                continue
            sizes = (known.get(nbytes) for nbytes in findings.sizes)
            rows[name] = [Entry() if n is None else Entry(formatting.size(n)) for n in sizes]
    if not rows:
        return None
    caption = "Bytes that one call moves between nodes, by its plans."
    return Matrix(caption, _heads(findings.sizes), list(rows.items()), "collective, algorithm")


def _network_note(job: Job, network: Matrix | None) -> str:
    if network is not None:
        return ""
    if len(job.nodes) == 1:
        return "All threads share one node: nothing moves between nodes."
    return "Not in the file."


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


# --- the plan -------------------------------------------------------------------------------------


def _measured(job: Job) -> Iterator[tuple[Cell, Candidate]]:
    for cell in job.cells:
        for candidate in cell.of_kind(OURS):
            yield cell, candidate


def _chosen(job: Job, choice: Choice | None) -> tuple[Cell, Candidate] | None:
    """What is to be drawn: by default the largest cell in which MULTICORE was measured."""
    every = list(_measured(job))
    if choice is not None:
        return next((pair for pair in every if choice.fits(*pair)), None)
    multicore = [pair for pair in every if pair[1].algorithm.startswith("multicore")]
    return max(multicore, key=lambda pair: (pair[0].nbytes, pair[0].moved), default=None)


def has_choice(job: Job, choice: Choice) -> bool:
    """Whether the call was measured in a job."""
    return _chosen(job, choice) is not None


def _drawn(job: Job, choice: Choice | None) -> Drawn:
    pair = _chosen(job, choice)
    if pair is None:
        return Drawn(missing="The call was not measured in this job.")
    cell, candidate = pair
    by = candidate.algorithm.split(" ")[0].upper()
    title = f"{_call(cell)} by {by}" if by else _call(cell)
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
    return Drawn(title, notes, happened, rows)


def _rows(tree: Tree, threads: Sequence[int], root: int) -> dict[int, str]:
    """Which ranks are drawn, and their names: all of a small team, else a few that stand for all.

    Kinds of nodes differ by size, and by whether the root is there.
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


# --- where it comes from --------------------------------------------------------------------------


def _provenance(result: Result, job: Job) -> list[tuple[str, str]]:
    found = [("command", " ".join(result.command)), ("created", result.created)]
    found += [(name, _fact(value)) for name, value in job.about.items()]
    found.append(("hosts", ", ".join(dict.fromkeys(job.hosts)) or "not in the file"))
    clock = {k: v for k, v in job.clock.items() if k != "kind"}
    kind = {
        "monotonic": "one machine's monotonic clock",
        "offsets": "several machines' clocks, their offsets estimated",
    }.get(str(job.clock.get("kind")), "not in the file")
    found.append(("clock", "; ".join([kind, *(f"{k} {_fact(v)}" for k, v in clock.items())])))
    bounds = [
        f"{name.removesuffix(' ns')} {_bound(name, value)}" for name, value in job.bounds.items()
    ]
    found.append(("bounds", "; ".join(bounds) or "not measured"))
    return found


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(_fact, value))
    return str(value)


def _bound(name: str, value: float) -> str:
    return formatting.time(value) if name.endswith(" ns") else formatting.rate(value)


# --- two results ----------------------------------------------------------------------------------


def regressions(old: Result, new: Result, names: tuple[str, str], tolerance: float) -> Regressions:
    """The second result against the first."""
    comparisons = compare(old, new, tolerance)
    found = [(c.shape, change) for c in comparisons for change in c.of(REGRESSION)]
    found.sort(key=lambda pair: -(pair[1].ratio.value if pair[1].ratio else 0.0))
    summary = [_outcome(c, tolerance) for c in comparisons]
    if not comparisons:
        summary = ["The two have no job in common: nothing can be compared."]
    summary = [*_differing(old, new), *summary]
    summary += [
        f"{c.shape}: no longer measured: {', '.join(c.missing)}." for c in comparisons if c.missing
    ]
    tables = [_changes(c) for c in comparisons if c.changes]
    every = [change for c in comparisons for change in c.changes]
    comparable = any(change.verdict != UNRESOLVED for change in every)
    return Regressions(*names, summary, tables, found, comparable)


def _differing(old: Result, new: Result) -> list[str]:
    """Where else than in the code the two differ."""
    found: dict[str, None] = {}
    for job in new.jobs:
        before = next((j for j in old.jobs if j.nodes == job.nodes), None)
        if before is None:
            continue
        pairs: list[tuple[str, object, object]] = [("hosts", before.hosts, job.hosts)]
        pairs += [(name, before.about.get(name), job.about.get(name)) for name in PLACE]
        for name, was, now in pairs:
            if was != now:
                found[f"{name} ({_fact(was)}, then {_fact(now)})"] = None
    return [f"The two differ in more than times: {'; '.join(found)}."] if found else []


def _outcome(comparison: Comparison, tolerance: float) -> str:
    count = {v: len(comparison.of(v)) for v in (REGRESSION, BETTER, SAME, UNCLEAR, UNRESOLVED)}
    a, b = comparison.launches
    if comparison.paired:
        how = (
            f"{formatting.count(a, 'launch')} each, which take turns and are compared pair by pair"
        )
        how += ", by ranks" * comparison.ranked
    else:
        how = f"{formatting.count(a, 'launch')} against {formatting.count(b, 'launch')}"
    if any(comparison.disturbed):
        how += f" ({sum(comparison.disturbed)} left out: other processes took part of the cores)"
    if comparison.relative:
        how += f", at equal times of {comparison.relative} in the same launch"
    said = (
        f"{comparison.shape}: {how}. Of {formatting.count(len(comparison.changes), 'comparison')} "
        f"{count[REGRESSION]} got slower by more than {tolerance:.0%}, {count[BETTER]} faster by "
        f"as much, {count[SAME]} stayed within it, {count[UNCLEAR]} are unclear, and "
        f"{count[UNRESOLVED]} cannot be resolved."
    )
    if comparison.busy:
        said += (
            f" In {comparison.busy} launches, too many to be left out, other processes took part "
            "of the cores: measure again on a machine of your own."
        )
    if not comparison.paired:
        said += (
            " The launches did not take turns: a change of the machine's state cannot be told from "
            "a change of the code."
        )
    if min(a, b) < 2:
        said += " One launch does not say how much launches differ: nothing can be called."
    elif count[UNCLEAR]:
        said += " More launches would make what is unclear clear."
    return said


def _changes(comparison: Comparison) -> Matrix:
    changes = comparison.changes
    sizes = sorted({c.cell.nbytes for c in changes})
    rows: dict[str, dict[int, Entry]] = {}
    for change in changes:
        row = rows.setdefault(f"{change.cell.title}, {change.candidate}", {})
        row[change.cell.nbytes] = _change(change)
    caption = (
        f"{comparison.shape}: time now / time before, and the interval of each alone. "
        "▼ REGRESSION: slower beyond the tolerance, with a false discovery rate of 5% over all "
        "cells. ▲: faster by as much. =: within the tolerance. ~: unclear. ?: not resolvable."
    )
    table = [(name, [row.get(n, Entry()) for n in sizes]) for name, row in rows.items()]
    return Matrix(caption, _heads(sizes), table, "collective, candidate")


def _change(change: Change) -> Entry:
    class_ = {
        REGRESSION: "lost loss3", BETTER: "win2", SAME: "tie", UNCLEAR: "", UNRESOLVED: "noisy",
    }[change.verdict]  # fmt: skip
    r, mark = change.ratio, MARKS[change.verdict]
    if r is None or not math.isfinite(r.value):
        return Entry(mark, "", "", class_)
    return Entry(f"{r.value:.2f} {mark}", r.interval(" to "), "", class_)
