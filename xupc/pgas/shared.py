"""Shared arrays and pointers-to-shared: what programs hold, index and copy.

`SharedArray` and `SharedPointer` are ways to look at an `Allocation`, a piece of the shared heap.
A pointer carries its allocation, so that a range check needs no look-up, and may see it with
another dtype and blocksize.

Every structured access goes one way: a pointer and a range of element offsets from it are cut into
runs (`pointer.slice_pieces`), each a strided copy with one thread's memory. A write never touches
bytes between the elements that it names, since these are another thread's to write.

A pointer holds its *rank*, its thread's place among those that the allocation is dealt over. In
memory of all threads that is the thread itself; in a team's it is not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import OverlapError, show
from ..flags import Flags
from ..ops import Op
from .allocation import Allocation, Bytes, Memory, check_dtype, current_memory, set_memory
from .pointer import (
    advance,
    affinity_indices,
    distance,
    locate,
    resolve_blocksize,
    slice_pieces,
)

__all__ = [
    "Address",
    "Allocation",
    "Memory",
    "SharedArray",
    "SharedPointer",
    "as_address",
    "check_dtype",
    "current_memory",
    "extent",
    "forall",
    "is_pointer_dtype",
    "memcpy",
    "memget",
    "memput",
    "memset",
    "pointer_dtype",
    "pointer_to",
    "read_elements",
    "set_memory",
    "to_pointer",
    "to_record",
]

# Private memory that a remote copy may take at a time: a bound on its size, not a matter of speed.
_CHUNK: Final = 1 << 20


# --- pointers -------------------------------------------------------------------------------------


class SharedPointer:
    """A pointer-to-shared: thread, phase and address. Immutable.

    ``p + n`` and ``p - n`` move by elements, over the threads if the blocksize is not 0;
    ``p - q`` is the number of elements between two pointers of equal dtype and blocksize, and
    ``<`` goes by it; ``==`` compares thread and address. ``p[i]`` and ``p[i:j]`` read and write
    what lies i, and up to j, elements from here, so a negative index goes back. Reads are copies.
    Accesses beyond the allocation raise IndexError, in a freed one ValueError.

    Pointers come from ``xupc.alloc``, ``xupc.global_alloc`` and ``array + i``. They pickle.
    """

    __slots__ = (
        "__weakref__", "_addr", "_allocation", "_blocksize", "_dtype", "_phase", "_rank",
    )  # fmt: skip

    __array_ufunc__ = None  # so that np.int64(3) + p comes to __radd__
    __iter__ = None  # a pointer has no end
    __contains__ = None

    def __init__(
        self,
        allocation: Allocation,
        rank: int,
        phase: int,
        addr: int,
        blocksize: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._allocation = allocation
        self._rank = rank
        self._phase = phase
        self._addr = addr
        self._blocksize = blocksize
        self._dtype = dtype

    # --- what it is

    @property
    def thread(self) -> int:
        """The thread that the element has affinity to (UPC language, 7.2.3)."""
        return self._allocation.members[self._rank]

    @property
    def phase(self) -> int:
        """The element's place in its block; 0 if the blocksize is 0 (UPC language, 7.2.3)."""
        return self._phase

    @property
    def addr(self) -> int:
        """Byte offset in the thread's part of the heap (UPC language, 7.2.3)."""
        return self._addr

    @property
    def blocksize(self) -> int:
        """Elements per block; 0: indefinite."""
        return self._blocksize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._dtype

    @property
    def team(self) -> Any:
        """The team whose threads the memory is dealt over; None if I do not know that team."""
        return self._allocation.team

    @property
    def allocation(self) -> Allocation:
        """The memory that the pointer may access."""
        return self._allocation

    # --- arithmetic

    def _moved(self, n: int) -> SharedPointer:
        allocation, dtype, blocksize = self._allocation, self._dtype, self._blocksize
        rank, phase, addr = advance(
            self._rank,
            self._phase,
            self._addr,
            n,
            blocksize,
            dtype.itemsize,
            len(allocation.members),
        )
        return SharedPointer(allocation, rank, phase, addr, blocksize, dtype)

    def __add__(self, n: SupportsIndex) -> SharedPointer:
        if not _is_integer(n):
            return NotImplemented
        return self._moved(operator.index(n))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, SharedPointer | SharedArray):
            return self._distance(_as_pointer(other))
        if not _is_integer(other):
            return NotImplemented
        return self._moved(-operator.index(other))

    def __rsub__(self, other: Any) -> int:
        if not isinstance(other, SharedArray):
            return NotImplemented
        return _as_pointer(other)._distance(self)

    def _distance(self, q: SharedPointer) -> int:
        blocksize, mine, others = self._blocksize, self._allocation.members, q._allocation.members
        if self._dtype != q._dtype or blocksize != q._blocksize:
            raise TypeError(f"p - q: p is {self!r}, q is {q!r}: expected equal dtype and blocksize")
        if blocksize and mine is not others and mine != others:
            raise TypeError(f"p - q: p is {self!r}, q is {q!r}: dealt over different teams")
        to = (self._rank, self._phase, self._addr)
        start = (q._rank, q._phase, q._addr)
        if not blocksize:  # ranks of two teams: compare the threads
            to, start = (self.thread, 0, self._addr), (q.thread, 0, q._addr)
        return distance(to, start, blocksize, self._dtype.itemsize, len(mine))

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0 if _is_shared(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._order(other) <= 0 if _is_shared(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._order(other) > 0 if _is_shared(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._order(other) >= 0 if _is_shared(other) else NotImplemented

    def _order(self, other: SharedPointer | SharedArray) -> int:
        return self._distance(_as_pointer(other))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedPointer):
            return NotImplemented
        return self._addr == other._addr and self.thread == other.thread

    def __hash__(self) -> int:
        return hash((self.thread, self._addr))

    # --- other views of the same place

    def cast(self, dtype: DTypeLike | None = None, blocksize: int | None = None) -> SharedPointer:
        """Return a pointer to the same address with another dtype or blocksize.

        Parameters
        ----------
        dtype : dtype, optional
            None keeps the dtype.
        blocksize : int, optional
            0 makes it indefinite; None keeps the blocksize.

        Returns
        -------
        SharedPointer
            With phase 0, if blocksize or item size are others than before.

        Raises
        ------
        TypeError
            If `dtype` cannot be shared, or `blocksize` is no integer.
        ValueError
            If the address is not aligned for `dtype`, or `blocksize` is negative.
        """
        old, block = self._dtype, self._blocksize
        new = old if dtype is None else check_dtype(dtype, "p.cast")
        if self._addr % new.alignment:
            raise ValueError(
                f"p.cast: dtype is {new!r}: p.addr is {self._addr}: "
                f"expected a multiple of {new.alignment}"
            )
        if blocksize is not None:
            block = _integer(blocksize, "p.cast", "blocksize")
            if block < 0:
                raise ValueError(
                    f"p.cast: blocksize is {show(blocksize)}: expected an int >= 0 or None"
                )
        kept = block == self._blocksize and new.itemsize == old.itemsize
        phase = self._phase if kept else 0
        return SharedPointer(self._allocation, self._rank, phase, self._addr, block, new)

    def resetphase(self) -> SharedPointer:
        """Return a pointer to the same address with phase 0 (UPC language, 7.2.3)."""
        return SharedPointer(
            self._allocation, self._rank, 0, self._addr, self._blocksize, self._dtype
        )

    def local(self, n: SupportsIndex) -> NDArray[Any] | None:
        """Return a view, no copy, of the `n` elements that follow in this thread's own memory.

        Returns
        -------
        ndarray or None
            None if the thread is not on my node.

        Raises
        ------
        ValueError
            If `n` is negative, or the memory was freed.
        IndexError
            If they do not all lie in the thread's part of the allocation.
        """
        allocation, thread = self._usable("p.local(n)"), self.thread
        count = _at_least_0(n, "p.local", "n")
        nbytes = count * self._dtype.itemsize
        if not allocation.holds(thread, self._addr, nbytes):
            _out_of_range(f"p.local({show(count)})", allocation, thread, self._addr, nbytes)
        view = allocation.reach(thread, self._addr, nbytes)
        return None if view is None else view.view(self._dtype)

    # --- access

    def __getitem__(self, key: Any) -> Any:
        allocation = self._usable("p[i]")
        if isinstance(key, slice):
            items = _pointer_items(key)
            return _by_value(allocation, _read(self, items, runs_within(self, items)))
        thread, addr = self._place(key)
        return _load(allocation, thread, addr, self._dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        allocation = self._usable("p[i] = v")
        if isinstance(key, slice):
            items = _pointer_items(key)
            _write(self, items, runs_within(self, items), value)
            return
        thread, addr = self._place(key)
        _store(allocation, thread, addr, self._dtype, value)

    def _usable(self, call: str) -> Allocation:
        allocation = self._allocation
        allocation.memory.check()
        if not allocation.live:
            allocation.check_live(call, "p")
        return allocation

    def _place(self, key: Any) -> tuple[int, int]:
        """Thread and address of ``p[key]``; IndexError if that is out of range."""
        i = _integer(key, "p[i]", "i")
        allocation, size, members = self._allocation, self._dtype.itemsize, self._allocation.members
        rank, _, addr = advance(
            self._rank, self._phase, self._addr, i, self._blocksize, size, len(members)
        )
        thread = members[rank]
        if not allocation.holds(thread, addr, size):
            _out_of_range(f"p[{show(i)}]", allocation, thread, addr, size)
        return thread, addr

    # --- the rest

    def __reduce__(self) -> tuple[Any, ...]:
        allocation = self._allocation
        members = None if allocation.of_world else tuple(allocation.members)
        record = _record(self, whole=True)
        return _unpickle, (tuple(record), members, self._phase, self._blocksize, self._dtype)

    def __copy__(self) -> SharedPointer:
        return self

    def __deepcopy__(self, memo: object) -> SharedPointer:
        return self

    def __repr__(self) -> str:
        return (
            f"SharedPointer(thread={self.thread}, phase={self._phase}, addr={self._addr}, "
            f"blocksize={self._blocksize}, dtype={self._dtype})"
        )


def pointer_to(allocation: Allocation) -> SharedPointer:
    """Return the pointer to element 0 of `allocation`, with its own dtype and blocksize."""
    rank = allocation.rank_of(allocation.first)
    assert rank is not None, "element 0 lies on a member"
    return SharedPointer(
        allocation, rank, 0, allocation.offset, allocation.blocksize, allocation.dtype
    )


# --- arrays ---------------------------------------------------------------------------------------


class SharedArray:
    """An array dealt in blocks over the threads; every thread may read and write all of it.

    ``A[i]`` and ``A[i:j:k]`` read by value from anywhere, ``A[i] = v`` and ``A[i:j] = array``
    write, with numpy's rules for negative indices, conversion and broadcasting. ``A.local`` is
    the fast way to one's own part. ``A + i`` points to element i. ``A == B`` is ``A is B``.

    Arrays come from ``xupc.all_alloc``. After ``free`` every use raises ValueError, while the
    views taken before stay valid, as stale bytes.
    """

    __slots__ = ("__weakref__", "_address", "_allocation", "_start")

    __array_ufunc__ = None  # so that np.int64(3) + A comes to __radd__, instead of gathering A

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._start = pointer_to(allocation)
        self._address = (allocation, allocation.first, allocation.offset)

    # --- what it is

    def __len__(self) -> int:
        return self._allocation.nelems

    @property
    def nelems(self) -> int:
        """Number of elements."""
        return self._allocation.nelems

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._allocation.dtype

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._allocation.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes on all threads together."""
        return self._allocation.nbytes

    @property
    def blocksize(self) -> int:
        """Elements per block; 0: all on one thread."""
        return self._allocation.blocksize

    @property
    def allocation(self) -> Allocation:
        """The memory that the array is made of."""
        return self._allocation

    def threadof(self, i: SupportsIndex) -> int:
        """Return the thread that element `i` has affinity to; IndexError if there is none."""
        return self._pointer(self._element(i, "A.threadof(i)")).thread

    def phaseof(self, i: SupportsIndex) -> int:
        """Return the place of element `i` in its block; IndexError if there is none."""
        return self._pointer(self._element(i, "A.phaseof(i)"))._phase

    # --- views

    @property
    def local(self) -> NDArray[Any]:
        """View, no copy, of the elements with affinity to me, in address order."""
        allocation = self._usable("A.local")
        view = allocation.elements(allocation.memory.me)
        assert view is not None, "a thread reaches its own memory"
        return view

    @local.setter
    def local(self, value: Any) -> None:
        self.local[...] = value  # as numpy's x.real = v; and A.local += 1 ends with an assignment

    def local_view(self, thread: SupportsIndex) -> NDArray[Any] | None:
        """Return the view of the elements with affinity to `thread`, None if off my node."""
        allocation = self._usable("A.local_view(thread)")
        number = _integer(thread, "A.local_view", "thread")
        threads = allocation.memory.threads
        if not 0 <= number < threads:
            raise ValueError(
                f"A.local_view: thread is {show(number)}: expected 0 <= thread < {threads}"
            )
        return allocation.elements(number)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("np.asarray(A, copy=False): a shared array can only be gathered")
        gathered = self._read(slice(None))
        return gathered if dtype is None else gathered.astype(dtype, copy=False)

    # --- pointers

    def ptr(self, i: SupportsIndex) -> SharedPointer:
        """Return a pointer to element `i`, 0 <= i <= nelems; there is no wrapping.

        Raises
        ------
        IndexError
            If `i` is out of that range.
        """
        return self._checked_pointer(_integer(i, "A.ptr", "i"), "A.ptr(i)")

    def cast(self, dtype: DTypeLike | None = None, blocksize: int | None = None) -> SharedPointer:
        """Return ``A + 0`` with another dtype or blocksize, as `SharedPointer.cast` does."""
        return self._start.cast(dtype, blocksize)

    def __add__(self, i: SupportsIndex) -> SharedPointer:
        if not _is_integer(i):
            return NotImplemented
        return self._checked_pointer(operator.index(i), "A + i")

    __radd__ = __add__

    def _checked_pointer(self, i: int, call: str) -> SharedPointer:
        if not 0 <= i <= self._allocation.nelems:
            raise IndexError(
                f"{call}: i is {show(i)}: expected 0 <= i <= {self.nelems}, no wrapping"
            )
        return self._pointer(i)

    def _pointer(self, i: int) -> SharedPointer:
        start, allocation = self._start, self._allocation
        if not allocation.blocksize:
            return start._moved(i)
        rank, phase, local = locate(i, allocation.blocksize, len(allocation.members))
        addr = allocation.offset + local * allocation.itemsize
        return SharedPointer(allocation, rank, phase, addr, allocation.blocksize, allocation.dtype)

    # --- access

    def __getitem__(self, key: Any) -> Any:
        allocation = self._usable("A[i]")
        if isinstance(key, slice) or key is Ellipsis:
            return _by_value(allocation, self._read(key))
        p = self._pointer(self._element(key, "A[i]"))
        return _load(allocation, p.thread, p._addr, p._dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        allocation = self._usable("A[i] = v")
        if isinstance(key, slice) or key is Ellipsis:
            items = self._items(key)
            _write(self._start, items, _runs(self._start, items), value)
            return
        p = self._pointer(self._element(key, "A[i] = v"))
        _store(allocation, p.thread, p._addr, p._dtype, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def _read(self, key: Any) -> NDArray[Any]:
        self._usable("A[i:j]")
        items = self._items(key)
        return _read(self._start, items, _runs(self._start, items))

    def _items(self, key: Any) -> range:
        whole = range(self._allocation.nelems)
        return whole if key is Ellipsis else whole[key]

    def _element(self, key: Any, call: str) -> int:
        """`key` as an index from 0; IndexError if out of range."""
        i, nelems = _integer(key, call, "i"), self._allocation.nelems
        if not -nelems <= i < nelems:
            raise IndexError(f"{call}: i is {show(i)}: out of range for a SharedArray of {nelems}")
        return i if i >= 0 else i + nelems

    def _usable(self, call: str) -> Allocation:
        allocation = self._allocation
        allocation.memory.check()
        if not allocation.live:
            allocation.check_live(call, "A")
        return allocation

    # --- the rest

    def __bool__(self) -> NoReturn:
        raise ValueError("bool(A): the truth value of a SharedArray is ambiguous: gather it first")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SharedArray cannot be pickled or copied: pickle A + 0, copy np.array(A)")

    def __repr__(self) -> str:
        allocation = self._allocation
        return (
            f"SharedArray(nelems={allocation.nelems}, dtype={allocation.dtype}, "
            f"blocksize={allocation.blocksize}, threads={len(allocation.members)}"
            f"{'' if allocation.live else ', freed'})"
        )


# --- single elements ------------------------------------------------------------------------------


def _load(allocation: Allocation, thread: int, addr: int, dtype: np.dtype[Any]) -> Any:
    cell = allocation.reach(thread, addr, dtype.itemsize)
    if cell is None:
        cell = np.empty(dtype.itemsize, np.uint8)
        allocation.memory.get(thread, addr, cell)
    value = cell.view(dtype)[0]
    if dtype.kind != "V":
        return value
    if is_pointer_dtype(dtype):
        return _decode(allocation.memory, value.item())
    return value.copy()  # a void scalar is a view of its array


def _store(
    allocation: Allocation, thread: int, addr: int, dtype: np.dtype[Any], value: Any
) -> None:
    if dtype.kind == "V" and is_pointer_dtype(dtype):
        value = _pointer_entry(value)
    cell = allocation.reach(thread, addr, dtype.itemsize)
    if cell is not None:
        cell.view(dtype)[0] = value
        return
    cell = np.zeros(dtype.itemsize, np.uint8)
    cell.view(dtype)[0] = value
    allocation.memory.put(thread, addr, cell)


# --- slices ---------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Items of a slice, evenly spaced in one thread's memory: item k at ``addr + k * stride``."""

    thread: int
    addr: int
    stride: int
    nelems: int
    items: slice

    def cover(self, itemsize: int) -> tuple[int, int]:
        """(Address, bytes) of the shortest range that holds all items."""
        reach = (self.nelems - 1) * self.stride
        return self.addr + min(reach, 0), abs(reach) + itemsize

    def chunks(self, size: int) -> Iterator[Run]:
        """The same items, at most `size` of them at a time, from item 0."""
        for k in range(0, self.nelems, size):
            n = min(size, self.nelems - k)
            yield Run(self.thread, self.addr + k * self.stride, self.stride, n, slice(k, k + n))


def _runs(p: SharedPointer, items: range) -> Iterator[Run]:
    """Cut ``p[items]`` into runs.

    The pieces are those of an array whose block 0 is the row of p on rank 0, where p is element
    `ahead`.
    """
    members, size, block = p._allocation.members, p._dtype.itemsize, p._blocksize
    ahead = p._rank * block + p._phase
    base = p._addr - p._phase * size
    start, stop = items.start + ahead, items.stop + ahead
    for piece in slice_pieces(start, stop, items.step, block, len(members)):
        last = piece.item + (piece.nelems - 1) * piece.item_step
        yield Run(
            members[piece.thread if block else p._rank],
            base + piece.local * size,
            piece.local_step * size,
            piece.nelems,
            slice(piece.item, last + 1, piece.item_step),
        )


def runs_within(p: SharedPointer, items: range) -> list[Run]:
    """The runs of ``p[items]``; IndexError if one leaves the allocation."""
    allocation, size = p._allocation, p._dtype.itemsize
    call = f"p[{show(items.start)}:{show(items.stop)}:{show(items.step)}]"
    # More items than the allocation has elements cannot fit: say so before counting them.
    if items and abs(items.stop - items.start) > abs(items.step) * (allocation.nbytes // size):
        raise IndexError(f"{call}: reaches beyond the {allocation.nbytes} bytes of {allocation!r}")
    runs = list(_runs(p, items))
    for run in runs:
        addr, nbytes = run.cover(size)
        if not allocation.holds(run.thread, addr, nbytes):
            _out_of_range(call, allocation, run.thread, addr, nbytes)
    return runs


def _pointer_items(key: slice) -> range:
    """The element offsets that ``p[key]`` names; there is no end to count from."""
    if key.stop is None:
        raise ValueError("p[i:j]: j is missing: a pointer has no end")
    step = 1 if key.step is None else _integer(key.step, "p[i:j:k]", "k")
    if step == 0:
        raise ValueError("p[i:j:k]: k is 0: slice step cannot be zero")
    start = 0 if key.start is None else _integer(key.start, "p[i:j]", "i")
    return range(start, _integer(key.stop, "p[i:j]", "j"), step)


def _read(p: SharedPointer, items: range, runs: Iterable[Run]) -> NDArray[Any]:
    out = np.empty(len(items), p._dtype)
    for run in runs:
        read_run(p._allocation, run, out[run.items])
    return out


def read_run(allocation: Allocation, run: Run, out: NDArray[Any]) -> None:
    """Read by load and store, or get the range that holds the items, the gaps included."""
    dtype, size = out.dtype, out.dtype.itemsize
    view = allocation.reach(run.thread, *run.cover(size))
    if view is not None:
        out[...] = _spaced(view, dtype, run.stride)
    elif run.stride == size and out.flags.c_contiguous:
        allocation.memory.get(run.thread, run.addr, out.view(np.uint8))
    else:
        for chunk in run.chunks(max(1, _CHUNK // abs(run.stride))):
            addr, nbytes = chunk.cover(size)
            cover = np.empty(nbytes, np.uint8)
            allocation.memory.get(run.thread, addr, cover)
            out[chunk.items] = _spaced(cover, dtype, run.stride)


def _write(p: SharedPointer, items: range, runs: Iterable[Run], value: Any) -> None:
    data = _staged(value, len(items), p._dtype)
    for run in runs:
        _write_run(p._allocation, run, data[run.items])


def _write_run(allocation: Allocation, run: Run, data: NDArray[Any]) -> None:
    """Write by load and store, or put each contiguous range, never what lies between items."""
    dtype, size = data.dtype, data.dtype.itemsize
    view = allocation.reach(run.thread, *run.cover(size))
    if view is not None:
        _spaced(view, dtype, run.stride)[...] = data
        return
    adjacent = abs(run.stride) == size
    for chunk in run.chunks(max(1, _CHUNK // size) if adjacent else 1):
        step = 1 if run.stride > 0 else -1
        block = np.array(data[chunk.items][::step])  # contiguous, in address order
        allocation.memory.put(run.thread, chunk.cover(size)[0], block.view(np.uint8))


def _spaced(cover: Bytes, dtype: np.dtype[Any], stride: int) -> NDArray[Any]:
    """The items of a covering range: with a negative stride they start at its end."""
    return cover.view(dtype)[:: stride // dtype.itemsize]


def _staged(value: Any, nelems: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`value` as `nelems` elements, converted and broadcast as numpy's assignment does it."""
    if is_pointer_dtype(dtype):
        value = _pointer_entries(value)
    if isinstance(value, int | float | complex | str | bytes | np.generic):
        one = np.empty((), dtype)
        one[...] = value
        return np.broadcast_to(one, (nelems,))
    staged: NDArray[Any]
    if _is_plain(value) and value.dtype == dtype and value.shape == (nelems,):
        staged = value
        return staged
    staged = np.empty(nelems, dtype)
    staged[...] = value
    return staged


def _is_plain(value: Any) -> bool:
    """Whether it is an array with memory of its own: a view might be of what is written."""
    return type(value) is np.ndarray and value.base is None


def _by_value(allocation: Allocation, values: NDArray[Any]) -> NDArray[Any] | list[Any]:
    """What a slice returns: the array, but a list of pointers for pointers."""
    if not is_pointer_dtype(values.dtype):
        return values
    return [_decode(allocation.memory, record) for record in values.tolist()]


# --- pointers as data -----------------------------------------------------------------------------


class _Record(NamedTuple):
    """A pointer and its allocation's bounds as plain numbers."""

    kind: int
    thread: int
    first: int
    itemsize: int
    addr: int
    offset: int
    nelems: int
    blocksize: int
    serial: int


pointer_dtype: Final[np.dtype[Any]] = np.dtype(
    [(name, "i4" if k < 4 else "i8") for k, name in enumerate(_Record._fields)], align=True
)
"""Elements that hold pointers-to-shared; zero bytes are the null pointer."""

_KINDS: Final = ("null", "all", "alloc", "global", "foreign")
_NULL: Final = _Record(0, 0, 0, 0, 0, 0, 0, 0, 0)
_UINT8: Final[np.dtype[Any]] = np.dtype(np.uint8)


def is_pointer_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether elements of the type hold pointers."""
    return dtype is pointer_dtype or (dtype.kind == "V" and dtype == pointer_dtype)


def _record(p: SharedPointer, *, whole: bool) -> _Record:
    """`p` as numbers.

    Of a team's memory a record alone cannot hold the layout: unless `whole`, where the members
    travel with it, it holds the bounds of the part that p points into.
    """
    a, thread = p._allocation, p.thread
    if not (whole or a.of_world):
        offset, nbytes = a.part(thread)
        kind = _KINDS.index("foreign")
        return _Record(kind, thread, thread, 1, p._addr, offset, nbytes, 0, a.serial)
    return _Record(
        _KINDS.index(a.kind),
        thread,
        a.first,
        a.itemsize,
        p._addr,
        a.offset,
        a.nelems,
        a.blocksize,
        a.serial,
    )


def _resolve(memory: Memory, record: _Record, members: Sequence[int] | None) -> Allocation:
    """The allocation that a record tells of: the very one if it is known here.

    What is not known here, and would be if it were live, was freed.
    """
    memory = memory.home(record.offset)
    known = memory.allocation_at(record.first, record.offset)
    if known is not None and known.serial == record.serial and known.offset == record.offset:
        return known
    kind = _KINDS[record.kind]
    return Allocation(
        memory,
        record.serial,
        record.offset,
        record.nelems,
        np.dtype((np.void, record.itemsize)),
        record.blocksize,
        record.first,
        kind,
        members=members,
        live=kind == "global" or (kind == "alloc" and record.first != memory.me),
    )


def _restore(
    record: _Record, allocation: Allocation, phase: int, blocksize: int, dtype: np.dtype[Any]
) -> SharedPointer:
    rank = allocation.rank_of(record.thread)
    if rank is None:
        raise ValueError(f"pointer to thread {record.thread}: not a thread of {allocation!r}")
    return SharedPointer(allocation, rank, phase, record.addr, blocksize, dtype)


def _unpickle(
    numbers: tuple[int, ...],
    members: tuple[int, ...] | None,
    phase: int,
    blocksize: int,
    dtype: np.dtype[Any],
) -> SharedPointer:
    record = _Record(*numbers)
    allocation = _resolve(current_memory(), record, members)
    return _restore(record, allocation, phase, blocksize, dtype)


def _decode(memory: Memory, numbers: tuple[int, ...]) -> SharedPointer | None:
    """The pointer that an element of a `pointer_dtype` array holds."""
    record = _Record(*numbers)
    if record.kind == 0:
        return None
    in_range = range(memory.threads)
    if (
        not 0 < record.kind < len(_KINDS)
        or record.thread not in in_range
        or record.first not in in_range
        or record.itemsize < 1
        or min(record.offset, record.nelems, record.blocksize) < 0
    ):
        raise ValueError(f"the element holds no pointer: {record}")
    return _restore(record, _resolve(memory, record, None), 0, 0, _UINT8)


def _pointer_entry(value: Any) -> Any:
    """`value` as one element of a `pointer_dtype` array."""
    if value is None:
        return _NULL
    if isinstance(value, SharedPointer | SharedArray):
        record = _record(_as_pointer(value), whole=False)
        if abs(record.addr) >> 63:
            raise OverflowError(f"A[i] = v: v: offset {show(record.addr)} is beyond any memory")
        return record
    if isinstance(value, np.void) and is_pointer_dtype(value.dtype):
        return value
    raise TypeError(f"A[i] = v: v is {show(value)}: expected a SharedPointer or None")


def _pointer_entries(value: Any) -> NDArray[Any]:
    """`value`, one pointer or several, as an array that numpy can broadcast."""
    if isinstance(value, np.ndarray | SharedArray) and is_pointer_dtype(value.dtype):
        return np.asarray(value)
    if isinstance(value, Iterable) and not isinstance(value, SharedArray | np.void):
        return np.array([_pointer_entry(v) for v in value], pointer_dtype)
    return np.array(_pointer_entry(value), pointer_dtype)


def to_pointer(record: np.void) -> SharedPointer | None:
    """The pointer that an element of a `pointer_dtype` array holds, None for null.

    ValueError if it holds none.
    """
    numbers: Any = record.item()
    return _decode(current_memory(), numbers)


def to_record(value: Any) -> tuple[int, ...]:
    """A pointer, or None, as the numbers of a `pointer_dtype` element."""
    entry = _pointer_entry(value)
    return tuple(entry.item() if isinstance(entry, np.void) else entry)


# --- copies ---------------------------------------------------------------------------------------

Address: TypeAlias = tuple[Allocation, int, int]
"""Allocation, thread and byte address."""


def as_address(x: SharedArray | SharedPointer) -> Address:
    """Return what `x` stands for as an address; an array for its element 0.

    Neither range nor liveness is checked.

    Raises
    ------
    TypeError
        If it is neither a SharedArray nor a SharedPointer.
    """
    if isinstance(x, SharedPointer):
        return x._allocation, x.thread, x._addr
    if isinstance(x, SharedArray):
        return x._address
    raise TypeError(f"{show(x)}: expected a SharedArray or a SharedPointer")


def extent(p: SharedPointer, n: int) -> list[tuple[int, int, int]]:
    """Where elements ``p[0:n]`` lie: (thread, address, bytes) of ranges that cover them.

    IndexError if one leaves the allocation.
    """
    size = p._dtype.itemsize
    return [(run.thread, *run.cover(size)) for run in runs_within(p, range(n))]


def read_elements(p: SharedPointer, n: int) -> NDArray[Any]:
    """Elements ``p[0:n]`` as an array, also of pointers; IndexError beyond the allocation."""
    return _read(p, range(n), runs_within(p, range(n)))


def memcpy(
    dst: SharedArray | SharedPointer, src: SharedArray | SharedPointer, nbytes: SupportsIndex
) -> None:
    """Copy `nbytes` from the address `src` to the address `dst` (UPC language, 7.2.5).

    Both ranges lie in one thread's part of an allocation each, across blocks if need be.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If `nbytes` is negative, a range leaves its allocation, or that was freed.
    OverlapError
        If the ranges overlap.
    """
    count = _at_least_0(nbytes, "memcpy", "nbytes")
    target = to, to_thread, to_addr = _range(dst, count, "memcpy", "dst")
    source = of, of_thread, of_addr = _range(src, count, "memcpy", "src")
    if to_thread == of_thread and max(to_addr, of_addr) < min(to_addr, of_addr) + count:
        raise OverlapError(
            f"memcpy: dst and src overlap on thread {to_thread}: {count} bytes "
            f"at {to_addr} and at {of_addr}"
        )
    to_view, of_view = to.reach(to_thread, to_addr, count), of.reach(of_thread, of_addr, count)
    if of_view is not None:
        _put(target, to_view, of_view)
    elif to_view is not None:
        of.memory.get(of_thread, of_addr, to_view)
    else:
        _copy_remote(target, source, count)


def memget(array: NDArray[Any], src: SharedArray | SharedPointer, nbytes: SupportsIndex) -> None:
    """Copy `nbytes` from the address `src` into a private array (UPC language, 7.2.5).

    Errors as in `memcpy`; also ValueError if `array` is not C-contiguous, not writeable, or
    smaller than `nbytes`.
    """
    count = _at_least_0(nbytes, "memget", "nbytes")
    data = _private(array, count, "memget")
    if not array.flags.writeable:
        raise ValueError("memget: array is read-only: expected a writeable one")
    of, thread, addr = _range(src, count, "memget", "src")
    view = of.reach(thread, addr, count)
    if view is None:
        of.memory.get(thread, addr, data)
    else:
        data[...] = view


def memput(dst: SharedArray | SharedPointer, array: NDArray[Any], nbytes: SupportsIndex) -> None:
    """Copy `nbytes` of a private array to the address `dst` (UPC language, 7.2.5).

    Errors as in `memcpy`; also ValueError if `array` is not C-contiguous or is smaller than
    `nbytes`.
    """
    count = _at_least_0(nbytes, "memput", "nbytes")
    data = _private(array, count, "memput")
    target = to, thread, addr = _range(dst, count, "memput", "dst")
    _put(target, to.reach(thread, addr, count), data)


def memset(dst: SharedArray | SharedPointer, byte: SupportsIndex, nbytes: SupportsIndex) -> None:
    """Set `nbytes` at the address `dst` to `byte`, 0 <= byte < 256 (UPC language, 7.2.5).

    Errors as in `memcpy`.
    """
    count = _at_least_0(nbytes, "memset", "nbytes")
    value = _integer(byte, "memset", "byte")
    if not 0 <= value < 256:
        raise ValueError(f"memset: byte is {show(value)}: expected 0 <= byte < 256")
    to, thread, addr = _range(dst, count, "memset", "dst")
    view = to.reach(thread, addr, count)
    if view is not None:
        view[...] = value
        return
    fill = np.full(min(count, _CHUNK), value, np.uint8)
    for k in range(0, count, _CHUNK):
        to.memory.put(thread, addr + k, fill[: count - k])


def _range(x: SharedArray | SharedPointer, nbytes: int, call: str, argument: str) -> Address:
    """`x` as an address from which `nbytes` may be copied, or to which."""
    if not _is_shared(x):
        raise TypeError(
            f"{call}: {argument} is {show(x)}: expected a SharedArray or a SharedPointer"
        )
    address = allocation, thread, addr = as_address(x)
    allocation.memory.check()
    allocation.check_live(call, argument)
    if not allocation.holds(thread, addr, nbytes):
        offset, size = allocation.part(thread)
        raise ValueError(
            f"{call}: nbytes is {show(nbytes)}: {argument} is address {show(addr)} of thread "
            f"{thread}, where the allocation has addresses {offset} to {offset + size}"
        )
    return address


def _private(array: NDArray[Any], nbytes: int, call: str) -> Bytes:
    """The first `nbytes` of a private array, as a view."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{call}: array is {show(array)}: expected a numpy array")
    if array.dtype.hasobject or not array.dtype.isnative:
        raise TypeError(f"{call}: array has dtype {array.dtype!r}: expected plain, native data")
    if not array.flags.c_contiguous:
        raise ValueError(f"{call}: array has strides {array.strides}: expected C-contiguous")
    if array.nbytes < nbytes:
        raise ValueError(
            f"{call}: array has {array.nbytes} bytes: expected at least {show(nbytes)}"
        )
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.asarray(array).reshape(-1).view(np.uint8)[:nbytes]


def _put(target: Address, view: Bytes | None, data: Bytes) -> None:
    allocation, thread, addr = target
    if view is None:
        allocation.memory.put(thread, addr, data)
    else:
        view[...] = data


def _copy_remote(target: Address, source: Address, nbytes: int) -> None:
    """Copy where load and store reach neither side: through a buffer, chunk by chunk."""
    (to, to_thread, to_addr), (of, of_thread, of_addr) = target, source
    buffer = np.empty(min(nbytes, _CHUNK), np.uint8)
    for k in range(0, nbytes, _CHUNK):
        chunk = buffer[: nbytes - k]
        of.memory.get(of_thread, of_addr + k, chunk)
        to.memory.put(to_thread, to_addr + k, chunk)


# --- forall ---------------------------------------------------------------------------------------


def forall(
    n: SupportsIndex,
    A: SharedArray | None = None,  # noqa: N803 - arrays are capitals in the API
    *,
    blocksize: int | str | None = None,
) -> Sequence[int]:
    """Return the indices in ``range(n)`` that are mine (UPC language, 6.6.2).

    Parameters
    ----------
    n : int
        End of the range.
    A : SharedArray, optional
        Mine are the indices whose element of A has affinity to me.
    blocksize : int or "*", optional
        Instead of `A`: mine are those of an array with this blocksize.

    Returns
    -------
    sequence of int
        Ascending; it takes constant memory.

    Raises
    ------
    TypeError
        If not exactly one of `A` and `blocksize` is given, or one has the wrong type.
    ValueError
        If `n` is more than the length of A, A was freed, or `blocksize` is negative.
    """
    count = _integer(n, "forall", "n")
    if (A is None) == (blocksize is None):
        raise TypeError("forall: expected either A or blocksize")
    if A is None:
        memory = current_memory()
        block = resolve_blocksize(blocksize, max(count, 0), memory.threads, "forall")
        return affinity_indices(count, memory.me, block, memory.threads)
    if not isinstance(A, SharedArray):
        raise TypeError(f"forall: A is {show(A)}: expected a SharedArray")
    allocation = A._usable("forall")
    if count > allocation.nelems:
        raise ValueError(f"forall: n is {show(count)}: A has only {allocation.nelems} elements")
    return _indices_of(allocation, count)


def _indices_of(allocation: Allocation, n: int) -> Sequence[int]:
    me = allocation.memory.me
    if allocation.blocksize == 0:
        return range(n if allocation.first == me else 0)
    rank = allocation.rank_of(me)
    if rank is None:
        return range(0)
    return affinity_indices(n, rank, allocation.blocksize, len(allocation.members))


# --- arguments ------------------------------------------------------------------------------------


def _is_shared(x: object) -> bool:
    return isinstance(x, SharedPointer | SharedArray)


def _as_pointer(x: SharedPointer | SharedArray) -> SharedPointer:
    return x if isinstance(x, SharedPointer) else x._start


def _is_integer(value: object) -> bool:
    """Whether `value` counts as an integer; of arrays those without a dimension.

    Never a bool, a flag or an operation.
    """
    if type(value) is int:
        return True
    if not isinstance(value, SupportsIndex) or isinstance(value, bool | np.bool_ | Flags | Op):
        return False
    return not isinstance(value, np.ndarray) or (value.ndim == 0 and value.dtype.kind in "iu")


def _integer(value: Any, call: str, argument: str) -> int:
    if not _is_integer(value):
        raise TypeError(f"{call}: {argument} is {show(value)}: expected an integer")
    return operator.index(value)


def _at_least_0(value: Any, call: str, argument: str) -> int:
    number = _integer(value, call, argument)
    if number < 0:
        raise ValueError(f"{call}: {argument} is {show(number)}: expected at least 0")
    return number


def _out_of_range(
    call: str, allocation: Allocation, thread: int, addr: int, nbytes: int
) -> NoReturn:
    offset, size = allocation.part(thread)
    raise IndexError(
        f"{call}: addresses {show(addr)} to {show(addr + nbytes)} of thread {thread} are out of "
        f"range: the allocation has {offset} to {offset + size} there"
    )
