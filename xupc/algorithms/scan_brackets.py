"""Which values cross the borders of domains in a scan, so that the written order is kept.

A scan joins what is before position p as the tree over the positions (`brackets`) hands it down::

    before 7        (((0 1) (2 3)) (4 5)) 6

A *span* is a part of this tree, or all that is before a position. On the way up a domain joins the
parts of the tree that it has all operands of, if a thread outside needs them. On the way down it
gets what its threads need from outside. Threads that follow each other on aligned domains give one
value and get one: all before the domain. Otherwise a domain has more of them, but the bits of the
results are the same.

`scan_tree` has the domains of a node, `scan_nodes` those that are groups of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ..records import record
from .brackets import Runs, middle_of, pieces_of

__all__ = [
    "BEFORE", "COPIED", "GIVEN", "NEEDS", "USED", "Domain", "Span", "Spans", "domain_of",
    "needs_of", "outside_of", "parts_of",
]  # fmt: skip

Span = tuple[int, int]
"""Positions ``begin .. end``; from `BEFORE` on: all before `end`, earlier rows included."""
Spans = tuple[Span, ...]
BEFORE = -1
"""The begin of a span that has all before its end."""
USED, NEEDS, COPIED, GIVEN = range(4)
"""What the root of a domain keeps: what it joins for others, what it gets from outside, what it
copies from the roots of the domains inside, what it joins for these."""


@record
class Domain:
    """The values of a domain. Threads are numbered inside the node.

    Attributes
    ----------
    root
        The thread that joins them: the lowest one.
    above
        The root of the domain around; -1 for the widest domain.
    used
        The spans of its own operands that it joins for others.
    needs
        The spans that it gets from outside.
    below
        The roots of the domains inside, or its threads, that have operands, with what they join
        for others. In a group of nodes, as a node root sees it, its own part is 0, that of the k-th
        node along the line is ``~k``.
    gives
        The spans that each of these needs from outside itself.
    """

    root: int
    above: int
    used: Spans
    needs: Spans
    below: dict[int, Spans]
    gives: dict[int, Spans]

    @cached_property
    def _owners(self) -> dict[Span, int]:
        return {span: root for root, spans in self.below.items() for span in spans}

    def owner(self, span: Span) -> int | None:
        """Return which one below has a span; None if it comes from outside."""
        return self._owners.get(span)

    def parts(self, span: Span) -> list[tuple[Span, int]]:
        """Return how this domain joins a span: spans that it has, with the joins after each."""
        return parts_of(span, self._known)

    @cached_property
    def _known(self) -> set[Span]:
        return {*self.needs, *self._owners}

    @cached_property
    def kept(self) -> tuple[dict[tuple[int, Span], int], ...]:
        """The numbers of the values that the root keeps, by kind: `USED`, `NEEDS` ...

        A key is a span, and the one below that it is of or for, or the root itself.
        """
        inside, outside = (
            [(x, span) for x, some in spans.items() if x != self.root for span in some]
            for spans in (self.below, self.gives)
        )
        own = ([(self.root, span) for span in spans] for spans in (self.used, self.needs))
        return tuple({key: i for i, key in enumerate(keys)} for keys in (*own, inside, outside))

    def wanted_by(self, root: int, used: Spans = ()) -> dict[int, Spans]:
        """Return the spans that one below joins, of each other one that has any of them.

        They are those of what it gets from outside, and of `used`.
        """
        parts = {part for span in (*used, *self.gives[root]) for part, _ in self.parts(span)}
        found: dict[int, list[Span]] = {}
        for part in sorted(parts):
            owner = self.owner(part)
            if owner is not None and owner != root:
                found.setdefault(owner, []).append(part)
        return {owner: tuple(some) for owner, some in sorted(found.items())}

    def fetched_by(self, root: int) -> Spans:
        """Return what one below joins of what this domain gets from outside."""
        parts = {part for span in self.gives[root] for part, _ in self.parts(span)}
        return tuple(sorted(part for part in parts if self.owner(part) is None))


def parts_of(span: Span, known: set[Span]) -> list[tuple[Span, int]]:
    """Return the known spans that a span is joined from, in order, with the joins after each."""
    begin, end = span
    if span in known:
        return [(span, 0)]
    if begin != BEFORE:
        centre = middle_of(begin, end)
        left, right = (parts_of(half, known) for half in ((begin, centre), (centre, end)))
        return _followed(left, right)
    start = max((x for first, x in known if first == BEFORE), default=-1)
    found = [((BEFORE, start), 0)] if start >= 0 else []
    at = 0
    for bit in reversed(range(end.bit_length())):
        if end >> bit & 1:
            if at >= start:
                found = _followed(found, parts_of((at, at + (1 << bit)), known))
            at += 1 << bit
    return found


def _followed(
    left: list[tuple[Span, int]], right: list[tuple[Span, int]]
) -> list[tuple[Span, int]]:
    """Return the join of two values."""
    *others, (span, joins) = right
    return [*left, *others, (span, joins + bool(left))]


def needs_of(runs: Runs, count: int, *, carried: bool) -> Spans:
    """Return the spans from outside that threads at some positions need.

    `count`: the number of all positions; `carried`: earlier rows come before them.
    """
    begin, end, last = 0, count, runs[-1][1] - 1
    while end - begin > 1:
        centre = middle_of(begin, end)
        if runs[0][0] < centre <= last:
            break
        begin, end = (begin, centre) if last < centre else (centre, end)
    before = [(BEFORE, begin)] if begin or carried else []
    return (*before, *_gaps(runs, begin, end))


def _gaps(runs: Runs, begin: int, end: int) -> Iterator[Span]:
    """Yield the largest parts of the tree without any of the positions, but before the last."""
    inside = tuple((max(a, begin), min(b, end)) for a, b in runs if a < end and b > begin)
    if not inside:
        if begin < runs[-1][1] - 1:
            yield begin, end
    elif inside != ((begin, end),):
        centre = middle_of(begin, end)
        yield from _gaps(runs, begin, centre)
        yield from _gaps(runs, centre, end)


def outside_of(count: int, *, carried: bool, more: bool) -> tuple[Spans, Spans]:
    """Return the spans that the widest domain joins for later rows, and gets from earlier ones."""
    return ((0, count),) if more else (), ((BEFORE, 0),) if carried else ()


def domain_of(
    root: int, above: int, used: Spans, needs: Spans, inside: Mapping[int, Runs],
    count: int, *, carried: bool,
) -> Domain:  # fmt: skip
    """Return a domain with the positions of each domain inside; the others as in `Domain`."""
    owner = {piece: r for r, its in inside.items() for piece in pieces_of(its, 0, count)}
    gives = {r: needs_of(its, count, carried=carried) for r, its in inside.items()}
    known = {*needs, *owner}
    wanted = {
        part for span in (*used, *(s for some in gives.values() for s in some))
        for part, _ in parts_of(span, known)
    }  # fmt: skip
    below: dict[int, list[Span]] = {r: [] for r in inside}
    for part in sorted(wanted):
        if part in owner:
            below[owner[part]].append(part)
    return Domain(root, above, used, needs, {r: tuple(its) for r, its in below.items()}, gives)
