"""What is measured: a cell is one collective at one block size, with its candidates.

A candidate is something that can be called again and again and whose result can be checked. All
candidates of a cell do the same work on memory of the same size: xupc's on shared arrays, MPI's
on private buffers. MPI gets its buffers in mpi4py's quickest form, ``[buffer, count, type]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import xupc

__all__ = ["COLLECTIVES", "Candidate", "Cell", "Memory", "candidates", "cells"]

COLLECTIVES = ("broadcast", "scatter", "gather", "gather_all", "barrier")
ROOTED = ("broadcast", "scatter", "gather")
MYSYNC = int(xupc.IN_MYSYNC | xupc.OUT_MYSYNC)
LARGE = 1 << 20  # from here on Bcast is also measured together with the root's own copy
PAGE = 4096

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Cell:
    """One collective at one block size; nbytes is 0 for the barrier."""

    collective: str
    nbytes: int

    @property
    def name(self) -> str:
        """As it stands in the raw files, like ``broadcast/1024``."""
        return f"{self.collective}/{self.nbytes}"


@dataclass(frozen=True)
class Candidate:
    """One way to do what a cell asks for: ``call(*arguments)``.

    Attributes
    ----------
    source, result
        What my thread contributes, and what it must find afterwards; None where it has no part.
        `result` is poisoned before a check, so it never shares memory with `source`.
    """

    name: str
    call: Callable[..., object]
    arguments: tuple[Any, ...]
    source: Bytes | None = None
    result: Bytes | None = None

    @property
    def of_mpi(self) -> bool:
        """Whether it is the peer's."""
        return self.name.startswith("mpi")


def cells(collectives: Sequence[str], sizes: Sequence[int]) -> Iterator[Cell]:
    """The cells of a table, small ones first."""
    if "barrier" in collectives:
        yield Cell("barrier", 0)
    for nbytes in sorted(sizes):
        for collective in collectives:
            if collective != "barrier":
                yield Cell(collective, nbytes)


class Memory:
    """Memory for every cell up to a block size, shared for xupc and private for MPI.

    `block` and `other` hold one block on each thread, `row` one block for every thread. Every cell
    starts at offset 0, so that no candidate profits from memory that another one left cold.
    """

    def __init__(self, team: xupc.Team, comm: MPI.Intracomm, largest: int) -> None:
        self.team = team
        self.comm = comm
        threads = team.size
        self.block = xupc.all_alloc(threads * largest, np.uint8, largest)
        self.other = xupc.all_alloc(threads * largest, np.uint8, largest)
        self.row = xupc.all_alloc(threads * threads * largest, np.uint8, threads * largest)
        self.own_block = aligned(largest)
        self.own_other = aligned(largest)
        self.own_row = aligned(threads * largest)


def aligned(nbytes: int) -> Bytes:
    """Private memory that starts on a page, as xupc's does."""
    raw = np.zeros(nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + nbytes]


def candidates(
    cell: Cell, memory: Memory, *, flags: int, algorithms: Sequence[str], mysync: bool = False
) -> list[Candidate]:
    """Everything that is compared in a cell.

    Parameters
    ----------
    flags
        Of xupc's calls.
    algorithms
        Names of algorithm flags that are measured beside the default.
    mysync
        Rooted collectives also with MYSYNC both ways: like MPI's, they synchronise nobody.
    """
    if cell.collective == "barrier":
        return [
            Candidate("xupc", xupc.barrier, ()),
            Candidate("xupc again", xupc.barrier, ()),
            Candidate("mpi", memory.comm.Barrier, ()),
        ]
    found = [
        of_xupc(cell, memory, "xupc", flags),
        of_xupc(cell, memory, "xupc again", flags),
        of_mpi(cell, memory),
    ]
    if cell.collective == "broadcast" and cell.nbytes >= LARGE:
        found.append(bcast_and_copy(cell, memory))
    if cell == Cell("broadcast", 8):
        found.append(planned(cell, memory, flags))
    if mysync and cell.collective in ROOTED:
        found.append(of_xupc(cell, memory, "MYSYNC", flags | MYSYNC))
    for name in algorithms:
        found.append(of_xupc(cell, memory, name, flags | int(xupc.Flags[name])))
    return found


def shared_operands(cell: Cell, memory: Memory) -> tuple[Any, Any, Bytes | None, Bytes | None]:
    """(dst, src, my source bytes, my result bytes) of xupc's collectives; thread 0 is the root."""
    n, threads = cell.nbytes, memory.team.size
    root = memory.team.rank == 0
    block, other, row = memory.block, memory.other, memory.row
    match cell.collective:
        case "broadcast":
            return other, block, block.local[:n] if root else None, other.local[:n]
        case "scatter":
            return other, row, row.local[: n * threads] if root else None, other.local[:n]
        case "gather":
            return row, block, block.local[:n], row.local[: n * threads] if root else None
        case "gather_all":
            return row, block, block.local[:n], row.local[: n * threads]
    raise ValueError(f"collective {cell.collective!r}: expected one of {COLLECTIVES}")


def of_xupc(cell: Cell, memory: Memory, name: str, flags: int) -> Candidate:
    """A full call of xupc."""
    call = getattr(xupc, f"all_{cell.collective}")
    dst, src, source, result = shared_operands(cell, memory)
    arguments = (dst, src, cell.nbytes, flags) if flags else (dst, src, cell.nbytes)
    return Candidate(name, call, arguments, source, result)


def planned(cell: Cell, memory: Memory, flags: int) -> Candidate:
    """The same, as a plan that is replayed."""
    call = getattr(xupc, f"all_{cell.collective}")
    dst, src, source, result = shared_operands(cell, memory)
    return Candidate("plan", call.plan(dst, src, cell.nbytes, flags), (), source, result)


def of_mpi(cell: Cell, memory: Memory) -> Candidate:
    """mpi4py's collective on private buffers."""
    n, threads, comm = cell.nbytes, memory.team.size, memory.comm
    root = comm.Get_rank() == 0
    block, other, row = memory.own_block[:n], memory.own_other[:n], memory.own_row[: n * threads]
    one: Any = [block, n, MPI.BYTE]
    two: Any = [other, n, MPI.BYTE]
    every: Any = [row, n, MPI.BYTE]
    match cell.collective:
        case "broadcast":  # in place: the root's buffer is source and result at once
            return Candidate("mpi", comm.Bcast, (one, 0), block if root else None,
                             None if root else block)
        case "scatter":
            return Candidate("mpi", comm.Scatter, (every if root else None, two, 0),
                             row if root else None, other)
        case "gather":
            return Candidate("mpi", comm.Gather, (one, every if root else None, 0),
                             block, row if root else None)
        case "gather_all":
            return Candidate("mpi", comm.Allgather, (one, every), block, row)
    raise ValueError(f"collective {cell.collective!r}: expected one of {COLLECTIVES}")


def bcast_and_copy(cell: Cell, memory: Memory) -> Candidate:
    """Bcast, and then the root's copy of its own block, which all_broadcast makes too."""
    comm, root = memory.comm, memory.comm.Get_rank() == 0
    block, other = memory.own_block[: cell.nbytes], memory.own_other[: cell.nbytes]
    buffer: Any = [block, cell.nbytes, MPI.BYTE]
    bcast = comm.Bcast

    def call() -> None:
        bcast(buffer, 0)
        if root:
            other[:] = block

    return Candidate("mpi+copy", call, (), block if root else None, other if root else block)


# ---- results -----------------------------------------------------------------------------------


def content(cell: Cell, thread: int, threads: int, salt: int) -> Bytes:
    """What `thread` contributes: different for every thread, size and check."""
    nbytes = cell.nbytes * (threads if cell.collective == "scatter" else 1)
    period = np.arange(251, dtype=np.uint8)
    start = (31 * salt + 7 * thread + cell.nbytes) % len(period)
    return np.tile(period, nbytes // len(period) + 2)[start : start + nbytes]


def expected(cell: Cell, thread: int, threads: int, salt: int) -> Iterator[Bytes]:
    """What `thread` must find in its result, block by block."""
    match cell.collective:
        case "broadcast":
            yield content(cell, 0, threads, salt)
        case "scatter":
            row = content(cell, 0, threads, salt)
            yield row[thread * cell.nbytes : (thread + 1) * cell.nbytes]
        case _:
            yield from (content(cell, t, threads, salt) for t in range(threads))


def is_right(cell: Cell, candidate: Candidate, memory: Memory, salt: int) -> bool:
    """Whether my thread finds what it must after one call with new values; collective."""
    rank, threads = memory.team.rank, memory.team.size
    if candidate.source is not None:
        candidate.source[:] = content(cell, rank, threads, salt)
    if candidate.result is not None:
        candidate.result[:] = 255
    xupc.barrier()
    candidate.call(*candidate.arguments)
    xupc.barrier()
    if candidate.result is None:
        return True
    found = candidate.result.reshape(-1, cell.nbytes)
    blocks = expected(cell, rank, threads, salt)
    return all(np.array_equal(*pair) for pair in zip(found, blocks, strict=True))
