"""Methods that xupc takes over and that move data: how each brings its messages into form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import neighbours, nonblocking, objects, reductions, vectors
from .decision import Ready, apart, in_place, root_of, taken_over
from .messages import as_bytes, for_blocks
from .method_calls import call_of

__all__ = ["CALLS", "FORMS"]

_BCAST, _GATHER = call_of("Bcast", "broadcast"), call_of("Gather", "gather")
_SCATTER, _ALLGATHER = call_of("Scatter", "scatter"), call_of("Allgather", "gather_all")
_ALLTOALL = call_of("Alltoall", "exchange")


def _barrier(_comm: Any) -> Ready:
    return Ready(None, _meet)


def _meet(team: Any) -> None:
    team.barrier()


def _bcast(comm: Any, buf: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    message = as_bytes(buf, writes=comm.rank != at)
    return Ready(message.array.nbytes, _BCAST, (message.array, at, 0), message)


def _gather(comm: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    if comm.rank != at:
        src = as_bytes(sendbuf, writes=False).array
        return Ready(src.nbytes, _GATHER, (None, src, at, 0))
    dst = as_bytes(recvbuf, writes=True, blocks=comm.size)
    scratch = None
    if in_place(sendbuf):
        block = dst.array.size // comm.size
        src, scratch = dst.array[block * at : block * (at + 1)].copy(), ("operands", block * at)
    else:
        src = as_bytes(sendbuf, writes=False).array
    dst = for_blocks(dst, src.size, comm.size)
    arguments = (dst.array, apart(src, dst.array), at, 0)
    return Ready(src.nbytes, _GATHER, arguments, dst, scratch=scratch)


def _scatter(comm: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    if comm.rank != at:
        dst = as_bytes(recvbuf, writes=True)
        return Ready(dst.array.nbytes, _SCATTER, (dst.array, None, at, 0), dst)
    src = as_bytes(sendbuf, writes=False, blocks=comm.size).array
    scratch = None
    if in_place(recvbuf):  # the root's block stays where it is
        result, out, scratch = None, np.empty(src.size // comm.size, np.uint8), ("result", 0)
    else:
        result = for_blocks(as_bytes(recvbuf, writes=True), src.size // comm.size, 1)
        out = result.array
    arguments = (out, apart(src, out), at, 0)
    return Ready(out.nbytes, _SCATTER, arguments, result, scratch=scratch)


def _allgather(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    dst = as_bytes(recvbuf, writes=True, blocks=comm.size)
    src = None
    if not in_place(sendbuf):
        src = as_bytes(sendbuf, writes=False).array
        dst = for_blocks(dst, src.size, comm.size)
    arguments = (dst.array, apart(src, dst.array), 0)
    return Ready(dst.array.nbytes, _ALLGATHER, arguments, dst)


def _alltoall(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    dst = as_bytes(recvbuf, writes=True, blocks=comm.size)
    src = None
    if not in_place(sendbuf):
        src = as_bytes(sendbuf, writes=False, blocks=comm.size).array
        dst = for_blocks(dst, src.size // comm.size, comm.size)
    return Ready(dst.array.nbytes, _ALLTOALL, (dst.array, apart(src, dst.array), 0), dst)


_FORMS: dict[str, Callable[..., Ready]] = {
    "Barrier": _barrier, "barrier": _barrier, "Bcast": _bcast, "Gather": _gather,
    "Scatter": _scatter, "Allgather": _allgather, "Alltoall": _alltoall, **reductions.FORMS,
    **vectors.FORMS, **neighbours.FORMS,
}  # fmt: skip
_POSTED = {name: _FORMS[blocking] for name, blocking in nonblocking.BLOCKING.items()}
CALLS = {name: taken_over(form) for name, form in _FORMS.items()} | objects.CALLS
CALLS |= {name: nonblocking.posted(form) for name, form in _POSTED.items()}
FORMS = _FORMS | _POSTED | objects.FORMS
"""What brings the messages of each method into form; it raises an error if one is wrong."""
