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
from suites import COLLECTIVES, ITEM, REDUCED, ROOTED

import xupc

__all__ = ["Candidate", "Cell", "Memory", "candidates", "cells"]

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
    content, expected
        ``content(thread, salt)`` and ``expected(salt)``: what belongs there; None: as
        functions of these names say.
    """

    name: str
    call: Callable[..., object]
    arguments: tuple[Any, ...]
    source: Bytes | None = None
    result: Bytes | None = None
    content: Callable[[int, int], Bytes] | None = None
    expected: Callable[[int], Bytes] | None = None

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
        self.other_row = xupc.all_alloc(threads * threads * largest, np.uint8, threads * largest)
        self.own_block = aligned(largest)
        self.own_other = aligned(largest)
        self.own_row = aligned(threads * largest)
        self.own_other_row = aligned(threads * largest)


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
    if cell == Cell("broadcast", 8) or cell.collective == "allreduce":
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
        case "exchange":
            return memory.other_row, row, row.local[: n * threads], memory.other_row.local[
                : n * threads
            ]
        case "broadcast_in_place":
            here = block.local[:n]
            return block, block, here if root else None, None if root else here
        case "reduce":
            return other, block, block.local[:n], other.local[:n] if root else None
        case "allreduce" | "scan":
            return other, block, block.local[:n], other.local[:n]
    raise ValueError(f"collective {cell.collective!r}: expected one of {COLLECTIVES}")


CALLS = {
    "reduce": xupc.all_reduce_mpi,
    "allreduce": xupc.all_reduce_mpi_all,
    "scan": xupc.all_prefix_reduce,
}


def shared_call(cell: Cell, memory: Memory, flags: int) -> tuple[Any, tuple[Any, ...]]:
    """xupc's collective and its arguments."""
    dst, src, _, _ = shared_operands(cell, memory)
    n, threads = cell.nbytes, memory.team.size
    last = (flags,) if flags else ()
    if cell.collective in REDUCED:
        count = n // ITEM
        dst, src = ((x + 0).cast(np.float64, count) for x in (dst, src))
        more = (None, None, flags) if flags else ()
        if cell.collective == "scan":
            return CALLS["scan"], (dst, src, xupc.ADD, count * threads, *more)
        return CALLS[cell.collective], (dst, src, xupc.ADD, count * threads, count, *more[1:])
    call = getattr(xupc, f"all_{cell.collective}")
    if cell.collective == "broadcast_in_place":
        return call, (dst, n, *last)
    return call, (dst, src, n, *last)


def of_xupc(cell: Cell, memory: Memory, name: str, flags: int) -> Candidate:
    """A full call of xupc."""
    call, arguments = shared_call(cell, memory, flags)
    _, _, source, result = shared_operands(cell, memory)
    return Candidate(name, call, arguments, source, result)


def planned(cell: Cell, memory: Memory, flags: int) -> Candidate:
    """The same, as a plan that is replayed."""
    call, arguments = shared_call(cell, memory, flags)
    _, _, source, result = shared_operands(cell, memory)
    return Candidate("plan", call.plan(*arguments), (), source, result)


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
        case "exchange":
            other_row = memory.own_other_row[: n * threads]
            into: Any = [other_row, n, MPI.BYTE]
            return Candidate("mpi", comm.Alltoall, (every, into), row, other_row)
        case "broadcast_in_place":
            return Candidate("mpi", comm.Bcast, (one, 0), block if root else None,
                             None if root else block)
        case "reduce" | "allreduce" | "scan":
            return reduced_by_mpi(cell, comm, block, other)
    raise ValueError(f"collective {cell.collective!r}: expected one of {COLLECTIVES}")


def reduced_by_mpi(cell: Cell, comm: MPI.Intracomm, block: Bytes, other: Bytes) -> Candidate:
    """mpi4py's reductions of float64.

    A prefix over all elements of all threads is numpy's along the own block, MPI's over the
    blocks' totals, and their sum; of one element each it is MPI's Scan.
    """
    root, count = comm.Get_rank() == 0, cell.nbytes // ITEM
    one: Any = [block, count, MPI.DOUBLE]
    two: Any = [other, count, MPI.DOUBLE]
    if cell.collective == "reduce":
        arguments: tuple[Any, ...] = (one, two if root else None, MPI.SUM, 0)
        return Candidate("mpi", comm.Reduce, arguments, block, other if root else None)
    if cell.collective == "allreduce":
        return Candidate("mpi", comm.Allreduce, (one, two, MPI.SUM), block, other)
    if count == 1:
        return Candidate("mpi", comm.Scan, (one, two, MPI.SUM), block, other)
    values, sums, before = block.view(np.float64), other.view(np.float64), np.zeros(1)
    total: Any = [sums[-1:], 1, MPI.DOUBLE]
    into: Any = [before, 1, MPI.DOUBLE]
    exscan, cumsum, add, first = comm.Exscan, np.cumsum, np.add, comm.Get_rank() == 0

    def scan() -> None:
        cumsum(values, out=sums)
        exscan(total, into, MPI.SUM)
        if not first:
            add(sums, before, out=sums)

    return Candidate("mpi", scan, (), block, other)


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
    nbytes = cell.nbytes * (threads if cell.collective in ("scatter", "exchange") else 1)
    reduced = cell.collective in REDUCED
    period = np.arange(251, dtype=np.float64 if reduced else np.uint8)
    count = nbytes // period.itemsize
    start = (31 * salt + 7 * thread + cell.nbytes) % len(period)
    return np.tile(period, count // len(period) + 2)[start : start + count].view(np.uint8)


def expected(cell: Cell, thread: int, threads: int, salt: int) -> Iterator[Bytes]:
    """What `thread` must find in its result, block by block."""
    match cell.collective:
        case "broadcast" | "broadcast_in_place":
            yield content(cell, 0, threads, salt)
        case "exchange":
            here = slice(thread * cell.nbytes, (thread + 1) * cell.nbytes)
            yield from (content(cell, t, threads, salt)[here] for t in range(threads))
        case "reduce" | "allreduce" | "scan":
            values = [content(cell, t, threads, salt).view(np.float64) for t in range(threads)]
            if cell.collective == "scan":  # whole numbers: exact in any order
                before = sum(float(v.sum()) for v in values[:thread])
                yield (before + np.cumsum(values[thread])).view(np.uint8)
            else:
                yield np.sum(values, axis=0).view(np.uint8)
        case "scatter":
            row = content(cell, 0, threads, salt)
            yield row[thread * cell.nbytes : (thread + 1) * cell.nbytes]
        case _:
            yield from (content(cell, t, threads, salt) for t in range(threads))


def is_right(cell: Cell, candidate: Candidate, memory: Memory, salt: int) -> bool:
    """Whether my thread finds what it must after one call with new values; collective."""
    rank, threads = memory.team.rank, memory.team.size
    if candidate.source is not None:
        given = candidate.content or (lambda thread, salt: content(cell, thread, threads, salt))
        candidate.source[:] = given(rank, salt)
    if candidate.result is not None:
        candidate.result[:] = 255
    xupc.barrier()
    candidate.call(*candidate.arguments)
    xupc.barrier()
    if candidate.result is None:
        return True
    if candidate.expected is not None:
        return np.array_equal(candidate.result, candidate.expected(salt))
    found = candidate.result.reshape(-1, cell.nbytes)
    blocks = expected(cell, rank, threads, salt)
    return all(np.array_equal(*pair) for pair in zip(found, blocks, strict=True))
