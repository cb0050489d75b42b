"""Which partial results a domain's threads combine, so that those of all domains fit together.

The written order of operands is a tree over their positions (`patterns.tree_joins`)::

    positions 0 .. 6        ((0 1) (2 3)) ((4 5) 6)

A domain combines each part of this tree that it has all operands of: its *pieces*. Threads that
follow each other on aligned domains have one piece per domain. Otherwise a domain has more of
them, but the bits of the result are the same. Where the operands may be combined in any order, a
domain has one piece in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ..plan.patterns import tree_joins
from ..records import record
from ..topology.levels import NodeLevels

__all__ = [
    "Brackets", "Part", "Piece", "Runs", "brackets", "merged", "middle_of", "pieces_of", "runs_of",
]  # fmt: skip

Piece = tuple[int, int]
"""Positions ``begin .. end``."""
Runs = tuple[Piece, ...]
"""Some positions, ascending, as few pieces as possible."""
Part = tuple[int, int, int]
"""An operand of a piece: the root of a domain inside, the number of its piece, joins after it."""


@record
class Brackets:
    """The pieces of all domains of a node.

    Attributes
    ----------
    parts
        By level, the node first, then by the root of a domain: for each of its pieces the operands.
        The last level is that of threads as domains of their own, without operands.
    most
        By level: the most pieces of a domain.
    """

    parts: tuple[dict[int, tuple[tuple[Part, ...], ...]], ...]
    most: tuple[int, ...]


@lru_cache(maxsize=8)
def brackets(
    levels: NodeLevels, positions: tuple[int | None, ...], *, in_order: bool
) -> Brackets:
    """Return the pieces of each domain.

    Parameters
    ----------
    levels : NodeLevels
        Of the node.
    positions : tuple
        The position of each thread's operand in the written order; None if it has none.
    in_order : bool
        Keep the written order; False: any order of the domains is good.
    """
    count = sum(p is not None for p in positions)
    roots = [level.root_of for level in levels.levels] + [tuple(range(levels.size))]
    pieces: list[dict[int, list[Piece]]] = []
    for root_of in roots:
        domains: dict[int, set[int]] = {}
        for thread, root in enumerate(root_of):
            here = domains.setdefault(root, set())
            if (p := positions[thread]) is not None:
                here.add(p)
        pieces.append(
            {
                root: pieces_of(runs_of(here), 0, count) if in_order else [(min(here), count)]
                for root, here in domains.items()
                if here
            }
        )
    parts: list[dict[int, tuple[tuple[Part, ...], ...]]] = []
    for outer, inner, owners in zip(pieces, [*pieces[1:], None], roots, strict=True):
        if inner is None:
            parts.append(dict.fromkeys(outer, ((),)))
            continue
        found: dict[int, tuple[tuple[Part, ...], ...]] = {}
        for domain, its in outer.items():
            below = [root for root in sorted(inner) if owners[root] == domain]
            found[domain] = tuple(_parts(its, {root: inner[root] for root in below}, in_order))
        parts.append(found)
    return Brackets(tuple(parts), tuple(max(map(len, x.values()), default=0) for x in pieces))


def runs_of(positions: Iterable[int]) -> Runs:
    """Return some positions as runs."""
    return merged((p, p + 1) for p in positions)


def merged(pieces: Iterable[Piece]) -> Runs:
    """Return disjoint pieces in order, adjacent ones as one."""
    found: list[Piece] = []
    for begin, end in sorted(pieces):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return tuple(found)


def pieces_of(runs: Sequence[Piece], begin: int, end: int) -> list[Piece]:
    """Return the largest parts of the written tree, within ``begin .. end``, of these runs."""
    inside = [(max(a, begin), min(b, end)) for a, b in runs if a < end and b > begin]
    if not inside or inside == [(begin, end)]:
        return inside
    middle = middle_of(begin, end)
    return [*pieces_of(inside, begin, middle), *pieces_of(inside, middle, end)]


def middle_of(begin: int, end: int) -> int:
    """Return where the written tree over ``begin .. end`` divides."""
    return begin + (1 << ((end - begin - 1).bit_length() - 1))


def _parts(
    pieces: Sequence[Piece], below: dict[int, list[Piece]], in_order: bool
) -> list[tuple[Part, ...]]:
    """Return the operands of each piece of a domain, from those of the domains below."""
    if not in_order:
        order = sorted(below, key=lambda root: below[root][0])
        joins = tree_joins(len(order))
        return [tuple((root, 0, n) for root, n in zip(order, joins, strict=True))]
    where = {piece: (root, k) for root, its in below.items() for k, piece in enumerate(its)}

    def tree(begin: int, end: int) -> list[Part]:
        if (begin, end) in where:
            return [(*where[begin, end], 0)]
        middle = middle_of(begin, end)
        left, right = tree(begin, middle), tree(middle, end)
        root, k, joins = right.pop()
        return [*left, *right, (root, k, joins + 1)]

    return [tuple(tree(*piece)) for piece in pieces]
