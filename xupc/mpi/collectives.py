"""Methods that xupc takes over and that move data: each forms its messages, then decides.

A thread whose arguments are wrong calls mpi4py with the same arguments, which raises its own error;
such a call meets no other thread and does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..api.private_arrays import (
    allav_broadcast,
    allav_exchange,
    allav_gather,
    allav_gather_all,
    allav_scatter,
)
from . import reductions
from .decision import apart, check_blocks, in_place, root_of, team_of
from .messages import as_bytes
from .mismatch import carry

__all__ = ["CALLS"]

Run = Callable[..., Any]


def _barrier(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any) -> None:
        team = team_of(self, name, None)
        if team is None:
            run(self)
        else:
            carry(team.barrier)

    return method


def _bcast(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, buf: Any, root: int = 0) -> Any:
        try:
            at = root_of(self, root)
            message = as_bytes(buf, writes=self.rank != at)
        except Exception:
            return run(self, buf, root)
        team = team_of(self, name, message.array.nbytes)
        if team is None:
            return run(self, buf, root)
        carry(allav_broadcast, message.array, at, 0, team)
        return message.unpack()

    return method


def _gather(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        try:
            at = root_of(self, root)
            dst = _at_root(self, at, recvbuf, writes=True)
            if dst is None or not in_place(sendbuf):
                src = as_bytes(sendbuf, writes=False).array
            else:
                src = dst.array[dst.array.size // self.size * at :][: dst.array.size // self.size]
            if dst is not None:
                check_blocks(dst.array.size, src.size, self.size)
                src = apart(src, dst.array)
        except Exception:
            return run(self, sendbuf, recvbuf, root)
        team = team_of(self, name, src.nbytes)
        if team is None:
            return run(self, sendbuf, recvbuf, root)
        carry(allav_gather, None if dst is None else dst.array, src, at, 0, team)
        return None if dst is None else dst.unpack()

    return method


def _scatter(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        try:
            at = root_of(self, root)
            src = _at_root(self, at, sendbuf, writes=False)
            dst = None
            if src is None or not in_place(recvbuf):
                dst = as_bytes(recvbuf, writes=True)
                out = dst.array
            else:  # the root's block stays where it is
                out = np.empty(src.array.size // self.size, np.uint8)
            if src is not None:
                check_blocks(src.array.size, out.size, self.size)
        except Exception:
            return run(self, sendbuf, recvbuf, root)
        team = team_of(self, name, out.nbytes)
        if team is None:
            return run(self, sendbuf, recvbuf, root)
        carry(allav_scatter, out, None if src is None else apart(src.array, out), at, 0, team)
        return None if dst is None else dst.unpack()

    return method


def _at_root(comm: Any, root: int, described: Any, *, writes: bool) -> Any:
    """Return the root's message of all blocks; None on other threads, where it has no meaning."""
    if comm.rank != root:
        return None
    return as_bytes(described, writes=writes, blocks=comm.size)


def _allgather(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
        try:
            dst = as_bytes(recvbuf, writes=True, blocks=self.size)
            src = None if in_place(sendbuf) else as_bytes(sendbuf, writes=False).array
            block = dst.array.size // self.size if src is None else src.size
            check_blocks(dst.array.size, block, self.size)
        except Exception:
            return run(self, sendbuf, recvbuf)
        team = team_of(self, name, dst.array.nbytes)
        if team is None:
            return run(self, sendbuf, recvbuf)
        carry(allav_gather_all, dst.array, apart(src, dst.array), 0, team)
        return dst.unpack()

    return method


def _alltoall(name: str, run: Run) -> Run:
    @functools.wraps(run)
    def method(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
        try:
            dst = as_bytes(recvbuf, writes=True, blocks=self.size)
            src = None
            if not in_place(sendbuf):
                src = as_bytes(sendbuf, writes=False, blocks=self.size).array
                check_blocks(src.size, dst.array.size, 1)
            check_blocks(dst.array.size, dst.array.size // self.size, self.size)
        except Exception:
            return run(self, sendbuf, recvbuf)
        team = team_of(self, name, dst.array.nbytes)
        if team is None:
            return run(self, sendbuf, recvbuf)
        carry(allav_exchange, dst.array, apart(src, dst.array), 0, team)
        return dst.unpack()

    return method


CALLS = {
    "Barrier": _barrier, "barrier": _barrier, "Bcast": _bcast, "Gather": _gather,
    "Scatter": _scatter, "Allgather": _allgather, "Alltoall": _alltoall, **reductions.CALLS,
}  # fmt: skip
