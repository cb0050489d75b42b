"""Which thread of a node takes a block into each domain below it, and from which thread.

A block starts at one thread. In each domain that it has to enter, one thread, the *entry*, copies
it from the entry of the domain around; the others copy from the entries inside. So each block
crosses the border of each domain once. Threads count inside the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.steps import Ranks
from ..topology.levels import NodeLevels

__all__ = ["block_entries", "parents", "ranks_of"]

Threads = NDArray[Any]


def parents(levels: NodeLevels, source: int) -> Threads:
    """Return the thread that each thread copies a block of `source` from; -1 for `source`.

    The entry of a domain is its root.
    """
    entry = np.full(levels.size, source)
    found = np.full(levels.size, -1)
    for roots in _roots(levels):
        inner = np.where(roots[entry] == roots, entry, roots)
        enters = (inner == np.arange(levels.size)) & (entry != inner)
        found[enters] = entry[enters]
        entry = inner
    return found


@lru_cache(maxsize=4)
def block_entries(levels: NodeLevels) -> tuple[Threads, ...]:
    """Return for the node and each level below it the entry of each block in each domain.

    Entry ``[t, i]`` is for the block that starts at thread i and the domain of thread t. The blocks
    that enter a domain are divided evenly among its threads, in order. The last array is for
    threads as domains of their own.
    """
    blocks = np.arange(levels.size)
    found = [np.broadcast_to(blocks, (levels.size, levels.size))]
    for roots in _roots(levels):
        chosen = np.stack([_shares(np.flatnonzero(roots == root), blocks) for root in roots])
        found.append(np.where(roots[found[-1]] == roots[:, None], found[-1], chosen))
    return tuple(found)


def _roots(levels: NodeLevels) -> Iterable[Threads]:
    """Yield the root of each thread's domain, level by level below the node, then by thread."""
    yield from (np.array(level.root_of) for level in levels.levels[1:])
    yield np.arange(levels.size)


def _shares(domain: Threads, blocks: Threads) -> Threads:
    """Return the thread of a domain that takes each block from outside of it."""
    others = max(1, blocks.size - domain.size)
    place = blocks - np.searchsorted(domain, blocks)
    return domain[np.minimum(place * domain.size // others, domain.size - 1)]


def ranks_of(threads: Sequence[int]) -> tuple[Ranks, ...]:
    """Return ascending threads as runs of threads that follow each other."""
    runs: list[Ranks] = []
    for thread in threads:
        if runs and runs[-1].first + runs[-1].count == thread:
            runs[-1] = Ranks(runs[-1].first, runs[-1].count + 1)
        else:
            runs.append(Ranks(thread))
    return tuple(runs)
