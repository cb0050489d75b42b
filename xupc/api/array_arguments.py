"""Arguments of calls on private arrays: as given, as checked, and bound to an instance."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..flags import ASYNC
from ..records import mutable_record, record
from ..reduction.foreign_ops import as_op

__all__ = [
    "Array",
    "Arrays",
    "Kind",
    "RawArguments",
    "Ready",
    "overlap",
    "plain",
    "same_elements",
]


Array = NDArray[Any]


@mutable_record
class RawArguments:
    """The arguments of a call, as given; `converted`: dst or src is another object than given."""

    dst: Any
    src: Any
    op: Any
    root: Any
    func: Any
    flags: Any
    converted: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RawArguments:
        """Take the arguments from a mapping by name."""
        get = values.get
        dst, root = get("dst", get("values")), get("root", get("to"))
        return cls(dst, get("src"), as_op(get("op")), root, get("func"), get("flags", 0))

    @property
    def posted(self) -> bool:
        """True if the call is asynchronous."""
        try:
            return bool(operator.index(self.flags) & ASYNC)
        except Exception:  # no number: the check of flags reports it
            return False


@record
class Arrays:
    """The arrays of a thread, checked.

    Attributes
    ----------
    dst, src
        The arrays as given; None on threads that have none.
    in_place
        True if dst is src as well.
    n, dtype
        Elements of a block, and their type in messages.
    """

    dst: Array | None
    src: Array | None
    in_place: bool
    n: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of a block in bytes."""
        return self.n * int(self.dtype.itemsize)


@mutable_record
class Ready:
    """A call with checked arguments, bound to its arrays.

    Attributes
    ----------
    instance
        Bound to `dst` and `src`; None if the call moves nothing.
    dst, src
        The contiguous arrays that it works on.
    into
        Destination of a copy of the result; None if none is needed.
    """

    instance: Any
    dst: Array | None = None
    src: Array | None = None
    into: Array | None = None
    in_place: bool = False

    def steps(self) -> Iterator[Any]:
        """Yield the instance to run, then complete the call."""
        if self.instance is not None:
            yield self.instance
            self.finish()

    def finish(self) -> None:
        """Copy the result to its destination, after the instance has completed."""
        if self.into is not None:
            assert self.dst is not None
            self.into[...] = self.dst.reshape(self.into.shape)


@record
class Kind:
    """The arguments that must be equal on all threads; they name an instance."""

    nbytes: int
    dtype: str
    root: int
    op: int
    func: Any
    flags: int
    in_place: bool
    perm: bytes = b""


def plain(x: Array) -> bool:
    """Return True if the core can take an array as it is."""
    return bool(x.flags.c_contiguous and x.flags.aligned)


def same_elements(x: Any, dst: Array) -> bool:
    """Return True if src is dst, perhaps as another view of the same elements."""
    return x is dst or (
        isinstance(x, np.ndarray)
        and x.dtype == dst.dtype
        and x.shape == dst.shape
        and x.strides == dst.strides
        and x.ctypes.data == dst.ctypes.data
    )


def overlap(a: Array, b: Array) -> bool:
    """Return True if two arrays have bytes in common; also in doubt."""
    if not np.may_share_memory(a, b):
        return False
    if plain(a) and plain(b):
        return True
    try:
        return np.shares_memory(a, b, max_work=10000)  # type: ignore[arg-type]
    except RuntimeError:  # too hard
        return True
