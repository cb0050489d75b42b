"""mpi4py's calls that do the work of xupc's, ready to be timed and checked.

MPI gets its buffers in mpi4py's quickest form, ``[buffer, count, type]``. The same calls on the
drop-in communicator are what `xupc bench --api mpi4py` measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..specs import UNEVEN, parse_name
from .calls import Bytes, Call, Memory, scalars, source_and_result, varying
from .oracle import OPS, Work
from .settings import defined_by_mpi

__all__ = ["bcast_and_copy", "peer_barrier", "peer_call"]


def peer_barrier(comm: Any) -> Call:
    """Return the barrier of a communicator."""
    return Call(comm.Barrier)


@dataclass(frozen=True)
class _Peer:
    """Make the arguments of mpi4py's calls of a work."""

    work: Work
    comm: Any

    def spec(self, array: Bytes, blocks: int) -> Any:
        """Return `blocks` blocks in mpi4py's quickest form; MPI counts the elements of one."""
        work = self.work
        size = work.count * work.dtype.itemsize
        if not work.spec.computes:
            return [array[: blocks * size], size, MPI.BYTE]
        if not defined_by_mpi(work.op, work.dtype):
            raise ValueError(f"MPI has no {work.op} of {work.dtype}")
        datatype = MPI.Datatype.fromcode(work.dtype.char)
        elements = array[: blocks * size].view(work.dtype)
        if blocks > 1:  # versions of mpi4py differ in what a count of Reduce_scatter_block counts
            return [elements, datatype]
        return [elements, work.count, datatype]

    @property
    def op(self) -> Any:
        """Return MPI's operation of the same meaning."""
        names = {"ADD": "SUM", "MULT": "PROD", "AND": "BAND", "OR": "BOR", "XOR": "BXOR",
                 "LOGAND": "LAND", "LOGOR": "LOR"}  # fmt: skip
        return getattr(MPI, names.get(self.work.op, self.work.op))


def peer_call(
    collective: str, work: Work, memory: Memory, comm: Any = None
) -> tuple[str, Call] | None:
    """Return mpi4py's call of the same meaning and its name; None if MPI has none.

    `comm`: the communicator; by default MPI's own of these threads.
    """
    form, _ = parse_name(collective)
    comm = memory.comm if comm is None else comm
    if form == "allv":
        return _peer_of_scalars(work, comm)
    dst, src = memory.private(work)
    make = _Peer(work, comm)
    try:
        one, many = make.spec(src, 1), make.spec(src, work.threads if src.size > memory.largest
                                                 else 1)  # fmt: skip
        into = make.spec(dst, 1)
    except (KeyError, ValueError):  # MPI has no such type
        return None
    found: _Found | None
    if form in UNEVEN:
        found = _uneven_peer(work, comm, one, many, into, dst)
    elif work.spec.computes:
        found = _reducing_peer(make, one, many, into)
    else:
        found = _moving_peer(work, comm, one, many, into, dst)
    if found is None:
        return None
    name, function, arguments = found
    call = Call(function, arguments, **source_and_result(work, dst, src))
    return name, replace(call, result=None) if _undefined(work) else call


def _undefined(work: Work) -> bool:
    """Return whether MPI leaves the result of this thread undefined: the first one of Exscan."""
    return work.values and work.spec.peer == "Exscan" and not work.me


def bcast_and_copy(work: Work, memory: Memory) -> Call:
    """Return Bcast with the root's copy of its own block, which all_broadcast includes."""
    n, root, at_root = work.count, work.root, work.me == work.root
    block, other = memory.own_block[:n], memory.own_other[:n]
    buffer: Any = [block, n, MPI.BYTE]
    bcast = memory.comm.Bcast

    def call() -> None:
        bcast(buffer, root)
        if at_root:
            other[:] = block

    source, result = (block, other) if at_root else (None, block)
    return Call(call, (), work, source, result, vary=varying(block) if at_root else None)


_Found = tuple[str, Callable[..., Any], tuple[Any, ...]]


def _moving_peer(work: Work, comm: Any, one: Any, many: Any, into: Any, dst: Bytes) -> _Found:
    size = one[1]
    all_of_it: Any = [dst[: work.threads * size], size, one[2]]
    return _of_spec(work, comm, work.spec.peer, one, many, into, all_of_it)


def _uneven_peer(work: Work, comm: Any, one: Any, many: Any, into: Any, dst: Bytes) -> _Found:
    """Return the call of a form that takes sizes and places."""
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
    work, comm, op = make.work, make.comm, make.op
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
    scan = partial(_exclusive_scan, work.identity()) if spec.inclusive else _scan
    return "numpy and Exscan", scan(function, comm.Exscan, values, sums, mine, op, work.me), ()


def _scan(function: Any, exscan: Any, values: Any, sums: Any, mine: Any, op: Any, me: int) -> Any:
    """Return a prefix over all elements: numpy's of the block with MPI's of the totals."""
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


def _exclusive_scan(
    identity: Any, function: Any, exscan: Any, values: Any, sums: Any, mine: Any, op: Any, me: int
) -> Any:
    """Return an exclusive prefix over all elements, made as `_scan` makes an inclusive one."""
    before = np.zeros(1, values.dtype)
    carry: Any = [before, 1, mine[2]]
    accumulate, total = function.accumulate, mine[0]

    def call() -> None:
        accumulate(values[:-1], out=sums[1:])
        total[0] = function(sums[-1], values[-1]) if len(values) > 1 else values[0]
        exscan(mine, carry, op)
        if me:
            function(sums[1:], before, out=sums[1:])
        sums[0] = before[0] if me else identity

    return call


def _peer_of_scalars(work: Work, comm: Any) -> tuple[str, Call] | None:
    """Return the lower-case form, which takes and returns Python objects."""
    root = work.root
    (value,) = scalars(work)
    op = _Peer(work, comm).op if work.spec.computes else None
    spec, name = work.spec, work.spec.peer.lower()
    if not name:
        return None
    method = getattr(comm, name, None)
    if method is None:
        return None
    if spec.permutes:
        return name, Call(method, (value, work.to, 0, None, work.to, 0), work, scalar=True)
    arguments = (value, *([op] if spec.computes else []), *([root] if spec.root else []))
    return name, Call(method, arguments, None if _undefined(work) else work, scalar=True)
