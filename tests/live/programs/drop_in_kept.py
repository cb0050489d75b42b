"""Calls that repeat an earlier one, under ``XUPC_COMM=force``: the core runs them at once.

`slow` has the names of the calls that went through Python.
"""

from __future__ import annotations

import array
import functools
import gc
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.backends.native.native_core import invalidate
from xupc.mpi import decision
from xupc.mpi.mismatch import MismatchError

comm = xupc.Comm(MPI.COMM_WORLD)
size, me = comm.size, comm.rank
total = size * (size + 1) // 2
slow: list[str] = []
team_of = decision._team_of


def seen(on: Any, name: str, *about: Any) -> Any:
    slow.append(name)
    return team_of(on, name, *about)


vars(decision)["_team_of"] = seen
comm.Barrier()
native = comm._counts().team.state.native


def repeated(call: Callable[[], None], times: int = 5) -> None:
    """Check that a call goes through Python once, or never if it is known."""
    call()
    del slow[:]
    for _ in range(times):
        call()
    assert not slow or not native, slow


def short(call: Callable[[], None]) -> None:
    """Check that a call that looks like a known one goes through Python."""
    del slow[:]
    call()
    assert slow, "a call that is different was run as the known one"


def full(n: int, dtype: Any = "f8") -> Any:
    return np.full(n, me + 1, dtype)


# --- each method, with new arrays at each call -----------------------------------------------


def bcast(x: Any, root: int = 0) -> None:
    comm.Bcast(x, root)
    assert (x == root + 1).all(), x


def gather(x: Any, y: Any, root: int = 0) -> None:
    comm.Gather(x, y if me == root else None, root=root)
    if me == root:
        assert (np.arange(size) + 1 == y.reshape(size, -1).T).all(), y


def scatter(x: Any, y: Any, root: int = 0) -> None:
    x.reshape(size, -1).T[...] = np.arange(size) + 1
    comm.Scatter(x if me == root else None, y, root)
    assert (y == me + 1).all(), y


def allgather(x: Any, y: Any) -> None:
    comm.Allgather(x, y)
    assert (np.arange(size) + 1 == y.reshape(size, -1).T).all(), y


def alltoall(x: Any, y: Any) -> None:
    comm.Alltoall(x, y)
    assert (np.arange(size) + 1 == y.reshape(size, -1).T).all(), y


def allreduce(x: Any, y: Any, op: Any = MPI.SUM, result: Any = total) -> None:
    comm.Allreduce(x, y, op)
    assert (y == result).all(), y


def reduce(x: Any, y: Any, root: int = 0) -> None:
    comm.Reduce(x, y if me == root else None, op=MPI.SUM, root=root)
    assert me != root or (y == total).all(), y


def scan(x: Any, y: Any) -> None:
    comm.Scan(x, y)
    assert (y == (me + 1) * (me + 2) // 2).all(), y


def reduce_scatter_block(x: Any, y: Any) -> None:
    comm.Reduce_scatter_block(x, y)
    assert (y == total).all(), y


def rooted(n: int, root: int) -> None:
    repeated(lambda: bcast(full(n), root))
    repeated(lambda: gather(full(n), np.zeros(n * size), root))
    repeated(lambda: scatter(np.zeros(n * size), np.zeros(n), root))
    repeated(lambda: reduce(full(n), np.zeros(n), root))


def without_root(n: int) -> None:
    repeated(lambda: allgather(full(n), np.zeros(n * size)))
    repeated(lambda: alltoall(full(n * size), np.zeros(n * size)))
    repeated(lambda: allreduce(full(n), np.zeros(n)))
    repeated(lambda: allreduce(full(n), np.zeros(n), MPI.MAX, size))
    repeated(lambda: scan(full(n), np.zeros(n)))
    repeated(lambda: reduce_scatter_block(full(n * size), np.zeros(n)))


def every_method() -> None:
    repeated(comm.Barrier)
    for n in (1, 3, 1000):
        without_root(n)
        for root in range(size):
            rooted(n, root)


def exscan(n: int, more: int = 0) -> None:
    y = np.full(n + more, -1.0)
    comm.Exscan([full(n + more), n, MPI.DOUBLE], [y, n, MPI.DOUBLE])
    assert (y[:n] == (me * (me + 1) // 2 if me else -1)).all(), y  # the first one's as it was
    assert (y[n:] == -1).all(), y


def reduce_in_place(n: int, root: int, factor: float) -> None:
    y = full(n) * factor
    comm.Reduce(MPI.IN_PLACE if me == root else y, y if me == root else None, root=root)
    assert (y == (total if me == root else me + 1) * factor).all(), y


def reduce_scatter_in_place(n: int, factor: float) -> None:
    y = full(n * size) * factor
    comm.Reduce_scatter_block(MPI.IN_PLACE, y)
    assert (y[:n] == total * factor).all(), y
    assert (y[n:] == (me + 1) * factor).all(), y


def gather_in_place(n: int, root: int, factor: float) -> None:
    y = np.zeros(n * size)
    y[n * me : n * (me + 1)] = (me + 1) * factor
    mine = MPI.IN_PLACE if me == root else y[n * me : n * (me + 1)]
    comm.Gather(mine, y if me == root else None, root)
    if me == root:
        assert ((np.arange(size) + 1) * factor == y.reshape(size, -1).T).all(), y


def scatter_in_place(n: int, root: int) -> None:
    x, y = np.zeros(n * size), np.zeros(n)
    x.reshape(size, -1).T[...] = np.arange(size) + 1
    before = x.copy()
    comm.Scatter(x if me == root else None, MPI.IN_PLACE if me == root else y, root)
    assert me == root or (y == me + 1).all(), y
    assert (x == before).all(), x


def reduce_scatter(n: int) -> None:
    y = np.zeros(n)
    comm.Reduce_scatter(full(n * size), y, [n] * size, MPI.SUM)
    assert (y == total).all(), y


def without_program_memory(n: int, factors: Iterator[int]) -> None:
    repeated(lambda: exscan(n))
    repeated(lambda: reduce_scatter_in_place(n, next(factors)))
    repeated(lambda: reduce_scatter(n))


def at_root_in_place(n: int, root: int, factors: Iterator[int]) -> None:
    repeated(lambda: reduce_in_place(n, root, next(factors)))
    repeated(lambda: gather_in_place(n, root, next(factors)))
    repeated(lambda: scatter_in_place(n, root))


def with_own_memory() -> None:
    """Calls with an array that is not the program's: the core copies the operands to it."""
    factors = iter(range(1, 1000))
    for n in (1, 5, 700):
        without_program_memory(n, factors)
        for root in range(size):
            at_root_in_place(n, root, factors)
    repeated(lambda: exscan(3, 2))
    repeated(lambda: exscan(100_000), 2)  # calls of all sizes share the memory of the longest
    repeated(lambda: reduce_in_place(50_000, 0, next(factors)), 2)
    repeated(lambda: exscan(700))
    for _ in range(2):  # for longer ones no memory is kept
        reduce_in_place(2_100_000, 0, next(factors))


def other_counts() -> None:
    """Counts that are not all equal, or are fewer, are not taken for known ones."""
    repeated(lambda: reduce_scatter(2))
    counts = [2] * size
    counts[0], counts[-1] = 3, 1
    y = np.zeros(counts[me])
    short(lambda: comm.Reduce_scatter(full(2 * size), y, counts))
    assert (y == total).all(), y
    try:
        comm.Reduce_scatter(full(2 * size), np.zeros(2), [2] * (size + 1))
        raise AssertionError("no error")
    except (ValueError, MPI.Exception):
        pass


def counted_part(n: int, more: int) -> None:
    """Reduce fewer elements than the arrays have."""
    x, y = full(n + more), np.zeros(n + more)
    repeated(lambda: comm.Allreduce([x, n, MPI.DOUBLE], (y, n, MPI.DOUBLE)))
    assert (y[:n] == total).all(), y
    assert (y[n:] == 0).all(), y


def in_place(given: Any) -> None:
    """Reduce in place; `comm` means that the operands are the result."""

    def call() -> None:
        y = full(4)
        comm.Allreduce(y if given is comm else given, y)
        assert (y == total).all(), y

    repeated(call)


def described() -> None:
    """Lists and tuples with a type, with and without a count; in place; operands as the result."""
    for n, more in ((4, 0), (4, 2), (3, 1), (3, 3)):
        counted_part(n, more)
    x, y = full(4), np.zeros(4)
    repeated(lambda: comm.Allreduce([x, MPI.DOUBLE], [y, MPI.DOUBLE]))
    assert (y == total).all(), y
    x.view("i8")[:] = -me - 1  # the same arrays with another type
    repeated(lambda: comm.Allreduce([x, MPI.INT64_T], [y, MPI.INT64_T]))
    assert (y.view("i8") == -total).all(), y
    for given in (MPI.IN_PLACE, None, comm):
        in_place(given)
    whole = np.zeros(2 * size)

    def all_in_place() -> None:
        whole[:] = 0
        whole[2 * me : 2 * me + 2] = me + 1
        comm.Allgather(MPI.IN_PLACE, [whole, 2, MPI.DOUBLE])
        assert (np.arange(size) + 1 == whole.reshape(size, 2).T).all(), whole

    repeated(all_in_place)


def different() -> None:
    """Make calls that must not be taken for a known call."""
    x, y = full(4), np.zeros(4)
    repeated(lambda: comm.Allreduce(x, y))
    repeated(lambda: comm.Bcast(y))
    invalidate()  # as after a change of the job's state
    short(lambda: comm.Allreduce(x, y))
    whole = np.zeros(6)  # operands that overlap the result
    whole[:4] = me + 1
    short(lambda: comm.Allreduce(whole[:4], whole[2:]))
    assert (whole[2:] == total).all(), whole
    room = np.zeros(5 * 8 + 1, np.uint8)
    odd = room[1:33].view("f8")  # not aligned
    odd[:] = me + 1
    short(lambda: comm.Allreduce(odd, y))
    assert (y == total).all(), y
    for wrong in (np.ones((4, 2))[:, 0], x.astype("f4"), x.astype(">f8"), x[:3]):
        try:
            comm.Allreduce(wrong, y)
            raise AssertionError("no error")
        except (ValueError, BufferError, KeyError, TypeError, MPI.Exception):
            pass
    fixed = full(4)
    fixed.flags.writeable = False
    repeated(lambda: comm.Allreduce(fixed, y))
    assert (y == total).all(), y
    try:
        comm.Allreduce(x, fixed)
        raise AssertionError("no error")
    except (ValueError, BufferError, TypeError):
        pass
    assert (fixed == me + 1).all(), fixed


class Array(np.ndarray[Any, Any]):
    """A subclass of numpy's class."""


def other_classes() -> None:
    x, y = full(4), np.zeros(4)
    repeated(lambda: comm.Allreduce(x, y))
    short(lambda: comm.Allreduce(x.view(Array), y))
    assert (y == total).all(), y
    short(lambda: comm.Allreduce(memoryview(x), y))
    assert (y == total).all(), y
    repeated(lambda: allreduce(np.array(me + 1.0), np.zeros(())))
    repeated(lambda: allreduce(full(4).reshape(2, 2), np.zeros((4, 1))))
    repeated(lambda: comm.Allreduce(recvbuf=y, sendbuf=x))
    mine = MPI.Op.Create(lambda a, b, _: None)
    short(lambda: comm.Allreduce(x, y, mine))
    mine.Free()


def ends() -> None:
    """Two communicators in turn, one that is freed, a handle that is used again."""
    for _ in range(3):
        other = comm.Dup()
        for _ in range(4):
            allreduce(full(4), np.zeros(4))
            y = np.zeros(4)
            other.Allreduce(full(4), y)
            assert (y == total).all(), y
        half = comm.Split(me % 2)
        for _ in range(4):
            half.Allreduce(full(4), y)
            assert (y == sum(range(me % 2 + 1, size + 1, 2))).all(), y
        half.Free()
        again = xupc.Comm(other)
        other.Free()
        del again
        gc.collect()
        try:
            other.Barrier()
            raise AssertionError("no error")
        except MPI.Exception:
            pass


def filled(x: Any, value: int, begin: int = 0, end: int | None = None) -> Any:
    """Set bytes of a buffer; a view of it would keep its owner from resizing it."""
    with memoryview(x).cast("B") as view:
        view[begin:end] = bytes([value]) * len(view[begin:end])
    return x


def with_buffers(make: Callable[[int], Any]) -> None:
    """`make` returns a buffer of so many bytes."""

    def bcast() -> None:
        x = filled(make(64), me + 1)
        comm.Bcast([x, 64, MPI.BYTE], size - 1)
        assert bytes(x) == bytes([size]) * 64, x[:]

    def allgather() -> None:
        x = filled(make(64 * size), me + 1, 64 * me, 64 * me + 64)
        comm.Allgather(MPI.IN_PLACE, [x, 8, MPI.DOUBLE])
        assert bytes(x) == b"".join(bytes([i + 1]) * 64 for i in range(size)), x[:]

    def allreduce() -> None:
        x, y = filled(make(64), me + 1), filled(make(64), 0)
        comm.Allreduce([x, 16, MPI.INT], [y, 16, MPI.INT], MPI.MAX)
        assert bytes(y) == bytes([size]) * 64, y[:]

    def without_datatype() -> None:
        x = filled(make(64), me + 1)
        comm.Bcast(x, size - 1)
        assert bytes(x) == bytes([size]) * 64, x[:]

    repeated(bcast)
    repeated(allgather)
    repeated(allreduce)
    without_datatype()


def other_buffers() -> None:
    """Buffers that are no arrays of numpy are taken where they are, and are free after the call."""
    with_buffers(bytearray)
    with_buffers(lambda n: mmap.mmap(-1, n))
    with_buffers(lambda n: array.array("d", bytes(n)))
    with_buffers(lambda n: memoryview(bytearray(n)))
    x = bytearray(64)
    for _ in range(3):
        comm.Bcast([x, len(x), MPI.BYTE])
        x.append(0)  # BufferError if anything still had its memory
        del x[-1:]
    odd, result = (memoryview(bytearray(65))[1:] for _ in range(2))  # no place for an int
    for _ in range(3):
        comm.Allreduce([filled(odd, me + 1), MPI.INT], [filled(result, 0), MPI.INT], MPI.MAX)
        assert bytes(result) == bytes([size]) * 64, result[:]
    try:
        comm.Allgather([b"12345678", MPI.BYTE], [bytes(8 * size), MPI.BYTE])
        raise AssertionError("bytes were written")
    except (BufferError, ValueError):
        pass


def objects(root: int) -> None:
    """Make each call with a root that moves objects."""
    every = list(range(size))
    assert comm.bcast((me, "x"), root) == (root, "x")
    assert comm.gather(me, root=root) == (every if me == root else None)
    assert comm.scatter([10 * i for i in every] if me == root else None, root) == 10 * me
    assert comm.reduce(me + 1, MPI.SUM, root) == (total if me == root else None)


def objects_without_root(n: int) -> None:
    """Make each other call that moves objects, some of about n bytes."""
    assert comm.allgather([me, b"x" * n]) == [[i, b"x" * n] for i in range(size)]
    assert comm.alltoall(tuple((me, i) for i in range(size))) == [(i, me) for i in range(size)]
    assert comm.allreduce(sendobj=me + 1, op=MPI.SUM) == total
    assert comm.allreduce({me: "x" * n}, lambda a, b: a | b) == dict.fromkeys(range(size), "x" * n)
    assert comm.scan(me + 1) == (me + 1) * (me + 2) // 2
    assert comm.exscan(me + 1) == (me * (me + 1) // 2 if me else None)
    y = comm.allgather(np.full(n, me))
    assert all((x == i).all() for i, x in enumerate(y)), y
    y[0][:] = -1  # memory of its own


def moved_objects() -> None:
    """Objects of all sizes, with and without large buffers: the core makes the calls."""
    for root in range(size):
        repeated(functools.partial(objects, root))
    for n in (1, 100, 3_000, 30_000, 100_000):
        repeated(functools.partial(objects_without_root, n))
    repeated(lambda: comm.bcast(obj=1, root=0))
    short(lambda: comm.bcast(1, np.int64(0)))
    short(lambda: comm.alltoall(None))
    invalidate()
    repeated(lambda: objects_without_root(3))
    MPI.pickle.PROTOCOL = 2
    repeated(lambda: objects_without_root(2))
    MPI.pickle.__init__(lambda x: repr(x).encode(), lambda x: eval(bytes(x)))  # type: ignore[misc]
    short(lambda: objects(0))
    MPI.pickle.__init__()  # type: ignore[misc]


def counted() -> None:
    other = comm.Dup()
    for _ in range(10):
        other.Allreduce(full(4), np.zeros(4))
        other.Barrier()
    found = other.explain(as_dict=True)
    assert found["Allreduce"]["carried_by"] == {"xupc": 10}, found
    assert found["Allreduce"]["bytes"] == 320, found
    assert found["Barrier"]["carried_by"] == {"xupc": 10}, found
    for _ in range(10):
        other.bcast(me)
    found = other.explain(as_dict=True)
    assert found["bcast"]["carried_by"] == {"xupc": 10}, found
    other.Allreduce(full(4), np.zeros(4))
    assert other.explain(as_dict=True)["Allreduce"]["calls"] == 11
    other.Free()


def mismatch() -> None:
    """The error is that of the drop-in, also from the core."""
    y = np.zeros(4)
    repeated(lambda: comm.Allreduce(full(4), y))
    repeated(lambda: comm.Allreduce(full(4), y, MPI.MAX))
    try:
        comm.Allreduce(full(4), y, MPI.MAX if me else MPI.SUM)
        comm.Barrier()
        raise AssertionError("no error")
    except MismatchError:
        pass


for check in (
    every_method,
    with_own_memory,
    other_counts,
    described,
    different,
    other_classes,
    ends,
    other_buffers,
    moved_objects,
    counted,
    mismatch,
):
    check()
x, y = full(4), np.zeros(4)
repeated(lambda: comm.Allreduce(x, y))
xupc.finalize()
short(lambda: comm.Allreduce(x, y))
comm.Barrier()
assert set(comm.explain(as_dict=True)["Allreduce"]["why"]) & {"xupc was finalized"}
vars(decision)["_team_of"] = team_of
print("done")
