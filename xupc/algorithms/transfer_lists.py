"""The lists of a `_v` or `_x` call as `Transfers`: bytes from one thread's place to another's.

All collectives look alike then::

    exchange_v   0 -> 0: 8 B   0 -> 1: 0 B   1 -> 0: 24 B   1 -> 1: 5 B
    broadcast_x  2 -> 0: 64 B  2 -> 1: 64 B  2 -> 2: 64 B         the same source block

The offsets are those of the shared heap, so blocks may lie in any allocations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLLECTIVES", "Entries", "Ints", "Transfers", "entries"]

Ints = NDArray[np.int64]


class Entries(NamedTuple):
    """Name the entries of a call's lists that belong together, an element for each transfer.

    `dst`, `src` and `nbytes` are indices into the lists of that name. `to` and `of` are the ranks
    on which the two entries must be; None: all on one thread, the root.
    """

    dst: Ints
    src: Ints
    nbytes: Ints
    to: Ints | None
    of: Ints | None


def entries(collective: str, threads: int, perm: Ints | None = None) -> Entries:
    """Return the entries of a call of so many threads; `perm` is for permute alone."""
    each, none = np.arange(threads), np.zeros(threads, np.int64)
    to, of = np.repeat(each, threads), np.tile(each, threads)
    match collective:
        case "broadcast":
            return Entries(each, none, none, each, None)
        case "scatter":
            return Entries(each, each, each, each, None)
        case "gather":
            return Entries(each, each, each, None, each)
        case "gather_all":
            return Entries(to * threads + of, of, of, to, of)
        case "exchange":
            return Entries(to * threads + of, of * threads + to, of * threads + to, to, of)
        case "permute":
            assert perm is not None
            return Entries(perm, each, each, perm, each)
    raise KeyError(collective)


COLLECTIVES = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
"""The collectives that have the two forms."""


class Transfers(NamedTuple):
    """Hold blocks: ``nbytes[k]`` bytes at ``src_at[k]`` of rank ``src[k]``.

    They go to ``dst_at[k]`` of rank ``dst[k]``. No block is empty, and no two targets overlap.
    They ascend by dst, then src.
    """

    dst: Ints
    dst_at: Ints
    src: Ints
    src_at: Ints
    nbytes: Ints

    @classmethod
    def of(cls, dst: Ints, dst_at: Ints, src: Ints, src_at: Ints, nbytes: Ints) -> Transfers:
        """Return the transfers that are not empty, in order."""
        every = cls(dst, dst_at, src, src_at, nbytes)
        order = np.lexsort((dst_at, src_at, src, dst))
        return every.take(order[nbytes[order] > 0])

    def take(self, which: NDArray[Any]) -> Transfers:
        """Return some of them: by a mask or by numbers."""
        return Transfers(*(column[which] for column in self))

    def each(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (dst, dst_at, src, src_at, nbytes) of each."""
        return zip(*(column.tolist() for column in self), strict=True)

    @property
    def total(self) -> int:
        """Return the bytes of all."""
        return int(self.nbytes.sum())
