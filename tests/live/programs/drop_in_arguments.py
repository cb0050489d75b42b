"""Odd and wrong arguments of methods on buffers: ``drop_in_arguments.py CHECK [--by-mpi]``.

One thread has them. What mpi4py takes changes nothing for the others. What it refuses is its error.
Under ``XUPC_COMM=force``: no thread waits for ever, and the next calls have right results.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI
from support.usable_communicators import check_usable

import xupc
from xupc.mpi.message_size import bytes_of

COMM = xupc.Comm(MPI.COMM_WORLD)
RING = COMM.Create_cart([COMM.size], [True])
SIZE, RANK = COMM.size, COMM.rank
LAST = SIZE - 1
BAD = LAST == RANK  # this thread has the odd arguments
N = 100  # times 3 threads it is more than an int8 has
BY_MPI = "--by-mpi" in sys.argv  # all nonblocking calls
BLOCKING = COMM.Gather, COMM.Scatter, COMM.Allgather, COMM.Alltoall
POSTED = COMM.Igather, COMM.Iscatter, COMM.Iallgather, COMM.Ialltoall


def raised(call: Callable[..., Any], *arguments: Any) -> BaseException | None:
    """Return the error of a call; a request is waited for."""
    try:
        request = call(*arguments)
        if isinstance(request, MPI.Request):
            request.Wait()
    except Exception as error:
        return error
    return None


# --- sizes --------------------------------------------------------------------------------------


def places_for(name: str, n: int) -> tuple[Any, Any, int]:
    """Return what a method sends, its result with `n` elements a block, and its blocks."""
    one, every = np.full(N, RANK + 1.0), np.full((SIZE, N), RANK + 1.0)
    if name.lower().endswith("scatter"):
        return (every if BAD else None), np.zeros(n if BAD else N), 1
    return (every if name.lower().endswith("alltoall") else one), np.zeros((SIZE, n)), SIZE


def sizes() -> None:
    """Blocks of one thread's result have another length than those that arrive.

    It takes part in the call; a place that is too short is its error afterwards.
    """
    for n in (N, N + 3, N - 3, 0):
        for method in (*BLOCKING, *(() if BY_MPI else POSTED)):
            name = method.__name__
            given, result, blocks = places_for(name, n if BAD else N)
            root = () if name.lower().endswith(("allgather", "alltoall")) else (LAST,)
            error = raised(method, given, result, *root)
            assert (error is not None) == (BAD and n < N), (name, n, error)
            assert error is None or "runcate" in str(error), (name, error)
            if BAD or not name.lower().endswith("gather") or "all" in name:
                rows = result.reshape(blocks, -1)[:, :N]
                want = [[LAST + 1.0]] if blocks == 1 else [[i + 1.0] for i in range(SIZE)]
                assert (rows == want).all(), (name, n, result)
        check_usable(COMM)


def vector_sizes() -> None:
    """The same for the v forms, with short blocks and with long ones."""
    for n in (N, 20_000):
        for more in (3, -3):
            counts, k = [n] * SIZE, n + more if BAD else n
            mine = np.full(n, RANK + 1.0)
            every = np.zeros(k * SIZE)
            error = raised(COMM.Gatherv, mine, [every, [k] * SIZE, MPI.DOUBLE], LAST)
            assert (error is not None) == (BAD and more < 0), error
            if BAD:
                assert (every.reshape(SIZE, k)[0, : min(k, n)] == 1).all()
            every, got = np.full(n * SIZE, 7.0), np.zeros(k)
            error = raised(COMM.Scatterv, [every, counts, MPI.DOUBLE], got, LAST)
            assert (error is not None) == (BAD and more < 0), error
            assert (got[:n] == 7).all()
            mine, every = np.full(k, RANK + 1.0), np.zeros(n * SIZE)
            error = raised(COMM.Allgatherv, mine, [every, counts, MPI.DOUBLE])
            assert (error is not None) == BAD, error
            assert (every.reshape(SIZE, n)[:, : n - 3] == np.arange(1, SIZE + 1)[:, None]).all()
        check_usable(COMM)


def empty() -> None:
    """Calls without data on all threads; on one thread alone they are a mismatch."""
    for _ in range(3):
        none = np.zeros(0)
        COMM.Bcast(none)
        COMM.Allreduce(none, none.copy())
        COMM.Allgather(none, none.copy())
        COMM.Ibcast(none).Wait()
        COMM.Igather(none, none.copy()).Wait()
    for method in (COMM.Bcast, COMM.Gather, COMM.Allgather, COMM.Alltoall, COMM.Allreduce):
        check_usable(COMM)
        n = 0 if BAD else 3 * SIZE
        name, more = method.__name__, SIZE if "ther" in method.__name__ else 1
        given = [np.zeros(n)] if name == "Bcast" else [np.zeros(n), np.zeros(n * more)]
        try:
            method(*given, *((LAST,) if name in ("Bcast", "Gather") else ()))
            COMM.Barrier()  # of a thread that did not wait
        except xupc.CollectiveMismatchError as error:
            assert "none" in str(error), error
        else:
            raise AssertionError(f"{name}: no error")


# --- objects ------------------------------------------------------------------------------------


class Index:
    """A number that is no int, and that cannot be multiplied."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Int:
    """What mpi4py takes for a root, but not for a count."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


class Iterated(list[Any]):
    """A list whose items only its iterator gives: so mpi4py reads a description."""

    def __getitem__(self, i: Any) -> Any:
        raise LookupError("item")


class Indexed(list[Any]):
    """A list whose items its iterator does not give: mpi4py does not read counts so."""

    def __iter__(self) -> Any:
        raise LookupError("iterator")


class Exported:
    """An array of another library, whose functions raise an error the first times."""

    def __init__(self, array: Any, errors: int = 0) -> None:
        self.array, self.errors = array, errors

    def __dlpack__(self, *, max_version: Any, copy: Any) -> Any:  # both have to be given
        if self.errors:
            self.errors -= 1
            raise BufferError("not yet")
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def odd() -> None:
    """What mpi4py takes xupc takes, too."""
    a, want = np.full(N, RANK + 1.0), np.repeat(np.arange(SIZE) + 1.0, N)
    every = np.zeros(SIZE * N)
    small = np.int8(N)
    for given, into in (
        ([a, Index(N)], [every, Index(N), MPI.DOUBLE]), ([a, small, "d"], [every, small, "d"]),
        (Iterated([a, N]), Iterated([every, N, MPI.DOUBLE])), (Exported(a), Exported(every)),
        ([a, (Index(N), 0)], [every, (small, np.int8(0)), MPI.DOUBLE]),
        ((a, None, None), (every, Index(N), None, MPI.DOUBLE)),
    ):  # fmt: skip
        every[:] = 0
        COMM.Allgather(given if BAD else a, into if BAD else every)
        assert (every == want).all(), (given, into)
        if BAD:
            every[:] = 0
        COMM.Allreduce(given if BAD else a, [every[:N], Index(N)] if BAD else every[:N])
        assert (every[:N] == sum(range(1, SIZE + 1))).all(), given
    zero = (Int(0), Decimal(0), 0.0, np.float64(0), np.array(0), False)
    for root in zero:
        b = np.full(3, RANK + 1.0)
        COMM.Bcast(b, root if BAD else 0)
        COMM.Bcast(buf=b, root=root if BAD else 0)
        assert (b == 1).all(), root
    counts = [N] * SIZE
    for some in (
        Indexed(counts), dict(enumerate(counts)), np.array(counts, ">i2"), np.array(N), small,
        Indexed(map(Index, counts)), memoryview(bytes(counts)),
    ):  # fmt: skip
        every[:] = 0
        COMM.Allgatherv(a, [every, some if BAD else counts, MPI.DOUBLE])
        assert (every == want).all(), some
        if some is not small and getattr(some, "ndim", True):  # one number for each thread
            many, got = np.ones(SIZE * N), np.zeros(N)
            COMM.Reduce_scatter(many, got, some if BAD else counts)
            assert (got == SIZE).all(), some
    half, halves = np.full(N, RANK + 1, "f2"), np.zeros(SIZE * N, "f2")
    if raised(lambda: MPI.COMM_SELF.Send_init(half, 0).Free()) is None:  # this MPI has the type
        COMM.Allgatherv(half, halves)
        assert (halves == want).all()


def once() -> None:
    """An error that an object raises at first is raised, unless another way works."""
    for make in (lambda a: Exported(a, 1), lambda a: [Exported(a, 1), N, MPI.DOUBLE]):
        for method in (COMM.Bcast, COMM.Ibcast):
            a = np.full(N, RANK + 1.0)
            given = make(a) if BAD else a
            error = raised(method, given, 0)
            if BAD:
                assert error is None or "not yet" in str(error), error
            if error is not None:
                assert raised(method, given, 0) is None
            assert (a == 1).all()
            check_usable(COMM)


class Refusing:
    """An object that refuses everything."""

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)

    def __len__(self) -> int:
        raise LookupError("len")


def refused() -> None:
    """mpi4py's error is raised on this thread alone, and no other one waits."""
    a, every = np.zeros(N), np.zeros(SIZE * N)

    class Here(list[Any]):
        """A list to which weak references can be made."""

    gone = Here([a, N])
    dead, proxy = weakref.proxy(Here()), weakref.proxy(gone)
    released = memoryview(bytearray(8))
    released.release()
    freed = MPI.INT.Dup()
    freed.Free()
    wrong = (
        dead, proxy, mock.Mock(), mock.MagicMock(), mock.MagicMock(spec=list), released, Refusing(),
        "text", 7, [a], [a, 1, 2, 3, 4], [a, -1], [a, 1.0], [a, "nothing"], [a, N, int],
        [a, 1 << 70], np.zeros(N, ">f8"), np.zeros(N, "O"), np.zeros(N, "S8"), np.zeros(N, "M8[s]"),
        np.zeros(N, "i4,f4"), np.zeros(2 * N)[::2], [a, N, freed], [a, N, MPI.DATATYPE_NULL],
        [a, N, mock.Mock(spec=MPI.Datatype)], a.tobytes(), (x for x in [a]), {1, 2},
    )  # fmt: skip
    plain = MPI.Intracomm(COMM)
    for given in wrong:
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("Allgather", (a, given)), ("Allreduce", (a, given)), ("Allgatherv", (a, given)),
            ("Iallreduce", (a, given)), ("Bcast", (given, 0)),
        ]  # fmt: skip
        for name, arguments in calls if BAD else ():
            error = raised(getattr(COMM, name), *arguments)
            assert error is not None, (name, given)
            assert not isinstance(error, xupc.XupcError), (name, given, error)
    for root in (-1, SIZE, None, "0", 1 << 40, [0], mock.Mock()):
        assert not BAD or raised(COMM.Bcast, a, root) is not None, root
    for op in (None, max, mock.Mock(spec=MPI.Op), MPI.OP_NULL, "SUM"):
        assert not BAD or raised(COMM.Allreduce, a, a.copy(), op) is not None, op
    assert plain.size == SIZE
    check_usable(COMM)
    assert [bytes_of((given, every)) for given in wrong]  # under XUPC_COMM=explain: no error
    check_usable(COMM)


def copies() -> None:
    """Python threads with derived types, each on a communicator, at the same time."""
    comms = [COMM.Dup() for _ in range(3)]
    column = MPI.DOUBLE.Create_vector(N, 1, 2).Commit()
    for comm in comms:
        comm.Barrier()
    wrong = []

    def work(k: int) -> None:
        for _ in range(150):
            a, every = np.full((N, 2), 10.0 * k + RANK), np.zeros((SIZE, N))
            comms[k].Allgather([a, 1, column], every)
            if (every != 10.0 * k + np.arange(SIZE)[:, None]).any():
                wrong.append(every)

    others = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    beside = MPI.Query_thread() == MPI.THREAD_MULTIPLE and not BY_MPI
    for thread in others if beside else ():
        thread.start()
    work(0)
    for thread in others if beside else ():
        thread.join()
    assert not wrong, wrong[0]


CHECKS = (sizes, vector_sizes, empty, odd, once, refused, copies)

warnings.simplefilter("ignore")
for check in CHECKS:
    if sys.argv[1] in (check.__name__, "all"):
        check()
check_usable(COMM)
print("done", flush=True)
