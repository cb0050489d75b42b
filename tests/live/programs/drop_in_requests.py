"""Nonblocking collectives of `xupc.Comm` as requests: ``drop_in_requests.py CHECK``.

Results are compared with mpi4py's blocking calls on the same threads. With ``--by-mpi`` MPI must
carry the calls.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.handshakes import await_wait, control, kill_when

import xupc

PLAIN = MPI.COMM_WORLD
COMM = xupc.Comm(PLAIN)
SIZE, RANK = PLAIN.size, PLAIN.rank
COUNTS = (1, 7, 1000, 40_000, 500_000)
CARRIED = SIZE > 1 and "--by-mpi" not in sys.argv  # between nodes MPI carries the calls

Call = Callable[[Any, Any, Any], Any]


def all_methods(n: int, kind: str) -> dict[str, tuple[Call, int, int]]:
    """Return (call on a communicator with source and destination, their elements) by method."""
    root, whole, op = SIZE - 1, n * SIZE, MPI.MAX if kind in "bh" else MPI.SUM
    return {
        "bcast": (lambda get, s, d: get("bcast")(d, root), 1, n),
        "gather": (lambda get, s, d: get("gather")(s, d, root), n, whole),
        "scatter": (lambda get, s, d: get("scatter")(s, d, root), whole, n),
        "allgather": (lambda get, s, d: get("allgather")(s, d), n, whole),
        "alltoall": (lambda get, s, d: get("alltoall")(s, d), whole, whole),
        "reduce": (lambda get, s, d: get("reduce")(s, d, op, root), n, n),
        "allreduce": (lambda get, s, d: get("allreduce")(s, d, op), n, n),
        "scan": (lambda get, s, d: get("scan")(s, d, op), n, n),
        "exscan": (lambda get, s, d: get("exscan")(s, d, op), n, n),
        "reduce_scatter_block": (
            lambda get, s, d: get("reduce_scatter_block")(s, d, op), whole, n,
        ),
        "reduce_scatter": (
            lambda get, s, d: get("reduce_scatter")(s, d, [n] * SIZE, op), whole, n,
        ),
    }  # fmt: skip


def values(n: int, kind: str, seed: int) -> Any:
    return (np.arange(n) * 7 + RANK * 3 + seed).astype(kind) % 50


def method_of(comm: Any, prefix: str) -> Callable[[str], Any]:
    """Return a look-up of methods by their names in small letters."""
    return lambda name: getattr(comm, prefix + (name if prefix else name.capitalize()))


def opened() -> None:
    """Have a blocking call open the team."""
    COMM.Barrier()


def carried(name: str) -> int:
    """Return how many calls of a method xupc has carried."""
    entry: Any = COMM.explain(as_dict=True).get(name)
    return 0 if entry is None else int(entry["carried_by"].get("xupc", 0))


def methods() -> None:
    """Each method, for several sizes and types, as mpi4py's blocking one; repeated calls too."""
    opened()
    for kind in ("f8", "i4", "h"):
        for n in COUNTS:
            for name, (call, of, into) in all_methods(n, kind).items():
                for seed in range(3):
                    src = values(of, kind, seed)
                    want, found = (values(into, kind, seed + 9) for _ in range(2))
                    call(method_of(PLAIN, ""), src, want)
                    request = call(method_of(COMM, "I"), src, found)
                    assert isinstance(request, MPI.Request)
                    request.Wait()
                    assert not request
                    assert (want == found).all(), (name, kind, n, seed)
    COMM.Ibarrier().Wait()
    for name in all_methods(1, "f8"):
        calls = len(COUNTS) * 9 if CARRIED else 0
        assert carried(f"I{name}") == calls, (name, carried(f"I{name}"))
    assert carried("Ibarrier") == CARRIED


def descriptions() -> None:
    """A thread may describe its message in another way than the others, and wait in any way."""
    opened()
    n = 1000
    column = MPI.DOUBLE.Create_vector(n, 1, 2).Commit()
    for turn in range(3):
        odd = (RANK + turn) % 2 == 0
        src, wide = values(n, "f8", turn), np.full(2 * n, -1.0)
        want = np.empty(n)
        PLAIN.Allreduce(src, want)
        into = [wide, 1, column] if odd else [wide, n, MPI.DOUBLE]
        request = COMM.Ibcast(into, 0)
        MPI.Request.Waitall([request])
        found = wide[::2] if odd else wide[:n]
        sent = np.full(n, -1.0)
        assert (found == sent).all()
        strided = np.zeros(2 * n)
        if RANK == SIZE - 1:
            strided[::2] = want
        request = COMM.Iallgather([src, n, MPI.DOUBLE], rows := np.zeros((SIZE, n)))
        while not request.Test():
            pass
        assert (rows == np.array(PLAIN.allgather(src))).all()
        request = COMM.Ibcast([strided, 1, column] if odd else want, SIZE - 1)
        request.wait()
        if odd:
            assert (strided[::2] == want).all()
            assert (strided[1::2] == 0).all()
        total = src.copy()
        COMM.Iallreduce(MPI.IN_PLACE, total).Wait()
        assert (total == want).all()
    column.Free()


def mixed() -> None:
    """Waits and tests of MPI over requests of xupc, of MPI, and null ones."""
    opened()
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for n in (1, 8192):
        for kind in range(6):
            a, b, c = np.full(n, RANK + 1.0), np.zeros(n), np.zeros(n)
            total, every = np.zeros(n), np.zeros(n * SIZE)
            requests: list[MPI.Request] = [
                PLAIN.Irecv(b, before), COMM.Iallreduce(a, total), MPI.REQUEST_NULL,
                COMM.Iallgather(a, every), PLAIN.Isend(a, after), COMM.Ibarrier(),
                PLAIN.Iallreduce(a, c),
            ]  # fmt: skip
            assert bool(requests[1])
            statuses: list[MPI.Status] = []
            if kind == 0:
                MPI.Request.Waitall(requests, statuses)
                assert len(statuses) == len(requests)
            elif kind == 1:
                seen = [MPI.Request.Waitany(requests) for _ in range(6)]
                assert sorted(seen) == [0, 1, 3, 4, 5, 6]
                assert MPI.Request.Waitany(requests) == MPI.UNDEFINED
            elif kind == 2:
                seen = []
                while (found := MPI.Request.Waitsome(requests)) is not None:
                    seen += found
                assert sorted(seen) == [0, 1, 3, 4, 5, 6]
            elif kind == 3:
                while not MPI.Request.Testall(requests):
                    pass
            elif kind == 4:
                seen = []
                while len(seen) < 6:
                    index, flag = MPI.Request.Testany(requests)
                    seen += [index] if flag else []
            else:
                for request in reversed(requests):
                    request.Wait()
            assert not any(requests)
            assert (b == before + 1).all()
            assert (total == sum(range(1, SIZE + 1))).all()
            assert (total == c).all()
            assert (np.arange(1, SIZE + 1) == every.reshape(SIZE, n).T).all()


def many() -> None:
    """More calls in flight than the threads may run ahead, waited for in another order."""
    opened()
    for n in (1, 5000):
        a = [np.full(n, RANK + k * 1.0) for k in range(100)]
        b = [np.zeros(n) for _ in a]
        requests = [COMM.Iallreduce(x, y) for x, y in zip(a, b, strict=True)]
        requests[70].Wait()
        assert (b[70] == sum(range(SIZE)) + 70 * SIZE).all()
        MPI.Request.Waitall(requests)
        for k, y in enumerate(b):
            assert (y == sum(range(SIZE)) + k * SIZE).all()


def order() -> None:
    """Blocking calls come after the nonblocking ones before them, on any communicator."""
    opened()
    other = COMM.Dup()
    other.Barrier()
    a, b, c = np.full(10, 1.0), np.zeros(10), np.zeros(10)
    for _ in range(20):
        requests = [COMM.Iallreduce(a, b), other.Iallreduce(a, c)]
        assert COMM.allreduce(1) == SIZE
        COMM.Allreduce(a, c)
        other.Barrier()
        COMM.Barrier()
        MPI.Request.Waitall(requests)
        assert (b == SIZE).all()
    request = other.Iallreduce(a, b)
    other.Free()
    request.Wait()
    assert (b == SIZE).all()


def progress() -> None:
    """MPI's waits make the progress of calls, and a test never waits."""
    opened()
    a, b, word = np.full(100_000, 1.0), np.zeros(100_000), np.zeros(1)
    for small in (True, False):
        x, y = (a[:1], b[:1]) if small else (a, b)
        requests = [COMM.Iallreduce(x, y), COMM.Ibarrier(), COMM.Iallreduce(x, y)]
        if RANK == 0:  # the others send when their requests are complete
            for _ in range(SIZE - 1):
                PLAIN.Recv(word)
        else:
            for request in requests:
                request.Wait()
            PLAIN.Send(word, 0)
        MPI.Request.Waitall(requests)
        assert (y == SIZE).all()
    for wait in (lambda r: r.Wait(), lambda r: MPI.Request.Waitall([r])):
        if RANK == 0:
            request = COMM.Ibarrier()
            for _ in range(100):
                if SIZE > 1:
                    assert not request.Test()
                    assert MPI.Request.Testany([request]) == (MPI.UNDEFINED, False)
                    assert not request.Get_status()
                    assert not MPI.Request.Testall([request])
                    assert MPI.Request.Testsome([request]) == []
            for other in range(1, SIZE):
                PLAIN.Send(word, other)
        else:
            PLAIN.Recv(word, 0)
            request = COMM.Ibarrier()
        wait(request)


def late() -> None:
    """A thread that comes late is waited for, in any kind of wait."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    for wait in (lambda r: r.Wait(), lambda r: MPI.Request.Waitall([r])):
        if RANK == SIZE - 1:
            time.sleep(0.3)
        request = COMM.Iallreduce(a, b)
        wait(request)
        assert (b == SIZE).all()


def ends() -> None:
    """Buffers are released, `Cancel` is an error, wrong arguments raise mpi4py's errors."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    for _ in range(3):
        total = np.zeros(10)
        gone = weakref.ref(total)
        request = COMM.Iallreduce(a, total)
        del total
        assert gone() is not None
        request.Wait()
        assert gone() is None
        assert request == MPI.REQUEST_NULL
        request.Wait()
        assert request.Test()
        total = np.zeros(10)
        gone = weakref.ref(total)
        request = COMM.Iallreduce(a, total)
        del total
        MPI.Request.Waitall([request])
        assert gone() is None
    request = COMM.Iallreduce(a, b)
    try:
        request.Cancel()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_REQUEST or not CARRIED
    else:
        assert not CARRIED
    request.Wait()
    for wrong in ((a, b[:5]), (a, "b"), (a, b, 3)):
        try:
            COMM.Iallreduce(*wrong).Wait()
        except (MPI.Exception, TypeError, ValueError, BufferError):
            continue
        raise AssertionError(wrong)
    COMM.Iallreduce(a, b).Wait()
    assert (b == SIZE).all()


def awaits() -> None:
    """Requests can be awaited, those that MPI carries and persistent ones, too."""
    opened()

    async def reduced(comm: Any, k: int) -> None:
        a, b = np.full(1000, RANK + k), np.zeros(1000, int)
        await comm.Iallreduce(a, b)
        assert (b == sum(range(SIZE)) + k * SIZE).all()

    async def main() -> None:
        fresh = COMM.Dup()
        await asyncio.gather(*(reduced(COMM, k) for k in range(10)))
        await asyncio.gather(*(reduced(fresh, k) for k in range(10)))
        a, b = np.full(10, RANK), np.zeros(10, int)
        persistent = COMM.Allreduce_init(a, b)
        for k in range(3):
            a[:] = RANK + k
            persistent.Start()
            await persistent
            assert (b == sum(range(SIZE)) + k * SIZE).all()
        persistent.Free()
        fresh.Free()

    asyncio.run(main())


def differ() -> None:
    """Calls that differ raise on all threads: in the request's own wait, and in MPI's."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    for _ in range(2):
        request = COMM.Iallreduce(a, b, MPI.SUM if RANK else MPI.MAX)
        try:
            request.Wait()
        except xupc.CollectiveMismatchError as error:
            assert "Iallreduce: op differs" in str(error), error
        else:
            raise AssertionError("no error")
        assert not request
        COMM.Iallreduce(a, b).Wait()
        assert (b == SIZE).all()
        COMM.Barrier()
    request = COMM.Iallreduce(a, b, MPI.SUM if RANK else MPI.MAX)
    try:
        MPI.Request.Waitall([request])
    except MPI.Exception:
        pass
    else:
        raise AssertionError("no error")
    COMM.Iallreduce(a, b).Wait()
    assert (b == SIZE).all()


def handler() -> None:
    """A signal handler within the wait for a request cannot wait for the next one: an error."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    errors: list[str] = []
    following = MPI.REQUEST_NULL

    def waits(*_: object) -> None:
        try:
            following.Wait()
        except xupc.XupcError as error:
            errors.append(str(error))

    interrupted_by(waits)
    request, following = COMM.Iallreduce(a, b), COMM.Ibarrier()
    request.Wait()
    following.Wait()
    assert (b == SIZE).all()
    expected = RANK == 0 and CARRIED
    assert ["not allowed while" in error for error in errors] == [True] * expected, errors


def interrupted_by(handles: Callable[..., None]) -> None:
    """Have thread 0 interrupted in the next call, to which the last thread comes afterwards."""
    if not CARRIED:  # MPI does not return to a handler while it waits
        signal.signal(signal.SIGALRM, handles)
        if RANK == SIZE - 1:
            time.sleep(1)
        if RANK == 0 and SIZE > 1:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
    elif RANK == 0:

        def handler(*arguments: object) -> None:
            handles(*arguments)
            PLAIN.send(None, SIZE - 1)

        own = control().index
        signal.signal(signal.SIGALRM, handler)
        kill_when(lambda: await_wait([own]), signal.SIGALRM, lambda: None)
    elif RANK == SIZE - 1:
        PLAIN.recv(source=0)


def repeated(test: Callable[[], Any]) -> None:
    while not test():
        pass


def handler_in_mpi() -> None:
    """A wait inside MPI in such a handler ends with an error, as `Wait` does; one test does not."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    waits: tuple[Callable[[MPI.Request], Any], ...] = (
        lambda r: MPI.Request.Waitall([r]), lambda r: MPI.Request.Waitany([r]),
        lambda r: MPI.Request.Waitsome([r, MPI.REQUEST_NULL]), lambda r: repeated(r.Test),
        lambda r: repeated(lambda: MPI.Request.Testall([r])), lambda r: r.Test(),
    )  # fmt: skip
    outer: tuple[Callable[[MPI.Request], Any], ...] = (lambda r: r.Wait(), lambda _: COMM.Barrier())
    for number, wait in enumerate(waits):
        outcomes: list[str] = []

        requests: list[MPI.Request] = []

        def handles(
            *_: object, wait: Any = wait, requests: Any = requests, outcomes: Any = outcomes,
            which: int = (number + 1) % 2,
        ) -> None:  # fmt: skip
            try:
                wait(requests[which])
                outcomes.append("")
            except MPI.Exception as error:
                outcomes.append(str(error))

        interrupted_by(handles)
        requests += COMM.Iallreduce(a, b), COMM.Ibarrier()
        outer[number // 2 % 2](requests[0])
        signal.setitimer(signal.ITIMER_REAL, 0)
        MPI.Request.Waitall(requests)
        COMM.Barrier()
        assert (b == SIZE).all()
        if RANK == 0 and CARRIED:
            assert [bool(text) for text in outcomes] == [number < len(waits) - 1], outcomes


def posted_in_handler() -> None:
    """A call that a handler starts within a call of the same communicator is an error."""
    opened()
    a, b = np.full(10, 1.0), np.zeros(10)
    calls = (COMM.Barrier, lambda: COMM.Allreduce(a, b), lambda: COMM.allreduce(1))
    for call in calls:
        outcomes: list[str] = []
        for _ in range(3):  # now all are cached
            COMM.Iallreduce(a, b).Wait()
            call()

        def handles(*_: object, outcomes: list[str] = outcomes) -> None:
            try:
                COMM.Iallreduce(a, b)
            except xupc.XupcError as error:
                outcomes.append(str(error))

        if CARRIED:  # MPI does not return to a handler
            interrupted_by(handles)
        call()
        if RANK == 0 and CARRIED:
            assert len(outcomes) == 1, outcomes
            assert "Iallreduce: not allowed while" in outcomes[0], outcomes
        COMM.Iallreduce(a, b).Wait()
        assert (b == SIZE).all()


def first() -> None:
    """Before a team is open MPI carries the calls, and none of them waits for a thread."""
    request = COMM.Ibarrier()
    if RANK == 0:
        assert carried("Ibarrier") == 0
    request.Wait()
    opened()
    COMM.Ibarrier().Wait()
    assert carried("Ibarrier") == CARRIED


CHECKS = (
    methods, descriptions, mixed, many, order, progress, late, ends, awaits, differ, handler,
    handler_in_mpi, posted_in_handler, first,
)  # fmt: skip

{check.__name__: check for check in CHECKS}[sys.argv[1]]()
PLAIN.Barrier()
print("done", flush=True)
