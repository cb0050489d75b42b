"""Allocation, zero-filling, views, pointers and copies."""

from __future__ import annotations

import pickle

import numpy as np
from mpi4py import MPI
from support.checked_calls import Usable, done, raises

import xupc


def zero_filled() -> None:
    """New memory is zero, also where other memory was, and also when the heap has grown."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    sizes = (1, 63, 4096, 5000, 300_000, 3_000_000)
    for _ in range(3):
        arrays = []
        for n in sizes:
            A = xupc.all_alloc(n * T, "u1", n)
            assert A.local.size == n
            assert not A.local.any(), ("all_alloc", n)
            A.local[:] = 255
            arrays.append(A)
        whole = xupc.all_alloc(1000, "f8", 0)
        assert whole.local.size == (1000 if me == 0 else 0)
        whole.local[:] = 3
        for A in (*arrays[::-1], whole):
            xupc.all_free(A)
        pieces = [xupc.alloc(n, "u1") for n in sizes[:4]]
        for p in pieces:
            assert (p.thread, p.phase, p.blocksize) == (me, 0, 0)
            n = sizes[pieces.index(p)]
            assert not p.local(n).any(), ("alloc", n)
            p.local(n)[:] = 255
        for p in pieces:
            xupc.free(p)
        spread = [xupc.global_alloc(n * T, "u1", n) for n in sizes[:3]]
        for n, p in zip(sizes, spread, strict=False):
            assert p.thread == 0
            assert not p[0 : n * T].any(), ("global_alloc", n)
            p[0 : n * T] = 255
        for p in spread:
            xupc.free(p)
        xupc.barrier()


def many_threads_allocate_at_once() -> None:
    """alloc and global_alloc of all threads at a time give memory that is one's own."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    xupc.barrier()
    pieces = [xupc.global_alloc(8 * T, "i8", 8) for _ in range(10)]
    for k, p in enumerate(pieces):
        p[0 : 8 * T] = 1000 * me + k
    own = [xupc.alloc(5, "i8") for _ in range(10)]
    for k, p in enumerate(own):
        p.local(5)[:] = 1000 * me + k
    xupc.barrier()
    for k, (p, q) in enumerate(zip(pieces, own, strict=True)):
        assert (p[0 : 8 * T] == 1000 * me + k).all()
        assert (q[0:5] == 1000 * me + k).all()
    everybody = MPI.COMM_WORLD.allgather(own[3])
    for i, p in enumerate(everybody):
        assert p.thread == i
        assert (p[0:5] == 1000 * i + 3).all()
    xupc.barrier()
    for p in (*pieces, *own):
        xupc.free(p)
    xupc.barrier()


def collective_free_of_global(usable: Usable) -> None:
    """all_free takes what global_alloc made, too; free refuses what all_alloc made."""
    p = xupc.global_alloc(10, "i4") if xupc.MYTHREAD == xupc.THREADS - 1 else None
    p = MPI.COMM_WORLD.bcast(p, root=xupc.THREADS - 1)
    A = xupc.all_alloc(10, "i4")
    raises(ValueError, ("all_alloc",), lambda: xupc.free(A))
    raises(ValueError, ("start",), lambda: xupc.free(A + 3))
    raises(TypeError, (), lambda: xupc.free(7))
    xupc.all_free(p)
    xupc.all_free(A)
    raises(ValueError, ("freed",), lambda: xupc.all_free(A))
    raises(ValueError, ("freed",), lambda: A[0])
    raises(ValueError, ("freed",), lambda: A.local)
    raises(ValueError, ("freed",), lambda: xupc.memset(A, 0, 1))
    usable("frees")
    mine = xupc.alloc(100, "u1")
    xupc.free(mine)
    raises(ValueError, ("freed",), lambda: xupc.free(mine))
    raises(ValueError, ("freed",), lambda: mine[0])
    raises(xupc.HeapError, ("alloc", "1073741824"), lambda: xupc.alloc(1 << 30))
    raises(
        xupc.HeapError, ("global_alloc", "1073741824"), lambda: xupc.global_alloc(1 << 30, "u1", 0)
    )
    usable("a full zone")


def views_stay() -> None:
    """Memory under a live view is not used again, and is when the view is gone."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    A = xupc.all_alloc(50_000 * T, "u1", 50_000)
    where = (A + 0).addr
    view = A.local if me == T - 1 else None
    if view is not None:
        view[:] = 77
        view = view[10:20]  # a view of a view
    xupc.all_free(A)
    others = [xupc.all_alloc(50_000 * T, "u1", 50_000) for _ in range(5)]
    for B in others:
        assert (B + 0).addr != where
        assert not B.local.any()
        B.local[:] = 1
    assert view is None or (view == 77).all()
    del view
    for B in others:
        xupc.all_free(B)
    del B, others
    again = [xupc.all_alloc(50_000 * T, "u1", 50_000) for _ in range(40)]
    assert not any(B.local.any() for B in again)
    assert where in [(B + 0).addr for B in again]
    for B in again:
        xupc.all_free(B)
    p = xupc.alloc(5000)
    view = p.local(5000)
    view[:] = 9
    xupc.free(p)
    q = xupc.alloc(5000)
    q.local(5000)[:] = 1
    assert (view == 9).all()
    xupc.free(q)
    xupc.barrier()


def views_of_neighbours() -> None:
    """local_view is the neighbour's own memory on my node, None elsewhere."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    A = xupc.all_alloc(4 * T, "i4", 4)
    A.local[:] = me
    xupc.barrier()
    mates = xupc.init().tree.nodes[xupc.init().tree.node_of(me)]
    for i in range(T):
        view = A.local_view(i)
        assert (view is not None) == (i in mates)
        if view is not None:
            assert (view == i).all()
        assert (A[4 * i : 4 * i + 4] == i).all()
    xupc.barrier()
    xupc.all_free(A)


def pointers_travel() -> None:
    """Pointers in pickles, in messages and in arrays lead to the same place."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    comm = MPI.COMM_WORLD
    A = xupc.all_alloc(12 * T, "f4", 3)
    for i in xupc.forall(len(A), A):
        A[i] = i
    xupc.barrier()
    got = comm.bcast((A + 7).cast(blocksize=0) if me == 0 else None)
    assert got == A + 7
    assert got.blocksize == 0
    mine = pickle.loads(pickle.dumps(A + 5))
    assert (mine.thread, mine.phase, mine.addr) == ((A + 5).thread, (A + 5).phase, (A + 5).addr)
    assert (mine[0:4] == [5, 6, 7, 8]).all()
    P = xupc.all_alloc(T, xupc.pointer_dtype, 1)
    assert P[me] is None
    P[me] = A + 3 * me
    xupc.barrier()
    for i in range(T):
        p = P[i]
        assert p == A + 3 * i
        assert p.dtype == np.uint8
        assert p.cast("f4")[0] == 3 * i
    everybody = P[:]
    assert [p.thread for p in everybody] == list(range(T))
    xupc.barrier()
    P[me] = None
    assert P[me] is None
    xupc.barrier()
    xupc.all_free(P)
    alone = comm.bcast(A + 1 if me == 0 else None)
    xupc.all_free(A)
    raises(ValueError, ("freed",), lambda: alone[0])


def copies() -> None:
    """memcpy, memget, memput, memset against private copies, also across nodes."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    A, B = xupc.all_alloc(1000 * T, "u1", 1000), xupc.all_alloc(1000 * T, "u1", 1000)
    A.local[:] = np.arange(1000) * (me + 3)
    xupc.barrier()
    left, right = (me - 1) % T, (me + 1) % T
    xupc.memcpy(B + 1000 * right + 5, A + 1000 * left + 100, 200)  # neither side is mine
    xupc.memset(B + 1000 * right + 300, 0xAB, 33)
    xupc.memput(B + 1000 * right + 400, np.full(10, me, "i4"), 40)
    xupc.barrier()
    before = (me - 1) % T
    want = np.zeros(1000, "u1")
    want[5:205] = ((np.arange(1000) * ((before - 1) % T + 3)) & 255)[100:300]
    want[300:333] = 0xAB
    want[400:440] = np.full(10, before, "i4").view("u1")
    assert (B.local == want).all()
    got = np.empty(50, "f4")
    xupc.memget(got, A + 1000 * right + 8, 200)
    assert (got.view("u1") == A[1000 * right + 8 : 1000 * right + 208]).all()
    raises(xupc.OverlapError, (), lambda: xupc.memcpy(A + 5, A + 10, 10))
    raises(ValueError, ("nbytes",), lambda: xupc.memget(got, A + 900, 101))
    raises(ValueError, ("nbytes",), lambda: xupc.memset(A, 0, -1))
    raises(ValueError, ("byte",), lambda: xupc.memset(A, 256, 1))
    raises(ValueError, (), lambda: xupc.memput(A, np.zeros(3, "u1"), 4))
    raises(TypeError, (), lambda: xupc.memcpy(got, A, 4))
    xupc.barrier()
    xupc.all_free(A)
    xupc.all_free(B)


def fences() -> None:
    """What I wrote is there for others after a fence, and for myself at once."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    comm = MPI.COMM_WORLD
    A = xupc.all_alloc(T, "i8", 1)
    for k in range(20):
        right = (me + 1) % T
        A[right] = 100 * k + me
        assert A[right] == 100 * k + me
        xupc.fence()
        comm.Barrier()
        xupc.fence()
        assert A.local[0] == 100 * k + (me - 1) % T
        comm.Barrier()
    xupc.all_free(A)


def main() -> None:
    xupc.init(timeout=30, heap_size="1MiB")
    usable = Usable()
    steps = (
        zero_filled,
        many_threads_allocate_at_once,
        views_stay,
        views_of_neighbours,
        pointers_travel,
        copies,
        fences,
    )
    for step in steps:
        step()
        usable(step.__name__)
    collective_free_of_global(usable)
    A = xupc.all_alloc(10 * xupc.THREADS, "i4", 10)
    A.local[:] = 5
    views = [A.local_view(i) for i in range(xupc.THREADS)]
    own = xupc.alloc(100).local(100)
    me = xupc.MYTHREAD
    done(len(steps))
    xupc.finalize()
    assert (views[me] == 5).all()
    assert not own.any()
    total = sum(int(view.sum()) for view in views if view is not None)
    assert total % 50 == 0
    raises(xupc.NotInitializedError, (), lambda: A.local)
    raises(xupc.NotInitializedError, (), lambda: A[0])
    MPI.COMM_WORLD.Barrier()
    for view in views:
        if view is not None:
            view[:] = 6  # stale, never a crash


main()
