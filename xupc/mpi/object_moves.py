"""Moves of pickles and buffers that had no room in slots: by xupc, or by MPI.

All threads that need a size have it from the exchange of slots (`slots`), so MPI's calls need no
exchange of sizes before them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from ..api.uneven_blocks import Array, empty
from . import uneven

__all__ = ["ByMpi", "ByXupc", "Moves"]


class Moves(Protocol):
    """Moves between the threads of a communicator: blocks of bytes, of any sizes."""

    def broadcast(self, block: Array, root: int) -> None:
        """Copy the root's block to the blocks of all threads."""

    def spread(self, blocks: Sequence[Array]) -> None:
        """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""

    def gather(self, mine: Array, sizes: Sequence[int], root: int, most: int) -> list[Array]:
        """Return the blocks of all threads on the root, and none on the others."""

    def scatter(self, blocks: Sequence[Array], size: int, root: int, most: int) -> Array:
        """Return the root's block for this thread; only the root passes blocks."""

    def exchange(self, blocks: Sequence[Array], sizes: Sequence[int], most: int) -> list[Array]:
        """Return the block of each thread for this one; ``blocks[i]`` is for thread i."""


class ByXupc:
    """Moves by calls of xupc, under the name of a method; no block is longer than `most`."""

    def __init__(self, team: Any, method: str) -> None:
        self._on = team, method
        self._team = team

    def broadcast(self, block: Array, root: int) -> None:
        """Copy the root's block to the blocks of all threads."""
        uneven.broadcast(*self._on, block, root)

    def spread(self, blocks: Sequence[Array]) -> None:
        """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
        uneven.spread(*self._on, blocks)

    def gather(self, mine: Array, sizes: Sequence[int], root: int, most: int) -> list[Array]:
        """Return the blocks of all threads on the root, and none on the others."""
        into = [empty(size) for size in sizes] if self._team.rank == root else None
        uneven.gather(*self._on, mine, into, root, most)
        return into or []

    def scatter(self, blocks: Sequence[Array], size: int, root: int, most: int) -> Array:
        """Return the root's block for this thread; only the root passes blocks."""
        got = empty(size)
        uneven.scatter(*self._on, blocks or None, got, root, most)
        return got

    def exchange(self, blocks: Sequence[Array], sizes: Sequence[int], most: int) -> list[Array]:
        """Return the block of each thread for this one; ``blocks[i]`` is for thread i."""
        got = [empty(size) for size in sizes]
        uneven.exchange(*self._on, blocks, got, most)
        return got


class ByMpi:
    """Moves by MPI's collectives on the program's communicator."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm

    def broadcast(self, block: Array, root: int) -> None:
        """Copy the root's block to the blocks of all threads."""
        MPI.Intracomm.Bcast(self._comm, [block, MPI.BYTE], root)

    def spread(self, blocks: Sequence[Array]) -> None:
        """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
        for root, block in enumerate(blocks):
            if block.size:
                self.broadcast(block, root)

    def gather(self, mine: Array, sizes: Sequence[int], root: int, most: int) -> list[Array]:
        """Return the blocks of all threads on the root, and none on the others."""
        own = [mine, MPI.BYTE]
        if self._comm.rank != root:
            MPI.Intracomm.Gatherv(self._comm, own, None, root)
            return []
        every = empty(sum(sizes))
        MPI.Intracomm.Gatherv(self._comm, own, [every, sizes, MPI.BYTE], root)
        return _parts(every, sizes)

    def scatter(self, blocks: Sequence[Array], size: int, root: int, most: int) -> Array:
        """Return the root's block for this thread; only the root passes blocks."""
        got = empty(size)
        every = _joined(blocks) if blocks else None
        MPI.Intracomm.Scatterv(self._comm, every, [got, MPI.BYTE], root)
        return got

    def exchange(self, blocks: Sequence[Array], sizes: Sequence[int], most: int) -> list[Array]:
        """Return the block of each thread for this one; ``blocks[i]`` is for thread i."""
        every = empty(sum(sizes))
        MPI.Intracomm.Alltoallv(self._comm, _joined(blocks), [every, sizes, MPI.BYTE])
        return _parts(every, sizes)


def _joined(blocks: Sequence[Array]) -> list[Any]:
    """Return blocks one after the other, as MPI takes them."""
    return [np.concatenate(blocks), [block.size for block in blocks], MPI.BYTE]


def _parts(every: Array, sizes: Sequence[int]) -> list[Array]:
    """Return the blocks that lie one after the other."""
    ends = itertools.accumulate(sizes)
    return [every[end - size : end] for end, size in zip(ends, sizes, strict=True)]
