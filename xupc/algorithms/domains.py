"""Choose the thread of a node that copies a block into each domain, and the thread it copies from.

A block starts at one thread. In each domain that it must enter one thread, the *entry*, copies it
from the entry of the domain around; the others copy from the entries inside. So each block crosses
the border of each domain once. Reductions go the same way in the other direction: the entry of a
domain combines the partial results of the entries of the domains inside. Threads are numbered
inside the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..plan.steps import Ranks
from ..topology.levels import NodeLevels

__all__ = [
    "Pairs", "Threads", "block_entries", "first_levels", "pairs_between", "parents", "ranks_of",
    "same_source",
]  # fmt: skip

T = TypeVar("T")
Threads = NDArray[Any]
Pairs = NDArray[np.bool_]
"""Which thread of the node (row) reads from which other one (column)."""


def parents(levels: NodeLevels, source: int) -> Threads:
    """Return for each thread the one from which it copies a block of `source`; -1 for `source`.

    The entry of a domain is its root (its lowest thread), or `source` in the domains of that.
    """
    entry = np.full(levels.size, source)
    found = np.full(levels.size, -1)
    for roots in _roots(levels):
        inner = np.where(roots[entry] == roots, entry, roots)
        enters = (inner == np.arange(levels.size)) & (entry != inner)
        found[enters] = entry[enters]
        entry = inner
    return found


@lru_cache(maxsize=8)
def block_entries(
    levels: NodeLevels, starts: tuple[int, ...] | None = None
) -> tuple[Threads, ...]:
    """Return for the node and each level below it the entry of each block in each domain.

    There is an array of shape (threads, blocks) per level. Its element ``[t, i]`` is the entry of
    block i in the domain of thread t. Block i starts at thread ``starts[i]`` (None: at thread i).
    The blocks that enter a domain are divided evenly among its threads, in order. One more array,
    the last, has each thread as a domain of its own.
    """
    begin = np.arange(levels.size) if starts is None else np.array(starts, int)
    found = [np.broadcast_to(begin, (levels.size, begin.size))]
    for roots in _roots(levels):
        chosen = np.empty((levels.size, begin.size), int)
        for root in np.unique(roots):
            domain = np.flatnonzero(roots == root)
            chosen[domain] = _shares(domain, roots[begin] != root)
        found.append(np.where(roots[found[-1]] == roots[:, None], found[-1], chosen))
    return tuple(found)


def _roots(levels: NodeLevels) -> Iterable[Threads]:
    """Yield the root of each thread's domain, level by level below the node, then by thread."""
    yield from (np.array(level.root_of) for level in levels.levels[1:])
    yield np.arange(levels.size)


def _shares(domain: Threads, outside: Threads) -> Threads:
    """Return the thread of a domain that takes each block in, if it starts `outside` of it."""
    number = np.cumsum(outside) - outside
    others = max(1, int(outside.sum()))
    chosen: Threads = domain[np.minimum(number * domain.size // others, domain.size - 1)]
    return chosen


def pairs_between(
    readers: Threads, sources: Threads, used: Sequence[int]
) -> Pairs:
    """Return which threads read from which.

    `readers` and `sources` have the shape (threads, blocks), as of `block_entries`; only the blocks
    of `used` count.
    """
    found = np.zeros((len(readers), len(readers)), bool)
    found[readers[:, used].ravel(), sources[:, used].ravel()] = True
    return found


def first_levels(entries: Sequence[Threads], level: int) -> Threads:
    """Return for each entry of a level the widest level on which it is an entry of the block."""
    found = np.full_like(entries[level], level)
    blocks = np.arange(entries[level].shape[-1])
    for k in range(level - 1, -1, -1):
        found[entries[k][entries[level], blocks] == entries[level]] = k
    return found


def same_source(
    used: Iterable[int], source: Callable[[int], T | None]
) -> Iterator[tuple[int, int, T]]:
    """Yield runs of successive blocks with equal sources: the first, the last, the source.

    Blocks without a source are left out, and end a run.
    """
    for value, run in groupby(used, source):
        if value is not None:
            first, *more = run
            yield first, more[-1] if more else first, value


def ranks_of(threads: Sequence[int]) -> tuple[Ranks, ...]:
    """Return ascending threads as runs of threads that follow each other."""
    runs: list[Ranks] = []
    for thread in threads:
        if runs and runs[-1].first + runs[-1].count == thread:
            runs[-1] = Ranks(runs[-1].first, runs[-1].count + 1)
        else:
            runs.append(Ranks(thread))
    return tuple(runs)
