"""Exchanges between the neighbours of a `Neighbours`, as plans: agreed once, then run many times.

All threads meet when a plan is made. They compare the sizes of the blocks at both ends of each edge
and trace the algorithm for all edges. A plan keeps the steps of its own thread only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..algorithms.transfer_lists import Transfers
from ..backends.operand_binding import HeapOperand, PrivateOperand
from ..errors import FlagError, OverlapError, show
from ..fingerprint import digest, fingerprint
from ..flags import ASYNC, IN_PLACE, check_flags, sync_modes
from ..health.call_record import CallRecord
from ..pgas.allocation import Allocation
from ..pgas.integer_arguments import as_integer
from ..pgas.private_memory import array_of
from ..pgas.shared_array import SharedArray
from ..pgas.shared_reference import as_address
from ..plan.recorder import Operand
from ..reduction.structured_dtypes import name as name_of
from ..runtime import current
from ..runtime.async_queue import AsyncCall
from ..runtime.team_state import TeamState
from .argument_checks import flags_text, named_flags
from .array_arguments import Array, overlap
from .call_cache import BoundCall, BoundPlan, ResolvedCall, SharedPlan
from .list_arguments import items_of
from .neighbours import MOST, Neighbours, gathered

__all__ = [
    "Block", "NeighbourPlan", "all_neighbour_exchange", "allav_neighbour_exchange",
    "exchange_instance",
]  # fmt: skip

_SHARED, _PRIVATE = "all_neighbour_exchange", "allav_neighbour_exchange"
_ALIGNED = 64
_T = TypeVar("_T")


class Block(NamedTuple):
    """A block of this thread: `nbytes` at `at` of its operand; `kind` is equal for equal types."""

    at: int
    nbytes: int
    kind: int = 0


def all_neighbour_exchange(
    neighbours: Neighbours, dst: SharedArray, src: SharedArray,
    receive: Sequence[slice | None], send: Sequence[slice | None], flags: int = 0, *,
    algorithm: str | None = None,
) -> SharedPlan:  # fmt: skip
    """Make a plan that exchanges blocks of shared arrays between neighbours; collective.

    Call the plan to run it, as often as needed; ``plan.start()`` returns a handle. Both are
    collective. Making it takes much longer than running it.

    Parameters
    ----------
    neighbours : Neighbours
        Of `neighbours` or `cartesian`.
    dst, src : SharedArray
        May be one array.
    receive, send : sequence of slice or None
        For each source the elements of ``dst.local`` that its block fills, and for each destination
        the elements of ``src.local`` that it gets. None: no block.
    flags : int
        `xupc.Flags`. With IN_MYSYNC and OUT_MYSYNC a thread waits for its neighbours only.
    algorithm : str, optional
        A variant by name, such as ``"multicore:routes"``.

    Raises
    ------
    TypeError, ValueError, FlagError, OverlapError
        On a thread whose arguments are wrong; the others raise CollectiveMismatchError.
    ValueError
        On all threads, if the sizes at the two ends of an edge differ.
    """
    team, full, record, ((into, of), memory) = _begun(
        neighbours, _SHARED, flags, algorithm,
        lambda: _shared_blocks(neighbours, dst, src, receive, send),
    )  # fmt: skip
    record = record.with_more([("type", str(dst.dtype))])
    signature = fingerprint(_SHARED, neighbours.number, full, name_of(dst.dtype))
    moves = transfers_of(neighbours, _SHARED, signature, record, into, of)
    heap = HeapOperand(team)
    arguments = [Operand(0), Operand(1), moves]
    instance = _instance(team, _SHARED, full, sync_modes(full), arguments, [heap, heap], record)
    call = BoundCall(ResolvedCall(team, full, record), memory, instance)
    return SharedPlan(_SHARED, call, instance, {"dst": dst, "src": src})


def allav_neighbour_exchange(
    neighbours: Neighbours, receive: Sequence[Any], send: Sequence[Any], flags: int = 0, *,
    algorithm: str | None = None,
) -> NeighbourPlan:  # fmt: skip
    """Make a plan that exchanges private arrays between neighbours; collective.

    Call the plan to run it, as often as needed, with what is in the arrays then; ``plan.start()``
    returns a handle. Both are collective. Making it takes much longer than running it.

    Parameters
    ----------
    neighbours : Neighbours
        Of `neighbours` or `cartesian`.
    receive, send : sequence of array or None
        For each source an array to fill, and for each destination the array that it gets, such as
        ``[block[0], block[-1]]``. Any shape and strides; blocks differ in size and type from
        neighbour to neighbour. None: no block.
    flags : int
        `xupc.Flags`; sync flags are accepted and change nothing.
    algorithm : str, optional
        A variant by name, such as ``"multicore:rounds"``.

    Raises
    ------
    TypeError, ValueError, FlagError, OverlapError
        On a thread whose arguments are wrong; the others raise CollectiveMismatchError.
    ValueError
        On all threads, if sizes or types at the two ends of an edge differ.
    """
    team, full, record, (into, of) = _begun(
        neighbours, _PRIVATE, flags, algorithm, lambda: _private_sides(neighbours, receive, send)
    )
    signature = fingerprint(_PRIVATE, neighbours.number, full)
    moves = transfers_of(neighbours, _PRIVATE, signature, record, into.blocks, of.blocks)
    bounds = [PrivateOperand(), PrivateOperand()]
    instance = _instance(
        team, _PRIVATE, full, ("no", "no"), [moves], bounds, record, private=True
    )
    return NeighbourPlan(team, instance, into, of, record, posted=bool(full & ASYNC))


def _begun(
    neighbours: Neighbours, call: str, flags: Any, algorithm: str | None, blocks: Callable[[], _T]
) -> tuple[TeamState, int, CallRecord, _T]:
    """Enter a call; return its team, flags and record, and the checked blocks of this thread."""
    team = _entered(neighbours, call)
    record = _record(neighbours, call, flags)
    try:
        return team, _checked_flags(named_flags(call, flags, algorithm), call), record, blocks()
    except Exception as e:
        team.fail(e, record)


# --- the plan -------------------------------------------------------------------------------------


def transfers_of(
    neighbours: Neighbours, call: str, signature: int, record: CallRecord,
    into: Sequence[Block], of: Sequence[Block], *, shorter: bool = False,
) -> Transfers:  # fmt: skip
    """Return the blocks of all edges of all threads; collective.

    `shorter`: a block may be shorter than its place.

    Raises
    ------
    ValueError
        On all threads, if sizes or types at the two ends of an edge differ.
    """
    sources = [-1 if rank is None else rank for rank in neighbours.sources]
    rows = [[*x] for x in zip(sources, neighbours.match, strict=True)]
    taken, given = gathered(
        neighbours.state, call, signature, record,
        [[*row, *block] for row, block in zip(rows, into, strict=True)], [[*b] for b in of],
    )  # fmt: skip
    real = taken.values[:, :1].reshape(-1) >= 0
    to, index = taken.owner[real], taken.place[real]
    source, number, at, nbytes, kind = taken.values[real].reshape(-1, 5).T
    theirs = given.values.reshape(-1, 3)[given.first[source] + number].T
    wrong = theirs[1] > nbytes if shorter else theirs[1] != nbytes
    bad = np.flatnonzero(wrong | ((theirs[2] != kind) & (nbytes > 0)))
    if bad.size:
        k = int(bad[0])
        raise ValueError(
            f"{call}: expected equal sizes and types at both ends of each edge: thread {source[k]} "
            f"sends {theirs[1][k]} bytes as send[{number[k]}], and thread {to[k]} expects "
            f"{nbytes[k]} bytes{'' if theirs[1][k] != nbytes[k] else ' of another type'} as "
            f"receive[{index[k]}]"
        )
    return Transfers.of(to, at, source, theirs[0], theirs[1])


def _instance(
    team: TeamState, call: str, full: int, sync: tuple[str, str], arguments: list[Any],
    bounds: list[Any], record: CallRecord, *, private: bool = False,
) -> Any:  # fmt: skip
    """Return an instance of the plan for the blocks of all threads."""
    moves = arguments[-1]
    content = digest(b"".join(c.tobytes() for c in moves), 16)
    most = int(moves.nbytes.max(initial=0))
    name = call.removeprefix("all_")
    try:
        plan = team.planned(name, full, most, sync, content, arguments, private=private)
    except ValueError as e:
        team.fail(e, record)
    number = int.from_bytes(content[:7], "little")
    return team.make(plan, bounds, fingerprint(call, number, full), record)


def exchange_instance(
    neighbours: Neighbours, into: Sequence[Block], of: Sequence[Block], call: str = _PRIVATE
) -> Any:
    """Return an instance for blocks of private memory, which is not bound yet; collective.

    A block may be shorter than its place. `call`: the name of the call in messages.
    """
    # a program of mpi4py's methods knows neither an object of the neighbours nor flags
    record = _record(neighbours, call, 0) if call == _PRIVATE else CallRecord(call)
    team = neighbours.state
    full = check_flags(0, _PRIVATE)
    signature = fingerprint(_PRIVATE, neighbours.number, full)
    moves = transfers_of(neighbours, _PRIVATE, signature, record, into, of, shorter=True)
    bounds = [PrivateOperand(), PrivateOperand()]
    return _instance(team, _PRIVATE, full, ("no", "no"), [moves], bounds, record, private=True)


class NeighbourPlan(BoundPlan):
    """A plan on private arrays of neighbours; arrays that are not contiguous go through copies."""

    def __init__(
        self, team: TeamState, instance: Any, into: _Side, of: _Side, record: CallRecord, *,
        posted: bool,
    ) -> None:  # fmt: skip
        super().__init__(_PRIVATE, team, instance, posted=posted)
        self._into, self._of, self._record = into, of, record
        instance.rebind(into.address, of.address)
        if team.native and not (posted or into.copies or of.copies):
            self.bind(instance)

    def _steps(self) -> Iterator[Any]:
        for mine, theirs in self._of.copies:
            mine[...] = theirs
        yield self.instance
        for mine, theirs in self._into.copies:
            theirs[...] = mine

    def _run(self) -> None:
        for instance in self._steps():
            instance.execute()

    def _pending(self) -> AsyncCall:
        return AsyncCall(self.team, self._steps(), self._record)


# --- private arrays -------------------------------------------------------------------------------


class _Side:
    """The arrays that a thread receives or sends, as blocks of one operand.

    They are blocks of the program's memory if they are contiguous parts of one array, else of a
    buffer.

    Attributes
    ----------
    given
        The arrays; None where there is no block.
    address
        Address of the operand.
    blocks
        Their places in it.
    copies
        (part of the buffer, array) for each array, if there is a buffer.
    """

    def __init__(self, given: list[Array | None]) -> None:
        self.given = given
        self.copies: list[tuple[Array, Array]] = []
        arrays = [x for x in given if x is not None and x.size]
        self.keeps = _whole(arrays)
        if self.keeps is None:
            self.keeps = self._buffer(arrays)
        self.address = int(self.keeps.ctypes.data)
        memory = iter([mine for mine, _ in self.copies] or arrays)
        self.blocks = [self._block(next(memory), x) if _any(x) else Block(0, 0) for x in given]

    def _block(self, memory: Array, x: Any) -> Block:
        kind = fingerprint("dtype", name_of(x.dtype)) >> 2
        return Block(memory.ctypes.data - self.address, x.nbytes, kind)

    def _buffer(self, arrays: Sequence[Array]) -> Array:
        """Return a buffer for all arrays, with a part for each of them."""
        room = [-(-x.nbytes // _ALIGNED) * _ALIGNED for x in arrays]
        buffer, at = np.zeros(sum(room) + 1, np.uint8), 0
        for x, n in zip(arrays, room, strict=True):
            part = np.ndarray(x.shape, x.dtype, buffer, at)
            self.copies.append((part, x))
            at += n
        return buffer


def _private_sides(neighbours: Neighbours, receive: Any, send: Any) -> tuple[_Side, _Side]:
    """Return what this thread receives and what it sends, checked."""
    into = _Side(_arrays(receive, neighbours.sources, "receive"))
    of = _Side(_arrays(send, neighbours.destinations, "send"))
    _check_apart(into.given, of.given)
    return into, of


def _any(x: Array | None) -> bool:
    return x is not None and x.size > 0


def _whole(arrays: Sequence[Array]) -> Array | None:
    """Return the array that all of them are contiguous parts of; None if there is none."""
    found = {id(owner): owner for owner in map(_owner, arrays)}
    if len(found) != 1 or not all(x.flags.c_contiguous for x in arrays):
        return None
    (owner,) = found.values()
    return owner


def _owner(x: Array) -> Array:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def _arrays(given: Any, ranks: Sequence[int | None], what: str) -> list[Array | None]:
    """Return an array for each neighbour; None where there is no neighbour."""
    each = _each(given, ranks, _PRIVATE, what)
    out: list[Array | None] = []
    for i, (x, rank) in enumerate(zip(each, ranks, strict=True)):
        name = f"{_PRIVATE}: {what}[{i}]"
        found = None if x is None or rank is None else array_of(x, name, receives=what == "receive")
        if found is not None and what == "receive" and not found.flags.writeable:
            raise ValueError(f"{name}: expected an array to write to, got one that is read-only")
        out.append(found)
    return out


def _check_apart(into: Sequence[Array | None], of: Sequence[Array | None]) -> None:
    """Raise OverlapError if a received array overlaps another one, or one that is sent."""
    for i, x in enumerate(into):
        for side, name in ((into[:i], "receive"), (of, "send")):
            for j, other in enumerate(side):
                if x is not None and other is not None and overlap(x, other):
                    raise OverlapError(
                        f"{_PRIVATE}: receive[{i}] and {name}[{j}] overlap: expected arrays apart"
                    )


# --- shared arrays --------------------------------------------------------------------------------


def _shared_blocks(
    neighbours: Neighbours, dst: Any, src: Any, receive: Any, send: Any
) -> tuple[tuple[list[Block], list[Block]], list[Allocation]]:
    """Return the blocks of this thread in dst and src, checked, and the memory that they are in."""
    sides = []
    for x, given, ranks, what in (
        (dst, receive, neighbours.sources, ("dst", "receive")),
        (src, send, neighbours.destinations, ("src", "send")),
    ):
        if not isinstance(x, SharedArray):
            raise TypeError(f"{_SHARED}: {what[0]}: expected a SharedArray, got {show(x)}")
        as_address(x)[0].check_live(_SHARED, what[0])
        sides.append(_slices(x, _each(given, ranks, _SHARED, what[1]), ranks, what[1]))
    if dst.dtype != src.dtype:
        raise TypeError(f"{_SHARED}: dst: expected {src.dtype} as in src, got {dst.dtype}")
    _check_ranges_apart(*sides)
    return (sides[0], sides[1]), [as_address(dst)[0], as_address(src)[0]]


def _slices(
    x: SharedArray, given: Sequence[Any], ranks: Sequence[int | None], what: str
) -> list[Block]:
    me = current.world().job.info.me
    start, nbytes = as_address(x)[0].part(me)
    size = x.dtype.itemsize
    out = []
    for i, (part, rank) in enumerate(zip(given, ranks, strict=True)):
        if part is None or rank is None:
            out.append(Block(0, 0))
            continue
        begin, end = _range(part, nbytes // size, f"{_SHARED}: {what}[{i}]")
        out.append(Block(start + begin * size, (end - begin) * size))
    return out


def _range(part: Any, count: int, what: str) -> tuple[int, int]:
    """Return the elements of a slice of my part; nothing is cut off, unlike numpy."""
    try:
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError(f"{what}: expected a slice with step 1, or None, got {show(part)}")
        begin = 0 if part.start is None else operator.index(part.start)
        end = count if part.stop is None else operator.index(part.stop)
    except TypeError:
        raise TypeError(f"{what}: expected a slice of ints, got {show(part)}") from None
    begin, end = (x + count if x < 0 else x for x in (begin, end))
    if not 0 <= begin <= end <= count:
        raise ValueError(
            f"{what}: expected a slice of the {count} elements of this thread, got {show(part)}"
        )
    return begin, end


def _check_ranges_apart(into: Sequence[Block], of: Sequence[Block]) -> None:
    rows = [(b.at, b.at + b.nbytes, f"receive[{i}]") for i, b in enumerate(into) if b.nbytes]
    sent = [(b.at, b.at + b.nbytes, f"send[{i}]") for i, b in enumerate(of) if b.nbytes]
    for i, (begin, end, name) in enumerate(rows):
        for low, high, other in (*rows[:i], *sent):
            if begin < high and low < end:
                raise OverlapError(
                    f"{_SHARED}: {name} and {other} overlap: expected slices apart"
                )


# --- both -----------------------------------------------------------------------------------------


def _entered(neighbours: Any, call: str) -> TeamState:
    """Return the team of a neighbourhood, which this thread enters a call on."""
    if not isinstance(neighbours, Neighbours):
        team, wrong = current.world(), f"expected Neighbours, got {show(neighbours)}"
        team.enter(call)
        team.fail(TypeError(f"{call}: neighbours: {wrong}"), CallRecord(call))
    neighbours.state.enter(call)
    return neighbours.state


def _record(neighbours: Neighbours, call: str, flags: Any) -> CallRecord:
    made = f"made in operation {neighbours.number}"
    return CallRecord(call, [("neighbours", made), ("flags", flags_text(flags))])


def _checked_flags(flags: Any, call: str) -> int:
    full = check_flags(as_integer(flags, call, "flags"), call)
    if full & IN_PLACE:
        raise FlagError(
            f"{call}: flags: IN_PLACE: this call has no form in place: leave the flag out"
        )
    return full


def _each(given: Any, ranks: Sequence[int | None], call: str, what: str) -> Sequence[Any]:
    each = items_of(given, MOST, f"{call}: {what}: expected a sequence")
    if len(each) != len(ranks):
        raise ValueError(
            f"{call}: {what}: expected {len(ranks)} items, one for each neighbour, got {len(each)}"
        )
    return each
