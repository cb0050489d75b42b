"""Methods that xupc takes over and that move Python objects.

The first exchange of a call is one of slots (`slots`): the length of each pickle, and the pickle
itself if there is room for it. From then on all threads have the sizes of all, and longer pickles
follow, then large buffers, from the memory of one object to that of the other. Where all is in the
slots, the core makes the call (`backends/native/_object_calls.pxi`).

A reduction gathers the objects and combines them in mpi4py's order, so that results are equal also
for operations that are not associative.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import mpi4py
import numpy as np
from mpi4py import MPI

from ..api.uneven_blocks import Array, empty
from ..backends.native.native_core import core
from ..tuning.selection import Carriers
from . import method_locks
from .decision import BY_TABLE, Method, Ready, root_of, taken_over
from .mismatch import carry
from .object_moves import ByMpi, ByXupc, Moves
from .object_values import array_of_all, reduced
from .pickles import Parcel, dump, in_band, load, room, table
from .repeated import form_of
from .slots import Received, Slots, slots_of

__all__ = ["CALLS", "FORMS"]

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


def _ready(
    comm: Any, method: str, mine: Sequence[Parcel], obj: Any, op: Any = None,
    root: int | None = None,
) -> Ready:  # fmt: skip
    """Return a call by which this thread sends some pickles of its argument."""
    result = _Value()

    def run(team: Any) -> None:
        if method in method_locks.METHODS:
            method_locks.have_lock(comm, method)
        slots = slots_of(comm, team, _ObjectSlots, method, _WAYS[method].flow, root)
        beside = sum(parcel.beside for parcel in mine)
        received = slots.exchange([(parcel.body, parcel.number) for parcel in mine], beside)
        if team.state.native:
            comm._counts().keep_slots(form_of(method), root or 0, comm.size, slots)
        result.value = slots.result_of(comm, obj, op, mine, received)

    return Ready(None, run, (), result)


def _bcast(comm: Any, obj: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    return _ready(comm, "bcast", [dump(obj)] if comm.rank == at else [], obj, root=at)


def _gather(comm: Any, sendobj: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    return _ready(comm, "gather", [Parcel(in_band(sendobj))], sendobj, root=at)


def _scatter(comm: Any, sendobj: Any, root: int = 0) -> Ready:
    at = root_of(comm, root)
    mine = _pickles(sendobj, comm.size) if comm.rank == at else []
    return _ready(comm, "scatter", mine, sendobj, root=at)


def _allgather(comm: Any, sendobj: Any) -> Ready:
    return _ready(comm, "allgather", [dump(sendobj)], sendobj)


def _alltoall(comm: Any, sendobj: Any) -> Ready:
    return _ready(comm, "alltoall", _pickles(sendobj, comm.size), sendobj)


def _pickles(objects: Any, size: int) -> list[Parcel]:
    """Return the pickles of objects for all threads; None stands for one None for each."""
    items = [None] * size if objects is None else list(objects)
    if len(items) != size:
        raise ValueError(f"expected {size} items, got {len(items)}")
    return [Parcel(in_band(item)) for item in items]


def _reduce(comm: Any, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Ready:
    at = root_of(comm, root)
    return _ready(comm, "reduce", [dump(sendobj)], sendobj, op, at)


def _reduction(method: str) -> Callable[..., Ready]:
    def form(comm: Any, sendobj: Any, op: Any = MPI.SUM) -> Ready:
        return _ready(comm, method, [dump(sendobj)], sendobj, op)

    return form


# --- moves --------------------------------------------------------------------------------------


class _ObjectSlots(Slots):
    """The slots of a method that moves objects.

    Attributes
    ----------
    way
        What becomes of the objects.
    upto
        How many of them, from the first one on, this thread gets.
    """

    def __init__(
        self, team: Any, method: str, flow: str, root: int | None, carriers: Carriers | None
    ) -> None:
        super().__init__(team, method, flow, root, carriers)
        way = self.way = _WAYS[method]
        self.upto = {
            "one": 1, "all": team.size, "root": team.size if team.rank == root else 0,
            "upto me": team.rank + 1, "before me": team.rank,
        }[way.gets]  # fmt: skip
        listed, beside = flow in ("scatter", "exchange"), method in _BESIDE
        self.for_objects(team.rank, self.upto, listed, beside, way.result, way.combine)

    def rest(self, *about: Any) -> Any:
        """Complete a call whose first exchange the core has made; return the method's result."""
        state = self.team.state
        state.methods.begin(state.core.op, self.method)
        try:
            return carry(self.result_of, *about)
        finally:
            state.methods.begin(state.core.op, "")

    def result_of(
        self, comm: Any, obj: Any, op: Any, mine: Sequence[Parcel], received: Received
    ) -> Any:
        """Bring what the slots had no room for, and return the method's result."""
        way, combine = self.way, self.way.combine
        if combine is not None:
            like = array_of_all(self.method, op, mine[0], received, self.carriers)
            if like is not None:
                root = () if self.root is None else (self.root,)
                on, gets = (self.team, self.method), self.upto > 0
                return reduced(*on, like, op, mine[0].buffers[0], root, gets=gets)
        why = self._why_mpi(received)
        if why:
            comm._counts().went_to_mpi(self.method, None, why)
        if why and combine is not None:
            arguments = (obj, op) if self.root is None else (obj, op, self.root)
            return getattr(MPI.Intracomm, self.method)(comm, *arguments)
        moves = ByMpi(comm) if why else ByXupc(self.team, self.method)
        items = way.bring(self, mine, received, moves)
        if not self.upto:
            return None
        if combine is not None:
            return combine(items, op)
        return items[0] if way.result == "one" else items

    def _why_mpi(self, received: Received) -> str:
        """Return why MPI carries the rest of a call, the same on all threads; "": it does not."""
        fits, most, total, numbers, _ = received
        beside = any(number & 1 for number in numbers)
        if fits and not beside:
            return ""
        if self.by_mpi(total):
            return BY_TABLE
        many = self.way.combine is not None and len(numbers) > _FEW
        return _TREE if many and (most > _LARGE or beside) else ""


def _whole(parcel: Parcel) -> Array:
    return np.frombuffer(parcel.body, np.uint8)


def _own(parcel: Parcel, body: Any) -> Any:
    """Return this thread's object as others read it."""
    if parcel.value is not None:
        return parcel.value
    beside = [bytearray(buffer) for buffer in parcel.buffers]
    return load(body, beside) if beside else load(body)


def _from_root(
    slots: _ObjectSlots, mine: Sequence[Parcel], received: Received, moves: Moves
) -> list[Any]:
    """Return the root's object."""
    fits, most, _, (number,), (body,) = received
    root = slots.root
    whole: Any = body
    if not fits:
        whole = _whole(mine[0]) if mine else empty(most)
        moves.broadcast(whole, root)
    if mine:
        for buffer in mine[0].buffers:
            moves.broadcast(buffer, root)
        return [_own(mine[0], whole)]
    if not number & 1:
        return [load(whole)]
    memory = [room(size) for size in table(whole)]
    for beside in memory:
        moves.broadcast(np.frombuffer(beside, np.uint8), root)
    return [load(whole, memory)]


def _to_root(
    slots: _ObjectSlots, mine: Sequence[Parcel], received: Received, moves: Moves
) -> list[Any]:
    """Return the objects of all threads on the root."""
    fits, most, _, numbers, bodies = received
    found: Sequence[Any] = bodies if slots.upto else ()
    if not fits:
        sizes = [number >> 1 for number in numbers]
        found = moves.gather(_whole(mine[0]), sizes, slots.root, most)
    return [load(body) for body in found]


def _part_of_root(
    slots: _ObjectSlots, mine: Sequence[Parcel], received: Received, moves: Moves
) -> list[Any]:
    """Return the root's object for this thread."""
    fits, most, _, (number,), (body,) = received
    if fits:
        return [load(body)]
    blocks = [_whole(parcel) for parcel in mine]
    return [load(moves.scatter(blocks, number >> 1, slots.root, most))]


def _parts_of_all(
    slots: _ObjectSlots, mine: Sequence[Parcel], received: Received, moves: Moves
) -> list[Any]:
    """Return the objects of all threads for this one."""
    fits, most, _, numbers, bodies = received
    found: Sequence[Any] = bodies
    if not fits:
        sizes = [number >> 1 for number in numbers]
        found = moves.exchange([_whole(parcel) for parcel in mine], sizes, most)
    return [load(body) for body in found]


def _of_all(
    slots: _ObjectSlots, mine: Sequence[Parcel], received: Received, moves: Moves
) -> list[Any]:
    """Return the objects of the first threads, as many as this one gets."""
    fits, _, _, numbers, found = received
    team = slots.team
    bodies: list[Any] = [
        empty(number >> 1) if body is None else body
        for body, number in zip(found, numbers, strict=True)
    ]
    own = bodies[team.rank] = _whole(mine[0])
    if not fits:
        none = empty(0)
        moves.spread([body if x is None else none for body, x in zip(bodies, found, strict=True)])
    buffers: list[Any] = [None] * team.size
    if any(number & 1 for number in numbers):
        buffers = _buffers(team.rank, mine[0], bodies, numbers, moves)
    return [
        _own(mine[0], body) if body is own else load(body, beside)
        for body, beside in zip(bodies[: slots.upto], buffers, strict=False)
    ]


def _buffers(
    me: int, parcel: Parcel, bodies: Sequence[Any], numbers: Sequence[int], moves: Moves
) -> list[list[bytearray] | None]:
    """Return the buffers of other threads, None without: the first ones of all, the second ..."""
    sizes = [table(b) if number & 1 else [] for b, number in zip(bodies, numbers, strict=True)]
    memory = [[room(size) for size in each] for each in sizes]
    found = [[np.frombuffer(each, np.uint8) for each in some] for some in memory]
    found[me] = list(parcel.buffers)
    for some in itertools.zip_longest(*found, fillvalue=empty(0)):
        moves.spread(some)
    return [each if number & 1 else None for each, number in zip(memory, numbers, strict=True)]


# --- reductions ---------------------------------------------------------------------------------


Combine = Callable[[list[Any], Any], Any]
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


class _Way(NamedTuple):
    """Describe how a method moves objects.

    Attributes
    ----------
    flow
        The collective that moves the slots.
    bring
        ``(slots, pickles of this thread, received, moves) -> objects``: also those that did not
        fit, by these moves.
    gets
        Which objects this thread gets: "one", "all", on the "root" alone, those of the threads
        "upto me" or "before me".
    result
        "one", "listed", or "combined" by `combine`.
    """

    flow: str
    bring: Callable[[_ObjectSlots, Sequence[Parcel], Received, Moves], list[Any]]
    gets: str
    result: str = "combined"
    combine: Combine | None = None


_WAYS = {
    "bcast": _Way("broadcast", _from_root, "one", "one"),
    "scatter": _Way("scatter", _part_of_root, "one", "one"),
    "gather": _Way("gather_all", _to_root, "root", "listed"),
    "allgather": _Way("gather_all", _of_all, "all", "listed"),
    "alltoall": _Way("exchange", _parts_of_all, "all", "listed"),
    "reduce": _Way("gather_all", _of_all, "root", combine=_fold),
    "allreduce": _Way("gather_all", _of_all, "all", combine=_fold),
    "scan": _Way("gather_all", _of_all, "upto me", combine=_scanned),
    "exscan": _Way("gather_all", _of_all, "before me", combine=_exclusive),
}
_BESIDE = frozenset(name for name, way in _WAYS.items() if way.bring in (_from_root, _of_all))
if core is not None:
    core.set_objects(MPI.pickle, pickle.dumps, pickle.loads, dump, Parcel, MPI.SUM)


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
    "allreduce": _reduction("allreduce"), "scan": _reduction("scan"),
    "exscan": _reduction("exscan"), "scatter": _scatter, "alltoall": _alltoall,
}  # fmt: skip
_OF_ITEMS = ("scatter", "alltoall")
CALLS: dict[str, Method] = {
    name: _of_items(form) if name in _OF_ITEMS else taken_over(_unless_alone(form))
    for name, form in FORMS.items()
}
