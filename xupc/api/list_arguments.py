"""Lists that collectives are given: their contents are data, not part of the signature.

A private list is copied at the call and compared by content; a shared one is read when the
sync mode says that it may be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AffinityError, OverlapError, show
from ..pgas.integer_arguments import as_integer
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from ..pgas.slices import extent, read_elements

if TYPE_CHECKING:
    from ..runtime.team_state import TeamState

__all__ = ["List", "contents", "items_of", "lasting", "permutation"]

_VIEWS = {np.void, np.ndarray}  # entries that may change
LONGEST = 1 << 28  # no list is longer, and longer ones are not copied to find that out


def _copy(given: Sequence[Any]) -> Sequence[Any]:
    """Return a private list as it is now; one that is too long for anything stays what it is."""
    try:
        n = len(given)
    except OverflowError:  # a range
        return given
    return tuple(given) if n <= LONGEST else given


def items_of(given: Any, most: int, expected: str) -> list[Any]:
    """Return the items of a sequence, or of an iterable, which may never end.

    Parameters
    ----------
    expected : str
        What an error says, with the call and the argument.

    Raises
    ------
    TypeError
        It has neither a length nor an iterator of its own, such as a pointer of ctypes: Python
        would go on to read what lies behind it.
    ValueError
        It has more than `most` items.
    """
    length: int | None = None
    try:
        if hasattr(type(given), "__len__"):
            with contextlib.suppress(OverflowError):  # a range
                length = len(given)  # first: iter of a released memoryview is a SystemError
        elif not hasattr(type(given), "__iter__"):
            raise TypeError
        found = list(islice(given, most + 1))
    except (TypeError, NotImplementedError):  # the latter: a memoryview of several dimensions
        raise TypeError(f"{expected}, got {show(given)}") from None
    if len(found) > most:
        number = f"more than {most}" if length is None else str(length)
        raise ValueError(f"{expected}, got {number}")
    return found


def contents(given: Any) -> Any:
    """Return what a private list holds, to be compared: the values, and their types."""
    if isinstance(given, np.ndarray):
        if not given.dtype.hasobject:
            return given.tobytes()
        given = given.ravel().tolist()  # its bytes are addresses, which other objects may have
    types = list(map(type, given))
    if set(types) & _VIEWS:
        return types, [x.tobytes() if type(x) in _VIEWS else x for x in given]
    return types, list(given)


def lasting(given: Any) -> bool:
    """Return True if the contents of a private list can never change."""
    if isinstance(given, range):
        return True
    return isinstance(given, tuple) and not set(map(type, given)) & _VIEWS


class List:
    """A list that a call is given: shared, or private and then copied here.

    Attributes
    ----------
    shared
        Where element 0 is, None of a private list.
    where
        That as numbers, for fingerprints.
    count
        How many entries of a shared one are needed.
    brought
        Those, where they have been read or came from all threads; taken by the next `fetch`.
    original
        The list as it was given.
    data
        The bytes of a shared one when it was read.
    """

    def __init__(self, name: str, given: Any) -> None:
        self.name = name
        self.shared: SharedPointer | None = None
        self.where: tuple[int, ...] = ()
        self.count = 0
        self.brought: NDArray[Any] | None = None
        self.original = self.given = given
        self.data = b""
        self.error: Exception | None = None
        try:
            self._take(given)
        except NotImplementedError:  # a memoryview of several dimensions
            self.error = TypeError(f"{name}: expected one dimension, got {show(given)}")
        except Exception as e:  # a sequence of the user's may raise anything: said in `sequence`
            self.error = e

    def _take(self, given: Any) -> None:
        if isinstance(given, SharedArray):
            self.shared = given.ptr(0)
        elif isinstance(given, SharedPointer):
            self.shared = given
        elif isinstance(given, np.ndarray) and given.size > LONGEST:
            raise ValueError(f"{self.name}: expected at most {LONGEST} entries, got {given.size}")
        elif isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iu":
            self.given = tuple(given.tolist())
        elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
            self.given = _copy(given)
        if self.shared is not None:
            p, dtype = self.shared, self.shared.dtype
            self.where = (
                p.allocation.serial, p.thread, p.addr, p.phase, p.blocksize,
                ord(dtype.kind), dtype.itemsize,
            )

    def __str__(self) -> str:
        p = self.shared
        if p is not None:
            return (
                f"thread {p.thread} offset {p.addr}, phase {p.phase}, blocksize {p.blocksize}, "
                f"{p.dtype}"
            )
        if isinstance(self.given, tuple):
            return f"a private list of {len(self.given)}"
        return show(self.given)

    def sequence(self, call: str, count: int, what: str, expected: str) -> tuple[Any, ...]:
        """Return a private list, if it is one and as long as it has to be."""
        if self.error is not None:
            raise self.error
        given = self.given
        if not isinstance(given, tuple | Sequence) or isinstance(given, str | bytes):
            raise TypeError(f"{call}: {self.name}: expected {expected}, got {show(given)}")
        if not isinstance(given, tuple) or len(given) != count:
            n = len(given) if isinstance(given, tuple) else f"more than {LONGEST}"
            raise ValueError(f"{call}: {self.name}: expected {what}, got {n}")
        return given

    def check(self, call: str, team: TeamState, offset: int, nbytes: int) -> None:
        """Check what can be checked before a read; the call overwrites `nbytes` from `offset` on.

        One int for each thread of the team is expected.
        """
        name, p = self.name, self.shared
        if p is None:
            given = self.sequence(
                call, team.size, f"one int for each of {team.size} threads",
                "a SharedArray, a SharedPointer or a sequence of int",
            )  # fmt: skip
            self.given = tuple(as_integer(v, call, f"{name}[{i}]") for i, v in enumerate(given))
            return
        self.count = team.size
        p.allocation.check_live(call, name)
        if p.dtype.kind not in "iu":
            raise TypeError(f"{call}: {name}: expected integers, got {p.dtype}")
        if p.thread != team.threads[0]:
            raise AffinityError(
                f"{call}: {name}: expected affinity to thread {team.threads[0]}, "
                f"got a pointer with affinity to thread {p.thread}"
            )
        try:
            places = extent(p, team.size)
        except IndexError:
            raise ValueError(
                f"{call}: {name}: {team.size} elements from there on are beyond the allocation, "
                f"which has {p.allocation.nelems} x {p.allocation.dtype}"
            ) from None
        if any(addr < offset + nbytes and offset < addr + size for _, addr, size in places):
            raise OverlapError(f"{call}: dst and {name} overlap: {name} is {self}")

    def read(self) -> list[int]:
        """Return the values of the list."""
        if self.shared is None:
            return list(self.given)
        values: list[int] = self.fetch().tolist()
        return values

    def fetch(self) -> NDArray[Any]:
        """Return the elements of a shared list; read them now unless a gathering has."""
        assert self.shared is not None
        elements, self.brought = self.brought, None
        if elements is None:
            elements = read_elements(self.shared, self.count)
        self.data = elements.tobytes()
        return elements

    def entries(self, values: Sequence[int]) -> list[tuple[str, str]]:
        """Return one (name, text) per value, so that a mismatch report names the index."""
        return [(f"{self.name}[{i}]", str(v)) for i, v in enumerate(values)]


def permutation(call: str, values: Sequence[int]) -> Sequence[int]:
    """Return the values if each thread is among them once."""
    threads = len(values)
    if sorted(values) == list(range(threads)):
        return values
    first: dict[int, int] = {}
    for i, value in enumerate(values):
        where = f"{call}: perm[{i}] is {value}"
        if not 0 <= value < threads:
            raise ValueError(f"{where}: expected 0 <= perm[i] < {threads}")
        if value in first:
            raise ValueError(f"{where}, as perm[{first[value]}] is: expected a permutation")
        first[value] = i
    raise AssertionError("a list of distinct threads is a permutation")
