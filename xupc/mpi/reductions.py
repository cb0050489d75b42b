"""The methods that xupc takes over and that reduce, as `collectives` has those that move data."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.private_arrays import (
    allav_prefix_reduce,
    allav_reduce,
    allav_reduce_all,
    allav_reduce_scatter,
)
from ..flags import EXCLUSIVE
from ..ops import Op
from .decision import apart, check_blocks, in_place, root_of, team_of
from .messages import Message, as_elements
from .mismatch import carry

__all__ = ["CALLS"]

Run = Callable[..., Any]

_OPERATION = "an operation or a type that xupc does not combine"
_UNEQUAL = "blocks of different sizes"
_NO_COUNTS = "mpi4py itself has to exchange the counts"


def _allreduce(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Any:
        try:
            dst, dtype = as_elements(recvbuf, writes=True)
            src = None if in_place(sendbuf) else _addend(sendbuf, dst, dtype)
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, op)
        team = team_of(self, name, dst.array.nbytes, _why(combine))
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, op)
        carry(allav_reduce_all, dst.array, src, combine, None, 0, team)
        return dst.unpack()

    return method


def _reduce(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> Any:
        try:
            at = root_of(self, root)
            if self.rank == at:
                dst, dtype = as_elements(recvbuf, writes=True)
                src = None if in_place(sendbuf) else _addend(sendbuf, dst, dtype)
                src = dst.array.copy() if src is None else src
            else:
                message, dtype = as_elements(sendbuf, writes=False)
                dst, src = None, message.array
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, op, root)
        team = team_of(self, name, src.nbytes, _why(combine))
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, op, root)
        carry(allav_reduce, None if dst is None else dst.array, src, combine, at, None, 0, team)
        return None if dst is None else dst.unpack()

    return method


def _scan(name: str, run: Run, flags: int = 0) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Any:
        try:
            dst, dtype = as_elements(recvbuf, writes=True)
            src = None if in_place(sendbuf) else _addend(sendbuf, dst, dtype)
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, op)
        team = team_of(self, name, dst.array.nbytes, _why(combine))
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, op)
        if flags and self.rank == 0:  # MPI leaves its result as it was
            src = dst.array if src is None else src
            carry(allav_prefix_reduce, np.empty_like(dst.array), src, combine, None, flags, team)
            return None
        carry(allav_prefix_reduce, dst.array, src, combine, None, flags, team)
        return dst.unpack()

    return method


def _exscan(name: str, run: Run) -> Run:
    return _scan(name, run, EXCLUSIVE)


def _reduce_scatter_block(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Any:
        try:
            dst, src, dtype = _blocks(sendbuf, recvbuf, self.size, counted=True)
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, op)
        team = team_of(self, name, src.nbytes, _why(combine))
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, op)
        return _scattered(dst, src, combine, team)

    return method


def _reduce_scatter(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(
        self: Any, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = MPI.SUM
    ) -> Any:
        try:
            counts, why = _counts(recvcounts, self.size)
            if why:  # a wrong description of a message meets no other thread, as below
                as_elements(recvbuf, writes=True)
        except Exception:
            return run(self, sendbuf, recvbuf, recvcounts, op)
        if why:
            team_of(self, name, None, why)
            return run(self, sendbuf, recvbuf, recvcounts, op)
        try:
            dst, src, dtype = _blocks(sendbuf, recvbuf, self.size, counted=False)
            if dtype is not None:
                check_blocks(src.size, counts[0], self.size)
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, recvcounts, op)
        team = team_of(self, name, src.nbytes, _why(combine))
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, recvcounts, op)
        return _scattered(dst, src, combine, team)

    return method


CALLS = {
    "Allreduce": _allreduce, "Reduce": _reduce, "Scan": _scan, "Exscan": _exscan,
    "Reduce_scatter": _reduce_scatter, "Reduce_scatter_block": _reduce_scatter_block,
}  # fmt: skip


# --- operands -----------------------------------------------------------------------------------


def _addend(sendbuf: Any, dst: Message, dtype: Any) -> Any:
    """Return this thread's operands; None if they are in place."""
    message, given = as_elements(sendbuf, writes=False)
    src = message.array
    if given != dtype or src.size != dst.array.size:
        raise ValueError("operands and result differ in type or number")
    if dst.described is None and np.may_share_memory(src, dst.array):
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


def _scattered(dst: Message, src: Any, combine: Op, team: Any) -> None:
    """Reduce, and put this thread's block at the beginning of the result."""
    out = dst.array[: src.size // team.size]
    carry(allav_reduce_scatter, out, src, combine, None, 0, team)
    dst.unpack()


def _counts(given: Any, size: int) -> tuple[list[int], str]:
    """Return the counts of the blocks of all threads, and why MPI carries the call, or ""."""
    if given is None:
        return [], _NO_COUNTS
    counts = [operator.index(count) for count in given]
    if len(counts) != size or min(counts) < 0:
        raise ValueError(f"recvcounts: expected {size} counts, got {counts}")
    return counts, "" if len(set(counts)) == 1 else _UNEQUAL


# --- operations ---------------------------------------------------------------------------------

# MPI's operation: xupc's, and the kinds of types for which MPI has it (MPI 4.1, 6.9.2).
_OPS = {
    "SUM": (Op.ADD, "iufc"), "PROD": (Op.MULT, "iufc"), "MAX": (Op.MAX, "iuf"),
    "MIN": (Op.MIN, "iuf"), "BAND": (Op.AND, "iu"), "BOR": (Op.OR, "iu"), "BXOR": (Op.XOR, "iu"),
    "LAND": (Op.LOGAND, "iub"), "LOR": (Op.LOGOR, "iub"),
}  # fmt: skip


@functools.cache
def _ops() -> dict[int, tuple[Op, str]]:
    return {MPI._handleof(getattr(MPI, name)): found for name, found in _OPS.items()}


def _operation(op: Any, dtype: Any) -> Op | None:
    """Return xupc's operation; None if it has none for this operation and type."""
    if not isinstance(op, MPI.Op):
        raise TypeError("op: expected an operation of mpi4py")
    combine, kinds = _ops().get(MPI._handleof(op), (None, ""))
    return combine if dtype is not None and dtype.kind in kinds else None


def _why(combine: Op | None) -> str:
    return _OPERATION if combine is None else ""
