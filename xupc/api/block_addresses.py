"""Where the blocks of a `_v` or `_x` call lie: the lists that say it, and what they come to.

A side of a call, dst or src, is a list of pointers (`_x`), a pointer and a list of displacements
from it (`_v`), or one pointer (broadcast's src). All three become `Places`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import AffinityError, show
from ..pgas.allocation import Allocation
from ..pgas.integer_arguments import as_integer
from ..pgas.pointer_record import is_pointer_dtype, to_record
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer, to_pointer
from ..pgas.shared_reference import as_address
from ..pgas.slices import extent
from .argument_checks import describe
from .list_arguments import List

if TYPE_CHECKING:
    from ..runtime.team_state import TeamState

__all__ = [
    "FARTHEST",
    "Displaced",
    "Entered",
    "Ints",
    "Numbers",
    "Places",
    "Pointers",
    "Side",
    "Single",
]

Ints = NDArray[np.int64]
_FAR = 1 << 44
"""No displacement or size is larger: 64 bits must hold what is computed with it."""
FARTHEST = 1 << 62
"""No address or number of bytes reaches so far; the sum of two of them fits 64 bits."""


class Places(NamedTuple):
    """For each of some entries its thread and address, and its allocation's bounds there."""

    thread: Ints
    addr: Ints
    low: Ints
    high: Ints

    def take(self, which: NDArray[Any]) -> Places:
        """Return some of the places, each once or several times."""
        return Places(*(column[which] for column in self))


# --- lists --------------------------------------------------------------------------------


class Entered(List):
    """A list of which some entries are needed."""

    def enter(self, call: str, count: int, what: str) -> None:
        """Check the length of a private one, and that a shared one is live and long enough."""
        self.count = count
        name, p = self.name, self.shared
        if p is None:
            self.sequence(call, count, f"{count} {what}", f"a SharedArray or a sequence of {what}")
            return
        p.allocation.check_live(call, name)
        try:
            extent(p, count)
        except IndexError:
            raise ValueError(
                f"{call}: {name}: expected {count} {what}: that is beyond the allocation, which "
                f"has {p.allocation.nelems} x {p.allocation.dtype}"
            ) from None


class Numbers(Entered):
    """A list of ints: sizes, a permutation, displacements."""

    def __init__(self, name: str, given: Any) -> None:
        super().__init__(name, given)
        self._read: list[Any] | None = None
        if self.error is None and isinstance(given, np.ndarray) and given.dtype.kind in "iuO":
            self.given = tuple(given.ravel().tolist())

    def prepare(self, call: str, count: int) -> None:
        """Check what can be said before it may be read."""
        self.enter(call, count, "ints")
        if self.shared is not None and self.shared.dtype.kind not in "iu":
            raise TypeError(f"{call}: {self.name}: expected integers, got {self.shared.dtype}")

    def prepare_all(self, call: str, count: int) -> None:
        """Prepare a list of which every entry is needed."""
        self.prepare(call, count)
        if self.shared is None:
            self.given = tuple(
                as_integer(v, call, f"{self.name}[{i}]") for i, v in enumerate(self.given)
            )

    def values(self, call: str) -> Ints:
        """Return all that it holds now."""
        return self.take(call, range(len(self._entries())))

    def take(self, call: str, which: Sequence[int]) -> Ints:
        """Return some entries; no other one is looked at."""
        entries = self._entries()
        values = [entries[k] for k in which]
        if not all(type(v) is int and -_FAR < v < _FAR for v in values):
            values = [self._value(call, k, v) for k, v in zip(which, values, strict=True)]
        return np.array(values, np.int64)

    def _entries(self) -> Sequence[Any]:
        """Return all entries; those of a shared list are read once for each call."""
        if self.shared is None:
            return self.given  # type: ignore[no-any-return]
        if self._read is None or self.brought is not None:
            self._read = self.fetch().tolist()
        return self._read

    def _value(self, call: str, k: int, entry: Any) -> int:
        value = as_integer(entry, call, f"{self.name}[{k}]")
        if not -_FAR < value < _FAR:
            raise ValueError(
                f"{call}: {self.name}[{k}]: expected an int of at most 44 bits, got {value}"
            )
        return value

    def texts(self) -> list[str]:
        """Return each entry as text."""
        return [_number_text(v) for v in self._entries()]


def _number_text(entry: Any) -> str:
    try:
        return str(operator.index(entry))
    except Exception:  # of a block of size 0: it may be anything
        return show(entry)


# --- sides --------------------------------------------------------------------------------


class Side(Protocol):
    """dst or src of a call."""

    given: Any

    @property
    def lists(self) -> tuple[Entered, ...]:
        """The lists that the call must read."""

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """(name, text) for records."""

    @property
    def operands(self) -> dict[str, SharedPointer]:
        """A pointer into each allocation that was looked at, by the argument's name."""

    def prepare(self, call: str, team: TeamState, count: int) -> None:
        """Check what can be said before lists may be read; `count` entries are needed."""

    def places(self, call: str, which: Ints) -> Places:
        """Return the places of some of the entries."""

    def entry(self, k: int) -> str:
        """Return the name of an entry."""

    def texts(self, count: int) -> list[str]:
        """Return every entry's value."""


class Single:
    """One pointer: broadcast's src."""

    def __init__(self, name: str, given: Any) -> None:
        self.name, self.given = name, given
        self.lists: tuple[Entered, ...] = ()
        self.operands: dict[str, SharedPointer] = {}

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [(self.name, describe(self.given))]

    def prepare(self, call: str, team: TeamState, count: int) -> None:
        self.operands = {self.name: _base(self.given, call, self.name, team)}

    def places(self, call: str, which: Ints) -> Places:
        p = self.operands[self.name]
        low, size = p.allocation.part(p.thread)
        one = Places(*(np.array([v], np.int64) for v in (p.thread, p.addr, low, low + size)))
        return one.take(np.zeros(which.size, np.int64))

    def entry(self, k: int) -> str:
        return self.name

    def texts(self, count: int) -> list[str]:
        return []


class Displaced:
    """A pointer and a list of displacements from it, in elements."""

    def __init__(
        self, name: str, given: Any, listed: Numbers, blocksize: Any, typesize: Any
    ) -> None:
        self.name, self.given, self.listed = name, given, listed
        self.blocksize, self.typesize = blocksize, typesize
        self.lists: tuple[Entered, ...] = (listed,)
        self.operands: dict[str, SharedPointer] = {}

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [
            (self.name, describe(self.given)),
            (f"{self.name}_blk", show(self.blocksize)),
            (self.listed.name, str(self.listed)),
        ]

    def prepare(self, call: str, team: TeamState, count: int) -> None:
        p = _base(self.given, call, self.name, team)
        blocksize, typesize = p.blocksize, p.dtype.itemsize
        if self.typesize is not None:
            typesize = _at_least(self.typesize, call, "typesize", 1)
        if self.blocksize is not None:
            blocksize = _at_least(self.blocksize, call, f"{self.name}_blk", 0)
        if (blocksize, typesize) != (p.blocksize, p.dtype.itemsize):
            p = p.resetphase()  # as a cast does
        self.operands = {self.name: p}
        self.blocksize, self.typesize = blocksize, typesize
        self.listed.prepare(call, count)

    def places(self, call: str, which: Ints) -> Places:
        """Return the places of some entries; entry k is at ``p + displacement[k]``.

        With B elements in a block and T threads, q = phase + displacement: block q // B of those
        counted from p's row, its element q % B::

            thread (rank(p) + q // B) % T     row (rank(p) + q // B) // T     phase q % B
        """
        d = self.listed.take(call, which.tolist())
        p = self.operands[self.name]
        most = int(np.abs(d).max(initial=0))
        if (most + p.phase) * self.typesize + abs(p.addr) >= FARTHEST:
            raise ValueError(
                f"{call}: {self.listed.name}: a displacement of {most} elements of {self.typesize} "
                f"bytes from offset {p.addr} is beyond any memory"
            )
        allocation, size, block = p.allocation, self.typesize, self.blocksize
        members = np.asarray(allocation.members)
        rank = allocation.rank_of(p.thread)
        if not block:
            ranks, addr = np.full(d.size, rank), p.addr + d * size
        else:
            ahead, phase = np.divmod(p.phase + d, block)
            rows, ranks = np.divmod(rank + ahead, members.size)
            addr = p.addr + (rows * block + phase - p.phase) * size
        thread = members[ranks].astype(np.int64)
        low, high = _bounds(allocation, thread)
        return Places(thread, addr, low, high)

    def entry(self, k: int) -> str:
        return f"{self.listed.name}[{k}]"

    def texts(self, count: int) -> list[str]:
        return self.listed.texts()


class Pointers(Entered):
    """A list of pointers."""

    def __init__(self, name: str, given: Any) -> None:
        super().__init__(name, given)
        if self.error is None and isinstance(given, np.ndarray) and given.dtype.kind in "OV":
            self.given = tuple(given.ravel())
        self.operands: dict[str, SharedPointer] = {}
        self._entries: Any = None

    @property
    def lists(self) -> tuple[Entered, ...]:
        return (self,)

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [(self.name, str(self))]

    def prepare(self, call: str, team: TeamState, count: int) -> None:
        if self.shared is None and isinstance(self.given, SharedArray | SharedPointer):
            raise TypeError(f"{call}: {self.name}: expected a list of pointers")
        self.enter(call, count, "pointers")
        if self.shared is not None and not is_pointer_dtype(self.shared.dtype):
            raise TypeError(
                f"{call}: {self.name}: expected pointers (xupc.pointer_dtype), "
                f"got {self.shared.dtype}"
            )

    def places(self, call: str, which: Ints) -> Places:
        some, back = np.unique(which, return_inverse=True)
        if self.shared is None:
            return self._of_objects(call, some).take(back)
        if self._entries is None or self.brought is not None:
            self._entries = self.fetch()
        return self._of_records(call, some).take(back)

    def _of_objects(self, call: str, which: Ints) -> Places:
        """Return the places that entries of a private list point to."""
        rows = []
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for k in which.tolist():
            p = self._pointer(call, k)
            allocation, thread = p.allocation, p.thread
            key = id(allocation), thread
            if key not in bounds:
                self._look_at(call, k, p)
                low, size = allocation.part(thread)
                bounds[key] = low, low + size
            rows.append((thread, p.addr, *bounds[key]))
        return Places(*np.array(rows, np.int64).reshape(-1, 4).T)

    def _pointer(self, call: str, k: int) -> SharedPointer:
        given = self.given[k]
        if isinstance(given, SharedArray):
            return given.ptr(0)
        if isinstance(given, np.void) and is_pointer_dtype(given.dtype):
            given = to_pointer(given)
        if given is None:
            raise ValueError(f"{call}: {self.entry(k)}: expected a pointer, got None")
        if not isinstance(given, SharedPointer):
            raise TypeError(f"{call}: {self.entry(k)}: expected a pointer, got {show(given)}")
        return _near(given, call, self.entry(k))

    def _of_records(self, call: str, which: Ints) -> Places:
        """Return the places of a shared list: equal records are looked up once."""
        records = self._entries[which]
        null = np.flatnonzero(records["kind"] == 0)
        if null.size:
            k = int(which[null[0]])
            raise ValueError(f"{call}: {self.entry(k)}: expected a pointer, got None")
        same = records.copy()
        same["addr"] = 0
        known: dict[Any, tuple[int, int]] = {}
        bounds = []
        for k, record, key in zip(which.tolist(), records, same.tolist(), strict=True):
            if key not in known:
                known[key] = self._part(call, k, record)
            bounds.append(known[key])
        low, high = np.array(bounds, np.int64).reshape(-1, 2).T
        thread, addr = records["thread"].astype(np.int64), records["addr"].astype(np.int64)
        return Places(thread, addr, low, high)

    def _part(self, call: str, k: int, record: np.void) -> tuple[int, int]:
        """Return the bounds that an entry's pointer has."""
        try:
            p = to_pointer(record)
        except ValueError as e:
            raise ValueError(f"{call}: {self.entry(k)}: {e}") from None
        assert p is not None
        self._look_at(call, k, p)
        low, size = p.allocation.part(p.thread)
        return low, low + size

    def _look_at(self, call: str, k: int, p: SharedPointer) -> None:
        p.allocation.check_live(call, self.entry(k))
        self.operands.setdefault(self.entry(k), p)

    def entry(self, k: int) -> str:
        return f"{self.name}[{k}]"

    def texts(self, count: int) -> list[str]:
        if self.shared is None:
            return [_pointer_text(v) for v in self.given]
        known = [] if self._entries is None else self._entries.tolist()
        return [_record_text(r) for r in known]


def _pointer_text(entry: Any) -> str:
    try:
        return _record_text(to_record(entry.ptr(0) if isinstance(entry, SharedArray) else entry))
    except Exception:  # of a block of size 0: it may be anything
        return show(entry)


def _record_text(record: tuple[int, ...]) -> str:
    return f"thread {record[1]} offset {record[4]}" if record[0] else "None"


def _base(x: Any, call: str, name: str, team: TeamState) -> SharedPointer:
    """Return the pointer that dst or src stands for; an array for the start of its part there."""
    try:
        allocation, _, _ = as_address(x)
    except TypeError as e:
        raise TypeError(f"{call}: {name}: {e}") from None
    allocation.check_live(call, name)
    if isinstance(x, SharedPointer):
        return _near(x, call, name)
    p: SharedPointer = x.ptr(0)
    if not allocation.blocksize or p.thread == team.threads[0]:
        return p
    rank = allocation.rank_of(team.threads[0])
    if rank is None:
        raise AffinityError(
            f"{call}: {name}: thread {team.threads[0]}, the team's first, has no part of it"
        )
    return SharedPointer(
        allocation, rank, 0, allocation.offset, allocation.blocksize, allocation.dtype
    )


def _near(p: SharedPointer, call: str, name: str) -> SharedPointer:
    """Return the pointer, if 64 bits hold where it points to."""
    if abs(p.addr) >= FARTHEST:
        raise ValueError(f"{call}: {name}: offset {show(p.addr)} is beyond any memory")
    return p


def _bounds(allocation: Allocation, threads: Ints) -> tuple[Ints, Ints]:
    """Return the begin and the end of the allocation's part on each of the threads."""
    some, back = np.unique(threads, return_inverse=True)
    parts = np.array([allocation.part(thread) for thread in some.tolist()], np.int64).reshape(-1, 2)
    return parts[back, 0], parts[back].sum(axis=1)


def _at_least(value: Any, call: str, argument: str, least: int) -> int:
    n = as_integer(value, call, argument)
    if not least <= n < _FAR:
        raise ValueError(f"{call}: {argument}: expected at least {least}, got {n}")
    return n

