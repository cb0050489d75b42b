"""Scaling curves of a call: its modelled time by the size of a block and by the number of nodes.

* by size: on the nodes asked for;
* weak scaling: each thread's block keeps its size while nodes are added;
* strong scaling: all threads' data together keep their size, so blocks get shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..records import record, replace
from ..report import formatting
from ..report.plans import Unplanned
from ..specs import parse_name
from ..tuning.selection import Table
from .candidates import Candidate, Known, Question, chosen, priced
from .machine_file import Machine

__all__ = ["Curve", "Point", "curves", "node_counts"]

SIZES: Final = (8, 512, 1 << 13, 1 << 16)
"""Bytes of a block of the curve by size, besides those asked for."""
LEAST: Final = 8  # bytes of a block
_DOUBLED: Final = 64  # nodes up to which each point has twice as many as the one before


@record
class Point:
    """One variant on one shape; times in ns.

    Attributes
    ----------
    x
        The bytes of a block, or the nodes.
    chosen
        True if the selection table takes the variant there.
    """

    x: int
    nbytes: int
    nodes: str
    name: str
    chosen: bool
    time: float
    low: float
    high: float
    bound: str
    share: float
    how: str


@record
class Curve:
    """The points of a chart.

    Attributes
    ----------
    missing
        Variants and points without a price, and why.
    """

    title: str
    along: str
    sizes: bool
    note: str
    points: list[Point]
    missing: list[str]


def node_counts(nodes: int) -> list[int]:
    """Return the numbers of nodes of a scaling curve, up to `nodes`."""
    found, n = [], 1
    while n < nodes:
        found.append(n)
        n *= 2 if n < _DOUBLED else 4
    return [*found, nodes]


def curves(
    questions: Sequence[Question], names: Sequence[str], threads: int, machine: Machine,
    table: Table, progress: Callable[[float, str], None] = lambda done, what: None,
) -> list[Curve]:  # fmt: skip
    """Return the curves of a call on even nodes.

    Parameters
    ----------
    questions
        The call with the sizes asked for, on the largest number of nodes.
    names
        The variants.
    threads
        Threads of a node.
    progress
        It gets the share that is done, and what is next.
    """
    known: Known = {}
    found = list(_empty(questions, threads))
    total, done = sum(len(asked) for _, asked in found), 0
    for curve, asked in found:
        for x, question in asked:
            size = formatting.size(question.nbytes)
            progress(done / total, f"{curve.title.lower()}: {question.nodes}, {size}")
            done += 1
            for point in _points(x, question, names, machine, table, known):
                if isinstance(point, Point):
                    curve.points.append(point)
                else:
                    curve.missing.append(point)
    return [curve for curve, _ in found]


_Asked = list[tuple[int, Question]]
"""The calls of a curve by their x."""


def _empty(questions: Sequence[Question], threads: int) -> Iterator[tuple[Curve, _Asked]]:
    """Yield curves without points, and the calls whose prices they need."""
    first = questions[0]
    nodes = first.threads // threads

    def on(n: int, nbytes: int) -> Question:
        return replace(first, nodes=f"{n}x{threads}", threads=n * threads, nbytes=nbytes)

    sizes = sorted({*SIZES, *(q.nbytes for q in questions)})
    note = f"On nodes {first.nodes}."
    yield Curve("Time by size", "bytes per block", True, note, [], []), [
        (n, on(nodes, n)) for n in sizes if n >= LEAST
    ]
    counts = [n for n in node_counts(nodes) if n * threads > 1]
    along = f"nodes of {formatting.count(threads, 'thread')}"
    for question in questions if len(counts) > 1 else ():
        size = formatting.size(question.nbytes)
        note = "Each block keeps its size."
        yield Curve(f"Weak scaling, blocks of {size}", along, False, note, [], []), [
            (n, on(n, question.nbytes)) for n in counts
        ]
        strong = list(_strong(question, counts, on))
        if len(strong) > 1:
            title = f"Strong scaling, blocks of {size} on {formatting.count(counts[0], 'node')}"
            note = "All data together keep their size, so blocks get shorter."
            yield Curve(title, along, False, note, [], []), strong


def _strong(
    question: Question, counts: Sequence[int], on: Callable[[int, int], Question]
) -> Iterator[tuple[int, Question]]:
    """Yield the calls whose data together are as many bytes as on the fewest nodes."""
    power = _power(question.collective)
    for n in counts if power else ():
        nbytes = round(question.nbytes * (counts[0] / n) ** power) // LEAST * LEAST
        if nbytes >= LEAST:
            yield n, on(n, nbytes)


def _power(collective: str) -> int:
    """Return with which power of the threads all data of a call grow, if blocks keep their size.

    0: the block is all of the data, as in a broadcast.
    """
    form, spec = parse_name(collective)
    if spec.permutes or (spec.whole and form == "all"):
        return 1
    return (spec.src.blocks == "T") + (spec.dst.blocks == "T")


def _points(
    x: int, question: Question, names: Sequence[str], machine: Machine, table: Table, known: Known
) -> Iterator[Point | str]:
    """Yield the points of all variants, or why there is none."""
    choice = chosen(question, table)
    for name in names:
        try:
            found = priced(question, name, machine, table, known)
        except Unplanned as reason:
            found = Candidate(name, missing=str(reason))
        if found.price is None:
            yield f"{name}, {question.nodes}, {formatting.size(question.nbytes)}: {found.missing}"
            continue
        yield Point(
            x, question.nbytes, question.nodes or "", name, name == choice, found.time, found.low,
            found.high, found.price.bound, found.price.share, found.how,
        )  # fmt: skip
