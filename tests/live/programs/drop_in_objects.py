"""Collectives on Python objects that xupc carries out for a program written for mpi4py.

Under ``XUPC_COMM=force``. Each result must equal that of plain mpi4py on the same threads, in its
types, too, and in the order in which an operation gets its operands.
"""

from __future__ import annotations

import functools
import gc
import itertools
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.any_objects import same

import xupc
from xupc.mpi import objects as objects_module
from xupc.mpi.object_values import reduced as reduced_numbers

PLAIN = MPI.COMM_WORLD
comm = xupc.Comm(PLAIN)
size, me = comm.size, comm.rank
Objects = Callable[[int], Any]


def carried(method: str) -> dict[str, int]:
    """Return the calls of a method by carrier."""
    found: dict[str, int] = comm.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


def objects() -> list[Objects]:
    """Return functions that make an object for a thread: small ones, large ones, mixtures."""
    large, many = 40_000, 300_000  # numbers, bytes: more than what stays in a pickle
    return [
        lambda i: i, lambda i: None, lambda i: f"thread {i}" * 5, lambda i: {"of": [i, 2.5, {i}]},
        lambda i: bytes(i), lambda i: b"x" * (490 + i), lambda i: b"y" * (10_000 * i),
        lambda i: [b"z" * 100_000, i], lambda i: np.arange(10.0) + i,
        lambda i: np.arange(large) + i, lambda i: read_only(np.full(large, i)),
        lambda i: np.asfortranarray(np.arange(2.0 * large).reshape(2, -1) + i),
        lambda i: [np.full(many, i, np.uint8)] * 2 if i % 2 else "no array",
        lambda i: [np.full(150_000 + k, i, np.int16) for k in range(i + 1)],
        lambda i: np.full(2 * large, i)[::2], lambda i: pickle.PickleBuffer(b"b" * many),
        lambda i: pickle.PickleBuffer(bytearray(many)),
        lambda i: pickle.PickleBuffer(np.zeros((200, 200), order="F").data),
        lambda i: np.array([i, "text"], object), lambda i: np.zeros(large, "u1,f8")[i:],
        lambda i: bytearray(many + i), lambda i: np.arange(500_000 if i == 1 else 3),
    ]  # fmt: skip


def both(method: str, *arguments: Any) -> Any:
    """Make a call by mpi4py and by xupc; the results must be equal."""
    want = getattr(PLAIN, method)(*arguments)
    got = getattr(comm, method)(*arguments)
    assert same(want, got), (method, str(want)[:300], str(got)[:300])
    return got


# --- checks -------------------------------------------------------------------------------------


def moves() -> None:
    """Every object by every method; the caller's own object is copied, as mpi4py does."""
    for turn, make in enumerate(objects()):
        mine, root = make(me), turn % size
        got = both("bcast", mine if me == root else None, root)
        assert got is not mine or type(mine) is not np.ndarray
        if isinstance(got, np.ndarray) and got.flags.writeable:
            got[...] = got[0] if got.size else got  # it is memory of its own
            assert same(make(me), mine)
        both("gather", mine, root)
        both("allgather", mine)
        both("scatter", [make(i) for i in range(size)] if me == root else None, root)
        both("alltoall", [make((me + 2 * i) % size) for i in range(size)])
    both("scatter", None)
    both("alltoall", None)
    both("allgather", np.float64(me))
    both("gather", {me}, np.int64(size - 1))
    if size > 1:
        calls = len(objects())
        assert carried("bcast") == {"xupc": calls}
        assert carried("allgather") == {"xupc": calls + 1}
        assert carried("alltoall") == {"xupc": calls + 1}


def iterators() -> None:
    """An iterator is read once, and on the root alone."""
    got = comm.alltoall(iter([me * 10 + i for i in range(size)]))
    assert got == [i * 10 + me for i in range(size)]
    items = iter(range(size))
    assert comm.scatter(sendobj=items, root=0) == me
    assert list(items) == ([] if me == 0 else list(range(size)))


def joined(a: Any, b: Any) -> str:
    """Show the order and the grouping of all operands."""
    return f"({a} {b})"


def reductions() -> None:
    """Operations of MPI and of the program, in mpi4py's order."""
    numbers = [me + 1, float(me) + 0.1, True, complex(me, 1), np.float32(me), np.arange(5) * me]
    for x, op in itertools.product(numbers, (MPI.SUM, MPI.PROD, lambda a, b: a + b)):
        reduced(x, op)
    for op in (MPI.MAX, MPI.MIN, MPI.BAND, MPI.BOR, MPI.BXOR, MPI.LAND, MPI.LOR, MPI.LXOR):
        reduced((7 * me + 3) % 5, op)
    for op in (MPI.MAXLOC, MPI.MINLOC):
        reduced(((7 * me + 3) % 5, me), op)
        reduced([me % 2, me], op)
        reduced((1.5, me), op)
    for op in (joined, MPI.REPLACE, MPI.NO_OP, MPI.SUM):
        reduced(f"<{me}>", op)
    reduced([me], MPI.SUM)
    reduced({me}, lambda a, b: a | b)
    reduced("text" * 400 * me, joined)
    reduced(np.arange(40_000.0) / (me + 3), MPI.SUM)
    reduced([0.1 + me, np.full(70_000, me)], functools.partial(pairwise, 2))
    if size > 1:
        assert carried("scan")["xupc"] > 20
    if size > 4:
        why = comm.explain(as_dict=True)["allreduce"]["why"]
        assert why == {"many threads combine large objects faster two by two": 2}, why
    assert comm.allreduce(me) == size * (size - 1) // 2
    assert comm.allreduce(sendobj=me, op=MPI.MAX) == size - 1


def locks() -> None:
    """The lock of a communicator and a method is there after its first call, as with mpi4py."""
    for method in ("bcast", "gather", "scatter", "allgather", "alltoall"):
        mine = [me] * size if method in ("scatter", "alltoall") else me
        one = comm.Dup()
        assert method not in MPI._comm_lock_table(one)
        getattr(one, method)(mine)
        lock = MPI._comm_lock_table(one)[method]
        assert lock is MPI._comm_lock(one, method)
        one.Free()


class Owner:
    """An object that frees its communicator when Python's collector finds it, in a cycle."""

    def __init__(self) -> None:
        self.comm, self.itself = comm.Dup(), self
        MPI.Intracomm.allgather(self.comm, 0)  # so it has a lock

    def __del__(self) -> None:
        self.comm.explain()
        self.comm.Free()


def freed_meanwhile() -> None:
    """The collector frees a communicator while mpi4py makes a lock of another one.

    It holds a lock then that `Free` needs. The collector runs so many allocations after the
    pickling, which is shortly before.
    """
    if size == 1:
        return  # mpi4py itself carries the calls
    usual, allocations = gc.get_threshold(), 0

    def dumps(obj: Any, protocol: Any = None) -> bytes:
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        return pickle.dumps(obj, protocol)

    try:
        for allocations in range(1, 17):
            one = comm.Dup()
            gc.disable()
            Owner()
            gc.set_threshold(gc.get_count()[0] + allocations)
            gc.enable()
            one.explain()  # makes a record of the communicator
            for call in (one.Barrier, one.allgather, one.bcast):  # the first one opens a team
                gc.disable()
                Owner()
                MPI.pickle.__init__(dumps)  # type: ignore[misc]
                call(*[me] * (call != one.Barrier))
                MPI.pickle.__init__()  # type: ignore[misc]
            one.Free()
    finally:
        gc.set_threshold(*usual)
        gc.enable()


def numbers_of_arrays() -> None:
    """Large arrays of one type and shape are reduced as numbers, others as objects."""
    setattr(objects_module, "reduced", counting)  # noqa: B010
    large = 36_000  # numbers of 8 bytes: more than what stays in a pickle
    of_two = size == 2  # a sum of floating-point numbers depends on the order of more threads
    try:
        for dtype in ("i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "q"):
            x = (np.arange(8 * large // np.dtype(dtype).itemsize) % 9 + me).astype(dtype)
            by_number = size > 1 and (of_two or x.dtype.kind in "iu")
            combined(x, MPI.SUM, by_number)
            if x.dtype.kind != "c":
                combined(x, MPI.PROD, by_number)
        x = np.arange(large) * (me + 7)
        for op in (MPI.BAND, MPI.BOR, MPI.BXOR):
            combined(x, op, size > 1)
            combined(x.reshape(100, -1), MPI.SUM, size > 1)
        combined(np.asfortranarray(x.reshape(100, 30, -1)), MPI.SUM, size > 1)
        combined(read_only(x.copy()), MPI.SUM, size > 1)
        combined(np.zeros(8 * large + 1, np.uint8)[1:].view("i8") + me, MPI.SUM, size > 1)
        combined(misaligned(x), MPI.SUM, size > 1)
        odd = np.array([np.nan, np.inf, -0.0, 1e300] * (large // 4)) * (1 + me)
        combined(odd, MPI.SUM, of_two)
        combined(Alike(x) if me % 2 else x, MPI.SUM, size > 1)
        for other in unlike(x):
            combined(other, MPI.SUM, False)
        combined(x, lambda a, b: a + b, False)
        for method in ("allreduce", "reduce"):
            failed = raised(getattr(comm, method), x, MPI.MAX)
            assert (failed is None) == (size == 1 or (method == "reduce" and me > 0)), failed
        assert comm.allgather(me) == list(range(size))
    finally:
        setattr(objects_module, "reduced", reduced_numbers)  # noqa: B010


def unlike(x: Any) -> list[Any]:
    """Return arrays that are not of one type and shape on all threads, or no plain numbers."""
    odd = me % 2 == 1
    table = x.reshape(100, -1)
    return [
        x.astype(">i8"), x > 4, x.astype("m8[s]"), x.view(Sub), x.view(Sub) if odd else x,
        np.repeat(x, 2)[::2] if odd else x, x.astype("i8" if odd else "f8"),
        x.astype("i4" if odd else "u4"), read_only(x.copy()) if odd else x,
        np.asfortranarray(table) if odd else table, x.reshape(1, -1) if odd else x,
        [x], x.astype(np.dtype("i8", metadata={"of": "a program"})),
    ]  # fmt: skip


class Alike:
    """An object of the program's whose pickle is that of an array."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.x.__reduce_ex__(protocol)


class Sub(np.ndarray[Any, Any]):
    """An array whose class is the program's."""


def misaligned(x: Any) -> Any:
    room = np.zeros(x.nbytes + 1, np.uint8)
    found = room[1:].view(x.dtype)
    found[...] = x
    return found


_by_number: list[str] = []  # methods


def counting(team: Any, method: str, *arguments: Any, **keywords: Any) -> Any:
    _by_number.append(method)
    return reduced_numbers(team, method, *arguments, **keywords)


def combined(x: Any, op: Any, by_number: bool) -> None:
    """Compare reductions with mpi4py's, of numbers or of objects as `by_number` says."""
    before = len(_by_number)
    got = [both("allreduce", x, op), *(both("reduce", x, op, root) for root in range(size))]
    assert len(_by_number) == before + (1 + size) * by_number, (x, op)
    if by_number:
        assert all(y is None or (y.flags.owndata and y.flags.writeable) for y in got)


def pairwise(_: int, a: Any, b: Any) -> list[Any]:
    return [a[0] - b[0], a[1] - b[1]]


def reduced(x: Any, op: Any) -> None:
    both("allreduce", x, op)
    both("scan", x, op)
    both("exscan", x, op)
    for root in range(size):
        both("reduce", x, op, root)


class Refused(Exception):
    """An error of the program."""


class Bad:
    """An object that cannot be pickled, or not be read again."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __reduce__(self) -> Any:
        if self.when == "dump":
            raise Refused("dump")
        return refuse, ()


def refuse() -> None:
    raise Refused("load")


def refusing(a: Any, b: Any) -> Any:
    raise Refused("op")


def raised(call: Callable[..., Any], *arguments: Any) -> BaseException | None:
    try:
        call(*arguments)
    except (Refused, TypeError, ValueError, AttributeError, MPI.Exception) as error:
        return error
    return None


def about(error: Any) -> str:
    """Return what must be equal; MPI's own codes differ from call to call."""
    return f"MPI {error.error_class}" if isinstance(error, MPI.Exception) else repr(error)


def errors() -> None:
    """An object that cannot be pickled raises on its thread alone, before it meets the others."""
    comm.barrier()
    # After an error on one thread mpi4py's own reductions on that communicator wait for ever.
    apart = comm.Dup()
    MPI.Intracomm(apart).allreduce(0)  # the first one makes a communicator of mpi4py's own
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("bcast", (Bad("dump"), me)), ("gather", (Bad("dump"),)), ("allgather", (Bad("dump"),)),
        ("scatter", ([Bad("dump")] * size, me)), ("alltoall", ([Bad("dump")] * size,)),
        ("allreduce", (Bad("dump"),)), ("reduce", (lambda: 0,)), ("scan", (Bad("dump"),)),
        ("exscan", (Bad("dump"),)), ("scatter", ([1] * (size + 1), me)), ("alltoall", ([],)),
        ("alltoall", (5,)), ("bcast", (1, size)), ("reduce", (1, MPI.SUM, -1)),
        ("gather", (1, "a")), ("bcast", ()),
    ]  # fmt: skip
    if me == 0:  # the others are in no call
        for method, arguments in wrong:
            seen = [raised(getattr(of, method), *arguments) for of in (MPI.Intracomm(apart), apart)]
            assert None not in seen, (method, arguments)
            assert about(seen[0]) == about(seen[1]), (method, seen)
    apart.Free()
    comm.barrier()
    if size == 1:
        return
    # Where mpi4py would leave others waiting for a thread with an error, all go on.
    for call in (comm.allreduce, comm.scan, comm.reduce):
        combines = {"allreduce": True, "scan": me > 0, "reduce": me == 0}[call.__name__]
        assert (raised(call, me, refusing) is not None) == combines, call
    assert comm.allgather(me) == list(range(size))
    error = raised(comm.allgather, Bad("load") if me == 0 else 1)
    assert str(error) == "load"
    assert comm.allgather(me) == list(range(size))
    # A thread that goes on after its error makes the call again.
    if me == 0:
        assert raised(comm.bcast, Bad("dump"), 0) is not None
    assert comm.bcast(me, 0) == 0


def plain_loads(data: Any) -> Any:
    return pickle.loads(data)


def own_pickles() -> None:
    """The functions of `MPI.pickle` are the program's to replace."""
    used = []

    def dumps(obj: Any, protocol: Any = None) -> bytes:
        used.append("dumps")
        return zlib.compress(pickle.dumps(obj, 4))

    def loads(data: Any) -> Any:
        used.append("loads")
        return pickle.loads(zlib.decompress(data))

    x = np.arange(40_000) + me
    standard = MPI.pickle.PROTOCOL
    for protocol in (None, 5):
        MPI.pickle.__init__(dumps, loads, protocol)  # type: ignore[misc]
        for method in ("bcast", "allgather", "gather"):
            del used[:]
            both(method, x)
            half = len(used) // 2
            assert used[:half] == used[half:], used
        both("alltoall", [x] * size)
        both("allreduce", x)
    MPI.pickle.__init__(  # type: ignore[misc]
        lambda obj, protocol, **options: pickle.dumps(obj, protocol, **options), plain_loads, 5
    )
    both("bcast", x)  # such a function would leave out buffers that the other one needs
    both("allgather", x)
    MPI.pickle.__init__(lambda obj: b"", lambda data: 1 / 0)  # type: ignore[misc]
    both("allgather", x)  # mpi4py takes an empty pickle for None
    MPI.pickle.__init__()  # type: ignore[misc]
    for protocol in (2, standard):
        MPI.pickle.PROTOCOL = protocol
        both("allgather", x)
    threshold = MPI.pickle.THRESHOLD
    for few in (0, 10):
        MPI.pickle.THRESHOLD = few
        both("allgather", [np.arange(me), np.arange(5), pickle.PickleBuffer(b"")])
        both("bcast", [np.arange(0), pickle.PickleBuffer(bytearray()), pickle.PickleBuffer(b"")])
    MPI.pickle.THRESHOLD = threshold


def many_buffers() -> None:
    """A table of buffers that is longer than the first message."""
    many = [np.full(300_000, i % 100, np.uint8) for i in range(70)]
    both("bcast", many if me == 0 else None)
    both("allgather", many if me == size - 1 else 0)


def sizes() -> None:
    """Sizes that change from call to call, around those of the slots."""
    lengths = 0, 480, 500, 700, 730, 10_000, 10, 60_000, 65_490, 66_000, 1, 20_000, 5
    for k, n in enumerate(lengths):
        data, root = bytes(n), k % size
        both("bcast", data if me == root else None, root)
        both("allgather", data[: n // (me + 1)])
        both("gather", data[: n // (size - me)], root)
        both("alltoall", [data[: n // (i + me + 1)] for i in range(size)])
        both("scatter", [data[: n // (i + 1)] for i in range(size)] if me == root else None, root)
        both("allreduce", data[: n // (me + 1)], MPI.MAX)


class Asking:
    """An object whose pickling and reading make calls of their own."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return told, (self.value, comm.allgather(me), comm.bcast(me, 0))


def told(value: int, every: list[int], first: int) -> Asking:
    assert (every, first) == (list(range(size)), 0)
    assert comm.allgather(str(me)) == [str(i) for i in range(size)]
    assert comm.bcast(me + 1, size - 1) == size
    return Asking(value)


def calls_inside() -> None:
    """A call that an object makes does not disturb the call that moves the object."""
    for _ in range(3):
        assert [x.value for x in comm.allgather(Asking(me))] == list(range(size))
        assert comm.allreduce(Asking(me), lambda a, b: Asking(a.value + b.value)).value == (
            size * (size - 1) // 2)  # fmt: skip
        found = comm.alltoall([Asking(10 * me + i) for i in range(size)])
        assert [x.value for x in found] == [10 * i + me for i in range(size)]


CHECKS = [
    moves, iterators, locks, freed_meanwhile, reductions, numbers_of_arrays, errors, own_pickles,
    many_buffers, sizes, calls_inside,
]  # fmt: skip

if __name__ == "__main__":
    for check in CHECKS:
        check()
    print("done")
