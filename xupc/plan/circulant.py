"""Round-optimal schedules of `n` chunks on a circulant graph of `p` positions, for any `p`.

A broadcast of `n` chunks needs at least ``n - 1 + ceil(log2 p)`` rounds if a position sends one
chunk and receives one chunk per round. These schedules take exactly so many. The idea is from
J. L. Traeff, arXiv 2407.18004; the rule that fills the schedule is given below.

**Graph.** There are ``q = ceil(log2 p)`` skips: ``skip[q] = p``, and ``skip[k]`` is half of
``skip[k + 1]``, rounded up. In round `i`, with ``k = i mod q``, position `v` sends to ``v +
skip[k]`` and receives from ``v - skip[k]``, both modulo `p`. The root is position 0.

**Own block.** Subtract from `v` the largest skip that is not larger, and repeat. The index of the
last skip is the *own block* of `v`. The root sends a new block in each round, so that the own block
is the first one that reaches a position: in round `k` with ``skip[k] <= v < skip[k + 1]``, called
its *entry*. The own block of the root counts as `q`, larger than all others.

**Row.** In each phase of `q` rounds a position receives `q` blocks: at its entry the one that the
root has just sent, and in each other round one of the phase before, counted from -1 (the last one)
to ``-q`` (the first one). The positions behind it decide which one, with `v` counted as ``v + p``:
in round `k` those from ``v - skip[k + 1] + 1`` to ``v - skip[k]``, its window. The largest own
block in the window that `v` does not have yet is received. If there is none, the own block of the
nearest position below the window is. The sender has that block by then.
`tests/unit/test_circulant.py` checks this for every `p` up to 256 and for samples up to 100,003.

A row costs O(log^3 p) steps, and the rows of one position and of all to which it sends O(log^4 p).
No table of all positions is needed for one root. Where all positions are roots, each with chunks of
its own, a position needs all rows: `every_row` computes them in O(p log^2 p).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import record

__all__ = [
    "Hop", "Ints", "Round", "arrivals", "entry", "every_row", "message", "own_block", "round_count",
    "rounds", "row", "skip_of", "skips",
]  # fmt: skip

Ints = NDArray[Any]


class Hop(NamedTuple):
    """One message of a round: the position at its other end, and the number of the chunk."""

    peer: int
    chunk: int


@record
class Round:
    """Hold the steps of a position in one round: at most one message each way."""

    send: Hop | None = None
    recv: Hop | None = None


@lru_cache(maxsize=64)
def skips(p: int) -> tuple[int, ...]:
    """Return the skips of `p` positions, smallest first, and `p` itself as the last item.

    >>> skips(11), skips(16), skips(1)
    ((1, 2, 3, 6, 11), (1, 2, 4, 8, 16), (1,))
    """
    found = [p]
    while found[-1] > 1:
        found.append(-(-found[-1] // 2))
    return tuple(reversed(found))


def round_count(p: int, n: int) -> int:
    """Return the number of rounds in which `n` chunks reach all of `p` positions."""
    return n - 1 + len(skips(p)) - 1 if p > 1 else 0


def own_block(v: int, p: int) -> int:
    """Return the own block of position `v`.

    >>> [own_block(v, 8) for v in range(8)]
    [3, 0, 1, 0, 2, 0, 1, 0]
    """
    if not 0 <= v < p:
        raise ValueError(f"expected a position from 0 to {p - 1}, got {v}")
    skip = skips(p)
    k = len(skip) - 1
    while v:
        k -= 1
        if v >= skip[k]:
            v -= skip[k]
    return k


def entry(v: int, p: int) -> int:
    """Return the round of a phase in which position `v`, not the root, receives a new block.

    >>> [entry(v, 8) for v in range(1, 8)]
    [0, 1, 1, 2, 2, 2, 2]
    """
    return next(k for k, (low, high) in enumerate(pairwise(skips(p))) if low <= v < high)


def _nearest(block: int, most: int, p: int) -> int:
    """Return the largest position up to `most` with this own block, counted from ``-p + 1``.

    Positions are counted without the modulo here: 0 is the root, ``-1`` is position ``p - 1``.
    """
    skip = skips(p)
    if block == len(skip) - 1:
        return 0 if most >= 0 else -p
    base = 0 if most >= skip[block] else -p
    found, left = 0, most - base
    for k in range(len(skip) - 2, block, -1):
        left = min(left, skip[k + 1] - 1)  # the next skip is not a sum with this one
        if skip[k] + skip[block] <= left:
            found, left = found + skip[k], left - skip[k]
    return base + found + skip[block]


@lru_cache(maxsize=1 << 14)
def row(v: int, p: int) -> tuple[int, ...]:
    """Return the block that position `v`, not the root, receives in each round of a phase.

    At its entry that is its own block, as the root numbers blocks within a phase. Blocks of the
    phase before are counted from its end.

    >>> row(1, 8), row(5, 8)
    ((0, -2, -1), (-1, -2, 0))
    """
    skip = skips(p)
    root, own = len(skip) - 1, own_block(v, p)
    missing = [block for block in range(root, -1, -1) if block != own]
    received = []
    for low, high in pairwise(skip):
        nearest = partial(_nearest, most=v - low, p=p)
        inside = (block for block in missing if nearest(block) > v - high)
        block = next(inside, None)
        if block is None:
            block = max(missing, key=nearest)
        missing.remove(block)
        received.append(own if block == root else block - root)
    return tuple(received)


@lru_cache(maxsize=8)
def every_row(p: int) -> Ints:
    """Return the rows of all positions: block ``[k, v]`` is `row(v, p)[k]`.

    The root receives nothing: its blocks are so small that no phase has them.

    >>> every_row(8)[:, [1, 5]].T.tolist()
    [[0, -2, -1], [-1, -2, 0]]
    """
    skip, v = skips(p), np.arange(p)
    q = len(skip) - 1
    own = _own_blocks(p)
    has = own == np.arange(q + 1)[:, None]
    below = _nearest_below(has)
    found = np.full((q, p), _NO_BLOCK)
    for k, (low, high) in enumerate(pairwise(skip)):
        rest = v[1:]
        place = below[:, rest - low] - p * (rest < low)  # positions behind v count as v + p
        inside = place > rest - high
        order = np.where(inside, p + np.arange(q + 1)[:, None], place)
        block = np.where(has[:, rest], _NO_BLOCK, order).argmax(axis=0)
        found[k, rest] = np.where(block == q, own[rest], block - q)
        has[block, rest] = True
    found.setflags(write=False)
    return found


_NO_BLOCK = -(1 << 30)


def _own_blocks(p: int) -> Ints:
    """Return the own blocks of all positions."""
    skip = skips(p)
    found = np.full(p, len(skip) - 1)
    for k, (low, high) in enumerate(pairwise(skip)):
        found[low:high] = found[: high - low]
        found[low] = k
    return found


def _nearest_below(has: Ints) -> Ints:
    """Return `_nearest` of each own block, ``[block, most]``; `has` is true at its positions."""
    p = has.shape[1]
    found = np.maximum.accumulate(np.where(has, np.arange(p), -p - 1), axis=1)
    latest: Ints = np.where(found < 0, found[:, -1:] - p, found)
    return latest


def skip_of(i: int, p: int, n: int) -> int:
    """Return the distance between the sender and the receiver of each message of round `i`."""
    return skips(p)[(i - (n - 1)) % (len(skips(p)) - 1)]


@lru_cache(maxsize=8)
def arrivals(p: int, n: int) -> Ints:
    """Return the chunk ``[i, v]`` that position `v` receives in round `i`; negative: none.

    >>> arrivals(5, 2).tolist()[0], arrivals(5, 2).tolist()[3]
    ([-1, -1, -1, 0, -1], [-1, -1, 0, 1, 1])
    """
    q, count = len(skips(p)) - 1, round_count(p, n)
    start = -count % q
    phase, k = np.divmod(np.arange(start, start + count), q)
    chunks: Ints = np.clip(every_row(p)[k] + (phase * q - start)[:, None], -1, n - 1)
    chunks.setflags(write=False)
    return chunks


def message(i: int, v: int, p: int, n: int) -> Iterator[Hop]:
    """Yield what `v` receives in round `i` if all positions are roots of `n` chunks each.

    The peer of a hop is the root here. A root is position 0 of its own broadcast.

    >>> [tuple(hop) for hop in message(0, 0, 5, 1)], [tuple(hop) for hop in message(2, 0, 5, 1)]
    ([(4, 0)], [(1, 0), (2, 0)])
    """
    chunks = arrivals(p, n)[i]
    for distance in np.flatnonzero(chunks >= 0)[::-1].tolist():
        yield Hop((v - distance) % p, int(chunks[distance]))


def rounds(v: int, p: int, n: int) -> Iterator[Round]:
    """Yield what position `v` does in each of the rounds that bring `n` chunks from 0 to all.

    Phases end with the last round, so the first phase may begin in its middle. Chunks before the
    first one are not sent. The last one stands for all chunks behind it.

    >>> [tuple(step.send) for step in rounds(0, 5, 2)]
    [(3, 0), (1, 1), (2, 1), (3, 1)]
    """
    skip = skips(p)
    q, count = len(skip) - 1, round_count(p, n)
    start = -count % q if q else 0
    for i in range(start, start + count):
        to, of = (v + skip[i % q]) % p, (v - skip[i % q]) % p
        sent, received = (_chunk(w, p, n, i, start) for w in (to, v))
        yield Round(
            None if sent is None else Hop(to, sent), None if received is None else Hop(of, received)
        )


def _chunk(v: int, p: int, n: int, i: int, start: int) -> int | None:
    """Return the chunk that position `v` receives in round `i`, if any."""
    if v == 0:
        return None
    phase, k = divmod(i, len(skips(p)) - 1)
    number = row(v, p)[k] + phase * (len(skips(p)) - 1) - start
    return min(number, n - 1) if number >= 0 else None
