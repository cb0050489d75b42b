# ruff: noqa: F403, F405 - import * is what is tried here
# mypy: disable-error-code="name-defined"
"""The documents' examples, in their own names; each thread checks its own part of the result.

``sizeof(int)`` is 4. What C declares as ``shared [B] int A[n]`` is ``array(n, B)``; its casts are
``cast``, and ``&A[i]`` is ``A + i``. An example whose function xupc does not have yet is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from support.checked_calls import Usable, done, raises

import xupc
from xupc import CollectiveMismatchError
from xupc.upc import *

NELEMS = 10
NOSYNC = UPC_IN_NOSYNC | UPC_OUT_NOSYNC
ALLSYNC = UPC_IN_ALLSYNC | UPC_OUT_ALLSYNC
NEEDS = {
    "exchange": "all_exchange",
    "permute": "all_permute",
    "reduce": "all_reduce",
    "prefix_reduce": "all_prefix_reduce",
    "reduce_all": "all_reduce_all",
    "reduce_mpi_all": "all_reduce_mpi_all",
    "suffix_reduce": "all_suffix_reduce",
    "broadcast_in_place": "all_broadcast_in_place",
}


def array(nelems: int, blocksize: int = 1, dtype: str = "i4", fill: bool = True) -> Any:
    """A shared array with other values on each thread."""
    A = xupc.all_alloc(nelems, dtype, blocksize)
    if fill:
        A.local[:] = 1000 * xupc.MYTHREAD + np.arange(A.local.size)
    return A


def values(thread: int, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Return the values that `array` stores there."""
    return 1000 * thread + np.arange(start, stop)


def same(found: Any, want: Any) -> None:
    assert np.array_equal(found, want), f"thread {xupc.MYTHREAD}: {found} instead of {want}"


# --- relocalization: UPC 1.3, 7.4.2 ---------------------------------------------------------------


def broadcast_1(T: int, me: int) -> None:
    A, B = array(T), array(T)
    upc_barrier()
    upc_all_broadcast(B, A + 1 % T, 4, NOSYNC)
    upc_barrier()
    same(B.local, values(1 % T, 0, 1))


def broadcast_2(T: int, me: int) -> None:
    A, B = array(NELEMS, 0), array(NELEMS * T, NELEMS)
    for f in (upc_all_broadcast, xupc_all_broadcast):
        B.local[:] = -1
        f(B, A, 4 * NELEMS, ALLSYNC)
        same(B.local, values(0, 0, NELEMS))


def broadcast_3(T: int, me: int) -> None:
    A, B = array(NELEMS * T, NELEMS), array(NELEMS * T, NELEMS)
    upc_barrier()
    upc_all_broadcast(B, A + 3, 4 * 2, NOSYNC)
    upc_barrier()
    same(B.local[:2], values(0, 3, 5))
    same(B.local[2:], values(me, 2, NELEMS))


def scatter_1(T: int, me: int) -> None:
    source = 1 % T
    A = upc_all_alloc(T, T * NELEMS * 4).cast("i4", 1)
    B = array(NELEMS * T, NELEMS)
    mine = (A + me).cast(blocksize=0)
    for i in range(NELEMS * T):
        mine[i] = i + NELEMS * T * me
    row = (A + source).cast(blocksize=0)
    upc_barrier()
    upc_all_scatter(B, row, 4 * NELEMS, NOSYNC)
    upc_barrier()
    same(B.local, NELEMS * T * source + np.arange(NELEMS * me, NELEMS * (me + 1)))


def scatter_2(T: int, me: int) -> None:
    A, B = array(NELEMS * T, 0), array(NELEMS * T, NELEMS)
    for f in (upc_all_scatter, xupc_all_scatter):
        B.local[:] = -1
        f(B, A, 4 * NELEMS, ALLSYNC)
        same(B.local, values(0, NELEMS * me, NELEMS * (me + 1)))


def gather_1(T: int, me: int) -> None:
    A, B = array(NELEMS * T, NELEMS), array(NELEMS * T, 0)
    for f in (upc_all_gather, xupc_all_gather):
        B.local[:] = -1
        f(B, A, 4 * NELEMS, ALLSYNC)
        if me == 0:
            same(B.local, np.concatenate([values(i, 0, NELEMS) for i in range(T)]))


def gather_2(T: int, me: int) -> None:
    A = array(NELEMS * T, NELEMS)
    B = upc_all_alloc(1, NELEMS * T * 4).cast("i4", 0)
    upc_barrier()
    upc_all_gather(B, A, 4 * NELEMS, NOSYNC)
    upc_barrier()
    same(B[: NELEMS * T], np.concatenate([values(i, 0, NELEMS) for i in range(T)]))


def gather_all_1(T: int, me: int) -> None:
    A, B = array(NELEMS * T, NELEMS), array(NELEMS * T * T, NELEMS * T)
    want = np.concatenate([values(i, 0, NELEMS) for i in range(T)])
    for f in (upc_all_gather_all, xupc_all_gather_all):
        B.local[:] = -1
        upc_barrier()
        f(B, A, 4 * NELEMS, NOSYNC)
        upc_barrier()
        same(B.local, want)


def gather_all_2(T: int, me: int) -> None:
    A = array(NELEMS * T, NELEMS)
    Bdata = upc_all_alloc(T * T, NELEMS * 4).cast("i4", 1)
    mine = (Bdata + me).cast(blocksize=0)
    upc_all_gather_all(Bdata, A, NELEMS * 4, ALLSYNC)
    same(mine[: NELEMS * T], np.concatenate([values(i, 0, NELEMS) for i in range(T)]))


def exchange_1(T: int, me: int) -> None:
    A, B = array(NELEMS * T * T, NELEMS * T), array(NELEMS * T * T, NELEMS * T)
    upc_barrier()
    upc_all_exchange(B, A, NELEMS * 4, NOSYNC)
    upc_barrier()
    same(B.local, np.concatenate([values(j, NELEMS * me, NELEMS * (me + 1)) for j in range(T)]))


def exchange_2(T: int, me: int) -> None:
    Adata = upc_all_alloc(T * T, NELEMS * 4).cast("i4", 1)
    Bdata = upc_all_alloc(T * T, NELEMS * 4).cast("i4", 1)
    myA, myB = ((p + me).cast(blocksize=0) for p in (Adata, Bdata))
    for i in range(NELEMS * T):
        myA[i] = me * 10 + i
    upc_all_exchange(Bdata, Adata, NELEMS * 4, ALLSYNC)
    mine = np.arange(NELEMS * me, NELEMS * (me + 1))
    same(myB[: NELEMS * T], np.concatenate([j * 10 + mine for j in range(T)]))


def permute_1(T: int, me: int) -> None:
    A, B, P = array(NELEMS * T, NELEMS), array(NELEMS * T, NELEMS), array(T)
    P.local[:] = (me + 1) % T
    upc_barrier()
    upc_all_permute(B, A, P, 4 * NELEMS, NOSYNC)
    upc_barrier()
    same(B.local, values((me - 1) % T, 0, NELEMS))


# --- computation: UPC 1.3, 7.4.3, and the XUPC paper, III.C ---------------------------------------

BLK_SIZE = 3


def ordered(n: int) -> tuple[Any, np.ndarray[Any, Any]]:
    """A ``shared [BLK_SIZE] long`` array of 1, 2, ..., n, and the same in private memory."""
    A = array(n, BLK_SIZE, "i8", fill=False)
    for i in upc_forall(n, A):
        A[i] = i + 1
    return A, np.arange(1, n + 1)


def reduce_1(T: int, me: int) -> None:
    A, a = ordered(NELEMS * T)
    B = array(T, 1, "i8")
    upc_barrier()
    upc_all_reduceL(B, A, UPC_ADD, NELEMS * T, BLK_SIZE, None, NOSYNC)
    upc_barrier()
    if me == 0:
        assert B.local[0] == a.sum()


def prefix_reduce_2(T: int, me: int) -> None:
    A, a = ordered(NELEMS * T)
    B = array(NELEMS * T, BLK_SIZE, "i8")
    upc_all_prefix_reduceL(B, A, UPC_ADD, NELEMS * T, BLK_SIZE, None, ALLSYNC)
    same(B[:], np.cumsum(a))


def suffix_reduce(T: int, me: int) -> None:
    A, a = ordered(NELEMS * T)
    B = array(NELEMS * T, BLK_SIZE, "i8")
    xupc_all_suffix_reduceL(B, A, UPC_ADD, NELEMS * T, BLK_SIZE, None, ALLSYNC)
    same(B[:], np.cumsum(a[::-1])[::-1])


def reduce_all(T: int, me: int) -> None:
    A, B = array(T), array(T)
    xupc_all_reduceI_all(B, A, UPC_ADD, T, 1, None, ALLSYNC)
    same(B.local, [sum(1000 * i for i in range(T))])


def reduce_mpi_all(T: int, me: int) -> None:
    A, B = array(NELEMS * T, NELEMS, "f8"), array(NELEMS * T, NELEMS, "f8")
    xupc_all_reduceD_mpi_all(B, A, UPC_ADD, NELEMS * T, NELEMS, None, ALLSYNC)
    same(B.local, sum(values(i, 0, NELEMS) for i in range(T)))


def broadcast_in_place(T: int, me: int) -> None:
    A, root = array(NELEMS * T, NELEMS), 1 % T
    xupc_all_broadcast_in_place(A + NELEMS * root, 4 * NELEMS, ALLSYNC)
    same(A.local, values(root, 0, NELEMS))


# --- the language ---------------------------------------------------------------------------------


def pointers(T: int, me: int) -> None:
    A = array(6 * T, 3)
    assert [upc_threadof(A + i) for i in range(3 * T)] == [i // 3 for i in range(3 * T)]
    assert upc_threadof(A) == upc_phaseof(A) == 0
    assert upc_phaseof(A + 4) == 1
    assert upc_phaseof(upc_resetphase(A + 4)) == 0
    assert upc_resetphase(A + 4) == A + 4
    block = upc_all_alloc(2 * T, 12)
    assert [upc_threadof(block + 12 * i) for i in range(2 * T)] == [*range(T), *range(T)]
    assert len(block) == 24 * T
    assert block.blocksize == 12
    raises(TypeError, ("nelems",), lambda: upc_all_alloc(None, 4))
    upc_all_free(block)


def copies(T: int, me: int) -> None:
    A, B = array(NELEMS * T, NELEMS), array(NELEMS * T, NELEMS)
    upc_barrier()
    right, private = (me + 1) % T, np.zeros(NELEMS, "i4")
    upc_memget(private, A + NELEMS * right, 4 * NELEMS)
    same(private, values(right, 0, NELEMS))
    upc_memput(B + NELEMS * right, private, 4 * NELEMS)
    upc_notify()
    upc_wait()
    same(B.local, values(me, 0, NELEMS))
    upc_memset(B + NELEMS * me, -1, 4)
    upc_memcpy(B + NELEMS * me + 1, A + NELEMS * right, 4)
    same(B.local[:2], [-1, 1000 * right])
    upc_fence()
    p = upc_alloc(8)
    assert upc_threadof(p) == me
    upc_free(p)
    upc_free(upc_global_alloc(T, 8))
    upc_free(None)


# --- a typed name on data of another type ---------------------------------------------------------


def wrong_types(T: int, me: int) -> None:
    usable, there = Usable(), hasattr(xupc, "all_reduce")
    longs, ints = array(T, 1, "i8"), array(T, 1, "i4")

    def call(dst: Any, src: Any, flags: int = ALLSYNC) -> Callable[[], Any]:
        return lambda: upc_all_reduceL(dst, src, UPC_ADD, T, 1, None, flags)

    for dst, src, argument in ((ints, longs, "dst"), (longs, ints + 0, "src")):
        for flags in (ALLSYNC, NOSYNC, 0):
            words = "upc_all_reduceL", argument, "cast first"
            raises(TypeError, words, call(dst, src, flags))
            upc_barrier()
            usable("a wrong type on every thread")
    target, A, B = array(T, 1, "i8"), array(T), array(T)
    for odd in range(T) if T > 1 else ():
        if me == odd:
            raises(TypeError, ("cast first",), call(target, ints))
        elif there:
            raises(CollectiveMismatchError, (f"thread {odd}: TypeError",), call(target, longs))
        else:
            wrong = (f"thread {odd}: TypeError",)
            raises(CollectiveMismatchError, wrong, lambda: upc_all_broadcast(B, A, 4, ALLSYNC))
        usable(f"a wrong type on thread {odd}")
    if there:
        call(target, longs)()
        call(target, array(2 * T, 2, "i4").cast("i8", 1))()


EXAMPLES = (
    broadcast_1,
    broadcast_2,
    broadcast_3,
    scatter_1,
    scatter_2,
    gather_1,
    gather_2,
    gather_all_1,
    gather_all_2,
    exchange_1,
    exchange_2,
    permute_1,
    reduce_1,
    prefix_reduce_2,
    suffix_reduce,
    reduce_all,
    reduce_mpi_all,
    broadcast_in_place,
    pointers,
    copies,
    wrong_types,
)


def there(example: Callable[..., Any]) -> bool:
    needed = NEEDS.get(example.__name__.rstrip("_123"))
    return needed is None or hasattr(xupc, needed)


xupc.init()
run = [example for example in EXAMPLES if there(example)]
for example in run:
    try:
        example(xupc.THREADS, xupc.MYTHREAD)
    except BaseException:
        print("in", example.__name__, file=sys.stderr)
        raise
    upc_barrier()
if xupc.MYTHREAD == 0:
    print("left out:", *(e.__name__ for e in EXAMPLES if e not in run))
done(len(run))
