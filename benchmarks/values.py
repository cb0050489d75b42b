"""What is measured of the collectives on private memory, and of blocks of uneven sizes.

Arrays of values: xupc's `allav_*` and MPI's collectives on the same private buffers of float64;
neither synchronises anybody beyond the data. Uneven: the last thread has nine tenths of the data,
the others share the rest; xupc's `_v` forms on shared arrays against MPI's on private ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cells import Bytes, Candidate, Cell, Memory
from mpi4py import MPI
from suites import ITEM, UNEVEN, VALUES

import xupc

__all__ = ["candidates"]

REST = 10  # all but the last thread have together one part of so many


def candidates(cell: Cell, memory: Memory) -> list[Candidate]:
    """Everything that is compared in a cell."""
    kind, _, name = cell.collective.partition("_")
    make = {VALUES: _values, UNEVEN: _uneven}[f"{kind}_"]
    return make(name, cell, memory)


def _numbers(cell: Cell, thread: int, salt: int, count: int) -> Any:
    """Whole numbers, different for every thread, size and check."""
    return (np.arange(count) + 31 * salt + 7 * thread + cell.nbytes) % 251


# ---- arrays of values --------------------------------------------------------------------------


def _values(name: str, cell: Cell, memory: Memory) -> list[Candidate]:
    n, threads, me, comm = cell.nbytes, memory.team.size, memory.team.rank, memory.comm
    root, count = me == 0, cell.nbytes // ITEM
    block, other, row, other_row = (
        x[: n * k].view(np.float64)
        for x, k in (
            (memory.own_block, 1),
            (memory.own_other, 1),
            (memory.own_row, threads),
            (memory.own_other_row, threads),
        )
    )
    blocks = threads if name in ("scatter", "exchange") else 1

    def content(thread: int, salt: int) -> Bytes:
        return _numbers(cell, thread, salt, count * blocks).astype(np.float64).view(np.uint8)

    def expected(salt: int) -> Bytes:
        every = [content(t, salt).view(np.float64) for t in range(threads)]
        here = slice(me * count, me * count + count)
        match name:
            case "broadcast":
                result = every[0]
            case "scatter":
                result = every[0][here]
            case "gather" | "gather_all":
                result = np.concatenate(every)
            case "exchange":
                result = np.concatenate([x[here] for x in every])
            case "scan":
                result = np.sum(every[: me + 1], axis=0)
            case _:
                result = np.sum(every, axis=0)
        return result.view(np.uint8)

    def buffer(x: Any) -> Any:
        return [x, count, MPI.DOUBLE]

    ours: Callable[..., object] = getattr(xupc, f"allav_{NAMES.get(name, name)}")
    source, result = block, other
    match name:
        case "broadcast":
            mine: tuple[Any, ...] = (block, 0)
            call, theirs = comm.Bcast, (buffer(block), 0)
            source, result = (block, None) if root else (None, block)
        case "scatter":
            mine = (other, row if root else None, 0)
            call, theirs = comm.Scatter, (buffer(row) if root else None, buffer(other), 0)
            source = row if root else None
        case "gather":
            mine = (row if root else None, block, 0)
            call, theirs = comm.Gather, (buffer(block), buffer(row) if root else None, 0)
            result = row if root else None
        case "gather_all":
            mine, call, theirs = (row, block), comm.Allgather, (buffer(block), buffer(row))
            result = row
        case "exchange":
            mine, call = (other_row, row), comm.Alltoall
            theirs, source, result = (buffer(row), buffer(other_row)), row, other_row
        case "reduce":
            mine = (other if root else None, block, xupc.ADD, 0)
            call = comm.Reduce
            theirs = (buffer(block), buffer(other) if root else None, MPI.SUM, 0)
            result = other if root else None
        case "allreduce" | "scan":
            mine = (other, block, xupc.ADD)
            call = comm.Allreduce if name == "allreduce" else comm.Scan
            theirs = (buffer(block), buffer(other), MPI.SUM)
    ends = [None if x is None else x.view(np.uint8) for x in (source, result)]
    return [
        Candidate("xupc", ours, mine, *ends, content, expected),
        Candidate("xupc again", ours, mine, *ends, content, expected),
        Candidate("mpi", call, theirs, *ends, content, expected),
    ]


NAMES = {"allreduce": "reduce_all", "scan": "prefix_reduce"}


# ---- uneven blocks -----------------------------------------------------------------------------


def _uneven(name: str, cell: Cell, memory: Memory) -> list[Candidate]:
    n, threads, me, comm = cell.nbytes, memory.team.size, memory.team.rank, memory.comm
    sizes = [max(1, n * threads // REST // max(1, threads - 1))] * (threads - 1)
    sizes.append(n * threads - sum(sizes))
    if name == "exchange":  # what a thread has goes to all threads in equal parts
        sizes = [size // threads for size in sizes]
    places = [sum(sizes[:t]) for t in range(threads)]
    whole, mine = sum(sizes), sizes[me]
    pieces = threads if name == "exchange" else 1
    room = memory.row.blocksize

    def content(thread: int, salt: int) -> Bytes:
        return _numbers(cell, thread, salt, sizes[thread] * pieces).astype(np.uint8)

    def expected(salt: int) -> Bytes:
        every = [content(t, salt) for t in range(threads)]
        if name == "exchange":
            every = [x[me * s : me * s + s] for x, s in zip(every, sizes, strict=True)]
        return np.concatenate(every)

    dst, src = memory.other_row, memory.row
    ddisp = [i * room + places[j] for i in range(threads) for j in range(threads)]
    source, result = memory.own_row[: mine * pieces], memory.own_other_row[:whole]
    if name == "exchange":
        call = xupc.all_exchange_v
        sdisp = [j * room + i * sizes[j] for j in range(threads) for i in range(threads)]
        # indexed like the sources: [j * threads + i] on thread j, for thread i
        lists: list[Any] = [ddisp, sdisp, [s for s in sizes for _ in range(threads)]]
        theirs = (
            [source, ([mine] * threads, [i * mine for i in range(threads)]), MPI.BYTE],
            [result, (sizes, places), MPI.BYTE],
        )
        peer: Callable[..., object] = comm.Alltoallv
    else:
        call = xupc.all_gather_all_v
        lists = [ddisp, [j * room for j in range(threads)], sizes]
        theirs = ([source, mine, MPI.BYTE], [result, (sizes, places), MPI.BYTE])
        peer = comm.Allgatherv
    arguments = (dst, src, *map(tuple, lists))
    ends = src.local[: mine * pieces], dst.local[:whole]
    return [
        Candidate("xupc", call, arguments, *ends, content, expected),
        Candidate("xupc again", call, arguments, *ends, content, expected),
        Candidate("mpi", peer, theirs, source, result, content, expected),
        Candidate("plan", call.plan(*arguments), (), *ends, content, expected),
    ]
