"""Which values cross the borders of domains in a scan, so that the written order is kept.

A scan joins what is before position p as the tree over the positions (`brackets`) hands it down::

    before 7        (((0 1) (2 3)) (4 5)) 6

A *span* is a part of this tree, or all that is before a position. On the way up a domain joins the
parts of the tree that it has all operands of, if a thread outside needs them. On the way down it
gets what its threads need from outside. Threads that follow each other on aligned domains give one
value and get one: all before the domain. Otherwise a domain has more of them, but the bits of the
results are the same.

On several nodes the widest domain is the team, and the nodes are the domains inside it. The root of
each node joins what its node needs itself, from what the roots of other nodes send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from ..records import record
from ..topology.levels import NodeLevels
from .brackets import middle_of, pieces_of

__all__ = [
    "BEFORE", "COPIED", "GIVEN", "NEEDS", "USED", "Domain", "NodePositions", "ScanTree", "Span",
    "Spans", "needs_of", "parts_of", "scan_tree", "team_domain",
]  # fmt: skip

Span = tuple[int, int]
"""Positions ``begin .. end``; from `BEFORE` on: all before `end`, earlier rows included."""
Spans = tuple[Span, ...]
NodePositions = tuple[tuple[int | None, ...], ...]
"""The position of each thread of each node; None if it has no operand."""
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
        for others. In the team the own node is 0, node k is ``~k``.
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
        return parts_of(span, {*self.needs, *self._owners})

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

    @cached_property
    def wants(self) -> dict[int, dict[int, Spans]]:
        """The spans that each one below joins, of each other one that has any of them.

        They are those of what it gets from outside, and of what the domain joins for others.
        """
        return {root: self._wanted_by(root) for root in self.below}

    def _wanted_by(self, root: int) -> dict[int, Spans]:
        spans = (*self.used, *self.gives[root])
        parts = {part for span in spans for part, _ in self.parts(span)}
        found: dict[int, list[Span]] = {}
        for part in sorted(parts):
            owner = self.owner(part)
            if owner is not None and owner != root:
                found.setdefault(owner, []).append(part)
        return {owner: tuple(some) for owner, some in sorted(found.items())}


@record
class ScanTree:
    """The domains of a node by level, the widest first, then by their roots.

    On several nodes the first level is the team, whose root is that of this node; else it is the
    node. With `depth` levels, phase 0 makes the threads' values, and phase ``depth - k`` joins
    those of the domains of level k. What lies before these comes in phase ``depth + 1 + k``, and
    the results in phase ``2 * depth + 1``.

    Attributes
    ----------
    levels
        The domains that have operands.
    positions
        The position of each thread of the node.
    sends
        The spans of this node that the root of each other node gets, as far as it gets any.
    """

    levels: tuple[dict[int, Domain], ...]
    positions: tuple[int | None, ...]
    sends: dict[int, Spans]

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
                found |= {
                    (up, up - 1, x.root, source)
                    for source in sources if source is not None and source >= 0
                }  # fmt: skip
                if level and x.needs:
                    down = depth + 1 + level
                    found.add((down, down - 1, x.root, x.above))
        for thread in range(len(self.positions)):
            if way := self.before(thread):
                domain, parts = way
                owners = [domain.owner(span) for span, _ in parts]
                found |= {
                    (2 * depth + 1, self._has_needs(domain), thread, domain.root)
                    if owner is None else (2 * depth + 1, 0, thread, owner)
                    for owner in owners
                }  # fmt: skip
        return frozenset(found)

    def _has_needs(self, domain: Domain) -> int:
        """Return the phase in which the root of a narrowest domain writes what that needs.

        The root of the domain around, if it is the same thread, joins that for itself at once.
        """
        at_once = self.depth > 1 and domain.above == domain.root
        return 2 * self.depth - at_once


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
def team_domain(nodes: NodePositions, count: int, *, carried: bool, more: bool) -> Domain:
    """Return the values of a team whose domains are its nodes, named by their numbers.

    Parameters
    ----------
    nodes
        The positions on each node.
    count
        The number of positions.
    carried
        True if earlier rows come before the first position.
    more
        True if later rows follow, for which the team joins all operands.
    """
    members = {k: [p for p in its if p is not None] for k, its in enumerate(nodes)}
    having = {k: its for k, its in members.items() if its}
    return _domain(0, -1, *_outside(count, carried, more), having, count, carried)


def _outside(count: int, carried: bool, more: bool) -> tuple[Spans, Spans]:
    """Return the spans that the widest domain joins for later rows, and gets from earlier ones."""
    return ((0, count),) if more else (), ((BEFORE, 0),) if carried else ()


@lru_cache(maxsize=32)
def scan_tree(
    levels: NodeLevels, nodes: NodePositions, node: int, count: int, *, carried: bool, more: bool
) -> ScanTree:
    """Return the domains of a node; the arguments are those of `team_domain`.

    Parameters
    ----------
    levels
        Of the node.
    node
        Its number.
    """
    positions = nodes[node]
    found: list[dict[int, Domain]] = []
    sends: dict[int, Spans] = {}
    if len(nodes) > 1:
        team = team_domain(nodes, count, carried=carried, more=more)
        found.append(_seen_from(team, node))
        sends = {k: wanted[node] for k, wanted in team.wants.items() if node in wanted}
        above = {root: (0, x.below[0], x.gives[0]) for root, x in found[0].items()}
    else:
        above = {0: (-1, *_outside(count, carried, more))}
    found += _domains_of(levels, positions, above, count, carried)
    return ScanTree(tuple(found), positions, sends)


def _seen_from(team: Domain, node: int) -> dict[int, Domain]:
    """Return the team with what the root of a node gets from others; nothing without operands."""
    if node not in team.below:
        return {}
    others = {~k: spans for k, spans in team.wants[node].items()}
    below = {0: team.below[node], **others}
    return {0: Domain(0, -1, team.used, team.needs, below, {0: team.gives[node]})}


def _domains_of(
    levels: NodeLevels, positions: tuple[int | None, ...],
    above: dict[int, tuple[int, Spans, Spans]], count: int, carried: bool,
) -> Iterator[dict[int, Domain]]:  # fmt: skip
    """Yield the domains of a node by level.

    `above`: by the root of a domain of the level, the root of the one around, the spans that the
    domain joins for others, and those that it gets.
    """
    roots = [level.root_of for level in levels.levels]
    for level, root_of in enumerate(roots):
        last = level + 1 == len(roots)
        inner = tuple(range(levels.size)) if last else roots[level + 1]
        members: dict[int, dict[int, list[int]]] = {}
        for thread, position in enumerate(positions):
            if position is not None:
                mine = members.setdefault(root_of[thread], {})
                mine.setdefault(inner[thread], []).append(position)
        domains = {
            root: _domain(root, *above[root], its, count, carried) for root, its in members.items()
        }
        yield domains
        above = {
            root: (domain.root, domain.below[root], domain.gives[root])
            for domain in domains.values() for root in domain.below
        }  # fmt: skip


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
