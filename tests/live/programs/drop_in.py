"""`xupc.Comm` in place of mpi4py's communicators: ``drop_in.py CHECK``.

No check needs MPI to behave in a way of its own: each compares with plain mpi4py on the same
threads, or with what the standard says.
"""

# ruff: noqa: E721 -- comparing types is what is tested here

from __future__ import annotations

import copy
import ctypes
import gc
import inspect
import pickle
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

PLAIN = MPI.COMM_WORLD
ROUNDS = 60  # communicators that are freed in another order on each thread


def raises(kind: type[BaseException], call: Callable[..., object], *args: Any) -> BaseException:
    """Return the error of a call; there must be one of this kind."""
    try:
        call(*args)
    except kind as error:
        return error
    raise AssertionError(f"{call} with {args} raised no {kind.__name__}")


def grids(comm: MPI.Intracomm) -> dict[type, MPI.Intracomm]:
    """Return a new communicator of each class of mpi4py, by that class."""
    size, rank = comm.Get_size(), comm.Get_rank()
    ring = [(rank - 1) % size, (rank + 1) % size]
    edges = [x for i in range(size) for x in ((i - 1) % size, (i + 1) % size)]
    return {
        MPI.Intracomm: comm.Create_group(comm.Get_group()),
        MPI.Cartcomm: comm.Create_cart([size], [True]),
        MPI.Graphcomm: comm.Create_graph([2 * (i + 1) for i in range(size)], edges),
        MPI.Distgraphcomm: comm.Create_dist_graph_adjacent(ring, ring),
    }


def classes() -> None:
    """Each class is a subclass of mpi4py's, equals it, and has the same handle."""
    for kind, plain in grids(PLAIN).items():
        ours = xupc.Comm(plain)
        assert type(ours) is not kind
        assert isinstance(ours, kind)
        assert isinstance(ours, xupc.Comm)
        assert issubclass(type(ours), xupc.Comm)
        assert type(ours) == kind
        assert kind == type(ours)
        assert {kind: 1}[type(ours)] == 1
        assert [other for other in grids_classes() if type(ours) == other] == [kind]
        assert ours == plain
        assert plain == ours
        assert ours.handle == plain.handle
        assert ours.Compare(plain) == MPI.IDENT
        assert type(xupc.Comm(ours)) is type(ours)
        assert type(kind(ours)) is kind
        assert weakref.ref(ours)() is ours
        assert bool(ours)
        assert raises(TypeError, hash, ours)
        assert raises(AttributeError, setattr, ours, "anything", 1)
        plain.Free()
    assert not isinstance(PLAIN, xupc.Comm)
    assert xupc.Comm() == MPI.COMM_NULL
    assert not xupc.Comm()
    assert xupc.Comm(MPI.COMM_NULL) == MPI.COMM_NULL


def grids_classes() -> list[type]:
    """Return all classes of communicators in mpi4py."""
    return [
        MPI.Comm, MPI.Intracomm, MPI.Topocomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm,
        MPI.Intercomm,
    ]  # fmt: skip


def subclasses() -> None:
    """A program's own subclass keeps its class and its fields in all copies."""

    class Mine(xupc.Comm):
        """A class of the program."""

        note = 0

    mine = Mine(PLAIN)
    mine.note = 5
    assert type(mine) != MPI.Intracomm
    assert issubclass(Mine, xupc.Comm)
    assert not isinstance(xupc.Comm(PLAIN), Mine)
    duplicate = mine.Dup()
    assert type(duplicate) is Mine
    assert isinstance(mine.Split(0), xupc.Comm)
    grid = PLAIN.Create_cart([PLAIN.size])
    assert type(Mine(grid)) is Mine  # as MPI.Intracomm(grid) is an Intracomm
    duplicate.Free()


def wrong_arguments() -> None:
    """Only intracommunicators are taken; the error is of mpi4py's kind."""
    for wrong in (1234, "abc", MPI.INT, MPI.GROUP_NULL):
        text = str(raises(TypeError, xupc.Comm, wrong))
        assert "Comm: comm: expected an intracommunicator" in text
    if PLAIN.size > 1:
        half = MPI.Intracomm(PLAIN.Split(PLAIN.rank % 2))
        other = half.Create_intercomm(0, PLAIN, 1 - PLAIN.rank % 2)
        raises(TypeError, xupc.Comm, other)
        merged = xupc.Comm(other.Merge())
        assert merged.allreduce(1) == PLAIN.size
        assert type(other.Dup()) is MPI.Intercomm


def made() -> None:
    """Communicators made from one of xupc are of xupc, for every way of making one."""
    world = xupc.Comm(PLAIN)
    size, rank = world.Get_size(), world.Get_rank()
    found = [
        world.Dup(), world.Clone(), world.Dup_with_info(MPI.INFO_NULL),
        world.Split(rank % 2, -rank), world.Split_type(MPI.COMM_TYPE_SHARED),
        world.Create(world.Get_group()), world.Create_group(world.Get_group()),
    ]  # fmt: skip
    duplicate, request = world.Idup()
    request.Wait()
    found.append(duplicate)
    assert all(type(comm) is xupc.Comm for comm in found)
    assert found[3].Get_size() == (size + 1 - rank % 2) // 2
    assert found[3].Get_rank() == found[3].Get_size() - 1 - rank // 2
    for kind, grid in grids(world).items():
        assert type(grid) == kind
        assert isinstance(grid, xupc.Comm)
        copied = grid.Dup()
        assert type(copied) is type(grid)
        assert copied.Get_topology() == grid.Get_topology()
        found += [copied, grid]
    two = world.Create_cart([size, 1])
    part = two.Sub([True, False])
    assert type(part) == MPI.Cartcomm
    assert isinstance(part, xupc.Comm)
    assert part.Get_dim() == 1
    out = world.Split(MPI.UNDEFINED if rank else 0)
    assert bool(out) == (rank == 0)
    for comm in (*found, two, part):
        comm.Free()
        assert comm == MPI.COMM_NULL
    for again in (type(world).fromhandle(world.handle), type(world).f2py(world.py2f())):
        assert type(again) is xupc.Comm
        assert again == world
    assert type(type(world).fromhandle(MPI.COMM_NULL.handle)) is MPI.Comm


def pickling() -> None:
    """Predefined communicators can be pickled and copied, others cannot, as in mpi4py."""
    for kind in (xupc.Comm, MPI.Intracomm):
        for constant in (MPI.COMM_WORLD, MPI.COMM_SELF):
            comm = kind(constant)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                again = pickle.loads(pickle.dumps(comm, protocol))
                assert type(again) is kind
                assert again == comm
            for again in (copy.copy(comm), copy.deepcopy(comm)):
                assert type(again) is kind
                assert again == comm
    duplicate = xupc.Comm(PLAIN).Dup()
    assert "cannot serialize" in str(raises(ValueError, pickle.dumps, duplicate))
    duplicate.Free()
    assert pickle.loads(pickle.dumps(xupc.Comm)) is xupc.Comm
    assert copy.deepcopy(xupc.Comm) is xupc.Comm


def freed_in_any_order() -> None:
    """No call that frees a communicator waits for another thread's."""
    world = xupc.Comm(PLAIN)
    mine = random.Random(world.rank)
    comms = [world.Dup() for _ in range(ROUNDS)]
    comms += [world.Split(world.rank % 2) for _ in range(ROUNDS)]
    for comm in comms:
        assert comm.allreduce(1) == comm.size
        comm.explain()  # makes what xupc keeps for it
    mine.shuffle(comms)
    while comms:
        comm = comms.pop()
        (comm.Free if mine.random() < 0.5 else comm.free)()
        assert not comm
        comm.free()  # without effect on a null communicator
    one, two = world.Dup(), world.Dup()
    if world.rank == 0:  # to wait for others there is the call of this name
        one.Free()
        two.Free()
    world.Barrier()
    if world.rank:
        two.Free()
        one.Free()
    last = world.Dup()
    last.Disconnect()
    assert last == MPI.COMM_NULL


def not_kept() -> None:
    """Communicators that were freed, and objects that were dropped, leave nothing behind."""
    world = xupc.Comm(PLAIN)
    before = len(_records())  # a program need not free its communicators
    seen = []
    for _ in range(200):
        comm = world.Dup()
        comm.explain()
        seen.append(weakref.ref(comm))
        comm.Free()
    del comm
    assert not [ref for ref in seen if ref() is not None]  # no reference cycle
    gc.collect()
    assert len(_records()) - before < 20, (before, len(_records()))


def _records() -> list[object]:
    return [x for x in gc.get_objects() if type(x).__name__ == "Record"]


def attributes() -> None:
    """Attributes and names belong to the handle, whichever object sets them."""
    plain = PLAIN.Dup()
    ours = xupc.Comm(plain)
    deleted = []
    key = MPI.Comm.Create_keyval(
        copy_fn=lambda comm, key, value: value + 1,
        delete_fn=lambda comm, key, value: deleted.append(value),
    )
    ours.explain()
    ours.Set_attr(key, 7)
    assert plain.Get_attr(key) == 7
    duplicate = ours.Dup()
    assert duplicate.Get_attr(key) == 8
    assert ours.Get_attr(MPI.TAG_UB) == PLAIN.Get_attr(MPI.TAG_UB)
    ours.Set_name("of the program")
    assert plain.Get_name() == "of the program"
    ours.name = "again"
    assert plain.name == "again"
    duplicate.Free()
    assert deleted == [8]
    plain.Delete_attr(key)
    assert ours.Get_attr(key) is None
    ours.Free()
    assert deleted == [8, 7]
    MPI.Comm.Free_keyval(key)


def beside_other_attributes() -> None:
    """Communicators can be freed, however many attributes are in use.

    See `xupc.comm.held_by_mpi`: with one number of them MPICH reads a null pointer.
    """
    MPI.COMM_SELF.Create_cart([1]).Free()  # from now on communicators may have a topology
    world, others = xupc.Comm(PLAIN), _with_functions()
    xupc.init()
    one = MPI.Comm.Create_keyval(delete_fn=lambda *_: None)
    keys = []
    for k in range(40):  # MPICH has room for 32 attributes at first
        for free in (xupc.Comm.Free, MPI.Comm.Free):
            comm = world.Dup()
            assert comm.bcast(k) == k  # xupc's attribute, then that of mpi4py's locks
            free(comm)
            comm = world.Dup()
            assert PLAIN.fromhandle(comm.handle).bcast(k) == k  # and the other way
            assert comm.bcast(k) == k
            free(comm)
        for free in (xupc.Comm.Free, xupc.Comm.free, xupc.Comm.Disconnect):
            comm = world.Dup()
            comm.Set_attr(one, k)  # the program's, then xupc's
            comm.Barrier()
            free(comm)
        keys.append(MPI.Comm.Create_keyval())
        MPI.COMM_SELF.Set_attr(keys[-1], k)
    for key in keys:
        MPI.COMM_SELF.Delete_attr(key)
        MPI.Comm.Free_keyval(key)
    assert _with_functions() - others == {one}, (_with_functions(), others, one)
    MPI.Comm.Free_keyval(one)
    xupc.finalize()


def _with_functions() -> set[int]:
    """Return the keys of attributes whose end calls a function of Python's."""
    known = MPI._keyval_registry["Comm"]  # type: ignore[attr-defined]
    return {key for key, state in known.items() if state.delete_fn is not None}


def error_handlers() -> None:
    """An error goes to the handler of the handle, and is mpi4py's exception by default."""
    ours = xupc.Comm(PLAIN).Dup()
    error = raises(MPI.Exception, ours.Send, np.zeros(1), ours.size + 3)
    assert isinstance(error, MPI.Exception)
    assert error.Get_error_class() == MPI.ERR_RANK
    assert ours.Get_errhandler() == MPI.ERRORS_RETURN
    seen: list[int] = []
    handler = MPI.Comm.Create_errhandler(lambda comm, code: seen.append(MPI.Get_error_class(code)))
    MPI.Intracomm(ours).Set_errhandler(handler)
    ours.Call_errhandler(MPI.ERR_OTHER)
    assert seen == [MPI.ERR_OTHER]
    raises(TypeError, ours.Bcast)
    raises(Exception, ours.Allreduce, object(), object())
    handler.Free()
    ours.Free()
    raises(MPI.Exception, ours.Barrier)  # a null communicator


def seen_from_c() -> None:
    """C code that takes a communicator of mpi4py finds the handle of ours."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
        pointer(MPI.__pyx_capi__["PyMPIComm_Get"], b"MPI_Comm *(PyObject *)")
    )
    size = MPI._sizeof(MPI.Comm)
    assert MPI._sizeof(xupc.Comm) == size
    for plain in grids(PLAIN).values():
        ours = xupc.Comm(plain)
        address = get(ours)
        assert address == MPI._addressof(ours)
        assert ctypes.string_at(address, size) == ctypes.string_at(get(plain), size)
        assert MPI._handleof(ours) == MPI._handleof(plain)
    raises(TypeError, get, 5)


def results() -> None:
    """Calls give what mpi4py gives."""
    for plain in grids(PLAIN).values():
        ours = xupc.Comm(plain)
        size, rank = ours.size, ours.rank
        mine = np.arange(10.0) + rank
        for op in (MPI.SUM, MPI.MAX, MPI.PROD):
            one, two = np.empty(10), np.empty(10)
            ours.Allreduce(mine, one, op)
            plain.Allreduce(mine, two, op)
            assert one.tobytes() == two.tobytes()
        whole = np.empty((size, 10))
        ours.Allgather([mine, MPI.DOUBLE], whole)
        assert (whole[:, 0] == np.arange(size)).all()
        ours.Bcast(mine, root=size - 1)
        assert mine[0] == size - 1
        assert ours.bcast({"a": rank}, root=0) == {"a": 0}
        assert ours.allgather(rank) == list(range(size))
        assert ours.scan(1) == rank + 1
        request = ours.Ibarrier()
        request.Wait()
        data, room = np.full(3, rank), np.empty(3, int)
        ours.Sendrecv(data, (rank + 1) % size, 0, room, (rank - 1) % size)
        assert (room == (rank - 1) % size).all()
        ours.barrier()
        ours.Barrier()


def beside_the_library() -> None:
    """`init` takes one, and its own communicators stay mpi4py's."""
    world = xupc.Comm(PLAIN)
    with xupc.init(world) as team:
        assert type(team.state.job.network.link.comm) is MPI.Intracomm
        values, total = np.full(5, 1.0), np.empty(5)
        xupc.allav_reduce_all(total, values, xupc.ADD)
        world.Allreduce(MPI.IN_PLACE, values)
        assert (values == total).all()


def sizes() -> None:
    """The bytes of a message, however it is described."""
    from xupc.mpi.message_size import bytes_of

    a = np.zeros((3, 4))
    cases: list[tuple[list[Any], int | None]] = [
        ([a], 96), ([a[:, ::2]], 48), ([[a, MPI.DOUBLE]], 96), ([[a, 5, MPI.INT]], 20),
        ([MPI.IN_PLACE, a], 96), ([None, [a, 2, "d"]], 96), ([], None), ([5, 6], None),
        ([a[:0], None], 0), ([a[:0], a], 96),
    ]  # fmt: skip
    for arguments, size in cases:
        assert bytes_of(arguments) == size, (arguments, size)


def explained() -> None:
    """Under ``XUPC_COMM=explain`` calls are counted by handle, with bytes."""
    world = xupc.Comm(PLAIN)
    comm = world.Dup()
    other = xupc.Comm(comm)
    total = np.empty(10)
    for _ in range(3):
        comm.Allreduce(np.ones(10), total)
    other.Allreduce([MPI.IN_PLACE, MPI.DOUBLE], [total, 5, MPI.DOUBLE])
    comm.bcast(1)
    found = other.explain(as_dict=True)
    assert list(found) == ["Allreduce", "bcast"], found
    assert found["Allreduce"]["calls"] == 4
    assert found["Allreduce"]["bytes"] == 3 * 80 + 40, found
    assert found["Allreduce"]["carried_by"] == {"MPI": 4}
    assert found == comm.explain(as_dict=True)
    text = comm.explain()
    assert "Allreduce" in text
    assert f"{world.size} threads" in text
    assert comm.Dup().explain(as_dict=True) == {}
    assert found["bcast"]["bytes"] is None, found
    for _ in range(60):
        comm.Barrier()
    blocks = np.zeros(4 * world.size), [4] * world.size
    for _ in range(5):  # one opens the team, if there are other threads; then the table decides
        comm.Alltoallv([*blocks, MPI.DOUBLE], [blocks[0].copy(), blocks[1], MPI.DOUBLE])
    found = comm.explain(as_dict=True)
    assert found["Barrier"]["bytes"] == 0, found
    assert found["Alltoallv"]["carried_by"] == {"MPI": 5}, found
    assert found["Alltoallv"]["bytes"] == 5 * blocks[0].nbytes, found
    comm.Free()


def methods() -> None:
    """A method that xupc can take over looks and is called like mpi4py's."""
    comm = xupc.Comm(PLAIN)
    for name in ("Barrier", "Bcast", "Allreduce", "Reduce_scatter", "bcast", "allgather"):
        ours, plain = getattr(xupc.Comm, name), getattr(MPI.Intracomm, name)
        assert ours.__name__ == plain.__name__ == name
        assert ours.__doc__ == plain.__doc__
        assert inspect.signature(ours) == inspect.signature(plain)
        assert inspect.isroutine(ours)
        assert getattr(comm, name).__self__ is comm
    bound = pickle.loads(pickle.dumps(comm.Barrier)) if comm.size == 1 else comm.Barrier
    for call in (comm.Barrier, bound, lambda: xupc.Comm.Barrier(comm)):
        assert call() is None
    x, y = np.arange(3.0), np.zeros(3)
    comm.Allreduce(recvbuf=y, sendbuf=x, op=MPI.MAX)
    assert (y == x).all()
    comm.Allreduce(*(x, y), op=MPI.MIN)
    assert comm.bcast(root=0, obj=5) == comm.allreduce(sendobj=5, op=MPI.MAX) == 5
    for wrong in ((), (x,), (x, y, MPI.SUM, 0)):
        ours = raises(TypeError, comm.Allreduce, *wrong)
        assert str(ours) == str(raises(TypeError, PLAIN.Allreduce, *wrong))
    raises(TypeError, xupc.Comm.Barrier)


CHECKS = [
    classes, methods, subclasses, wrong_arguments, made, pickling, freed_in_any_order, not_kept,
    attributes, beside_other_attributes, error_handlers, seen_from_c, results, beside_the_library,
    sizes, explained,
]  # fmt: skip

if __name__ == "__main__":
    next(check for check in CHECKS if check.__name__ == sys.argv[1])()
    print("done")
