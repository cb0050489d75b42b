"""Methods that xupc takes over and that reduce: how each brings its messages into form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..flags import EXCLUSIVE
from ..ops import Op
from ..reduction.foreign_ops import as_op
from .decision import Ready, apart, check_blocks, in_place, may_overlap, root_of
from .descriptions import integers
from .messages import Message, as_elements
from .method_calls import call_of

__all__ = ["FORMS"]

_OPERATION = "an operation or a type that xupc does not combine"
_NO_COUNTS = "mpi4py itself has to exchange the counts"

_ALLREDUCE, _REDUCE = call_of("Allreduce", "reduce_all"), call_of("Reduce", "reduce")
_SCAN, _EXSCAN = call_of("Scan", "prefix_reduce"), call_of("Exscan", "prefix_reduce")
_REDUCE_SCATTER = call_of("Reduce_scatter", "reduce_scatter")
_REDUCE_SCATTER_BLOCK = call_of("Reduce_scatter_block", "reduce_scatter")
_REDUCE_ALL = call_of("Reduce_scatter", "reduce_all")


def _allreduce(comm: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Ready:
    dst, src, dtype = _operands(sendbuf, recvbuf)
    return _ready(_ALLREDUCE, dst.array, src, op, dtype, result=dst)


def _reduce(comm: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> Ready:
    at = root_of(comm, root)
    if comm.rank != at:
        message, dtype = as_elements(sendbuf, writes=False)
        return _ready(_REDUCE, None, message.array, op, dtype, at)
    dst, src, dtype = _operands(sendbuf, recvbuf)
    scratch = None
    if src is None:
        src, scratch = dst.array.copy(), ("operands", 0)
    ready = _ready(_REDUCE, dst.array, src, op, dtype, at, result=dst)
    return ready._replace(scratch=scratch)


def _scan(comm: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Ready:
    dst, src, dtype = _operands(sendbuf, recvbuf)
    return _ready(_SCAN, dst.array, src, op, dtype, result=dst)


def _exscan(comm: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Ready:
    dst, src, dtype = _operands(sendbuf, recvbuf)
    if comm.rank:
        return _ready(_EXSCAN, dst.array, src, op, dtype, flags=EXCLUSIVE, result=dst)
    unused = np.empty_like(dst.array)  # MPI leaves the first thread's result as it was
    if src is None:
        return _ready(_EXSCAN, unused, dst.array, op, dtype, flags=EXCLUSIVE)
    ready = _ready(_EXSCAN, unused, src, op, dtype, flags=EXCLUSIVE)
    return ready._replace(scratch=("result", 0))


def _reduce_scatter_block(comm: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Ready:
    dst, src, dtype = _blocks(sendbuf, recvbuf, comm.size, counted=True)
    out = dst.array[: src.size // comm.size]
    ready = _ready(_REDUCE_SCATTER_BLOCK, out, src, op, dtype, result=dst)
    return ready._replace(scratch=("operands", 0) if in_place(sendbuf) else None)


def _reduce_scatter(
    comm: Any, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
) -> Ready:
    if recvcounts is None:
        as_elements(recvbuf, writes=True)  # a wrong one meets no other thread
        return Ready(None, None, why=_NO_COUNTS)
    counts = _counts(recvcounts, comm.size)
    if len(set(counts)) > 1:
        return _unequal(comm.rank, sendbuf, recvbuf, counts, op)
    dst, src, dtype = _blocks(sendbuf, recvbuf, comm.size, counted=False)
    if dtype is not None:
        check_blocks(src.size, counts[0], comm.size)
    out = dst.array[: src.size // comm.size]
    return _ready(_REDUCE_SCATTER, out, src, op, dtype, result=dst)


def _unequal(rank: int, sendbuf: Any, recvbuf: Any, counts: list[int], op: Any) -> Ready:
    dst, dtype = as_elements(recvbuf, writes=True)
    src, given, own = dst.array, dtype, sum(counts)
    if not in_place(sendbuf):
        message, given = as_elements(sendbuf, writes=False)
        src, own = message.array, counts[rank]
    combine = _operation(op, dtype)
    if given != dtype:
        raise ValueError("operands and result differ in type")
    if combine is None:
        return Ready(src.nbytes, None, why=_OPERATION)
    check_blocks(src.size, sum(counts), 1)
    check_blocks(dst.array.size, own, 1)
    part = dst.array[: counts[rank]]
    return Ready(src.nbytes, _reduce_unequal, (part, src, counts, combine), dst)


def _reduce_unequal(dst: Any, src: Any, counts: list[int], op: Op, team: Any) -> None:
    """Reduce rows of equal blocks if they are not much longer than the operands, else all."""
    most, ends = max(counts), np.cumsum(counts)
    if most * team.size <= 2 * src.size:
        rows, out = np.zeros((team.size, most), src.dtype), np.empty(most, src.dtype)
        for row, end, count in zip(rows, ends, counts, strict=True):
            row[:count] = src[end - count : end]
        _REDUCE_SCATTER(out, rows.reshape(-1), op, None, 0, team)
    else:
        total, end = np.empty_like(src), ends[team.rank]
        _REDUCE_ALL(total, src, op, None, 0, team)
        out = total[end - dst.size : end]
    dst[...] = out[: dst.size]


FORMS: dict[str, Callable[..., Ready]] = {
    "Allreduce": _allreduce, "Reduce": _reduce, "Scan": _scan, "Exscan": _exscan,
    "Reduce_scatter": _reduce_scatter, "Reduce_scatter_block": _reduce_scatter_block,
}  # fmt: skip


def _ready(
    call: Any, dst: Any, src: Any, op: Any, dtype: Any, *root: int, flags: int = 0,
    result: Message | None = None,
) -> Ready:  # fmt: skip
    """Return a reduction that is in form: its size is that of the operands."""
    combine = _operation(op, dtype)
    nbytes = (dst if src is None else src).nbytes
    if combine is None:
        return Ready(nbytes, None, why=_OPERATION)
    return Ready(nbytes, call, (dst, src, combine, *root, None, flags), result)


# --- operands -----------------------------------------------------------------------------------


def _operands(sendbuf: Any, recvbuf: Any) -> tuple[Message, Any, Any]:
    """Return the result, this thread's operands, None if they are in place, and their type."""
    dst, dtype = as_elements(recvbuf, writes=True)
    return dst, None if in_place(sendbuf) else _addend(sendbuf, dst, dtype), dtype


def _addend(sendbuf: Any, dst: Message, dtype: Any) -> Any:
    """Return this thread's operands; None if they are in place."""
    message, given = as_elements(sendbuf, writes=False)
    src = message.array
    if given != dtype or src.size != dst.array.size:
        raise ValueError("operands and result differ in type or number")
    if dst.described is None and may_overlap(src, dst.array):
        same = src.ctypes.data == dst.array.ctypes.data
        return None if same else src.copy()
    return src


def _blocks(sendbuf: Any, recvbuf: Any, blocks: int, *, counted: bool) -> tuple[Message, Any, Any]:
    """Return the result, the operands of all blocks, and their type.

    In place the result's description is that of all blocks, of which MPI changes the first one.
    `counted`: an explicit count of all blocks is that of one block.
    """
    all_of = blocks if counted else 1
    if in_place(sendbuf):
        dst, dtype = as_elements(recvbuf, writes=True, blocks=all_of)
        src = dst.array.copy()
    else:
        dst, dtype = as_elements(recvbuf, writes=True)
        message, given = as_elements(sendbuf, writes=False, blocks=all_of)
        src = apart(message.array, dst.array)
        if given != dtype:
            raise ValueError("operands and result differ in type")
    block = src.size // blocks
    check_blocks(src.size, block, blocks)
    check_blocks(dst.array.size, src.size if in_place(sendbuf) else block, 1)
    return dst, src, dtype


def _counts(given: Any, size: int) -> list[int]:
    """Return the counts of the blocks of all threads."""
    found = integers(given, size)
    if min(found) < 0:
        raise ValueError(f"recvcounts: expected {size} counts, got {found}")
    return found


# --- operations ---------------------------------------------------------------------------------

# The kinds of types for which MPI has an operation (MPI 4.1, 6.9.2).
_KINDS = {
    Op.ADD: "iufc", Op.MULT: "iufc", Op.MAX: "iuf", Op.MIN: "iuf", Op.AND: "iu", Op.OR: "iu",
    Op.XOR: "iu", Op.LOGAND: "iub", Op.LOGOR: "iub",
}  # fmt: skip


def _operation(op: Any, dtype: Any) -> Op | None:
    """Return xupc's operation; None if it has none for this operation and type."""
    if not isinstance(op, MPI.Op):
        raise TypeError("op: expected an operation of mpi4py")
    combine = as_op(op)
    if dtype is None or not isinstance(combine, Op):
        return None
    return combine if dtype.kind in _KINDS.get(combine, "") else None
