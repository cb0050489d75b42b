"""Copies of bytes: between shared addresses, and between shared and private memory.

`memcpy`, `memget`, `memput` and `memset` are those of the UPC language, 7.2.5. They are one-sided:
the other thread does not take part.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..errors import OverlapError, show
from . import access
from .allocation import Bytes
from .integer_arguments import at_least_0, integer
from .private_memory import check_readable
from .shared_reference import Address, SharedReference, as_address

__all__ = [
    "memcpy",
    "memget",
    "memput",
    "memset",
]


def memcpy(dst: SharedReference, src: SharedReference, nbytes: SupportsIndex) -> None:
    """Copy `nbytes` from the address `src` to the address `dst` (UPC language, 7.2.5).

    Each range lies in one thread's part of an allocation; it may span several blocks.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If `nbytes` is negative, a range leaves its allocation, or that was freed.
    OverlapError
        If the ranges overlap.
    """
    count = at_least_0(nbytes, "memcpy", "nbytes")
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


def memget(array: NDArray[Any], src: SharedReference, nbytes: SupportsIndex) -> None:
    """Copy `nbytes` from the address `src` into a private array (UPC language, 7.2.5).

    Errors as in `memcpy`; also ValueError if `array` is not C-contiguous, not writeable, or
    smaller than `nbytes`.
    """
    count = at_least_0(nbytes, "memget", "nbytes")
    data = _private(array, count, "memget")
    if not array.flags.writeable:
        raise ValueError("memget: array is read-only: expected a writeable one")
    of, thread, addr = _range(src, count, "memget", "src")
    view = of.reach(thread, addr, count)
    if view is None:
        of.memory.get(thread, addr, data)
    else:
        data[...] = view


def memput(dst: SharedReference, array: NDArray[Any], nbytes: SupportsIndex) -> None:
    """Copy `nbytes` of a private array to the address `dst` (UPC language, 7.2.5).

    Errors as in `memcpy`; also ValueError if `array` is not C-contiguous or is smaller than
    `nbytes`.
    """
    count = at_least_0(nbytes, "memput", "nbytes")
    data = _private(array, count, "memput")
    target = to, thread, addr = _range(dst, count, "memput", "dst")
    _put(target, to.reach(thread, addr, count), data)


def memset(dst: SharedReference, byte: SupportsIndex, nbytes: SupportsIndex) -> None:
    """Set `nbytes` at the address `dst` to `byte`, 0 <= byte < 256 (UPC language, 7.2.5).

    Errors as in `memcpy`.
    """
    count = at_least_0(nbytes, "memset", "nbytes")
    value = integer(byte, "memset", "byte")
    if not 0 <= value < 256:
        raise ValueError(f"memset: byte is {show(value)}: expected 0 <= byte < 256")
    to, thread, addr = _range(dst, count, "memset", "dst")
    view = to.reach(thread, addr, count)
    if view is not None:
        view[...] = value
        return
    fill = np.full(min(count, access.CHUNK), value, np.uint8)
    for k in range(0, count, access.CHUNK):
        to.memory.put(thread, addr + k, fill[: count - k])


def _range(x: SharedReference, nbytes: int, call: str, argument: str) -> Address:
    """Return the address of `x`, checked for a copy of `nbytes` from or to it."""
    if not isinstance(x, SharedReference):
        raise TypeError(
            f"{call}: {argument} is {show(x)}: expected a SharedArray or a SharedPointer"
        )
    address = allocation, thread, addr = as_address(x)
    allocation.memory.check()
    allocation.check_live(call, argument)
    if not allocation.holds(thread, addr, nbytes):
        text = allocation.beyond(thread, addr, nbytes)
        raise ValueError(f"{call}: nbytes is {show(nbytes)}: {argument}: {text}")
    return address


def _private(array: NDArray[Any], nbytes: int, call: str) -> Bytes:
    """Return the first `nbytes` of a private array, as a view."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{call}: array is {show(array)}: expected a numpy array")
    check_readable(array, f"{call}: array")
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
    """Write `data` to an address, through `view` where load and store reach it."""
    allocation, thread, addr = target
    if view is None:
        allocation.memory.put(thread, addr, data)
    else:
        view[...] = data


def _copy_remote(target: Address, source: Address, nbytes: int) -> None:
    """Copy between two ranges that load and store do not reach, through a private buffer."""
    (to, to_thread, to_addr), (of, of_thread, of_addr) = target, source
    buffer = np.empty(min(nbytes, access.CHUNK), np.uint8)
    for k in range(0, nbytes, access.CHUNK):
        chunk = buffer[: nbytes - k]
        of.memory.get(of_thread, of_addr + k, chunk)
        to.memory.put(to_thread, to_addr + k, chunk)
