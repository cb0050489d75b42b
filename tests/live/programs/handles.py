"""Posted calls: several under way, on several teams, waited for in any order; and their errors."""

from __future__ import annotations

import gc
import json
import sys
import warnings

import numpy as np
from support.checked_calls import ALGORITHMS, FUNCTIONS, SYNC, Buffers, Usable, done, raises

import xupc
from xupc import ASYNC, CollectiveMismatchError, XupcError

SIZES = (8, 3000, 70_001)


def every_collective(buffers: list[Buffers], rounds: int) -> int:
    """Each thread waits for them in an order of its own, some by testing."""
    names = list(FUNCTIONS)
    together = np.random.default_rng(7)
    mine = np.random.default_rng(xupc.MYTHREAD)
    number = 0
    for _ in range(rounds):
        calls = []
        for own in buffers:
            number += 1
            name = names[together.integers(len(names))]
            root = int(together.integers(xupc.THREADS))
            n = int(SIZES[together.integers(len(SIZES))])
            flags = SYNC["ALLSYNC", "ALLSYNC"] if together.integers(2) else SYNC["MYSYNC", "MYSYNC"]
            flags |= list(ALGORITHMS.values())[together.integers(len(ALGORITHMS))]
            own.fill(name, number, n)
            handle = FUNCTIONS[name](*own.operands(name, root), n, flags | ASYNC)
            calls.append((handle, own, name, number, n, root))
            if together.integers(3) == 0:
                xupc.barrier()
        for k in mine.permutation(len(calls)):
            handle, own, name, number_, n, root = calls[k]
            if mine.integers(2):
                handle.wait()
            else:
                while not handle.test():
                    pass
            assert handle.done
            own.check(name, number_, n, root, 0, (name, n, root, number_))
            assert handle.wait() is None
        xupc.barrier()
    return number


def many(buffers: Buffers) -> None:
    """More than one call's worth of slots, without synchronisation between them."""
    dst, src = buffers.pointer("dst", 0), buffers.pointer("src", 0)
    handles = []
    buffers.fill("broadcast", 1, 24)
    xupc.barrier()
    for k in range(150):
        flags = SYNC["NOSYNC", "NOSYNC"] | (xupc.PULL, xupc.PUSH, xupc.MULTICORE)[k % 3]
        handles.append(xupc.all_broadcast(dst, src, 24, flags | ASYNC))
    xupc.wait_all(reversed(handles))
    xupc.barrier()
    buffers.check("broadcast", 1, 24, 0, 0, "many")


def on_teams(buffers: list[Buffers]) -> None:
    """Two teams' calls under way at the same time, waited for crosswise."""
    me, world = int(xupc.MYTHREAD), xupc.init()
    part = world.split(me % 2)
    src = xupc.all_alloc(xupc.THREADS * 5000, "i8", 5000)
    dst = xupc.all_alloc(part.size * 5000, "i8", 5000, team=part)
    for k in range(8):
        src.local[:] = me + k
        buffers[0].fill("gather_all", k, 3000)
        xupc.barrier()
        rank = k % part.size
        one = xupc.all_broadcast(dst, src + 5000 * part.threads[rank], 40_000, ASYNC, team=part)
        two = xupc.all_gather_all(*buffers[0].operands("gather_all", 0), 3000, ASYNC)
        for handle in (one, two) if (me + k) % 3 else (two, one):
            handle.wait()
        assert (dst.local == part.threads[rank] + k).all()
        buffers[0].check("gather_all", k, 3000, 0, 0, ("on teams", k))
        xupc.barrier()
    xupc.all_free(src)
    first = buffers[0].pointer("src", part.threads[0])
    handle = xupc.all_broadcast(dst, first, 8, ASYNC, team=part)
    raises(ValueError, ("under way", "all_broadcast"), lambda: xupc.all_free(dst))
    raises(ValueError, ("free", "all_broadcast"), part.free)
    handle.wait()
    part.free()


def anywhere(buffers: Buffers) -> None:
    """Blocks given by pointers, in private lists and shared ones."""
    me, threads, n = int(xupc.MYTHREAD), int(xupc.THREADS), 500
    dst, src = buffers.operands("gather_all", 0)
    pointers = xupc.all_alloc(threads, xupc.pointer_dtype, 1)
    for k in range(6):
        buffers.fill("gather_all", k, n)
        pointers[me] = buffers.pointer("src", me)
        to = [buffers.pointer("dst", i) + j * n for i in range(threads) for j in range(threads)]
        own = [buffers.pointer("src", j) for j in range(threads)]
        of = pointers if k % 2 else own
        handle = xupc.all_gather_all_x(to, of, [n] * threads, ASYNC)
        other = xupc.all_broadcast(dst, src, 1, ASYNC)
        for each in (handle, other) if (me + k) % 2 else (other, handle):
            each.wait()
        xupc.all_broadcast_in_place(dst, 1)
        buffers.check("gather_all", k, n, 0, 0, ("anywhere", k))
    wrong = [-1] * threads
    handle = xupc.all_gather_all_x(to, pointers, wrong, ASYNC)  # seen when the list is read
    raises(ValueError, ("nbytes[0]",), handle.wait)
    raises(ValueError, ("nbytes[0]",), lambda: xupc.all_gather_all_x(to, own, wrong, ASYNC))


def private() -> None:
    """Arrays of values, contiguous or not, their blocks of any size."""
    me, threads = int(xupc.MYTHREAD), int(xupc.THREADS)
    for k, n in enumerate((1, 300, 40_000, 0, 9)):
        mine = np.arange(n * 2, dtype=np.int64)[::2] + me * 1000 + k
        total, every = np.empty(n, np.int64), np.empty((threads, n), np.int64)
        moved = np.zeros(2 * n, np.int64)[::2]
        handles = [
            xupc.allav_reduce_all(total, mine, xupc.ADD, flags=ASYNC),
            xupc.allav_permute(moved, mine, (me + 1) % threads, ASYNC),
            xupc.allav_gather_all(every, mine, ASYNC),
        ]
        for handle in handles if (me + k) % 2 else handles[::-1]:
            handle.wait()
        wanted = np.arange(n * 2)[::2] + np.arange(threads)[:, None] * 1000 + k
        assert (every == wanted).all(), (n, every, wanted)
        assert (total == wanted.sum(0)).all()
        assert (moved == wanted[(me - 1) % threads]).all()
    plan = xupc.allav_gather_all.plan(every, mine)
    mine += 5
    handle = plan.start()
    raises(XupcError, ("started",), plan.start)
    handle.wait()
    assert (every == wanted + 5).all()
    raises(xupc.FlagError, ("ASYNC",), lambda: xupc.allv_gather_all(1, ASYNC))
    raises(xupc.FlagError, ("ASYNC",), lambda: xupc.allv_broadcast(1, 0, ASYNC))
    raises(xupc.FlagError, ("ASYNC",), lambda: xupc.allv_scatter([1] * threads, 0, ASYNC))
    raises(ValueError, ("root",), lambda: xupc.allav_broadcast(mine, threads, ASYNC))
    xupc.barrier()


def trouble(buffers: Buffers, usable: Usable) -> None:
    """Errors of arguments at posting, differences at waiting; nothing is lost."""
    me, threads = int(xupc.MYTHREAD), int(xupc.THREADS)
    dst, src = buffers.operands("gather_all", 0)
    raises(ValueError, ("nbytes",), lambda: xupc.all_gather_all(dst, src, 0, ASYNC))
    usable("bad on every thread")
    for odd in range(threads if threads > 1 else 0):
        before = xupc.all_gather_all(dst, src, 16, ASYNC)
        if odd == me:
            raises(ValueError, ("nbytes",), lambda: xupc.all_gather_all(dst, src, -8, ASYNC))
        else:
            handle = xupc.all_gather_all(dst, src, 8, ASYNC)
            raises(CollectiveMismatchError, (f"thread {odd}",), handle.wait)
        before.wait()
        usable(("bad on one thread", odd))
        handle = xupc.all_gather_all(dst, src, 24 if odd == me else 16, ASYNC)
        raises(CollectiveMismatchError, ("nbytes", f"{odd}"), handle.wait)
        usable(("a difference", odd))
    handle = xupc.all_gather_all(dst, src, 16, ASYNC)
    raises(ValueError, ("under way",), lambda: xupc.all_free(buffers.src))
    raises(XupcError, ("finalize", "handles without a wait", "all_gather_all"), xupc.finalize)
    handle.wait()
    raises(TypeError, ("wait_all",), lambda: xupc.wait_all([handle, 3]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        xupc.all_gather_all(dst, src, 16, ASYNC)
        gc.collect()
    assert ["abandoned" in str(w.message) for w in said] == [True], said
    usable("trouble")


def lists(buffers: Buffers) -> None:
    """A shared list is read when all have posted."""
    me, threads = int(xupc.MYTHREAD), int(xupc.THREADS)
    dst, src = buffers.operands("gather_all", 0)
    for k in range(6):
        buffers.fill("permute", k, 3000)
        handle = xupc.all_permute(dst, src, buffers.lists + k % threads * threads, 3000, ASYNC)
        handle.wait()
        buffers.check("permute", k, 3000, k % threads, 0, ("a shared list", k))
    buffers.lists[me] = 0
    xupc.barrier()
    if threads > 1:
        handle = xupc.all_permute(dst, src, buffers.lists, 8, ASYNC)
        raises(ValueError, ("perm[1]",), handle.wait)


def main(rounds: int) -> None:
    xupc.init(timeout=30)
    buffers = [Buffers(SIZES[-1] * xupc.THREADS) for _ in range(3)]
    usable = Usable()
    number = every_collective(buffers, rounds)
    many(buffers[0])
    on_teams(buffers)
    trouble(buffers[0], usable)
    lists(buffers[0])
    anywhere(buffers[0])
    private()
    done(number)


main(json.loads(sys.argv[1]))
