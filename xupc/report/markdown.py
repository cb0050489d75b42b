"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..backends.simulator.activities import Timeline
from . import formatting
from .advice import Advice
from .drawn_plan import Drawn
from .formatting import plain
from .model import HOW, Content, Section
from .tables import Matrix
from .two_results import Regressions

__all__ = ["lanes", "render"]

LETTERS = {
    "barrier": "|", "wait": ".", "copy": "C", "fold": "F", "send": "S", "receive": "R", "get": "G",
}  # fmt: skip
_COLUMNS = 64
_NO_MARKUP = str.maketrans("", "", "`<>")  # no picture of a machine has them


def render(title: str, sections: Sequence[Section], compared: Sequence[Regressions]) -> str:
    """Return the whole text."""
    parts = [f"# {plain(title)}\n"]
    for found in compared:
        parts += _regressions(found)
    for section in sections:
        if len(sections) > 1:
            parts.append(f"## {plain(section.name)}\n")
        parts += _warnings(section.warnings)
        for content in section.jobs:
            parts += _job(content)
    parts.append("## How times and intervals are made\n")
    parts += [f"{plain(paragraph)}\n" for paragraph in HOW]
    return "\n".join(parts)


def _warnings(notes: Sequence[str]) -> Iterator[str]:
    yield from (f"- **Note:** {plain(note)}" for note in notes)
    if notes:
        yield ""


def _regressions(found: Regressions) -> Iterator[str]:
    yield f"## {plain(found.new)} against {plain(found.old)}\n"
    yield from (f"{plain(said)}\n" for said in found.summary)
    yield from (_matrix(matrix) for matrix in found.tables)


def _job(content: Content) -> Iterator[str]:
    yield f"## {plain(content.job.shape)}\n"
    yield f"{plain(content.summary)}\n"
    yield from _warnings(content.warnings)
    if content.advice:
        yield "### Which flag\n"
        yield _advice(content.advice)
    if content.winners is not None:
        yield "### Fastest of each call\n"
        yield _matrix(content.winners)
    if content.findings.standings:
        yield "### Times\n"
        yield _matrix(content.times)
    for bound in content.bounds:
        yield f"Bound *{plain(bound.name)}*: {plain(bound.why)}.\n"
    for matrix in content.ratios:
        yield "### Against a peer\n"
        yield _matrix(matrix)
    yield "### Bytes between nodes\n"
    yield _matrix(content.network) if content.network else f"{plain(content.network_note)}\n"
    yield "### Node tree\n"
    yield f"{plain(content.tree_note)}\n"
    if content.tree is not None and content.tree.node_count <= 64:
        yield f"```\n{content.tree}\n```\n"
    if content.picture:
        yield "The levels of each machine, and the threads in their domains:\n"
        yield f"```\n{content.picture.translate(_NO_MARKUP)}\n```\n"
    yield "### A plan on the clock\n"
    yield _drawn(content.drawn)
    yield "### Where it comes from\n"
    yield formatting.table(["what", "is"], [[plain(k), plain(v)] for k, v in content.provenance])
    yield formatting.table(
        ["launch", "began", "seconds", "load before and after", "others took", "seed"],
        [
            [str(x.number), plain(x.began), f"{x.seconds:.1f}",
             ", ".join(f"{v:.1f}" for v in x.load),
             "" if x.others is None else f"{x.others:.0%}", str(x.seed)]
            for x in content.job.launches
        ],
    )  # fmt: skip


def _matrix(matrix: Matrix) -> str:
    rows = [
        [plain(name), *(plain(", ".join(filter(None, (e.first, e.second, e.third)))) for e in row)]
        for name, row in matrix.rows
    ]
    return f"{plain(matrix.caption)}\n\n{formatting.table([matrix.corner, *matrix.sizes], rows)}"


def _advice(advice: Sequence[Advice]) -> str:
    rows = [[plain(x) for x in (a.call, a.sizes, a.flag, a.why)] for a in advice]
    return formatting.table(["call", "block", "recommended", "by how much"], rows)


def _drawn(drawn: Drawn) -> str:
    if drawn.happened is None:
        return f"{plain(' '.join(filter(None, (drawn.title, drawn.missing))))}\n"
    said = [f"{plain(drawn.title)}, {formatting.time(drawn.happened.end)}."]
    said += map(plain, drawn.notes)
    key = ", ".join(f"{letter} {kind}" for kind, letter in LETTERS.items())
    return f"{' '.join(said)}\n\n```\n{lanes(drawn.happened, drawn.rows)}\n```\n\n{plain(key)}\n"


def lanes(happened: Timeline, rows: dict[int, str]) -> str:
    """Return two lines of letters for each thread: by hand, and its network if it has any."""
    wide = max(map(len, rows.values()))
    lines = []
    for rank, name in rows.items():
        by_hand, network = [" "] * _COLUMNS, [" "] * _COLUMNS
        for kind, letter in LETTERS.items():  # what moves data covers what waits
            line = network if kind in ("send", "receive", "get") else by_hand
            for act in happened.of(rank):
                if act.kind == kind:
                    first = int(act.start / happened.end * _COLUMNS)
                    last = max(first + 1, round(act.end / happened.end * _COLUMNS))
                    line[first:last] = letter * len(line[first:last])
        lines.append(f"{name:>{wide}}  {''.join(by_hand)}".rstrip())
        if "".join(network).strip():
            lines.append(f"{'':>{wide}}  {''.join(network)}".rstrip())
    return "\n".join(lines)
