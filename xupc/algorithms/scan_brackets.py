"""Which values cross the borders of domains in a scan, so that the written order is kept.

A scan joins what is before position p as the tree over the positions (`brackets`) hands it down::

    before 7        (((0 1) (2 3)) (4 5)) 6

A *span* is a part of this tree, or all that is before a position. On the way up a domain joins the
parts of the tree that it has all operands of, if a thread outside needs them. On the way down it
gets what its threads need from outside. Threads that follow each other on aligned domains give one
value and get one: all before the domain. Otherwise a domain has more of them, but the bits of the
results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from ..records import record
from ..topology.levels import NodeLevels
from .brackets import middle_of, pieces_of

__all__ = ["BEFORE", "Domain", "ScanTree", "Span", "Spans", "needs_of", "parts_of", "scan_tree"]

Span = tuple[int, int]
"""Positions ``begin .. end``; from `BEFORE` on: all before `end`, earlier rows included."""
Spans = tuple[Span, ...]
BEFORE = -1
"""The begin of a span that has all before its end."""


@record
class Domain:
    """The values of a domain. Threads are numbered inside the node.

    Attributes
    ----------
    root
        The thread that joins them: the lowest one.
    above
        The root of the domain around; -1 for the node.
    used
        The spans of its own operands that it joins for others.
    needs
        The spans that it gets from outside.
    below
        The roots of the domains inside, or its threads, that have operands, with what they join
        for others.
    gives
        The spans that each of these needs from outside itself.
    """

    root: int
    above: int
    used: Spans
    needs: Spans
    below: dict[int, Spans]
    gives: dict[int, Spans]

    def owner(self, span: Span) -> int | None:
        """Return which one below has a span; None if it comes from outside."""
        return next((root for root, spans in self.below.items() if span in spans), None)

    def parts(self, span: Span) -> list[tuple[Span, int]]:
        """Return how this domain joins a span: spans that it has, with the joins after each."""
        known = set(self.needs).union(*self.below.values())
        return parts_of(span, known)


@record
class ScanTree:
    """The domains of a node by level, the node first, then by their roots.

    With `depth` levels, phase 0 makes the threads' values, and phase ``depth - k`` joins those of
    the domains of level k. What lies before these comes in phase ``depth + 1 + k``, and the results
    in phase ``2 * depth + 1``.
    """

    levels: tuple[dict[int, Domain], ...]
    positions: tuple[int | None, ...]

    @property
    def depth(self) -> int:
        """The number of levels; single threads are none."""
        return len(self.levels)

    def before(self, thread: int) -> tuple[Domain, list[tuple[Span, int]]] | None:
        """Return how a thread joins what is before it, and its domain; None without an operand."""
        position = self.positions[thread]
        for domain in self.levels[-1].values():
            if position is not None and thread in domain.below:
                return domain, domain.parts((BEFORE, position)) if domain.gives[thread] else []
        return None

    @cached_property
    def reads(self) -> frozenset[tuple[int, int, int, int]]:
        """The reads between threads: (phase, phase in which it was written, reader, source)."""
        found = set()
        depth = self.depth
        for level, domains in enumerate(self.levels):
            for x in domains.values():
                last = level + 1 == depth
                joined = [x.owner(part) for span in x.used for part, _ in x.parts(span)]
                sources = joined if last else [root for root, some in x.below.items() if some]
                up = depth - level
                found |= {(up, up - 1, x.root, source) for source in sources if source is not None}
                if level and x.needs:
                    down = depth + 1 + level
                    found.add((down, down - 1, x.root, x.above))
        for thread in range(len(self.positions)):
            if way := self.before(thread):
                domain, parts = way
                owners = [domain.owner(span) for span, _ in parts]
                found |= {
                    (2 * depth + 1, 2 * depth if owner is None else 0, thread,
                     domain.root if owner is None else owner)
                    for owner in owners
                }  # fmt: skip
        return frozenset(found)


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


def needs_of(positions: Sequence[int], count: int, *, carried: bool) -> Spans:
    """Return the spans from outside that threads at some positions need.

    `count`: the number of all positions; `carried`: earlier rows come before them.
    """
    begin, end = 0, count
    while end - begin > 1:
        centre = middle_of(begin, end)
        if positions[0] < centre <= positions[-1]:
            break
        begin, end = (begin, centre) if positions[-1] < centre else (centre, end)
    before = [(BEFORE, begin)] if begin or carried else []
    return (*before, *_gaps(positions, begin, end))


def _gaps(positions: Sequence[int], begin: int, end: int) -> Iterator[Span]:
    """Yield the largest parts of the tree without any of the positions, but before the last."""
    inside = [p for p in positions if begin <= p < end]
    if not inside:
        if begin < positions[-1]:
            yield begin, end
    elif len(inside) < end - begin:
        centre = middle_of(begin, end)
        yield from _gaps(positions, begin, centre)
        yield from _gaps(positions, centre, end)


@lru_cache(maxsize=32)
def scan_tree(
    levels: NodeLevels, positions: tuple[int | None, ...], count: int, used: Spans,
    *, carried: bool,
) -> ScanTree:  # fmt: skip
    """Return the domains of a node.

    Parameters
    ----------
    positions
        The position of each thread; None if it has no operand.
    count
        The number of positions on all nodes.
    used
        The spans that the node joins for others.
    carried
        True if earlier rows come before the first position.
    """
    roots = [level.root_of for level in levels.levels]
    having = [thread for thread, p in enumerate(positions) if p is not None]
    here = sorted(p for p in positions if p is not None)
    above = {0: (-1, used, needs_of(here, count, carried=carried))} if here else {}
    found: list[dict[int, Domain]] = []
    for level, root_of in enumerate(roots):
        last = level + 1 == len(roots)
        inner = tuple(range(levels.size)) if last else roots[level + 1]
        members: dict[int, dict[int, list[int]]] = {}
        for thread in having:
            mine = members.setdefault(root_of[thread], {})
            mine.setdefault(inner[thread], []).append(positions[thread])  # type: ignore[arg-type]
        found.append(
            {root: _domain(root, *above[root], members[root], count, carried) for root in members}
        )
        above = {
            root: (domain.root, domain.below[root], domain.gives[root])
            for domain in found[-1].values() for root in domain.below
        }  # fmt: skip
    return ScanTree(tuple(found), positions)


def _domain(
    root: int, above: int, used: Spans, needs: Spans, members: Mapping[int, list[int]],
    count: int, carried: bool,
) -> Domain:  # fmt: skip
    """Return a domain with the positions of each domain inside."""
    inside = {r: sorted(p) for r, p in members.items()}
    owner = {piece: r for r, its in inside.items() for piece in pieces_of(set(its), 0, count)}
    gives = {r: needs_of(its, count, carried=carried) for r, its in inside.items()}
    known = {*needs, *owner}
    wanted = {
        part for span in (*used, *(s for some in gives.values() for s in some))
        for part, _ in parts_of(span, known)
    }  # fmt: skip
    below = {r: tuple(sorted(p for p in wanted if owner.get(p) == r)) for r in inside}
    return Domain(root, above, used, needs, below, gives)
