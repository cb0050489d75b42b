"""Methods that xupc takes over and that move Python objects.

The first exchange of a call is a slot of each thread with the length of its pickle, and the pickle
itself if it is short. From then on all threads have the sizes of all, and longer pickles follow,
then large buffers, from the memory of one object to that of the other.

A reduction gathers the objects and combines them in mpi4py's order, so that results are equal also
for operations that are not associative.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

from ..api.private_arrays import allav_broadcast
from ..api.uneven_blocks import empty
from . import uneven
from .decision import Method, Ready, root_of, taken_over
from .pickles import HEAD, Parcel, dump, in_band, load, room, table
from .uneven import SLOT

__all__ = ["CALLS", "FORMS"]

_ROOM = SLOT - HEAD.size
_TWO = Struct("2q")  # the length of the longest pickle, that of this one
_TREE = "many threads combine large objects faster two by two"
_FEW, _LARGE = 4, 1 << 16  # threads, and bytes of an object, up to which all combine all


class _Value:
    """The object that a call returns."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def unpack(self) -> Any:
        """Return it."""
        return self.value


def _ready(call: Callable[..., Any], *arguments: Any) -> Ready:
    """Return a call of which `call` returns the result."""
    result = _Value()

    def run(team: Any) -> None:
        result.value = call(team, *arguments)

    return Ready(None, run, (), result)


def _bcast(comm: Any, obj: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    return _ready(_broadcast, dump(obj) if comm.rank == at else None, at)


def _gather(comm: Any, sendobj: Any, root: int = 0) -> Ready:
    return _ready(_to_root, in_band(sendobj), root_of(comm, root))


def _scatter(comm: Any, sendobj: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    return _ready(_from_root, _pickles(sendobj, comm.size) if comm.rank == at else None, at)


def _allgather(comm: Any, sendobj: Any) -> Ready:
    return _ready(_of_all, dump(sendobj))


def _alltoall(comm: Any, sendobj: Any) -> Ready:
    return _ready(_exchange, _pickles(sendobj, comm.size))


def _pickles(objects: Any, size: int) -> list[bytes]:
    """Return the pickles of objects for all threads; None stands for one None for each."""
    items = [None] * size if objects is None else list(objects)
    if len(items) != size:
        raise ValueError(f"expected {size} items, got {len(items)}")
    return [in_band(item) for item in items]


# --- moves --------------------------------------------------------------------------------------


def _broadcast(team: Any, parcel: Parcel | None, root: int) -> Any:
    slot = empty(SLOT)
    if parcel is not None:
        slot = np.frombuffer(uneven.slot(HEAD, parcel.body, parcel.number), np.uint8)
    allav_broadcast(slot, root, 0, team)
    (number,) = HEAD.unpack_from(slot.data)
    length = number >> 1
    if parcel is not None:
        body = np.frombuffer(parcel.body, np.uint8)
    else:
        body = slot[HEAD.size : HEAD.size + length] if length <= _ROOM else empty(length)
    if length > _ROOM:
        uneven.broadcast(team, body, root)
    if not number & 1:
        return load(body)
    if parcel is not None:
        for buffer in parcel.buffers:
            uneven.broadcast(team, buffer, root)
        return load(body, [bytearray(buffer) for buffer in parcel.buffers])
    memory = [room(size) for size in table(body)]
    for beside in memory:
        uneven.broadcast(team, np.frombuffer(beside, np.uint8), root)
    return load(body, memory)


def _heads(slots: Sequence[memoryview]) -> list[int]:
    return [HEAD.unpack_from(slot)[0] for slot in slots]


def _bodies(slots: Sequence[memoryview], lengths: Sequence[int]) -> list[Any]:
    """Return what is in the slots, or memory for what does not fit into one."""
    return [
        slot[HEAD.size : HEAD.size + n] if n <= _ROOM else empty(n)
        for slot, n in zip(slots, lengths, strict=True)
    ]


def _to_root(team: Any, data: bytes, root: int) -> list[Any] | None:
    slots = uneven.gather_all_slots(team, uneven.slot(HEAD, data, len(data)))
    lengths = _heads(slots)
    most, into = max(lengths), None
    if team.rank == root:
        into = [np.asarray(body) for body in _bodies(slots, lengths)]
    if most > _ROOM:
        if into is not None:
            into = [empty(n) for n in lengths]
        uneven.gather(team, np.frombuffer(data, np.uint8), into, root, most)
    return None if into is None else [load(body) for body in into]


def _from_root(team: Any, pickles: list[bytes] | None, root: int) -> Any:
    slots = None
    if pickles is not None:
        most = max(len(data) for data in pickles)
        slots = [uneven.slot(_TWO, data, most, len(data)) for data in pickles]
    mine = uneven.scatter_slots(team, slots, root)
    most, length = _TWO.unpack_from(mine)
    if most <= SLOT - _TWO.size:
        return load(mine[_TWO.size : _TWO.size + length])
    body = empty(length)
    blocks = None if pickles is None else [np.frombuffer(x, np.uint8) for x in pickles]
    uneven.scatter(team, blocks, body, root, most)
    return load(body)


def _exchange(team: Any, pickles: list[bytes]) -> list[Any]:
    most = max(len(data) for data in pickles)
    mine = [uneven.slot(_TWO, data, most, len(data)) for data in pickles]
    slots = uneven.exchange_slots(team, mine)
    heads = [_TWO.unpack_from(slot) for slot in slots]
    most = max(head[0] for head in heads)
    if most <= SLOT - _TWO.size:
        return [
            load(slot[_TWO.size : _TWO.size + n]) for slot, (_, n) in zip(slots, heads, strict=True)
        ]
    bodies = [empty(n) for _, n in heads]
    uneven.exchange(team, [np.frombuffer(x, np.uint8) for x in pickles], bodies, most)
    return [load(body) for body in bodies]


def _of_all(team: Any, parcel: Parcel) -> list[Any]:
    return _gathered(team, parcel, *_slots_of_all(team, parcel), team.size)


def _slots_of_all(team: Any, parcel: Parcel) -> tuple[list[memoryview], list[int]]:
    slots = uneven.gather_all_slots(team, uneven.slot(HEAD, parcel.body, parcel.number))
    return slots, _heads(slots)


def _gathered(
    team: Any, parcel: Parcel, slots: Sequence[memoryview], numbers: Sequence[int], upto: int
) -> list[Any]:
    """Return the objects of threads 0 to `upto` - 1, after the first exchange of all."""
    me, lengths = team.rank, [number >> 1 for number in numbers]
    bodies = _bodies(slots, lengths)
    bodies[me] = np.frombuffer(parcel.body, np.uint8)
    if max(lengths) > _ROOM:
        long = [body if n > _ROOM else empty(0) for body, n in zip(bodies, lengths, strict=True)]
        uneven.spread(team, long)
    if not any(number & 1 for number in numbers):
        return [load(body) for body in bodies[:upto]]
    buffers = _buffers(team, parcel, bodies, numbers)
    return [
        load(body, beside if number & 1 else None)
        for body, beside, number in zip(bodies[:upto], buffers, numbers, strict=False)
    ]


def _buffers(
    team: Any, parcel: Parcel, bodies: Sequence[Any], numbers: Sequence[int]
) -> list[list[bytearray]]:
    """Return the buffers of all threads: the first ones of all, then the second ones, ..."""
    sizes = [table(b) if number & 1 else [] for b, number in zip(bodies, numbers, strict=True)]
    memory = [[room(size) for size in each] for each in sizes]
    found = [[np.frombuffer(each, np.uint8) for each in some] for some in memory]
    found[team.rank] = list(parcel.buffers)
    for some in itertools.zip_longest(*found, fillvalue=empty(0)):
        uneven.spread(team, some)
    memory[team.rank] = [bytearray(buffer) for buffer in parcel.buffers]
    return memory


# --- reductions ---------------------------------------------------------------------------------


Combine = Callable[[list[Any], Any], Any]


def _allreduce(comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Ready:
    return _reduction(comm, "allreduce", _fold, comm.size, sendobj, op)


def _reduce(comm: Any, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Ready:
    items = comm.size if comm.rank == root_of(comm, root) else 0
    return _reduction(comm, "reduce", _fold, items, sendobj, op, root)


def _scan(comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Ready:
    return _reduction(comm, "scan", _scanned, comm.rank + 1, sendobj, op)


def _exscan(comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Ready:
    return _reduction(comm, "exscan", _exclusive, comm.rank, sendobj, op)


def _reduction(comm: Any, name: str, combine: Combine, upto: int, *arguments: Any) -> Ready:
    """Return a call that combines the objects of threads 0 to `upto` - 1; None if there are none.

    `arguments` are those of the method: the object, the operation, perhaps a root.
    """
    return _ready(_reduced, comm, name, combine, upto, arguments, dump(arguments[0]))


def _reduced(
    team: Any, comm: Any, name: str, combine: Combine, upto: int, arguments: tuple[Any, ...],
    parcel: Parcel,
) -> Any:  # fmt: skip
    slots, numbers = _slots_of_all(team, parcel)
    if team.size > _FEW and (max(numbers) >> 1 > _LARGE or any(n & 1 for n in numbers)):
        comm._counts().went_to_mpi(name, 0, _TREE)
        return getattr(MPI.Intracomm, name)(comm, *arguments)
    items = _gathered(team, parcel, slots, numbers, upto)
    return combine(items, arguments[1]) if items else None


_BY_TREE = mpi4py.rc.fast_reduce in (True, "yes")


def _fold(items: list[Any], op: Any) -> Any:
    """Combine objects as mpi4py does: neighbours first, then pairs of neighbours, and so on."""
    if not _BY_TREE:
        return list(itertools.accumulate(items, op))[-1]
    distance = 1
    while distance < len(items):
        for i in range(0, len(items) - distance, 2 * distance):
            items[i] = op(items[i], items[i + distance])
        distance *= 2
    return items[0]


def _before(items: list[Any], op: Any) -> list[Any]:
    """Return what mpi4py combines with the object of the thread after these: the nearest first."""
    found, end = [], len(items)
    for bit in range(end.bit_length()):
        if len(items) >> bit & 1:
            begin = end - (1 << bit)
            found.append(_fold(items[begin:end], op))
            end = begin
    return found


def _scanned(items: list[Any], op: Any) -> Any:
    """Combine the objects of threads 0 to this one."""
    if not _BY_TREE:
        return _fold(items, op)
    result = items.pop()
    for part in _before(items, op):
        result = op(part, result)
    return result


def _exclusive(items: list[Any], op: Any) -> Any:
    """Combine the objects of the threads before this one."""
    if not _BY_TREE:
        return _fold(items, op)
    result, *more = _before(items, op)
    for part in more:
        result = op(part, result)
    return result


# --- methods ------------------------------------------------------------------------------------


def _unless_alone(form: Callable[..., Ready]) -> Callable[..., Ready]:
    """Leave a communicator of one thread to MPI before anything is pickled."""

    @functools.wraps(form)
    def checked(comm: Any, *arguments: Any, **keywords: Any) -> Ready:
        if comm.size == 1:
            return Ready(None, None, why="one thread")
        return form(comm, *arguments, **keywords)

    return checked


def _of_items(form: Callable[..., Ready]) -> Method:
    """Make a method that takes an object for each thread: an iterator of them is read once."""
    take = taken_over(_unless_alone(form))

    def add(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        method = take(name, run)

        @functools.wraps(run)
        def listed(self: Any, sendobj: Any, *root: Any, **keywords: Any) -> Any:
            if isinstance(sendobj, Iterator):
                at = root[0] if root else keywords.get("root", 0)
                if form is _alltoall or self.rank == at:
                    sendobj = list(sendobj)
            return method(self, sendobj, *root, **keywords)

        return listed

    return add


FORMS: dict[str, Callable[..., Ready]] = {
    "bcast": _bcast, "gather": _gather, "allgather": _allgather, "reduce": _reduce,
    "allreduce": _allreduce, "scan": _scan, "exscan": _exscan, "scatter": _scatter,
    "alltoall": _alltoall,
}  # fmt: skip
_OF_ITEMS = ("scatter", "alltoall")
CALLS: dict[str, Method] = {
    name: _of_items(form) if name in _OF_ITEMS else taken_over(_unless_alone(form))
    for name, form in FORMS.items()
}
