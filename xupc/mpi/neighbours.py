"""Neighbourhood collectives that xupc takes over: plans for the topology of a communicator.

MPI demands equal blocks on all threads in `Neighbor_allgather` and `Neighbor_alltoall`, so threads
find the plan of a call by their own sizes. In v and w forms a thread has only the sizes of
its own edges: there all threads agree first whether they repeat an earlier call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from ..api.call_cache import CachedArrays
from ..api.neighbour_exchange import Block, exchange_instance
from ..api.neighbours import Neighbours
from ..backends.native.native_core import empty_caches
from ..ops import Op
from .decision import Ready, apart, check_blocks, may_overlap
from .messages import Array, as_bytes, for_blocks, size_of
from .method_calls import call_of
from .truncation import truncated
from .vector_messages import Vector
from .wide_messages import Wide

__all__ = ["FORMS", "Topology"]

_PLANS = 64
_DESCRIPTIONS = 256
_NONE = Block(0, 0)

Key = tuple[Any, ...]


class Topology:
    """The neighbourhood of a communicator, and the plans of its calls.

    Attributes
    ----------
    sources, destinations
        Ranks, in MPI's order; PROC_NULL where there is no neighbour.
    known
        The blocks of descriptions of v and w forms, with their number.
    isolated
        Whether some thread has no neighbours, so that it does not know the size of blocks.
    """

    def __init__(self, comm: Any) -> None:
        self.plain = type(comm).stands_for(comm)  # the same handle, without xupc's record
        self.sources, self.destinations = (list(ranks) for ranks in self.plain.inoutedges)
        self.isolated = False
        self.known: dict[Key, tuple[tuple[Block, ...], int]] = {}
        self._near: Neighbours | None = None
        self._equal: dict[Key, Any] = {}
        self._uneven: dict[Key, int] = {}
        self._numbered: list[Any] = []
        self._numbers: dict[tuple[Block, ...], int] = {}
        self._given, self._least = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def near(self, team: Any) -> Neighbours:
        """Return the neighbourhood on a team of xupc; the first call is collective."""
        if self._near is None or self._near.state is not team.state:
            mine = np.arange(len(self.destinations), dtype="i4")
            match = np.full(len(self.sources), -1, "i4")
            # MPI itself pairs the blocks of both ends; Open MPI compares the two counts
            self.plain.Neighbor_alltoall([mine, 1, MPI.INT], [match, 1, MPI.INT])
            isolated = not (self.sources or self.destinations)
            self.isolated = any(self.plain.allgather(isolated))
            if self._near is not None:
                self._drop()
            self._near = Neighbours(team.state, self.sources, self.destinations, match.tolist())
        return self._near

    def equal(
        self, method: str, sizes: Key, into: Sequence[Block], of: Sequence[Block], team: Any
    ) -> Any:
        """Return the instance of a call that is found by the same sizes on all threads."""
        near = self.near(team)
        if self.isolated:
            return self.uneven(method, self._places(into), self._places(of), team)
        found = self._equal.get((method, sizes))
        if found is None:
            if len(self._equal) == _PLANS:
                self._drop()
            found = self._equal[method, sizes] = _new_instance(near, into, of, method)
        return found

    def uneven(self, method: str, into: _Places, of: _Places, team: Any) -> Any:
        """Return the instance of a call whose sizes other threads do not know."""
        near, key = self.near(team), (into.number, of.number)
        number = self._uneven.get(key, -1)
        self._given[:] = number, -number
        call_of(method, "reduce_all")(self._least, self._given, Op.MIN, None, 0, team)
        least, most = self._least.tolist()
        if least < 0 or least != -most:
            if len(self._numbered) == _PLANS:
                self._drop()
                key = self.number_of(into.blocks), self.number_of(of.blocks)
            number = len(self._numbered)
            self._numbered.append(_new_instance(near, into.blocks, of.blocks, method))
            self._uneven[key] = number
        return self._numbered[number]

    def _places(self, blocks: Sequence[Block]) -> _Places:
        return _Places(_NO_BYTES, tuple(blocks), self.number_of(tuple(blocks)))

    def number_of(self, blocks: tuple[Block, ...]) -> int:
        """Return the number of some blocks, which is this thread's own."""
        return self._numbers.setdefault(blocks, len(self._numbers))

    def _drop(self) -> None:
        """Forget all plans, on all threads in the same call."""
        for plans in (self._equal, self._uneven, self._numbered, self.known, self._numbers):
            plans.clear()
        empty_caches()  # the core keeps instances, too: all threads have to forget them together


def _new_instance(near: Neighbours, into: Sequence[Block], of: Sequence[Block], method: str) -> Any:
    """Return a new instance; MPI's error on all threads if a block is too long for its place."""
    try:
        return exchange_instance(near, into, of, method)
    except ValueError as error:
        raise truncated(str(error)) from error


# --- equal blocks ---------------------------------------------------------------------------------


class _Equal(CachedArrays):  # type: ignore[misc]
    """A call with blocks of one size, side by side; sources and destinations may differ in it."""

    def __init__(self, method: str, *, one_block: bool) -> None:
        self.method, self.one_block = method, one_block

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make a call that is not in the cache."""
        dst, src, topology, team = args
        team.state.enter(self.method)
        into = _in_a_row(topology.sources, dst.nbytes)
        of = _in_a_row(topology.destinations, src.nbytes, one=self.one_block)
        sizes = dst.nbytes if into else -1, src.nbytes if of else -1
        instance = topology.equal(self.method, sizes, into, of, team)
        if instance.owner.native and not topology.isolated:
            self.remember(args, kwargs, instance, dst, src, False)
        instance.rebind(dst.ctypes.data, src.ctypes.data)
        instance.execute()


_gather = _Equal("Neighbor_allgather", one_block=True)
_exchange = _Equal("Neighbor_alltoall", one_block=False)


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
        dst = for_blocks(dst, src.size, len(topology.sources))
    return _ready(_gather, topology, dst, src)


def _neighbor_alltoall(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
    topology = _topology(comm)
    dst = _side(recvbuf, len(topology.sources), writes=True)
    src = _side(sendbuf, len(topology.destinations), writes=False).array
    return _ready(_exchange, topology, dst, src)


def _ready(call: _Equal, topology: Topology, dst: Any, src: Array) -> Ready:
    """Return the call. No size decides: that of a thread without neighbours is unknown."""
    arguments = (dst.array, apart(src, dst.array), topology)
    return Ready(None, call, arguments, dst)


# --- blocks of different sizes --------------------------------------------------------------------


class _Places:
    """Where the blocks of one side are in an array, and their number among those of the topology.

    Attributes
    ----------
    whole
        The array.
    blocks, number
        Equal numbers mean equal blocks.
    """

    def __init__(self, whole: Array, blocks: tuple[Block, ...], number: int) -> None:
        self.whole, self.blocks, self.number = whole, blocks, number

    def fill(self) -> None:
        """Do nothing: the blocks are in the program's memory."""

    def unpack(self) -> None:
        """Do nothing: the blocks are in the program's memory."""


class _Copies(_Places):
    """A copy of the blocks of one side."""

    def __init__(self, topology: Topology, ranks: Sequence[int], message: Any) -> None:
        self._message = message
        self._arrays = [x for x, rank in zip(message.blocks, ranks, strict=True) if rank >= 0]
        sizes = [x.size for x in self._arrays]
        ends = list(accumulate(sizes))
        whole = np.empty(sum(sizes) + 1, np.uint8)
        self._parts = [whole[end - n : end] for end, n in zip(ends, sizes, strict=True)]
        places = iter([Block(end - n, n) for end, n in zip(ends, sizes, strict=True)])
        blocks = tuple([_NONE if rank < 0 else next(places) for rank in ranks])
        super().__init__(whole, blocks, topology.number_of(blocks))

    def fill(self) -> None:
        """Copy the program's blocks into the copy."""
        for part, x in zip(self._parts, self._arrays, strict=True):
            part[...] = x

    def unpack(self) -> None:
        """Copy the blocks of the copy to the program's."""
        for part, x in zip(self._parts, self._arrays, strict=True):
            x[...] = part
        self._message.unpack()


class _OneBlock:
    """The message of a thread that gives the same block to all of its destinations."""

    def __init__(self, described: Any, blocks: int, *, writes: bool) -> None:
        self.memory = as_bytes(described, writes=writes).array
        self.blocks = [self.memory] * blocks

    def unpack(self) -> None:
        """Do nothing: it is sent."""


def _side_of(
    topology: Topology, kind: Any, described: Any, ranks: Sequence[int], *, writes: bool
) -> _Places:
    """Return the blocks of one side; those of a description like an earlier one are known."""
    if not ranks and kind is not _OneBlock:
        return _Places(_NO_BYTES, (), topology.number_of(()))  # whatever the program gives
    key = _key_of(described, writes)
    if key is not None and (known := topology.known.get((kind, writes, key))):
        return _Places(described[0] if type(described) is list else described, *known)
    message = kind(described, len(ranks), writes=writes)
    if not message.memory.size:
        return _Copies(topology, ranks, message)
    base, given = message.memory.ctypes.data, zip(message.blocks, ranks, strict=True)
    blocks = tuple([
        Block(x.ctypes.data - base, x.size) if rank >= 0 and x.size else _NONE for x, rank in given
    ])  # fmt: skip
    number = topology.number_of(blocks)
    array = described[0] if type(described) is list else described
    if key is not None and array.ctypes.data == base:
        if len(topology.known) == _DESCRIPTIONS:
            topology.known.clear()
        topology.known[kind, writes, key] = blocks, number
    return _Places(message.memory, blocks, number)


_NO_BYTES = np.empty(0, np.uint8)


def _key_of(described: Any, writes: bool) -> Key | None:
    """Return what decides where the blocks are, but for the address of an array; None if unknown.

    It is None unless the description is an array, or a list of an array, lists of ints and a
    datatype that the program cannot change.
    """
    rest: list[Any] = []
    array = described
    if type(described) is list and described:
        array, *rest = described
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return None
    key: list[Any] = [array.dtype, array.nbytes, array.flags.writeable or not writes]
    for x in rest:
        for part in x if type(x) is tuple else (x,):
            if type(part) is list and all(type(n) is int for n in part):
                key.append(tuple(part))
            elif type(part) is MPI.Datatype and size_of(part):
                key.append(MPI._handleof(part))
            elif type(part) is np.ndarray and part.dtype.kind in "iu":
                key.append((part.dtype, part.tobytes()))
            else:
                return None
        key.append(type(x))
    return tuple(key)


def _carry(method: str, into: _Places, of: _Places, topology: Topology, team: Any) -> None:
    of.fill()
    instance = topology.uneven(method, into, of, team)
    instance.rebind(into.whole.ctypes.data, of.whole.ctypes.data)
    instance.execute()


def _uneven(method: str, kind_of_dst: Any, kind_of_src: Any) -> Callable[..., Ready]:
    """Return what brings the messages of a method into form."""

    def form(comm: Any, sendbuf: Any, recvbuf: Any) -> Ready:
        topology = _topology(comm)
        into = _side_of(topology, kind_of_dst, recvbuf, topology.sources, writes=True)
        ranks = topology.destinations
        of = _side_of(topology, kind_of_src, sendbuf, ranks, writes=False)
        if may_overlap(of.whole, into.whole):
            of = _Copies(topology, ranks, kind_of_src(sendbuf, len(ranks), writes=False))
        return Ready(None, _carry, (method, into, of, topology), into)

    return form


FORMS: dict[str, Callable[..., Ready]] = {
    "Neighbor_allgather": _neighbor_allgather, "Neighbor_alltoall": _neighbor_alltoall,
    "Neighbor_allgatherv": _uneven("Neighbor_allgatherv", Vector, _OneBlock),
    "Neighbor_alltoallv": _uneven("Neighbor_alltoallv", Vector, Vector),
    "Neighbor_alltoallw": _uneven("Neighbor_alltoallw", Wide, Wide),
}  # fmt: skip
