"""Shared arrays: what programs allocate, index and take views of.

A `SharedArray` is one way to look at an `Allocation`, a piece of the shared heap. Its slices go
through the pointer to its element 0.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import show
from ..records import public_names
from .access import load, store
from .allocation import Allocation, dtype_of
from .integer_arguments import integer, is_integer
from .pointer import locate
from .pointer_record import (
    converted,
)
from .private_memory import check_readable
from .shape import Shape, part_shape, selection
from .shared_pointer import SharedPointer, by_value, from_entry, pointer_to
from .shared_reference import Address, SharedReference
from .slices import read_items, runs_of, write_items

__all__ = [
    "SharedArray",
]


class SharedArray(SharedReference):
    """An array dealt in blocks over the threads; every thread may read and write all of it.

    ``A[i]`` and ``A[i:j:k]`` read by value from anywhere, ``A[i] = v`` and ``A[i:j] = array``
    write, with numpy's rules for negative indices, conversion and broadcasting. ``A.local`` is
    a thread's own part, without a copy. ``A + i`` points to element i. ``A == B`` is ``A is B``.

    An array of several axes (``xupc.all_alloc((3, 4))``) has its elements in C order, and each
    thread has whole rows. ``A[i, j]``, ``A[i]``, ``A[i:j]`` and ``A[i, j:k]`` read and write what
    is in one piece; `A.local` has as many axes. In ``A + i`` and `threadof` i counts elements.

    Arrays come from ``xupc.all_alloc``. After ``free`` every use raises ValueError, while the
    views taken before stay valid, as stale bytes.
    """

    __slots__ = ("__weakref__", "_address", "_allocation", "_axes", "_start")

    _start: SharedPointer
    _address: Address

    __array_ufunc__ = None  # so that np.int64(3) + A comes to __radd__, instead of gathering A

    def __init__(self, allocation: Allocation, shape: Shape | None = None) -> None:
        self._allocation = allocation
        self._axes = shape if shape is not None and len(shape) > 1 else None
        self._start = pointer_to(allocation)
        self._address = (allocation, allocation.first, allocation.offset)

    # --- what it is

    def __len__(self) -> int:
        return self._allocation.nelems if self._axes is None else self._axes[0]

    @property
    def shape(self) -> Shape:
        """Length of each axis."""
        return (self._allocation.nelems,) if self._axes is None else self._axes

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
        """Memory that the array is made of."""
        return self._allocation

    def threadof(self, i: SupportsIndex) -> int:
        """Return the thread that element `i` has affinity to; IndexError if there is none."""
        return self._pointer(self._element(i, "A.threadof(i)")).thread

    def phaseof(self, i: SupportsIndex) -> int:
        """Return the position of element `i` in its block; IndexError if there is none."""
        return self._pointer(self._element(i, "A.phaseof(i)"))._phase

    # --- views

    @property
    def local(self) -> NDArray[Any]:
        """View, no copy, of the elements with affinity to this thread, in address order."""
        allocation = self._usable("A.local")
        view = self._view_of(allocation, allocation.memory.me)
        assert view is not None, "a thread reaches its own memory"
        return view

    @local.setter
    def local(self, value: Any) -> None:
        self.local[...] = value  # as numpy's x.real = v; and A.local += 1 ends with an assignment

    def local_view(self, thread: SupportsIndex) -> NDArray[Any] | None:
        """Return the view of the elements with affinity to `thread`; None on another node."""
        allocation = self._usable("A.local_view(thread)")
        number = integer(thread, "A.local_view", "thread")
        threads = allocation.memory.threads
        if not 0 <= number < threads:
            raise ValueError(
                f"A.local_view: thread is {show(number)}: expected 0 <= thread < {threads}"
            )
        return self._view_of(allocation, number)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("np.asarray(A, copy=False): a shared array can only be gathered")
        gathered = self._read(slice(None)).reshape(self.shape)
        if dtype is None:
            return gathered
        return gathered.astype(dtype_of(dtype, "np.asarray(A, dtype)"), copy=False)

    def _view_of(self, allocation: Allocation, thread: int) -> NDArray[Any] | None:
        view = allocation.elements(thread)
        if view is None or self._axes is None:
            return view
        return view.reshape(part_shape(self._axes, view.size))

    # --- pointers

    def ptr(self, i: SupportsIndex) -> SharedPointer:
        """Return a pointer to element `i`, 0 <= i <= nelems; there is no wrapping.

        Raises
        ------
        IndexError
            If `i` is out of that range.
        """
        return self._checked_pointer(integer(i, "A.ptr", "i"), "A.ptr(i)")

    def cast(self, dtype: DTypeLike | None = None, blocksize: int | None = None) -> SharedPointer:
        """Return ``A + 0`` with another dtype or blocksize, as `SharedPointer.cast` does."""
        return self._start.cast(dtype, blocksize)

    def __add__(self, i: SupportsIndex) -> SharedPointer:
        if not is_integer(i):
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
        if self._axes is not None:
            return self._read_axes(self._axes, key)
        if isinstance(key, slice) or key is Ellipsis:
            return by_value(allocation, self._read(key))
        p = self._pointer(self._element(key, "A[i]"))
        value = load(allocation, p.thread, p._addr, p._dtype)
        return value if p._dtype.kind != "V" else from_entry(allocation, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        allocation = self._usable("A[i] = v")
        if self._axes is not None:
            self._write_axes(self._axes, key, value)
            return
        if isinstance(key, slice) or key is Ellipsis:
            items = self._items(key)
            write_items(self._start, items, runs_of(self._start, items), value)
            return
        p = self._pointer(self._element(key, "A[i] = v"))
        if p._dtype.kind == "V":
            value = converted(value, p._dtype)
        store(allocation, p.thread, p._addr, p._dtype, value)

    def _read_axes(self, axes: Shape, key: Any) -> Any:
        """Return the element or elements that `key` selects."""
        items, shape = selection(key, axes, "A[i, j]")
        if isinstance(items, range):
            return read_items(self._start, items, runs_of(self._start, items)).reshape(shape)
        p = self._pointer(items)
        return load(p._allocation, p.thread, p._addr, p._dtype)

    def _write_axes(self, axes: Shape, key: Any, value: Any) -> None:
        """Write the element or elements that `key` selects."""
        items, shape = selection(key, axes, "A[i, j] = v")
        if not isinstance(items, range):
            items = range(items, items + 1)
        check_readable(value, "A[i, j] = v: v")
        staged = np.empty(shape, self.dtype)
        staged[...] = value
        write_items(self._start, items, runs_of(self._start, items), staged.reshape(-1))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def _read(self, key: Any) -> NDArray[Any]:
        self._usable("A[i:j]")
        items = self._items(key)
        return read_items(self._start, items, runs_of(self._start, items))

    def _items(self, key: Any) -> range:
        whole = range(self._allocation.nelems)
        return whole if key is Ellipsis else whole[key]

    def _element(self, key: Any, call: str) -> int:
        """Return `key` as an index from 0; IndexError if out of range."""
        i, nelems = integer(key, call, "i"), self._allocation.nelems
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

    def __dir__(self) -> list[str]:
        return public_names(self, "allocation")

    def __repr__(self) -> str:
        allocation = self._allocation
        size = f"nelems={allocation.nelems}" if self._axes is None else f"shape={self._axes}"
        return (
            f"SharedArray({size}, dtype={allocation.dtype}, "
            f"blocksize={allocation.blocksize}, threads={len(allocation.members)}"
            f"{'' if allocation.live else ', freed'})"
        )
