"""What calls of `xupc.Comm` use while the program changes, frees or needs it: one CHECK.

``drop_in_memory.py CHECK``; with ``--by-mpi`` MPI must carry the nonblocking calls.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.handshakes import await_wait, control, kill_when
from support.usable_communicators import check_usable

import xupc

PLAIN = MPI.COMM_WORLD
COMM = xupc.Comm(PLAIN)
SIZE, RANK = PLAIN.size, PLAIN.rank
N = 1000
CARRIED = SIZE > 1 and "--by-mpi" not in sys.argv


def pair() -> tuple[Any, Any]:
    """Return operands and room for a result."""
    return np.full(N, 1.0), np.zeros(N)


def known() -> None:
    """Make calls that later ones repeat."""
    for _ in range(3):
        a, b = pair()
        COMM.Allreduce([a, MPI.DOUBLE], [b, N, MPI.DOUBLE])
        COMM.Iallreduce([a, MPI.DOUBLE], [b, N, MPI.DOUBLE]).Wait()
        COMM.Iallreduce(a, b).Wait()
        assert (b == SIZE).all()
        assert COMM.alltoall([RANK] * SIZE) == list(range(SIZE))
        assert COMM.scatter([RANK] * SIZE) == 0


def lists_of_requests() -> None:
    """The arrays in a list are those of the call, whatever becomes of the list."""
    known()
    for wait in (lambda r: r.Wait(), lambda r: MPI.Request.Waitall([r])):
        a, b = pair()
        mine, result = [a, MPI.DOUBLE], [b, N, MPI.DOUBLE]
        refs = weakref.ref(a), weakref.ref(b)
        request = COMM.Iallreduce(mine, result)
        mine.clear()
        result[0] = None
        del a, b
        assert all(ref() is not None for ref in refs)
        wait(request)
        assert all(ref() is None for ref in refs)
    check_usable(COMM)


def lists_of_waits() -> None:
    """The same while a blocking call waits, and a handler of a signal changes the list."""
    known()
    wait_with_lists(COMM.Allreduce, [pair()[0], MPI.DOUBLE], [pair()[1], N, MPI.DOUBLE])
    column = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    ones = [1] * SIZE
    wide = [np.zeros(4 * SIZE), ones, ones, column]
    wait_with_lists(COMM.Allgatherv, [np.full(4, 1.0), 1, column], wide)
    check_usable(COMM)


def wait_with_lists(call: Callable[..., None], mine: list[Any], result: list[Any]) -> None:
    """Make a call whose lists a handler changes while thread 0 waits in it."""
    refs = weakref.ref(mine[0]), weakref.ref(result[0])
    alive: list[bool] = []

    def handler(*_: object) -> None:
        mine.clear()
        result[0] = None
        alive.extend(ref() is not None for ref in refs)
        PLAIN.send(None, SIZE - 1)

    if RANK == 0 and CARRIED:
        own = control().index
        signal.signal(signal.SIGALRM, handler)
        kill_when(lambda: await_wait([own]), signal.SIGALRM, lambda: None)
    elif RANK == SIZE - 1 and CARRIED:
        PLAIN.recv(source=0)
    call(mine, result)
    assert alive[1:] == [True] * (RANK == 0 and CARRIED), alive
    assert call == COMM.Allgatherv or alive[:1] == alive[1:]  # else a copy is sent


class Meddling:
    """An object whose pickling changes the list that it is in."""

    def __init__(self, act: Callable[[list[Any]], object], items: list[Any], place: int) -> None:
        self.act, self.items = act, items
        items[place] = self

    def __reduce__(self) -> Any:
        self.act(self.items)
        return str, ("made",)


def lists_of_objects() -> None:
    """A list that changes while its objects are pickled: what was in it at first is sent."""
    known()
    acts: tuple[Callable[[list[Any]], object], ...] = (
        lambda items: items.extend(["more"] * 10_000), lambda items: items.clear(),
        lambda items: items.pop(), lambda items: items.insert(0, "first"),
    )  # fmt: skip
    for act in acts:
        for place in (0, SIZE - 1):
            found = []
            for comm in (PLAIN, COMM):
                items: list[Any] = [f"{RANK} to {to}" for to in range(SIZE)]
                Meddling(act, items, place)
                found.append(comm.alltoall(items))
                items = [f"part {to}" for to in range(SIZE)]
                Meddling(act, items, place)
                found[-1].append(comm.scatter(items))
            assert found[0] == found[1], found
    check_usable(COMM)


def collector() -> None:
    """The collector runs in the middle of a call, and calls back: each call has its own request."""
    known()
    ones, made, inside = np.full(N, 1.0), [], False

    def post() -> None:
        result = np.zeros(N)
        made.append((COMM.Iallreduce(ones, result), result))

    def collects(phase: str, _about: object) -> None:
        nonlocal inside
        here = threading.current_thread() is threading.main_thread()
        if here and phase == "start" and not inside:
            inside = True
            post()
            inside = False

    before = gc.get_threshold()
    gc.callbacks.append(collects)
    gc.set_threshold(1, 1000, 1000)
    for _ in range(60):
        post()
    gc.set_threshold(*before)
    gc.callbacks.remove(collects)
    most = PLAIN.allreduce(len(made), MPI.MAX)  # the collector runs at times of each thread
    while len(made) < most:
        post()
    MPI.Request.Waitall([request for request, _ in made])
    assert all((result == SIZE).all() for _, result in made)
    check_usable(COMM)


def traced() -> None:
    """A debugger makes a call in the middle of the same one: each has its own arrays."""
    known()
    places = ("method", "nonblocking.py"), ("catch_up", "team_meetings.py")
    inside, steps = False, 0
    seen: set[str] = set()

    def others() -> None:
        nonlocal inside
        inside = True
        a, b, c = np.full(size, 2.0), np.zeros(size), np.zeros(size)
        request = COMM.Iallreduce(a, c)
        COMM.Bcast(a, 0)
        COMM.Allreduce(a, b)
        request.Wait()
        assert (b == 2 * SIZE).all()
        assert (c == 2 * SIZE).all()
        inside = False

    def trace(frame: Any, _event: str, _about: object) -> Any:
        nonlocal steps
        code = frame.f_code
        if inside or (code.co_name, code.co_filename.rpartition("/")[2]) not in places:
            return None
        steps += 1
        if steps == number:
            seen.add(code.co_name)
            others()
        return trace

    def reduces() -> None:
        c = np.zeros(size)
        COMM.Iallreduce(np.full(size, 1.0), c).Wait()
        assert (c == SIZE).all()

    def broadcasts() -> None:
        for k in range(40):
            values = np.full(size, 1.0 * k if RANK == 0 else -1.0)
            COMM.Bcast(values, 0)
            assert (values == k).all()

    for number in range(1, 30):
        for call in (reduces, broadcasts):
            steps, size = 0, 100 + number
            sys.settrace(trace)
            call()
            sys.settrace(None)
    assert seen == {"method", "catch_up"} or not CARRIED, seen
    check_usable(COMM)


def hooked() -> None:
    """A hook makes the call that it is called before, with arrays of its own."""
    known()

    def before(_call: object) -> None:
        values = np.full(N, 5.0)
        COMM.Bcast(values, 0)

    for hooks in (False, True):
        pair_of_hooks = xupc.hooks.add(before=before) if hooks else None
        for k in range(5):
            values = np.full(N, 1.0 * k if RANK == 0 else -1.0)
            COMM.Bcast(values, 0)
            assert (values == k).all()
        if pair_of_hooks is not None:
            pair_of_hooks.remove()
    check_usable(COMM)


class Owned(np.ndarray):
    """An array that does something when it is freed."""

    act: Callable[[], object]

    def __del__(self) -> None:
        act = getattr(self, "act", None)
        if act is not None:
            act()


def finalizers() -> None:
    """Buffers that only a request keeps call back when they are freed."""
    known()
    acted: list[int] = []

    def acts(k: int) -> Callable[[], object]:
        spare = COMM.Dup()
        spare.Barrier()
        waits = PLAIN.Irecv(np.zeros(1), PLAIN.rank, 77)

        def act() -> None:
            acted.append(k)
            spare.Free()
            COMM.explain()
            gc.collect()
            assert not waits.Test()
            waits.Cancel()
            waits.Free()
            raise ValueError("of a finalizer: ignored")

        return act

    unraised: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraised.append
    for k in range(8):
        for wait in (lambda r: r.Wait(), lambda r: MPI.Request.Waitall([r])):
            a = np.full(N, 1.0).view(Owned)
            a.act = acts(k)
            b = np.zeros(N)
            request = COMM.Iallreduce([a, MPI.DOUBLE], b)
            del a
            wait(request)
            assert (b == SIZE).all()
    COMM.Barrier()
    sys.unraisablehook = hook
    assert sorted(acted) == sorted([*range(8), *range(8)]), acted
    assert len(unraised) == len(acted)
    check_usable(COMM)


def datatypes() -> None:
    """A datatype may be freed while a call uses it, as MPI allows."""
    known()
    for _ in range(3):
        wide = np.full(2 * N, RANK + 1.0)
        kind = MPI.DOUBLE.Create_vector(N, 1, 2).Commit()
        request = COMM.Ibcast([wide, 1, kind], 0)
        kind.Free()
        request.Wait()
        assert (wide[::2] == 1).all()
        assert (wide[1::2] == RANK + 1).all()
        rows = np.zeros((SIZE, 2 * N))
        kind = MPI.DOUBLE.Create_vector(N, 1, 2).Create_resized(0, 16 * N).Commit()
        request = COMM.Iallgather([np.full(N, 1.0 * RANK), N, MPI.DOUBLE], [rows, 1, kind])
        kind.Free()
        MPI.Request.Waitall([request])
        assert (rows[:, : 2 * N : 2] == np.arange(SIZE)[:, None]).all()
        assert (rows[:, 1::2] == 0).all()
    check_usable(COMM)


def communicators() -> None:
    """A communicator may be freed while calls on it are under way; others are opened and freed."""
    known()
    for free in (xupc.Comm.Free, MPI.Comm.Free, MPI.Comm.Disconnect):
        comm = COMM.Dup()
        comm.Barrier()
        results = [np.zeros(N) for _ in range(5)]
        ones = np.full(N, 1.0)
        requests = [comm.Iallreduce(ones, result) for result in results]
        if free is MPI.Comm.Disconnect:  # it waits for the calls
            MPI.Request.Waitall(requests)
        free(comm)
        for _ in range(5):
            other = COMM.Dup()
            other.Barrier()
            other.Free()
        gc.collect()
        MPI.Request.Waitall(requests)
        assert all((result == SIZE).all() for result in results)
    check_usable(COMM)


def dropped() -> None:
    """Requests that nothing waits for, with buffers that only they had; threads that have ended."""
    known()

    def post() -> None:
        for k in range(20):
            a, b = np.full(N + k % 2, 1.0), np.zeros(N + k % 2)
            COMM.Iallreduce(a, b)
            COMM.Ibarrier()

    post()
    thread = threading.Thread(target=post)
    thread.start()
    thread.join()
    gc.collect()
    filler = [np.full(N, 7.0) for _ in range(100)]  # takes memory that was freed
    check_usable(COMM)
    assert all((x == 7).all() for x in filler)
    comm = COMM.Dup()
    comm.Barrier()
    comm.Iallreduce(np.full(N, 1.0), np.zeros(N))
    comm.Free()
    check_usable(COMM)


def forked() -> None:
    """A child leaves the calls of its parent's requests alone."""
    known()
    a, b = pair()
    PLAIN.Barrier()
    if RANK == SIZE - 1:
        PLAIN.recv(source=0)
    request = COMM.Iallreduce(a, b)
    if RANK == 0:
        child = os.fork()
        if not child:
            try:
                request.Wait()
            except xupc.NotInitializedError:
                os._exit(0)
            os._exit(1)
        PLAIN.send(None, SIZE - 1)
        assert os.waitpid(child, 0)[1] == 0
    request.Wait()
    assert (b == SIZE).all()
    check_usable(COMM)


def attributes() -> None:
    """Functions of attributes that call back, collect, or raise."""
    known()
    seen: list[str] = []

    def copies(comm: MPI.Comm, _key: int, value: Any) -> Any:
        seen.append("copy")
        gc.collect()
        xupc.Comm(comm).explain()
        if value == "raise":
            raise ValueError("of the program")
        return value

    def deletes(comm: MPI.Comm, _key: int, value: Any) -> None:
        seen.append("delete")
        gc.collect()
        COMM.explain()
        COMM.Iallreduce(np.full(N, 1.0), np.zeros(N)).Wait()
        if value == "raise":
            raise ValueError("of the program")

    key = MPI.Comm.Create_keyval(copy_fn=copies, delete_fn=deletes)
    for free in (xupc.Comm.Free, MPI.Comm.Free):
        for value in ("keep", "raise"):
            comm = COMM.Dup()
            comm.Barrier()
            comm.Set_attr(key, value)
            try:
                again = comm.Dup()
            except MPI.Exception:
                assert value == "raise"
            else:
                again.Barrier()
                again.Delete_attr(key)
                free(again)
            try:
                free(comm)
            except MPI.Exception:
                assert value == "raise"
    assert "copy" in seen
    assert "delete" in seen
    check_usable(COMM)


def operations() -> None:
    """Operations that collect, look at the communicator, or free it."""
    known()

    def collects(a: Any, b: Any) -> Any:
        gc.collect()
        COMM.explain()
        return a + b

    for method in ("allreduce", "scan", "reduce"):
        getattr(COMM, method)(RANK, collects)
    comm = COMM.Dup()
    assert comm.allreduce(1) == SIZE

    def frees(a: Any, b: Any) -> Any:
        if comm:
            comm.Free()
        return a + b

    assert comm.allreduce(1, frees) == SIZE

    def of_arrays(a: Any, b: Any, _type: Any) -> None:
        gc.collect()
        COMM.explain()
        assert np.frombuffer(a).size == np.frombuffer(b).size
        np.frombuffer(b)[:] += np.frombuffer(a)

    op = MPI.Op.Create(of_arrays, commute=True)
    a, b = pair()
    COMM.Allreduce(a, b, op)
    assert (b == SIZE).all()
    op.Free()
    check_usable(COMM)


def generalized() -> None:
    """Functions of a program's own requests make calls in the middle of MPI's waits."""
    known()
    acted: list[str] = []

    def query(status: MPI.Status) -> None:
        acted.append("query")
        status.Set_elements(MPI.BYTE, 0)
        status.Set_cancelled(False)
        gc.collect()
        COMM.explain()

    def free() -> None:
        acted.append("free")
        gc.collect()

    for _ in range(10):
        a, b = pair()
        own = MPI.Grequest.Start(query, free, None)
        carried = COMM.Iallreduce(a, b)
        own.Complete()
        MPI.Request.Waitall([own, carried, COMM.Ibarrier()])
        assert (b == SIZE).all()
    assert acted.count("free") == acted.count("query") == 10, acted
    check_usable(COMM)


CHECKS = [
    lists_of_requests, lists_of_waits, lists_of_objects, collector, traced, hooked, finalizers,
    datatypes, communicators, dropped, forked, attributes, operations, generalized,
]  # fmt: skip

{check.__name__: check for check in CHECKS}[sys.argv[1]]()
PLAIN.Barrier()
print("done", flush=True)
