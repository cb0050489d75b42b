"""Methods that xupc takes over and whose blocks have different sizes: the v forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.uneven_blocks import Array, wasteful
from . import uneven
from .decision import BY_TABLE, Ready, apart, in_place, root_of
from .messages import Message, as_bytes
from .slots import ROOM, Received, Slots, slots_of
from .truncation import truncated
from .vector_messages import Vector

__all__ = ["FORMS"]

_UNBALANCED = "one block is much longer than the others"


# --- sizes that are equal on all threads ---------------------------------------------------------


def _allgatherv(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    dst = Vector(recvbuf, comm.size, writes=True)
    src = None if in_place(sendbuf) else as_bytes(sendbuf, writes=False).array
    return Ready(sum(dst.sizes), _spread, (dst.blocks, src), dst)


def _spread(blocks: Sequence[Array], src: Array | None, team: Any) -> None:
    own = blocks[team.rank]
    sent = own.size if src is None else src.size
    if src is not None:
        n = min(sent, own.size)
        own[:n] = src[:n]
    uneven.spread(team, "Allgatherv", blocks)
    if sent != own.size:  # the other threads have what there was room for
        if sent < own.size:
            raise MPI.Exception(MPI.ERR_COUNT)
        raise truncated(f"this thread sends {sent} bytes, and its place has {own.size} bytes")


# --- sizes of a thread's own blocks --------------------------------------------------------------


class _Carried:
    """The result of a call of which MPI may carry the rest.

    Attributes
    ----------
    message
        What to unpack.
    """

    __slots__ = ("message",)

    def __init__(self, message: Message | Vector | None) -> None:
        self.message = message

    def unpack(self) -> None:
        """Copy a result to where the program wants it, unless MPI has done so."""
        if self.message is not None:
            self.message.unpack()


class _Call:
    """A call that starts on xupc: the first exchange decides for all threads where it ends."""

    def __init__(
        self, comm: Any, method: str, arguments: tuple[Any, ...], into: Message | Vector | None
    ) -> None:
        self.comm, self.method, self.arguments = comm, method, arguments
        self.result = _Carried(into)
        self.slots: Any = None

    def ready(self, call: Callable[..., None], *arguments: Any) -> Ready:
        """Return the call: how many bytes there are in all is not known yet."""
        return Ready(None, call, (self, *arguments), self.result)

    def exchange(
        self, team: Any, flow: str, blocks: Sequence[Array], root: int | None = None
    ) -> Received:
        """Send blocks in slots, and return those for this thread."""
        slots = self.slots = slots_of(self.comm, team, Slots, self.method, flow, root)
        found: Received = slots.exchange([(block[:ROOM], 2 * block.size) for block in blocks])
        return found

    def by_mpi(self, most: int, total: int) -> bool:
        """Have MPI carry the call where the table says so, or where xupc would move much more."""
        if wasteful(most, total, self.slots.messages):
            why = _UNBALANCED
        elif self.slots.by_mpi(total):
            why = BY_TABLE
        else:
            return False
        self.result.message = None
        self.comm._counts().went_to_mpi(self.method, total, why)
        getattr(MPI.Intracomm, self.method)(self.comm, *self.arguments)
        return True


def _gatherv(comm: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Ready:
    at, me = root_of(comm, root), comm.rank
    dst = Vector(recvbuf, comm.size, writes=True) if me == at else None
    if dst is not None and in_place(sendbuf):
        src = dst.blocks[me]
    else:
        src = as_bytes(sendbuf, writes=False).array
        if dst is not None:
            src = apart(src, dst.memory)
    call = _Call(comm, "Gatherv", (sendbuf, recvbuf, root), dst)
    return call.ready(_gather, src, None if dst is None else dst.blocks, at)


def _gather(call: _Call, src: Array, into: Sequence[Array] | None, root: int, team: Any) -> None:
    fits, most, total, numbers, bodies = call.exchange(team, "gather_all", [src], root)
    sizes = [number >> 1 for number in numbers]
    error = _too_long(into, sizes)
    if fits:
        _from_slots(into, bodies)
    elif call.by_mpi(most, total):
        return
    else:
        uneven.gather(team, call.method, src, _parts(into, sizes), root, most)
    if error is not None:
        raise error


def _scatterv(comm: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Ready:
    at, me = root_of(comm, root), comm.rank
    src = Vector(sendbuf, comm.size, writes=False) if me == at else None
    dst = None
    if src is None or not in_place(recvbuf):
        dst = as_bytes(recvbuf, writes=True)
    blocks = None if src is None else src.blocks
    if src is not None and dst is not None:
        blocks = _apart(src, dst.array)
    into = np.empty(0, np.uint8) if dst is None else dst.array
    call = _Call(comm, "Scatterv", (sendbuf, recvbuf, root), dst)
    return call.ready(_scatter, blocks, into, dst is None, at)


def _scatter(
    call: _Call, blocks: Sequence[Array] | None, into: Array, stays: bool, root: int, team: Any
) -> None:
    fits, most, total, numbers, bodies = call.exchange(team, "scatter", blocks or (), root)
    size = numbers[0] >> 1
    error = None if stays else _too_long([into], [size])
    part = into[:size]
    if fits:
        _from_slots([part], bodies)
    elif call.by_mpi(most, total):
        return
    else:
        uneven.scatter(team, call.method, blocks, part, root, most)
    if error is not None:
        raise error


def _alltoallv(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    dst = Vector(recvbuf, comm.size, writes=True)
    blocks = dst.blocks
    if not in_place(sendbuf):
        blocks = _apart(Vector(sendbuf, comm.size, writes=False), dst.memory)
    call = _Call(comm, "Alltoallv", (sendbuf, recvbuf), dst)
    return call.ready(_exchange, blocks, dst.blocks)


def _exchange(call: _Call, blocks: Sequence[Array], into: Sequence[Array], team: Any) -> None:
    fits, most, total, numbers, bodies = call.exchange(team, "exchange", blocks)
    sizes = [number >> 1 for number in numbers]
    error = _too_long(into, sizes)
    if fits:
        _from_slots(into, bodies)
    elif call.by_mpi(most, total):
        return
    else:
        uneven.exchange(team, call.method, blocks, _parts(into, sizes) or (), most)
    if error is not None:
        raise error


FORMS: dict[str, Callable[..., Ready]] = {
    "Allgatherv": _allgatherv, "Gatherv": _gatherv, "Scatterv": _scatterv,
    "Alltoallv": _alltoallv,
}  # fmt: skip


# --- blocks --------------------------------------------------------------------------------------


def _apart(src: Vector, dst: Array) -> list[Array]:
    """Return the blocks of `src`, or copies if they share memory with `dst`."""
    shared = np.may_share_memory(src.memory, dst)
    return [block.copy() for block in src.blocks] if shared else src.blocks


def _from_slots(into: Sequence[Array] | None, bodies: Sequence[bytes | None]) -> None:
    for block, body in zip(into or (), bodies, strict=False):
        n = min(block.size, len(body or b""))
        if n:
            block[:n] = np.frombuffer(body or b"", np.uint8, n)


def _parts(into: Sequence[Array] | None, sizes: Sequence[int]) -> list[Array] | None:
    """Return the part of each block that is written: MPI allows less than there is room for."""
    if into is None:
        return None
    return [block[:size] for block, size in zip(into, sizes, strict=True)]


def _too_long(into: Sequence[Array] | None, sizes: Sequence[int]) -> Exception | None:
    """Return MPI's error if more comes than there is room for."""
    if into is None:
        return None
    for block, size in zip(into, sizes, strict=True):
        if size > block.size:
            return truncated(f"a block of {size} bytes, a place of {block.size} bytes")
    return None
