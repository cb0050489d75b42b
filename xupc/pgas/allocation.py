"""What shared arrays and pointers stand on: the heap's interface, and pieces of it.

`Memory` is what they need of the job's heap; `Allocation` is one piece of it: where it lies, how
it was dealt over the threads, and whether it is still live. What all threads allocated together is
one object for all arrays and pointers into it, so that freeing it is seen by all of them; a pointer
that came from elsewhere into what one thread allocated has an object of its own: see `same`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import NotInitializedError, show
from .pointer import local_count

__all__ = [
    "Allocation", "Bytes", "Memory", "check_dtype", "current_memory", "dtype_of",
    "set_memory",
]  # fmt: skip

Bytes: TypeAlias = NDArray[np.uint8]


# --- the heap, as seen from here ------------------------------------------------------------------


class Memory(Protocol):
    """The interface of the job's shared heap for arrays and pointers.

    Offsets are bytes in a thread's part of the heap. Callers access only bytes of an allocation,
    except through a pointer that was forged in a `pointer_dtype` array. So an implementation
    refuses accesses outside the heap.
    """

    @property
    def threads(self) -> int:
        """Number of threads of the job."""

    @property
    def me(self) -> int:
        """The calling thread."""

    @property
    def world(self) -> Any:
        """The team of all threads; only handed on, as ``SharedPointer.team``."""

    def view(self, thread: int, offset: int, nbytes: int) -> Bytes | None:
        """Return a writeable view of bytes of a thread on my node, else None.

        The view's base keeps the mapping alive. `nbytes` may be 0.
        """

    def get(self, thread: int, offset: int, out: Bytes) -> None:
        """Fill `out`, contiguous, with bytes of any thread; on return they are there."""

    def put(self, thread: int, offset: int, data: Bytes) -> None:
        """Write `data`, contiguous, to any thread; on return `data` may be reused.

        A later `get` or `view` of the caller sees it.
        """

    def check(self) -> None:
        """Raise NotInitializedError after ``finalize()`` and in a forked child."""

    def home(self, offset: int) -> Memory:
        """Return the heap that an offset belongs to; a team's is another one.

        ValueError if it is in the memory of a team that I do not know.
        """

    def allocation_at(self, thread: int, offset: int) -> Allocation | None:
        """Return the live allocation that starts at `offset` on `thread`, if known here.

        Known must be what was allocated by all threads together, and by me; of what other threads
        allocated one may know nothing.
        """


_memory: Memory | None = None


def set_memory(memory: Memory | None) -> None:
    """Make `memory` the job's heap, which pointers from elsewhere refer to; None: there is none."""
    global _memory
    _memory = memory


def current_memory() -> Memory:
    """Return the job's heap.

    Raises
    ------
    NotInitializedError
        Before ``init()``, after ``finalize()``, in a forked child.
    """
    if _memory is None:
        raise NotInitializedError("there is no shared memory: call xupc.init() first")
    _memory.check()
    return _memory


def dtype_of(dtype: DTypeLike, call: str) -> np.dtype[Any]:
    """Return `dtype` as a numpy dtype; TypeError if it is none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        raise
    except Exception as e:  # of a text or a list that is none, or of an object of the user's
        raise TypeError(f"{call}: dtype is {show(dtype)}: expected a dtype") from e


def check_dtype(dtype: DTypeLike | None, call: str) -> np.dtype[Any]:
    """Return `dtype` as a numpy dtype, if its elements can live in shared memory.

    Raises
    ------
    TypeError
        If it is none, holds Python objects, has a foreign byte order, size 0 or a shape.
    """
    if dtype is None:
        raise TypeError(f"{call}: dtype is None: expected a dtype")
    result = dtype_of(dtype, call)
    if result.hasobject:
        reason = "Python objects cannot be shared"
    elif not result.isnative:
        reason = "expected the native byte order"
    elif result.subdtype is not None or result.itemsize == 0:
        reason = "expected elements of a fixed size and no shape"
    else:
        return result
    raise TypeError(f"{call}: dtype is {result!r}: {reason}")


# --- allocations ----------------------------------------------------------------------------------


class Allocation:
    """A piece of the shared heap: its place, its layout and its state.

    Parameters
    ----------
    memory : Memory
        The heap that it is part of.
    serial : int
        Number that distinguishes it from others that had or will have the same offset.
    offset : int
        Where it starts, in bytes, on every thread.
    nelems : int
        Number of elements.
    dtype : numpy.dtype
        Of the elements.
    blocksize : int
        Elements per block; 0: all on thread `first`.
    first : int, optional
        Thread of element 0, the first of `members` unless blocksize is 0.
    kind : {"all", "alloc", "global", "foreign"}
        Which function made it. "foreign": only one thread's bounds of it are known.
    team : object, optional
        The team that it is dealt over, default all threads.
    members : sequence of int, optional
        The threads of that team by rank; given if, and only if, it is not all threads.
    live : bool
        False once freed.
    """

    __slots__ = (
        "__weakref__",
        "_elements",
        "_parts",
        "blocksize",
        "dtype",
        "first",
        "itemsize",
        "kind",
        "live",
        "members",
        "memory",
        "nelems",
        "of_world",
        "offset",
        "serial",
        "team",
    )

    def __init__(
        self,
        memory: Memory,
        serial: int,
        offset: int,
        nelems: int,
        dtype: np.dtype[Any],
        blocksize: int,
        first: int | None = None,
        kind: str = "all",
        *,
        team: object = None,
        members: Sequence[int] | None = None,
        live: bool = True,
    ) -> None:
        self.memory = memory
        self.serial = serial
        self.offset = offset
        self.nelems = nelems
        self.dtype = dtype
        self.itemsize = dtype.itemsize
        self.blocksize = blocksize
        self.of_world = members is None
        self.members: Sequence[int] = range(memory.threads) if members is None else members
        self.team: Any = memory.world if members is None else team
        self.first = self.members[0] if first is None else first
        self.kind = kind
        self.live = live
        # Views of the parts on my node. They live here, not in arrays, so that `retire` drops them.
        self._parts: dict[int, Bytes] = {}
        self._elements: dict[int, NDArray[Any]] = {}

    def same(self, other: Allocation) -> bool:
        """Return True if both describe the same piece of the heap."""
        return self is other or (
            self.serial == other.serial
            and self.offset == other.offset
            and (self.first == other.first or "alloc" not in (self.kind, other.kind))
        )

    @property
    def nbytes(self) -> int:
        """Bytes on all threads together."""
        return self.nelems * self.itemsize

    def rank_of(self, thread: int) -> int | None:
        """Return the place of `thread` among the members, None if it is not one."""
        try:
            return self.members.index(thread)
        except ValueError:
            return None

    def part(self, thread: int) -> tuple[int, int]:
        """Return (offset, nbytes) of the bytes with affinity to `thread`; maybe 0 bytes."""
        if self.blocksize == 0:
            return self.offset, self.nbytes if thread == self.first else 0
        rank = self.rank_of(thread)
        if rank is None:
            return self.offset, 0
        nelems = local_count(rank, self.nelems, self.blocksize, len(self.members))
        return self.offset, nelems * self.itemsize

    def holds(self, thread: int, addr: int, nbytes: int) -> bool:
        """Return True if all `nbytes` at `addr` are in the part of `thread`."""
        offset, size = self.part(thread)
        return offset <= addr and addr + nbytes <= offset + size

    def beyond(self, thread: int, addr: int, nbytes: int) -> str:
        """Return the text of an error: bytes that are not all in the part of `thread`."""
        offset, size = self.part(thread)
        element, rest = divmod(addr - offset, self.itemsize)
        where = f"byte {show(addr - offset)}" if rest else f"element {show(element)}"
        return (
            f"{show(nbytes)} bytes from {where} on are beyond thread {thread}'s part, which has "
            f"{size} bytes ({size // self.itemsize} {self.dtype})"
        )

    def reach(self, thread: int, addr: int, nbytes: int) -> Bytes | None:
        """Return a view of bytes in the part of `thread`, None if it is not on my node."""
        part = self._parts.get(thread)
        if part is None:
            part = self.memory.view(thread, *self.part(thread))
            if part is None:
                return None
            self._parts[thread] = part
        start = addr - self.offset
        return part[start : start + nbytes]

    def elements(self, thread: int) -> NDArray[Any] | None:
        """Return a new view of the elements of `thread`, None if it is not on my node."""
        elements = self._elements.get(thread)
        if elements is None:
            part = self.reach(thread, *self.part(thread))
            if part is None:
                return None
            elements = self._elements[thread] = part.view(self.dtype)
        return elements.view()  # the caller may set its shape or flags

    def check_live(self, call: str, argument: str) -> None:
        """Raise ValueError if this was freed, naming the argument of the call."""
        if not self.live:
            raise self.freed(call, argument)

    def freed(self, call: str, argument: str) -> ValueError:
        """Return the error of a call whose argument is in an array that was freed."""
        return ValueError(f"{call}: {argument} is in a freed array: {self!r}")

    def retire(self) -> None:
        """Mark as freed, and let go of the views kept here; those of the user stay valid."""
        self.live = False
        self._parts.clear()
        self._elements.clear()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Allocation is tied to its process: pickle a SharedPointer")

    def __repr__(self) -> str:
        return (
            f"<Allocation {self.serial} ({self.kind}{'' if self.live else ', freed'}): "
            f"{self.nelems} x {self.dtype} at {self.offset}, blocksize {self.blocksize}, "
            f"from thread {self.first}>"
        )
