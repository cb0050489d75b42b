"""The tables of a report on one job: the fastest ways, ratios to a peer, bytes between nodes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..bench.results import OURS, Job
from . import formatting
from .findings import CHOSEN, Findings, Standing, Versus, label, with_mpi
from .regression import BETTER, REGRESSION, SAME, UNCLEAR, UNRESOLVED

__all__ = ["MARKS", "Entry", "Matrix", "heads", "network_note", "network_table",
           "ratios", "times", "winners"]  # fmt: skip

MARKS = {
    "win": "▲", "parity": "=", "LOSS": "▼ LOSS", "not resolvable": "?",
    REGRESSION: "▼ REGRESSION", BETTER: "▲", SAME: "=", UNCLEAR: "~", UNRESOLVED: "?",
}  # fmt: skip
_STEPS = 1.05, 1.25, 2.0, 4.0


@dataclass(frozen=True)
class Entry:
    """Hold a cell of a table: up to three lines, and the CSS class for their meaning."""

    first: str = ""
    second: str = ""
    third: str = ""
    class_: str = ""


@dataclass(frozen=True)
class Matrix:
    """Hold a table of rows by sizes; `legend` explains its colours."""

    caption: str
    sizes: list[str]
    rows: list[tuple[str, list[Entry]]]
    corner: str = "collective"
    legend: str = ""


def _matrix(findings: Findings, caption: str, entry: Callable[[Standing], Entry]) -> Matrix:
    rows = []
    for title, group in findings.groups.items():
        by_size = {standing.cell.nbytes: standing for standing in group}
        entries = [entry(by_size[n]) if n in by_size else Entry() for n in findings.sizes]
        rows.append((with_mpi(title, group[0].cell), entries))
    return Matrix(caption, heads(findings.sizes), rows)


def heads(sizes: Sequence[int]) -> list[str]:
    """Return the heads of the columns for sizes of blocks."""
    return [formatting.size(n) if n else "no data" for n in sizes]


def _step(ratio: float) -> int:
    """Return the strength of a colour: 0 to 4."""
    return sum(max(ratio, 1 / ratio) >= limit for limit in _STEPS)


def winners(findings: Findings) -> Matrix | None:
    """Return the fastest candidate of each cell; None if there is none."""
    if not any(standing.winner for standing in findings.standings):
        return None
    said = (
        "The fastest way to do each call, and below it how many times as long the next best takes. "
        "=: level, within 10% at most. ~: unclear, the interval holds 1. ▼: a peer is fastest. "
        "?: not resolvable."
    )
    whose = {findings.ours(peer) for peer in findings.peers}
    ours = "what the library chooses by itself" if whose <= {CHOSEN} else " or ".join(sorted(whose))
    legend = (
        f"The colour is {ours} against the best peer: blue where xupc wins, orange where it "
        "loses, none where that is not clear. A frame: a peer is fastest."
    )
    return replace(_matrix(findings, said, _winner), legend=legend if findings.peers else "")


def _winner(standing: Standing) -> Entry:
    winner = standing.winner
    if winner is None:
        return Entry()
    if not winner.resolvable:
        return Entry(f"{winner.name} ?", "not resolvable", f"A/A {_percent(standing)}", "noisy")
    shade = _shade(winner.against_peers)
    if winner.margin is None:
        return Entry(winner.name, "", "", shade)
    if winner.tied:
        mark, said = ("=", "level") if winner.level else ("~", "unclear")
        return Entry(winner.name, f"{mark} {winner.next}", said, f"tie {shade}".rstrip())
    sign = "" if winner.ours else "▼ "
    lost = "" if winner.ours else "lost "
    margin = formatting.margin(winner.margin.value)
    return Entry(f"{sign}{winner.name}", margin, f"before {winner.next}", lost + shade)


def _shade(versus: Versus | None) -> str:
    """Return the class of a colour: of a win or a loss, none of anything else."""
    side = {"win": "win", "LOSS": "loss"}.get(versus.verdict) if versus is not None else None
    return f"{side}{_step(versus.ratio.value)}" if side and versus is not None else ""


def _percent(standing: Standing) -> str:
    return "not measured" if standing.spread is None else f"{100 * standing.spread:.1f}%"


def ratios(findings: Findings, peer: str) -> Matrix:
    """Return the ratio of a peer's time to xupc's in each cell."""

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
    r, kind, shade = versus.ratio, versus.verdict, _shade(versus)
    class_ = {
        "parity": "tie", "unclear": "tie", "LOSS": f"lost {shade}", "not resolvable": "noisy",
    }.get(kind, shade)  # fmt: skip
    return Entry(f"{r.value:.2f} {MARKS[kind]}", r.interval(" to "), "", class_)


def times(findings: Findings) -> Matrix:
    """Return the median time of each candidate of each call."""
    rows = []
    for title, group in findings.groups.items():
        by_size = {s.cell.nbytes: s.times for s in group}
        for candidate in findings.candidates(group):
            found = [by_size.get(n, {}).get(candidate.name) for n in findings.sizes]
            entries = [Entry() if e is None else Entry(formatting.time(e.value)) for e in found]
            rows.append((f"{with_mpi(title, group[0].cell)}, {candidate.name}", entries))
    caption = "Median time of a call, over launches; intervals are in the drawings."
    return Matrix(caption, heads(findings.sizes), rows, "call, candidate")


def network_table(findings: Findings) -> Matrix | None:
    """Return a row for each algorithm that moves bytes between nodes; None if there is none."""
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
    return Matrix(caption, heads(findings.sizes), list(rows.items()), "collective, algorithm")


def network_note(job: Job, network: Matrix | None) -> str:
    """Return why there is no table of bytes between nodes; empty if there is one."""
    if network is not None:
        return ""
    if len(job.nodes) == 1:
        return "All threads share one node: nothing moves between nodes."
    return "Not in the file."
