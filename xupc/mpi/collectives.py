"""The methods that xupc takes over: each brings its message into form, then decides.

A thread whose arguments are wrong calls mpi4py with the same arguments, which raises its own error;
such a call meets no other thread and does not count.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.private_arrays import allav_broadcast, allav_gather_all, allav_reduce_all
from ..ops import Op
from .carrier import team_for
from .messages import Message, as_bytes, as_elements

__all__ = ["CALLS"]

Run = Callable[..., Any]

_EMPTY = "no data"
_OPERATION = "an operation or a type that xupc does not combine"


def _barrier(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any) -> None:
        team = _team(self, name, None)
        if team is None:
            run(self)
        else:
            team.barrier()

    return method


def _bcast(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, buf: Any, root: int = 0) -> Any:
        try:
            at = _root(self, root)
            message = as_bytes(buf, writes=self.rank != at)
        except Exception:
            return run(self, buf, root)
        team = _team(self, name, message.array.nbytes)
        if team is None:
            return run(self, buf, root)
        allav_broadcast(message.array, at, 0, team)
        return message.unpack()

    return method


def _allgather(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
        try:
            dst = as_bytes(recvbuf, writes=True, blocks=self.size)
            src = None if _in_place(sendbuf) else as_bytes(sendbuf, writes=False).array
            _check_blocks(dst.array.size, src, self.size)
        except Exception:
            return run(self, sendbuf, recvbuf)
        team = _team(self, name, dst.array.nbytes)
        if team is None:
            return run(self, sendbuf, recvbuf)
        allav_gather_all(dst.array, _apart(src, dst.array), 0, team)
        return dst.unpack()

    return method


def _allreduce(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Any:
        try:
            dst, dtype = as_elements(recvbuf, writes=True)
            src = None if _in_place(sendbuf) else _addend(sendbuf, dst, dtype)
            combine = _operation(op, dtype)
        except Exception:
            return run(self, sendbuf, recvbuf, op)
        why = _OPERATION if combine is None else ""
        team = _team(self, name, dst.array.nbytes, why)
        if team is None or combine is None:
            return run(self, sendbuf, recvbuf, op)
        allav_reduce_all(dst.array, src, combine, None, 0, team)
        return dst.unpack()

    return method


CALLS = {
    "Barrier": _barrier, "barrier": _barrier, "Bcast": _bcast, "Allgather": _allgather,
    "Allreduce": _allreduce,
}  # fmt: skip


# --- the decision -------------------------------------------------------------------------------


def _team(comm: Any, method: str, nbytes: int | None, why: str = "") -> Any:
    """Count a call, and return the team that carries it; None if MPI does.

    `nbytes` is None for a call without data, `why` a reason for MPI that all threads have.
    """
    record = comm._counts()
    team = team_for(comm, record)
    if team is None:
        why = record.refused
    elif nbytes == 0:
        why = why or _EMPTY
    record.note(method, nbytes or 0, "MPI" if why else "xupc", why)
    return None if why else team


def _root(comm: Any, root: Any) -> int:
    """Return a root as an int; ValueError if there is no such thread."""
    rank = operator.index(root)
    if not 0 <= rank < comm.size:
        raise ValueError(f"root: expected 0 <= root < {comm.size}, got {rank}")
    return rank


def _check_blocks(whole: int, src: Any, blocks: int) -> None:
    block = whole // blocks if src is None else src.size
    if whole != block * blocks:
        raise ValueError(f"expected {blocks} blocks of {block} bytes, got {whole} bytes")


def _in_place(described: Any) -> bool:
    return described is None or described is MPI.IN_PLACE


def _apart(src: Any, dst: Any) -> Any:
    """Return `src`, or a copy if it shares memory with `dst`."""
    return src.copy() if src is not None and np.may_share_memory(src, dst) else src


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
