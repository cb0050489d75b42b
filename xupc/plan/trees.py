"""Trees of nodes that only a call or a table names: with a radix, and in Bine order.

They are shapes as those of `patterns`: ``(position, how many)`` -> parent, children; position 0 is
the root.
"""

from __future__ import annotations

from functools import lru_cache

from .patterns import Shape

__all__ = ["NAMED", "bine", "knomial4", "knomial8"]


def _knomial(v: int, n: int, radix: int) -> tuple[int | None, list[int]]:
    """Return parent and children of `v` in a k-nomial tree of `n`: binomial for a radix of 2.

    A parent clears the lowest digit of `v` that is not 0, to the base of the radix. So a root sends
    to ``radix - 1`` children in the time of one latency, and the depth is log n to this base.

    >>> _knomial(0, 10, 4), _knomial(4, 10, 4), _knomial(9, 10, 4)
    ((None, [4, 8, 1, 2, 3]), (0, [5, 6, 7]), (8, []))
    """
    step = 1
    while step < n and v % (step * radix) == 0:
        step *= radix
    parent = v - v % (step * radix) if v else None
    children = []
    while step > 1:
        step //= radix
        children += [v + digit * step for digit in range(1, radix) if v + digit * step < n]
    return parent, children


def knomial4(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children in the k-nomial tree with radix 4."""
    return _knomial(v, n, 4)


def knomial8(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children in the k-nomial tree with radix 8."""
    return _knomial(v, n, 8)


def bine(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children of `v` in a binomial tree in Bine order (arXiv 2508.17311).

    Of s steps, step k has the distance ``(1 - (-2) ** (s - k)) / 3``; an odd position sends in the
    other direction. So distances have both signs, and are about two thirds of those of a binomial
    tree: fewer messages cross the borders of groups of nodes that follow each other.

    >>> bine(0, 8), bine(3, 8), bine(7, 8)
    ((None, [3, 7, 1]), (0, [4, 2]), (0, [6]))
    """
    parents, children = _bine(n)
    return parents[v], list(children[v])


@lru_cache(maxsize=16)
def _bine(n: int) -> tuple[list[int | None], list[list[int]]]:
    """Return the parents and the children of all positions.

    Positions are counted without the modulo while the tree grows: after s steps their range has
    ``2 ** s`` of them. Where `n` is less, a message to a position that has the block is left out.
    """
    parents: list[int | None] = [None] * n
    children: list[list[int]] = [[] for _ in range(n)]
    there, has = [0], {0}
    for k in range((n - 1).bit_length(), 0, -1):
        distance = (1 - (-2) ** k) // 3
        for x in list(there):
            y = x - distance if x % 2 else x + distance
            there.append(y)
            if y % n not in has:
                has.add(y % n)
                parents[y % n] = x % n
                children[x % n].append(y % n)
    return parents, children


NAMED: tuple[tuple[Shape, str], ...] = (
    (knomial4, "k-nomial with radix 4: each sends to up to 3 at a time."),
    (knomial8, "k-nomial with radix 8: each sends to up to 7 at a time."),
    (bine, "binomial in Bine order, with short distances in both directions."),
)
"""The shapes and what they are, in words."""
