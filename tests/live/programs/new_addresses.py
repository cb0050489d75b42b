"""Calls that differ from earlier ones in the offsets of pointers alone. Argument: calls per loop.

Their data, their errors, how many of them take the long way, and what they leave behind.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from support.checked_calls import FUNCTIONS, ROOTED, Buffers, Usable, done, raises, same, values

import xupc
from xupc.api.array_call import ArrayCall
from xupc.api.call_cache import SharedCall
from xupc.api.list_calls import CachedListCall

LOOP = int(sys.argv[1])
NAMES = [name for name in FUNCTIONS if name != "permute"]
ROOM = 4096
team = xupc.init()
T, me = xupc.THREADS, xupc.MYTHREAD
native = team.job.info.native
rng = np.random.default_rng(33)  # the same choices on all threads


@contextmanager
def checked_in_full() -> Iterator[list[str]]:
    """Collect the names of calls whose arguments are checked in full."""
    found: list[str] = []
    whole = SharedCall._checked_names

    def noted(self: Any, takes: Any, args: Any, kwargs: Any) -> Any:
        if self.__name__ != "barrier":
            found.append(self.__name__)
        return whole(self, takes, args, kwargs)

    SharedCall._checked_names = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        SharedCall._checked_names = whole  # type: ignore[method-assign]


def forgotten() -> None:
    """Have all calls checked in full again, as after any memory is freed."""
    xupc.all_free(xupc.all_alloc(T, "u1", 1))


def blocks() -> None:
    """The relocalization collectives, from any place to any other one."""
    buffers = Buffers(T * ROOM)
    for number, name in enumerate(NAMES):
        call, n = FUNCTIONS[name], (8, 200)[number % 2]
        algorithm = (0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)[number % 4]
        roots = range(T) if name in ROOTED else range(1)
        with checked_in_full() as full:
            for k in range(LOOP):
                root, shift = int(rng.choice(roots)), 8 * int(rng.integers(T * (ROOM - n) // 8))
                if k < 2 * len(roots):
                    root = roots[k % len(roots)]
                if k == 2 * len(roots):
                    assert len(full) == len(roots), (name, full)
                    full.clear()
                buffers.fill(name, k, n, shift)
                call(*buffers.operands(name, root, shift), n, algorithm)
                buffers.check(name, k, n, root, shift, (name, algorithm, k))
            assert not full, (name, full)
    buffers.free()


def names_and_arrays() -> None:
    """Arguments by name in any order, an array beside a pointer, and flags without a barrier."""
    A = xupc.all_alloc(T * ROOM, "u1", ROOM)
    B = xupc.all_alloc(T * 64, "u1", 64)
    A.local[:] = values(1, me, ROOM)
    xupc.barrier()
    flags = xupc.IN_NOSYNC | xupc.OUT_MYSYNC
    with checked_in_full() as full:
        for k in range(LOOP):
            at = int(rng.integers(ROOM - 64))
            xupc.all_broadcast(src=A + at, nbytes=64, dst=B)
            same(B.local, values(1, 0, ROOM)[at : at + 64], "by name", k)
            xupc.barrier()
            xupc.all_broadcast(B, A + (T - 1) * ROOM + at, 64, flags, team=team)
            xupc.barrier()
            same(B.local, values(1, T - 1, ROOM)[at : at + 64], "no barrier", k)
            xupc.barrier()
        assert len(full) == 2, full
    for array in (A, B):
        xupc.all_free(array)


def new_strings() -> None:
    """A name of an algorithm that each call makes anew is found by its text."""
    A, B = (xupc.all_alloc(T * ROOM, "u1", ROOM) for _ in range(2))
    dst, src = (np.zeros(8, "i8") for _ in range(2))
    names, slow = ["pull", "multicore"], ArrayCall.slow
    misses: list[str] = []

    def noted(self: Any, *rest: Any) -> Any:
        misses.append(self.__name__)
        return slow(self, *rest)

    ArrayCall.slow = noted  # type: ignore[assignment,method-assign]
    with checked_in_full() as full:
        for k in range(LOOP):
            way = names[k % 2]
            A.local[:] = values(k, me, ROOM)
            src[:] = k + me
            xupc.all_broadcast(B, A, 8, algorithm=f"{way[0]}{way[1:]}")
            same(B.local[:8], values(k, 0, ROOM)[:8], "repeated", k)
            xupc.all_broadcast(B, A + 8 * k, 8, algorithm=f"{way[0]}{way[1:]}")
            same(B.local[:8], values(k, 0, ROOM)[8 * k : 8 * k + 8], "new address", k)
            xupc.allav_reduce_all(dst, src, xupc.ADD, algorithm=f"{way[0]}{way[1:]}")
            assert (dst == T * k + T * (T - 1) // 2).all(), k
            xupc.barrier()
    ArrayCall.slow = slow  # type: ignore[method-assign]
    arrays = len(names) if native else LOOP  # the Python engine keeps no calls but families
    # Places in the core's tables follow from addresses: two new calls may have the same one, so
    # that the first of them is made in full once more.
    assert arrays + len(names) <= len(full) <= 2 * (arrays + len(names)), full
    assert not native or len(names) <= len(misses) <= 2 * len(names), misses
    for array in (A, B):
        xupc.all_free(array)


def lists() -> None:
    """A call with lists looks at the earlier ones after memory was freed, not in each call."""
    A, B, C = (xupc.all_alloc(T * ROOM, "u1", ROOM) for _ in range(3))
    looks: list[object] = []
    usable_before = CachedListCall.usable

    def noted(self: CachedListCall) -> bool:
        looks.append(self)
        return bool(usable_before.fget(self))  # type: ignore[attr-defined]

    CachedListCall.usable = property(noted)  # type: ignore[assignment,method-assign]
    A.local[:] = values(5, me, ROOM)
    to = [(i + 1) % T for i in range(T)]
    xupc.all_permute(B, C, to, 8)
    for k in range(LOOP):
        xupc.all_permute(B, A + 8 * k, to, 8)
        same(B.local[:8], values(5, (me - 1) % T, ROOM)[8 * k : 8 * k + 8], "permute", k)
    assert len(looks) < 2 * LOOP, len(looks)
    CachedListCall.usable = usable_before  # type: ignore[method-assign]
    xupc.all_free(C)
    xupc.all_permute(B, A, to, 16)
    assert all(known.usable for known in vars(xupc.all_permute)["_known"].values())
    for array in (A, B):
        xupc.all_free(array)


def in_place() -> None:
    """In place with src None, with src itself, and with the root's own block at one place."""
    n = 16
    A = xupc.all_alloc(T * ROOM, "u1", ROOM)

    def gathered(k: int, at: int, call: Callable[[Any], object]) -> None:
        A.local[:] = values(k, me, ROOM)
        call(A + at)
        want = values(k, me, ROOM).copy()
        blocks = [values(k, i, ROOM)[at + i * n : at + i * n + n] for i in range(T)]
        want[at : at + T * n] = np.concatenate(blocks)
        same(A.local, want, "gather_all in place", at)
        xupc.barrier()

    def scattered(k: int, at: int, call: Callable[[Any], object]) -> None:
        A.local[:] = values(k, me, ROOM)
        call(A + at)
        want = values(k, me, ROOM).copy()
        if me:
            want[at : at + n] = values(k, 0, ROOM)[at + me * n : at + me * n + n]
        same(A.local, want, "scatter in place", at)
        xupc.barrier()

    places = [int(at) for at in rng.integers(ROOM - T * n, size=max(2, LOOP // 2))]
    with checked_in_full() as full:
        for k, at in enumerate(places):
            gathered(k, at, lambda p: xupc.all_gather_all(p, None, n))
            gathered(k, at, lambda p: xupc.all_gather_all(p, p, n))
            scattered(k, at, lambda p: xupc.all_scatter(p, p + 0, n, xupc.IN_PLACE))
        assert len(full) == 3, full
    forgotten()
    for shift in (0, 5, 0, 9):  # another pair of places is no call in place
        call = partial(xupc.all_gather_all, A + 64, A + 64 + shift, n)
        if shift:
            raises(xupc.OverlapError, ("dst and src overlap",), call)
        else:
            call()
    xupc.all_free(A)


def larger(a: float, b: float) -> float:
    """Return the greater number: Python runs it."""
    return max(a, b)


def reductions() -> None:
    """Reductions and scans of elements that are dealt over the threads."""
    block, rows = 3, 40
    row = block * T
    A, B = (xupc.all_alloc(row * rows, "f8", block) for _ in range(2))
    total = xupc.all_alloc(64, "f8", 0)
    whole = np.random.default_rng(4).integers(0, 1000, row * rows).astype("f8")
    mine = np.array([A.threadof(i) == me for i in range(row * rows)])
    A.local[:] = whole[mine]
    parts = whole.reshape(rows, T, block).transpose(1, 0, 2).reshape(T, -1)
    xupc.barrier()
    with checked_in_full() as full:
        for k in range(LOOP):
            at, to = (row * int(i) for i in rng.integers(rows - 2, size=2))
            n = 2 * row - 1
            xupc.all_reduce(total + k % 60, A + at, xupc.ADD, n)
            assert total[k % 60] == whole[at : at + n].sum(), k
            xupc.all_reduce(total + k % 59, A + at, xupc.FUNC, n, func=larger)
            assert total[k % 59] == whole[at : at + n].max(), k
            xupc.all_reduce_all(B + to, A + at, xupc.MAX, n)
            assert B[to + block * me] == whole[at : at + n].max(), k
            xupc.barrier()
            xupc.all_prefix_reduce(B + to, A + at, xupc.ADD, n)
            want = np.cumsum(whole[at : at + n])[mine[at : at + n]]
            local = to // T
            same(B.local[local : local + want.size].view("u1"), want.view("u1"), "prefix", k)
            xupc.barrier()
            xupc.all_reduce_mpi_all(B + to, A + at, xupc.ADD, row)
            want = whole[at : at + row].reshape(T, block).sum(axis=0)
            same(B.local[local : local + block].view("u1"), want.view("u1"), "elements", k)
            xupc.barrier()
            phase = k % 2  # which this call does not depend on
            xupc.all_reduce_scatter(B + to + phase, A + at + phase, xupc.ADD, 1)
            assert B.local[local + phase] == parts[:, at // T + phase + me].sum(), k
            xupc.barrier()
        assert len(full) == 6, full
    with checked_in_full() as full:  # with another phase it is another call
        for at in (0, 1, row + 1, 2 * row + 1):
            xupc.all_reduce(total, A + at, xupc.ADD, row)
            assert total[0] == whole[at : at + row].sum(), at
            xupc.barrier()
        assert len(full) == 2, full
    for array in (A, B, total):
        xupc.all_free(array)


def errors(usable: Usable) -> None:
    """The errors of calls of a family are those of first calls, and nothing has moved."""
    n = 64
    A = xupc.all_alloc(2 * T * ROOM, "u1", 2 * ROOM)
    between = xupc.all_alloc(T * ROOM, "u1", ROOM)  # what is beyond A does not overlap B
    B = xupc.all_alloc(T * ROOM, "u1", ROOM)
    B.local[:] = 7

    def until(call: Callable[[int], object], kind: type[Exception], first: int) -> None:
        """Have a loop raise at its first wrong place what a first call raises there."""
        error = None
        for at in range(first - 3 * n, first + 1, n):
            B.local[:] = 7
            xupc.barrier()
            error = raises(kind, (), partial(call, at)) if at == first else call(at)
        forgotten()
        assert str(raises(kind, (), partial(call, first))) == str(error), error
        assert (B.local == 7).all(), "something has moved"
        usable.some(error)

    end = ROOM - n + 1
    until(lambda at: xupc.all_broadcast(B, A + ROOM + at, n), ValueError, end)
    until(lambda at: xupc.all_broadcast(B + at, A, n), ValueError, end)
    until(lambda at: xupc.all_gather_all(B + at, A, n), ValueError, ROOM - T * n + 1)
    until(lambda at: xupc.all_broadcast(A + at, A + 1024, n), xupc.OverlapError, 1024 - n + 1)
    for call in (xupc.all_broadcast, xupc.all_gather_all):
        for at in (0, 8, 16):
            call(B + at, A + at, n)
        p = B + 24
        if T > 1:
            raises(xupc.AffinityError, ("affinity to thread 1",), partial(call, B + ROOM, A, n))
        xupc.notify()
        raises(xupc.XupcError, ("between notify and wait",), partial(call, p, A + 32, n))
        xupc.wait()
        call(p, A + 32, n)
    q = A + 8
    xupc.all_free(A)
    text = "all_broadcast: src is in a freed array"
    raises(ValueError, (text,), partial(xupc.all_broadcast, B, q, n))
    usable("a freed array")
    xupc.all_free(between)
    xupc.all_free(B)


def differences(usable: Usable) -> None:
    """Other offsets on one thread are found, and named with the call that had them."""
    A, B = (xupc.all_alloc(T * ROOM, "u1", ROOM) for _ in range(2))
    apart = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
    for odd in {0, T - 1} if T > 1 else ():
        for at in range(0, 64, 8):
            xupc.all_broadcast(B + at, A + at, 8)
        at = 72 + 16 * odd
        words = "src differs", f"offset {(A + at).addr}", f"offset {(A + at + 8).addr}"
        call = lambda: xupc.all_broadcast(B + at, A + at + 8 * (me == odd), 8)  # noqa: B023, E731
        raises(xupc.CollectiveMismatchError, words, call, odd)
        usable.some(odd)

        def unsynchronised() -> None:
            for k in range(6):
                xupc.all_broadcast(B + at + k, A + at + 8 * (me == odd and k == 2), 8, apart)  # noqa: B023
            xupc.barrier()

        found = raises(xupc.CollectiveMismatchError, words, unsynchronised, odd)
        assert "found in" in str(found), found
        usable.some(odd)
    for array in (A, B):
        xupc.all_free(array)


def leftovers() -> None:
    """A long loop keeps no memory, drops no other call, and keeps no team's memory alive."""
    A, B = (xupc.all_alloc(T * ROOM, "u1", ROOM) for _ in range(2))
    p, q = A + 1, B + 1
    several = LOOP * (100 if native else 2)
    flags = xupc.IN_NOSYNC | xupc.OUT_NOSYNC  # the threads meet in every 32nd call
    xupc.all_broadcast(p, q, 8)
    for at in range(64):
        xupc.all_broadcast(A + at, B + at, 8, flags)
    gc.collect()
    before = sys.getallocatedblocks()
    with checked_in_full() as full:
        for k in range(several):
            xupc.all_broadcast(A + k % 4001, B + k % 4003, 8, flags)
        xupc.all_broadcast(p, q, 8)
        assert not full, full
    gc.collect()
    assert sys.getallocatedblocks() - before < 500, sys.getallocatedblocks() - before
    for array in (A, B):
        xupc.all_free(array)
    group = team.split(0)
    assert group is not None
    C = xupc.all_alloc(T * 64, "u1", 64, team=group)
    for at in range(16):
        xupc.all_gather_all(C + at + 32, C + at, 1, team=group)
    known = weakref.ref(C.allocation)
    del C
    assert known() is None, "remembered calls keep the memory of a team"
    group.free()


def hooks() -> None:
    """What hooks get names the call that they were called for, later too."""
    A, B = (xupc.all_alloc(T * ROOM, "u1", ROOM) for _ in range(2))
    calls: list[Any] = []
    with xupc.hooks.add(calls.append):
        for at in range(4):
            xupc.all_broadcast(A + at, B + at, 8)
    texts = [call.text for call in calls]
    for at, text in enumerate(texts):
        assert f"offset {(B + at).addr} " in text, (at, text)
    for array in (A, B):
        xupc.all_free(array)


usable = Usable()
blocks()
names_and_arrays()
new_strings()
lists()
in_place()
reductions()
errors(usable)
differences(usable)
leftovers()
hooks()
usable("all of it")
done(LOOP)
xupc.finalize()
