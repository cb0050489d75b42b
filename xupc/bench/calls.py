"""xupc's calls, ready to be timed and checked, and the memory of all calls of a cell.

A `Call` is a function with its arguments, the memory that it reads and writes, and the `Work` that
defines its result. All calls of a cell do the same work on memory of the same size: xupc's on
shared arrays, its calls on values and MPI's (`peer_calls`) on private ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

from ..flags import EXCLUSIVE
from ..specs import function_name, parse_name
from .oracle import Work

__all__ = ["Bytes", "Call", "Memory", "our_barrier", "our_call", "scalars",
           "source_and_result", "varying"]  # fmt: skip

_PAGE = 4096
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Call:
    """Hold ``function(*arguments)``, a call that can be repeated.

    Attributes
    ----------
    work
        The work that it does; None: a barrier, which has no result.
    source, result
        The memory of my contribution and of my result; None where I have no part.
    scalar
        Whether my contribution is an argument and the result is the returned value.
    vary
        Changes my contribution, so that it is in my cache as in a program; None where there is
        nothing to change.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    work: Work | None = None
    source: NDArray[Any] | None = None
    result: NDArray[Any] | None = None
    scalar: bool = False
    vary: Callable[[], Any] | None = None

    def __call__(self) -> Any:
        return self.function(*self.arguments)

    def prepare(self, salt: int) -> None:
        """Write my contribution, and a wrong value to the memory of the result."""
        if self.source is not None and self.work is not None:
            self.source[:] = self.work.contributed(salt)
        if self.result is not None:
            self.result.view(np.uint8)[:] = 0xA5

    def is_right(self, returned: Any, salt: int) -> bool:
        """Return whether my result is right; `returned` is the value that the call returned."""
        if self.work is None:
            return True
        if self.scalar:  # arguments do not vary
            wanted = np.concatenate([np.empty(0, self.work.dtype), *self.work.expected(0)])
            return np.array_equal(wanted, np.ravel([] if returned is None else returned))
        if self.result is None:
            return True
        start = 0
        for piece in self.work.expected(salt):
            if not np.array_equal(self.result[start : start + len(piece)], piece):
                return False
            start += len(piece)
        return start == len(self.result)


class Memory:
    """Hold memory for every cell up to a block size, allocated at its first use.

    `block` and `other` hold a block on each thread, `row` and `other_row` one for every thread;
    `own_*` are private ones of the same sizes. Every cell starts at offset 0, so that no call
    has an advantage from memory that another one left cold.

    Parameters
    ----------
    team : Team
        The threads that measure.
    comm : mpi4py communicator
        A communicator of the same threads.
    largest : int
        The bytes of the largest block.
    """

    def __init__(self, team: Any, comm: Any, largest: int) -> None:
        self.team = team
        self.comm = comm
        self.largest = largest

    @cached_property
    def drop_in(self) -> Any:
        """The drop-in communicator of the threads, warmed up; its first use is collective."""
        from ..mpi.record import PATIENCE

        comm = xupc.Comm(self.comm)
        for _ in range(PATIENCE + 1):
            comm.Barrier()
        return comm

    def _shared(self, blocks: int) -> Any:
        part, threads = blocks * self.largest, self.team.size
        return xupc.all_alloc(threads * part, np.uint8, part, team=self.team)

    def _private(self, blocks: int) -> Bytes:
        nbytes = blocks * self.largest
        raw = np.zeros(nbytes + _PAGE, np.uint8)
        start = -raw.ctypes.data % _PAGE
        return raw[start : start + nbytes]

    @cached_property
    def block(self) -> Any:
        return self._shared(1)

    @cached_property
    def other(self) -> Any:
        return self._shared(1)

    @cached_property
    def row(self) -> Any:
        return self._shared(self.team.size)

    @cached_property
    def other_row(self) -> Any:
        return self._shared(self.team.size)

    @cached_property
    def own_block(self) -> Bytes:
        return self._private(1)

    @cached_property
    def own_other(self) -> Bytes:
        return self._private(1)

    @cached_property
    def own_row(self) -> Bytes:
        return self._private(self.team.size)

    @cached_property
    def own_other_row(self) -> Bytes:
        return self._private(self.team.size)

    def shared(self, work: Work) -> tuple[Any, Any]:
        """Return (dst, src) of a work."""
        spec = work.spec
        if spec.one_buffer:
            return self.block, self.block
        src = self.row if spec.src.blocks == "T" else self.block
        if spec.dst.blocks == 1:
            return self.other, src
        return self.other_row if spec.src.blocks == "T" else self.row, src

    def private(self, work: Work) -> tuple[Bytes, Bytes]:
        """Return (dst, src) of a work."""
        spec = work.spec
        if spec.one_buffer or spec.one_array:
            return self.own_block, self.own_block
        src = self.own_row if spec.src.blocks == "T" else self.own_block
        if spec.dst.blocks == 1:
            return self.own_other, src
        return self.own_other_row if spec.src.blocks == "T" else self.own_row, src


def source_and_result(work: Work, dst: Bytes, src: Bytes) -> dict[str, Any]:
    """Return the keywords of a Call: its work, source and result, of the work's size and type."""
    given, found = work.given * work.count, work.found
    size = work.dtype.itemsize
    one_buffer = dst is src and given  # the root of a broadcast in place finds nothing new
    source = src[: given * size].view(work.dtype) if given else None
    return {
        "work": work,
        "source": source,
        "result": dst[: found * size].view(work.dtype) if found and not one_buffer else None,
        "vary": None if source is None else varying(source),
    }


def varying(source: NDArray[Any]) -> Callable[[], Any]:
    """Return a function that changes numbers such that reductions of them stay quick."""
    if source.dtype.kind in "ifc":
        return partial(np.negative, source, out=source)
    if source.dtype.kind == "b":
        return partial(np.logical_not, source, out=source)
    return partial(np.invert, source, out=source)


def our_barrier(memory: Memory) -> Call:
    """Return xupc's barrier of the team."""
    world = memory.team.parent is None
    return Call(xupc.barrier if world else memory.team.barrier)


def our_call(collective: str, work: Work, memory: Memory, flags: int = 0) -> Call:
    """Return a full call of xupc."""
    form, spec = parse_name(collective)
    function = getattr(xupc, function_name(spec, form))
    flags |= EXCLUSIVE if spec.inclusive else 0
    keywords: dict[str, Any] = {}
    if memory.team.parent is not None:
        keywords["team"] = memory.team
    if form == "allv":
        return _scalar_call(function, work, {**keywords, **_flags(flags)})
    if form in ("allav", "allav_v"):
        return _array_call(form, function, work, memory, {**keywords, **_flags(flags)})
    dst, src = memory.shared(work)
    ends = source_and_result(work, dst.local, src.local)
    if work.spec.one_buffer:
        ends["result"] = dst.local[: work.count] if work.found else None
    if form == "all":
        arguments = _shared_arguments(work, dst, src)
        if flags:
            missing = 2 if work.spec.whole else 1  # blk_size and func, or func alone
            arguments += ((None,) * missing if work.spec.computes else ()) + (flags,)
    else:
        arguments = (*_listed_arguments(form, work, dst, src), *([flags] if flags else []))
    return Call(_with(function, keywords), arguments, **ends)


def _with(function: Any, keywords: dict[str, Any]) -> Any:
    """Return the function with keywords; the function itself without any, to time a plain call."""
    return partial(function, **keywords) if keywords else function


def _flags(flags: int) -> dict[str, int]:
    return {"flags": flags} if flags else {}


def _shared_arguments(work: Work, dst: Any, src: Any) -> tuple[Any, ...]:
    """Return the arguments before the flags and before those that may be left out."""
    n = work.count * work.dtype.itemsize
    spec = work.spec
    if spec.root == "src" and work.root:
        src = src.ptr(work.root * src.blocksize)
    if spec.root == "dst" and work.root:
        dst = dst.ptr(work.root * dst.blocksize)
    if spec.one_buffer:
        return src, n
    if spec.permutes:
        return dst, src, tuple(range(work.threads))[::-1], n
    if not work.spec.computes:
        return dst, src, n
    dst, src = ((x + 0).cast(work.dtype, work.count) for x in (dst, src))
    op = getattr(xupc, work.op)
    elements = work.count * work.threads
    if spec.src.blocks == "T":
        return dst, src, op, work.count
    if spec.elementwise:
        return dst, src, op, elements, work.count
    return dst, src, op, elements


def _listed_arguments(form: str, work: Work, dst: Any, src: Any) -> tuple[Any, ...]:
    """Return the arguments before the flags of a _v or _x form, for uniform blocks."""
    n, threads, root = work.count, work.threads, work.root
    d, s = dst.blocksize, src.blocksize  # bytes of a thread's part
    everyone = range(threads)
    sizes: Any
    match work.what:
        case "broadcast":
            to, of, sizes = [i * d for i in everyone], [root * s], n
        case "scatter":
            to, of = [i * d for i in everyone], [root * s + i * n for i in everyone]
            sizes = (n,) * threads
        case "gather":
            to, of = [root * d + i * n for i in everyone], [i * s for i in everyone]
            sizes = (n,) * threads
        case "gather_all":
            to = [i * d + j * n for i in everyone for j in everyone]
            of, sizes = [j * s for j in everyone], (n,) * threads
        case "exchange":
            to = [i * d + j * n for i in everyone for j in everyone]
            of = [j * s + i * n for j in everyone for i in everyone]
            sizes = (n,) * threads**2
        case _:
            to, of = [i * d for i in everyone], [i * s for i in everyone]
            sizes = (n,) * threads
    perm: tuple[Any, ...] = (tuple(everyone)[::-1],) if work.spec.permutes else ()
    if form == "v":
        source = src.ptr(of[0]) if work.what == "broadcast" else src
        lists = (tuple(to),) if work.what == "broadcast" else (tuple(to), tuple(of))
        return (dst, source, *perm, *lists, sizes)
    targets, sources = tuple(dst.ptr(i) for i in to), tuple(src.ptr(i) for i in of)
    return (targets, sources[0] if work.what == "broadcast" else sources, *perm, sizes)


def _array_call(
    form: str, function: Any, work: Work, memory: Memory, keywords: dict[str, Any]
) -> Call:
    dst, src = memory.private(work)
    ends = source_and_result(work, dst, src)
    size = work.count * work.dtype.itemsize
    at_root = work.me == work.root

    def of(array: Bytes, blocks: int) -> NDArray[Any]:
        return array[: blocks * size].view(work.dtype)

    spec = work.spec
    arrays = [
        of(array, work.threads if operand.blocks == "T" else 1)
        if at_root or operand.everywhere
        else None
        for array, operand in ((dst, spec.dst), (src, spec.src))
    ]
    arguments: tuple[Any, ...] = (of(src, 1),) if spec.one_array else tuple(arrays)
    if form == "allav_v":
        arguments += ((work.count,) * work.threads,) * (2 if work.what == "exchange" else 1)
    arguments += (work.to,) if spec.permutes else ()
    arguments += (getattr(xupc, work.op),) if spec.computes else ()
    arguments += (work.root,) if spec.root else ()
    return Call(_with(function, keywords), arguments, **ends)


def _scalar_call(function: Any, work: Work, keywords: dict[str, Any]) -> Call:
    arguments = scalars(work)
    if work.spec.computes:
        arguments = (arguments[0], getattr(xupc, work.op))
    if work.spec.permutes:
        arguments += (work.to,)
    if work.spec.root:
        arguments += (work.root,)
    return Call(_with(function, keywords), arguments, work, scalar=True)


def scalars(work: Work) -> tuple[Any, ...]:
    """Return a thread's argument: a value, or one for each thread; None where it has none."""
    values = work.contributed(0).tolist()
    if work.spec.src.blocks == "T":
        return (values or None,)
    return (values[0] if values else None,)
