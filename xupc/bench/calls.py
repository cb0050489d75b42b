"""xupc's calls and their peers of mpi4py, ready to be timed and checked.

A `Call` is a function with its arguments, the memory that it reads and writes, and the `Work`
that says what must come of it. All calls of a cell do the same work on memory of the same
size: xupc's on shared arrays, its values and MPI on private ones. MPI gets its buffers in
mpi4py's quickest form, ``[buffer, count, type]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

from ..specs import parse_name
from .oracle import Work

__all__ = [
    "Call",
    "Memory",
    "bcast_and_copy",
    "our_barrier",
    "our_call",
    "peer_barrier",
    "peer_call",
]

_PAGE = 4096
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Call:
    """``function(*arguments)``, which can be called again and again.

    Attributes
    ----------
    work
        What it does; None: a barrier, of which nothing comes.
    source, result
        What I contribute, and where I must find what; None where I have no part.
    scalar
        What I contribute is an argument, and what I must find comes back from the call.
    vary
        Changes what I contribute, so that it is in my cache as a program would have it there;
        None where there is nothing to change.
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
        """Put contents where they belong, and nonsense where the result will be."""
        if self.source is not None and self.work is not None:
            self.source[:] = self.work.contributed(salt)
        if self.result is not None:
            self.result.view(np.uint8)[:] = 0xA5

    def is_right(self, returned: Any, salt: int) -> bool:
        """Whether I find what I must; `returned` is what the call gave back."""
        if self.work is None:
            return True
        if self.scalar:  # arguments are what they are
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
    """Memory for every cell up to a block size, made when it is first needed.

    `block` and `other` hold a block on each thread, `row` and `other_row` one for every thread;
    `own_*` are private ones of the same sizes. Every cell starts at offset 0, so that no call
    profits from memory that another one left cold.

    Parameters
    ----------
    team : Team
        Whose threads measure.
    comm : mpi4py communicator
        Of the same threads.
    largest : int
        Bytes.
    """

    def __init__(self, team: Any, comm: Any, largest: int) -> None:
        self.team = team
        self.comm = comm
        self.largest = largest

    def _shared(self, blocks: int) -> Any:
        part, threads = blocks * self.largest, self.team.size
        return xupc.all_alloc(threads * part, np.uint8, part, team=self.team)

    def _private(self, blocks: int) -> Bytes:
        nbytes = blocks * self.largest
        raw = np.zeros(nbytes + _PAGE, np.uint8)
        start = -raw.ctypes.data % _PAGE
        return raw[start : start + nbytes]

    @cached_property
    def byte(self) -> Any:
        """MPI's type of bytes."""
        from mpi4py import MPI

        return MPI.BYTE

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


def _ends(work: Work, dst: Bytes, src: Bytes) -> dict[str, Any]:
    """Source and result of a call, of the work's own size and type."""
    given, found = work.given * work.count, work.found
    size = work.dtype.itemsize
    one_buffer = dst is src and given  # the root of a broadcast in place finds nothing new
    source = src[: given * size].view(work.dtype) if given else None
    return {
        "work": work,
        "source": source,
        "result": dst[: found * size].view(work.dtype) if found and not one_buffer else None,
        "vary": None if source is None else _varying(source),
    }


def _varying(source: NDArray[Any]) -> Callable[[], Any]:
    """Numbers stay such that reductions of them are quick."""
    if source.dtype.kind in "ifc":
        return partial(np.negative, source, out=source)
    if source.dtype.kind == "b":
        return partial(np.logical_not, source, out=source)
    return partial(np.invert, source, out=source)


# ---- ours --------------------------------------------------------------------------------------


def our_barrier(memory: Memory) -> Call:
    """xupc's barrier of the team."""
    world = memory.team.parent is None
    return Call(xupc.barrier if world else memory.team.barrier)


def our_call(collective: str, work: Work, memory: Memory, flags: int = 0) -> Call:
    """A full call of xupc."""
    form, _ = parse_name(collective)
    function = getattr(xupc, collective)
    keywords: dict[str, Any] = {}
    if memory.team.parent is not None:
        keywords["team"] = memory.team
    if form == "allv":
        return _scalar_call(function, work, {**keywords, **_flags(flags)})
    if form == "allav":
        return _array_call(function, work, memory, {**keywords, **_flags(flags)})
    dst, src = memory.shared(work)
    ends = _ends(work, dst.local, src.local)
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
    """The function itself where there is nothing to add: what is timed is a plain call."""
    return partial(function, **keywords) if keywords else function


def _flags(flags: int) -> dict[str, int]:
    return {"flags": flags} if flags else {}


def _shared_arguments(work: Work, dst: Any, src: Any) -> tuple[Any, ...]:
    """Up to the flags, or the arguments before them that may be left out."""
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
    """Of uniform blocks, as the _v and _x forms take them: up to the flags."""
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


def _array_call(function: Any, work: Work, memory: Memory, keywords: dict[str, Any]) -> Call:
    dst, src = memory.private(work)
    ends = _ends(work, dst, src)
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
    arguments += (work.to,) if spec.permutes else ()
    arguments += (getattr(xupc, work.op),) if spec.computes else ()
    arguments += (work.root,) if spec.root else ()
    return Call(_with(function, keywords), arguments, **ends)


def _scalar_call(function: Any, work: Work, keywords: dict[str, Any]) -> Call:
    arguments = _scalars(work)
    if work.spec.computes:
        arguments = (arguments[0], getattr(xupc, work.op))
    if work.spec.permutes:
        arguments += (work.to,)
    if work.spec.root:
        arguments += (work.root,)
    return Call(_with(function, keywords), arguments, work, scalar=True)


def _scalars(work: Work) -> tuple[Any, ...]:
    """What a thread gives: a value, or one for each thread; None where it has none."""
    values = work.contributed(0).tolist()
    if work.spec.src.blocks == "T":
        return (values or None,)
    return (values[0] if values else None,)


# ---- the peer ----------------------------------------------------------------------------------


def peer_barrier(memory: Memory) -> Call:
    """MPI's."""
    return Call(memory.comm.Barrier)


# Kinds of numbers that MPI's operations are defined on.
_KINDS = dict.fromkeys(("ADD", "MULT"), "iufc") | dict.fromkeys(("MIN", "MAX"), "iuf")
_KINDS |= dict.fromkeys(("AND", "OR", "XOR"), "iu") | dict.fromkeys(("LOGAND", "LOGOR"), "iub")


@dataclass(frozen=True)
class _Peer:
    """What makes mpi4py's calls of a work."""

    work: Work
    memory: Memory
    mpi: Any = field(repr=False)

    def spec(self, array: Bytes, blocks: int) -> Any:
        """`blocks` blocks, as mpi4py likes it best; MPI counts elements of one."""
        work = self.work
        size = work.count * work.dtype.itemsize
        if not work.spec.computes:
            return [array[: blocks * size], size, self.mpi.BYTE]
        if work.dtype.kind not in _KINDS[work.op]:
            raise ValueError(f"MPI has no {work.op} of {work.dtype}")
        datatype = self.mpi.Datatype.fromcode(work.dtype.char)
        # MPI counts the elements of one block, but where it reduces one for each thread
        count = work.count * (blocks if work.spec.src.blocks == "T" else 1)
        return [array[: blocks * size].view(work.dtype), count, datatype]

    @property
    def op(self) -> Any:
        """MPI's of the same meaning."""
        names = {"ADD": "SUM", "MULT": "PROD", "AND": "BAND", "OR": "BOR", "XOR": "BXOR",
                 "LOGAND": "LAND", "LOGOR": "LOR"}  # fmt: skip
        return getattr(self.mpi, names.get(self.work.op, self.work.op))


def peer_call(collective: str, work: Work, memory: Memory) -> tuple[str, Call] | None:
    """mpi4py's call of the same meaning, and its name; None if MPI has none."""
    from mpi4py import MPI

    form, _ = parse_name(collective)
    if form == "allv":
        return _peer_of_scalars(work, memory, MPI)
    dst, src = memory.private(work)
    make = _Peer(work, memory, MPI)
    try:
        one, many = make.spec(src, 1), make.spec(src, work.threads if src.size > memory.largest
                                                 else 1)  # fmt: skip
        into = make.spec(dst, 1)
    except (KeyError, ValueError):  # MPI has no such type
        return None
    found: _Found | None
    if form in ("v", "x"):
        found = _uneven_peer(work, memory.comm, one, many, into, dst)
    elif work.spec.computes:
        found = _reducing_peer(make, one, many, into)
    else:
        found = _moving_peer(work, memory.comm, one, many, into, dst)
    if found is None:
        return None
    name, function, arguments = found
    return name, Call(function, arguments, **_ends(work, dst, src))


def bcast_and_copy(work: Work, memory: Memory) -> Call:
    """Bcast, and then what all_broadcast does too: the root's copy of its own block."""
    n, root, at_root = work.count, work.root, work.me == work.root
    block, other = memory.own_block[:n], memory.own_other[:n]
    buffer: Any = [block, n, memory.byte]
    bcast = memory.comm.Bcast

    def call() -> None:
        bcast(buffer, root)
        if at_root:
            other[:] = block

    source, result = (block, other) if at_root else (None, block)
    return Call(call, (), work, source, result, vary=_varying(block) if at_root else None)


_Found = tuple[str, Callable[..., Any], tuple[Any, ...]]


def _moving_peer(work: Work, comm: Any, one: Any, many: Any, into: Any, dst: Bytes) -> _Found:
    size = one[1]
    all_of_it: Any = [dst[: work.threads * size], size, one[2]]
    return _of_spec(work, comm, work.spec.peer, one, many, into, all_of_it)


def _uneven_peer(work: Work, comm: Any, one: Any, many: Any, into: Any, dst: Bytes) -> _Found:
    """The forms that take sizes and places."""
    n, threads, name = one[1], work.threads, work.spec.peer_v
    if not name:
        return _moving_peer(work, comm, one, many, into, dst)
    sizes = [n] * threads, [i * n for i in range(threads)]
    listed: Any = [many[0], sizes, one[2]]
    return _of_spec(work, comm, name, one, listed, into, [dst[: threads * n], sizes, one[2]])


def _of_spec(
    work: Work, comm: Any, name: str, one: Any, many: Any, into: Any, all_of_it: Any
) -> _Found:
    """Return MPI's call of a work: what is sent and received, and the root."""
    spec, at_root, method = work.spec, work.me == work.root, getattr(comm, name)
    if spec.permutes:
        return name, method, (one, work.to, 0, into, work.to, 0)
    if spec.one_array or spec.one_buffer:
        return name, method, (one, work.root)
    sent = many if spec.src.blocks == "T" else one
    received = all_of_it if spec.dst.blocks == "T" else into
    root = (work.root,) if spec.root else ()
    return name, method, (
        sent if at_root or spec.src.everywhere else None,
        received if at_root or spec.dst.everywhere else None,
        *root,
    )  # fmt: skip


def _reducing_peer(make: _Peer, one: Any, many: Any, into: Any) -> _Found | None:
    work, comm, op = make.work, make.memory.comm, make.op
    at_root, root = work.me == work.root, work.root
    spec = work.spec
    if work.values or spec.elementwise:
        if not spec.peer:
            return None
        target = into if at_root or spec.dst.everywhere else None
        given = many if spec.src.blocks == "T" else one
        where = (root,) if spec.root else ()
        return spec.peer, getattr(comm, spec.peer), (given, target, op, *where)
    if work.op.startswith("LOG"):
        return None
    from .oracle import OPS

    function: Any = OPS[work.op]
    values, sums = one[0], into[0]
    total = np.empty(1, work.dtype)
    mine: Any = [total, 1, one[2]]
    if not spec.scans:
        fold, last = function.reduce, [sums[:1], 1, one[2]]
        reduce, everyone = comm.Reduce, spec.folds_to_all
        allreduce = comm.Allreduce

        def call() -> None:
            total[0] = fold(values)
            if everyone:
                allreduce(mine, last, op)
            else:
                reduce(mine, last if at_root else None, op, root)

        return "numpy and Allreduce" if everyone else "numpy and Reduce", call, ()
    if not spec.peer:
        return None
    return "numpy and Exscan", _scan(function, comm.Exscan, values, sums, mine, op, work.me), ()


def _scan(function: Any, exscan: Any, values: Any, sums: Any, mine: Any, op: Any, me: int) -> Any:
    """A prefix over all elements: numpy's of the block, MPI's of the totals, and their join."""
    before = np.zeros(1, values.dtype)
    carry: Any = [before, 1, mine[2]]
    accumulate, total = function.accumulate, mine[0]

    def call() -> None:
        accumulate(values, out=sums)
        total[0] = sums[-1]
        exscan(mine, carry, op)
        if me:
            function(sums, before, out=sums)

    return call


def _peer_of_scalars(work: Work, memory: Memory, mpi: Any) -> tuple[str, Call] | None:
    """The lower-case forms, which take and give Python objects."""
    comm, root = memory.comm, work.root
    (value,) = _scalars(work)
    op = _Peer(work, memory, mpi).op if work.spec.computes else None
    spec, name = work.spec, work.spec.peer.lower()
    if not name:
        return None
    method = getattr(comm, name, None)
    if method is None:
        return None
    if spec.permutes:
        return name, Call(method, (value, work.to, 0, None, work.to, 0), work, scalar=True)
    arguments = (value, *([op] if spec.computes else []), *([root] if spec.root else []))
    return name, Call(method, arguments, work, scalar=True)
