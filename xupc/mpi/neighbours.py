"""Neighbourhood collectives that xupc takes over: plans for the topology of a communicator.

MPI demands equal blocks on all threads in `Neighbor_allgather` and `Neighbor_alltoall`, so threads
find the plan of a call by their own sizes. In v and w forms a thread knows only the sizes of
its own edges: there all threads agree first whether they repeat an earlier call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.neighbour_exchange import Block, exchange_instance
from ..api.neighbours import Neighbours
from ..api.private_arrays import allav_reduce_all
from ..backends.interpreter import interpreter as python_engine
from ..backends.native.native_core import core, empty_caches
from ..ops import Op
from .decision import Ready, apart, check_blocks
from .messages import Array, as_bytes
from .vector_messages import Vector
from .wide_messages import Wide

__all__ = ["FORMS", "Topology"]

_PLANS = 64
_NONE = Block(0, 0)
_CachedArrays: Any = python_engine.CachedArrays if core is None else core.CachedArrays

Key = tuple[Any, ...]


class Topology:
    """The neighbourhood of a communicator, and the plans of its calls.

    Attributes
    ----------
    sources, destinations
        Ranks, in MPI's order; PROC_NULL where there is no neighbour.
    isolated
        Whether some thread has no neighbours, so that it does not know the size of blocks.
    """

    def __init__(self, comm: Any) -> None:
        self.plain = type(comm).stands_for(comm)  # the same handle, without xupc's record
        self.sources, self.destinations = (list(ranks) for ranks in self.plain.inoutedges)
        self.isolated = False
        self._near: Neighbours | None = None
        self._equal: dict[Key, Any] = {}
        self._uneven: dict[Key, int] = {}
        self._numbered: list[Any] = []

    def near(self, team: Any) -> Neighbours:
        """Return the neighbourhood on a team of xupc; the first call is collective."""
        if self._near is None or self._near.state is not team.state:
            mine = np.arange(len(self.destinations), dtype="i4")
            match = np.full(len(self.sources), -1, "i4")
            self.plain.Neighbor_alltoall(mine, match)  # MPI itself pairs the blocks of both ends
            isolated = not (self.sources or self.destinations)
            self.isolated = bool(self.plain.allreduce(int(isolated), MPI.MAX))
            if self._near is not None:
                self._drop()
            self._near = Neighbours(team.state, self.sources, self.destinations, match.tolist())
        return self._near

    def equal(self, key: Key, into: Sequence[Block], of: Sequence[Block], team: Any) -> Any:
        """Return the instance of a call that is found by the same key on all threads."""
        near = self.near(team)
        if self.isolated:
            return self.uneven(into, of, team)
        found = self._equal.get(key)
        if found is None:
            if len(self._equal) == _PLANS:
                self._drop()
            found = self._equal[key] = _new_instance(near, into, of)
        return found

    def uneven(self, into: Sequence[Block], of: Sequence[Block], team: Any) -> Any:
        """Return the instance of a call whose sizes other threads do not know."""
        near, key = self.near(team), (*into, None, *of)
        number = self._uneven.get(key, -1)
        both = np.array([number, -number])
        least = np.empty_like(both)
        allav_reduce_all(least, both, Op.MIN, None, 0, team)
        if least[0] < 0 or least[0] != -least[1]:
            if len(self._numbered) == _PLANS:
                self._drop()
            number = len(self._numbered)
            self._numbered.append(_new_instance(near, into, of))
            self._uneven[key] = number
        return self._numbered[number]

    def _drop(self) -> None:
        """Forget all plans, on all threads in the same call."""
        for plans in (self._equal, self._uneven, self._numbered):
            plans.clear()
        empty_caches()  # the core keeps instances, too: all threads have to forget them together


def _new_instance(near: Neighbours, into: Sequence[Block], of: Sequence[Block]) -> Any:
    """Return a new instance; MPI's error on all threads if a block is too long for its place."""
    try:
        return exchange_instance(near, into, of)
    except ValueError as error:
        raise MPI.Exception(MPI.ERR_TRUNCATE) from error


# --- equal blocks ---------------------------------------------------------------------------------


class _Equal(_CachedArrays):  # type: ignore[misc]
    """A call with blocks of one size, side by side; sources and destinations may differ in it."""

    def __init__(self, *, one_block: bool) -> None:
        self.one_block = one_block

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make a call that is not in the cache."""
        dst, src, topology, team = args
        team.state.enter("Neighbor_allgather" if self.one_block else "Neighbor_alltoall")
        into = _in_a_row(topology.sources, dst.nbytes)
        of = _in_a_row(topology.destinations, src.nbytes, one=self.one_block)
        key = self.one_block, dst.nbytes if into else -1, src.nbytes if of else -1
        instance = topology.equal(key, into, of, team)
        if instance.owner.native and not topology.isolated:
            self.remember(args, kwargs, instance, dst, src, False)
        instance.rebind(dst.ctypes.data, src.ctypes.data)
        instance.execute()


_gather, _exchange = _Equal(one_block=True), _Equal(one_block=False)


def _in_a_row(ranks: Sequence[int], nbytes: int, *, one: bool = False) -> list[Block]:
    """Return a block for each neighbour: parts of so many bytes, or all of them."""
    each = nbytes if one or not ranks else nbytes // len(ranks)
    return [_NONE if r < 0 else Block(0 if one else i * each, each) for i, r in enumerate(ranks)]


def _topology(comm: Any) -> Topology:
    record = comm._counts()
    if record.topology is None:
        record.topology = Topology(comm)
    found: Topology = record.topology
    return found


def _side(described: Any, blocks: int, *, writes: bool) -> Any:
    """Return the message of one side; what a thread without neighbours there gives is ignored."""
    if not blocks:
        return as_bytes(np.empty(0, np.uint8), writes=writes)
    message = as_bytes(described, writes=writes, blocks=blocks)
    check_blocks(message.array.size, message.array.size // blocks, blocks)
    return message


def _neighbor_allgather(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _side(recvbuf, len(topology.sources), writes=True)
    src = as_bytes(sendbuf, writes=False).array
    if topology.sources and topology.destinations:
        check_blocks(dst.array.size, src.size, len(topology.sources))
    return _ready(_gather, topology, dst, src)


def _neighbor_alltoall(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _side(recvbuf, len(topology.sources), writes=True)
    src = _side(sendbuf, len(topology.destinations), writes=False).array
    return _ready(_exchange, topology, dst, src)


def _ready(call: _Equal, topology: Topology, dst: Any, src: Array) -> Ready:
    """Return the call; a thread without neighbours does not know whether there is data."""
    arguments = (dst.array, apart(src, dst.array), topology)
    return Ready(dst.array.nbytes or None, call, arguments, dst)


# --- blocks of different sizes --------------------------------------------------------------------


def _neighbor_allgatherv(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _blocks(Vector, recvbuf, topology.sources, writes=True)
    src = as_bytes(sendbuf, writes=False).array
    return _uneven(topology, dst, [src] * len(topology.destinations))


def _neighbor_alltoallv(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _blocks(Vector, recvbuf, topology.sources, writes=True)
    src = _blocks(Vector, sendbuf, topology.destinations, writes=False)
    return _uneven(topology, dst, src.blocks)


def _neighbor_alltoallw(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _blocks(Wide, recvbuf, topology.sources, writes=True)
    src = _blocks(Wide, sendbuf, topology.destinations, writes=False)
    return _uneven(topology, dst, src.blocks)


class _Nothing:
    """The message of a thread without neighbours on this side, whatever it gives."""

    blocks: tuple[Array, ...] = ()

    def unpack(self) -> None:
        """Do nothing."""


def _blocks(kind: Any, described: Any, ranks: Sequence[int], *, writes: bool) -> Any:
    """Return the blocks of a message with one for each neighbour."""
    return kind(described, len(ranks), writes=writes) if ranks else _Nothing()


def _uneven(topology: Topology, dst: Any, of: Sequence[Array]) -> Ready:
    return Ready(None, _carry, (dst.blocks, of, topology), dst)


def _carry(into: Sequence[Array], of: Sequence[Array], topology: Topology, team: Any) -> None:
    team.state.enter("Neighbor_alltoallv")
    here, there = _Memory(of, topology.destinations), _Memory(into, topology.sources)
    if np.may_share_memory(here.whole, there.whole):
        here.copy()
    here.fill()
    instance = topology.uneven(there.blocks, here.blocks, team)
    instance.rebind(there.whole.ctypes.data, here.whole.ctypes.data)
    instance.execute()
    there.empty()


class _Memory:
    """The blocks of one side: where they are, or a copy of all of them.

    Attributes
    ----------
    whole
        The memory that they are in.
    blocks
        Their places in it.
    """

    def __init__(self, arrays: Sequence[Array], ranks: Sequence[int]) -> None:
        self._arrays = [x for x, rank in zip(arrays, ranks, strict=True) if rank >= 0]
        self._ranks = ranks
        self._parts: list[Array] = []
        owners = {id(_owner(x)): _owner(x) for x in self._arrays if x.size}
        if len(owners) == 1:
            (self.whole,) = owners.values()
            self.blocks = self._places(self._arrays)
        else:
            self.copy()

    def copy(self) -> None:
        """Use a copy from now on."""
        sizes = [x.size for x in self._arrays]
        ends = list(accumulate(sizes))
        self.whole = np.empty(sum(sizes) + 1, np.uint8)
        self._parts = [self.whole[end - n : end] for end, n in zip(ends, sizes, strict=True)]
        self.blocks = self._places(self._parts)

    def _places(self, arrays: Sequence[Array]) -> list[Block]:
        base, found = self.whole.ctypes.data, iter(arrays)
        return [_NONE if rank < 0 else _place(next(found), base) for rank in self._ranks]

    def fill(self) -> None:
        """Copy the program's blocks into the copy."""
        for part, x in zip(self._parts, self._arrays, strict=False):
            part[...] = x

    def empty(self) -> None:
        """Copy the blocks of the copy to the program's."""
        for part, x in zip(self._parts, self._arrays, strict=False):
            x[...] = part


def _place(x: Array, base: int) -> Block:
    return Block(x.ctypes.data - base if x.size else 0, x.size)


def _owner(x: Array) -> Array:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


FORMS: dict[str, Callable[..., Ready]] = {
    "Neighbor_allgather": _neighbor_allgather, "Neighbor_alltoall": _neighbor_alltoall,
    "Neighbor_allgatherv": _neighbor_allgatherv, "Neighbor_alltoallv": _neighbor_alltoallv,
    "Neighbor_alltoallw": _neighbor_alltoallw,
}  # fmt: skip
