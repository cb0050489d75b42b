"""Plans run again and again, and every kind of pointer as an operand."""

from __future__ import annotations

import itertools

import numpy as np
from mpi4py import MPI
from support.checked_calls import (
    ALGORITHMS,
    FUNCTIONS,
    ROOTED,
    SYNC,
    Buffers,
    Usable,
    done,
    raises,
    same,
    values,
)

import xupc


def replays(usable: Usable) -> int:
    """Two plans at a time, with other calls between their runs."""
    threads = xupc.THREADS
    buffers = Buffers(3000 * threads)
    number = 0
    for count, (name, algorithm) in enumerate(itertools.product(FUNCTIONS, ALGORITHMS)):
        n, root = (8, 3000)[count % 2], count % threads if name in ROOTED else 0
        flags = SYNC["MYSYNC", "MYSYNC"] | ALGORITHMS[algorithm]
        plan = FUNCTIONS[name].plan(*buffers.operands(name, root), n, flags)
        other = xupc.all_gather_all.plan(*buffers.operands("gather_all", 0, 64), 24)
        assert isinstance(plan.algorithm, str)
        assert plan.algorithm.startswith(algorithm or ("pull", "push", "multicore")), plan.algorithm
        assert name in str(plan)
        assert len(str(plan).splitlines()) > 1, str(plan)
        for repetition in range(5):
            number += 1
            what = ("plan", name, algorithm, n, f"root {root}", repetition)
            buffers.fill(name, number, n)
            plan()
            buffers.check(name, number, n, root, 0, what)
            buffers.fill("gather_all", number, 24, 64)
            assert other() is None
            buffers.check("gather_all", number, 24, 0, 64, ("the other plan", *what))
            if repetition % 2:
                usable.some(what)
        buffers.fill(name, number, n)
        handle = plan.start()
        raises(xupc.XupcError, ("start",), plan.start)
        xupc.barrier()
        assert handle.done
        handle.wait()
        buffers.check(name, number, n, root, 0, ("started", name, algorithm))
    ahead(buffers)
    keywords(buffers)
    freezes()
    freed(buffers, usable)
    return number


def freezes() -> None:
    """A plan keeps what the list held when it was made."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    buffers = Buffers(64)
    perm = xupc.all_alloc(threads, "i4", 1)
    perm.local[:] = threads - 1 - me
    private = list(range(threads))[::-1]
    dst, src = buffers.operands("gather_all", 0)
    plans = [xupc.all_permute.plan(dst, src, p, 40) for p in (perm, private)]
    perm.local[:] = me
    private[:] = range(threads)
    for number, plan in enumerate(plans * 3):
        buffers.fill("permute", number, 40)
        plan()
        buffers.check("permute", number, 40, 1, 0, ("frozen", number))


def ahead(buffers: Buffers) -> None:
    """More runs of a plan that does not synchronise than may be under way."""
    flags = SYNC["NOSYNC", "NOSYNC"]
    buffers.fill("broadcast", 1, 8)
    plan = xupc.all_broadcast.plan(*buffers.operands("broadcast", 0), 8, flags)
    for _ in range(150):
        plan()
    xupc.barrier()
    buffers.check("broadcast", 1, 8, 0, 0, "150 runs of a NOSYNC plan")


def keywords(buffers: Buffers) -> None:
    """Calls with keywords are remembered too, names and all."""
    f, (dst, src), number = xupc.all_broadcast, buffers.operands("broadcast", 0), 0
    calls = [
        (8, lambda: f(dst, src, 8, flags=0)),
        (8, lambda: f(dst, src, nbytes=8)),
        (8, lambda: f(nbytes=8, src=src, dst=dst, flags=xupc.PULL)),
        (24, lambda: f(dst, src, nbytes=24)),
        (8, lambda: f(dst, src, 8, team=xupc.init())),
    ]
    for n, call in calls * 2:
        for again in range(3):
            number += 1
            buffers.fill("broadcast", number, n)
            if again and xupc.init().native:
                f.slow = None  # the slow path must not run
            call()
            vars(f).pop("slow", None)
            buffers.check("broadcast", number, n, 0, 0, ("keywords", n))
    raises(TypeError, (), lambda: f(dst, "nbytes", 8))
    raises(TypeError, (), lambda: f(dst, src, 8, nbytes=8))


def freed(buffers: Buffers, usable: Usable) -> None:
    """A plan whose array was freed raises, each time; others go on."""
    spare = xupc.all_alloc(8 * xupc.THREADS, "u1", 8)
    dst = buffers.pointer("dst", 0)
    into = xupc.all_broadcast.plan(spare, buffers.pointer("src", 0), 8)
    out_of = xupc.all_broadcast.plan(dst, spare, 8)
    kept = xupc.all_broadcast.plan(dst, buffers.pointer("src", 0), 8)
    into()
    xupc.all_free(spare)
    for _ in range(2):
        raises(ValueError, ("dst", "freed"), into, "plan into a freed array")
        raises(ValueError, ("src", "freed"), out_of, "plan out of a freed array")
        usable("a plan of a freed array")
    buffers.fill("broadcast", 5, 8)
    kept()
    buffers.check("broadcast", 5, 8, 0, 0, "a plan of arrays that live")


def pointers(flags: int) -> None:
    """Cast, cyclic, one-thread and global memory; odd addresses; other element types."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    comm = MPI.COMM_WORLD
    for number in range(2 * threads):
        root, n = number % threads, 24
        # A cyclic array of doubles: the block is at the same address everywhere, over many blocks.
        cyclic = xupc.all_alloc(threads * 10, "f8", 1)
        target = xupc.all_alloc(threads * 10, "i4", "*")
        cyclic.local.view("u1")[:] = values(number, me, 80)
        target.local[:] = -1
        xupc.all_broadcast(target + 2, cyclic + (2 * threads + root), n, flags)
        want = np.full(40, 255, np.uint8)
        want[8 : 8 + n] = values(number, root, 80)[16 : 16 + n]
        same(target.local.view("u1")[:40], want, "array", ("cyclic", number))
        # Casts to bytes, and back to blocks, lead to the same place.
        odd = (target + 0).cast("u1", 0) + 3
        start = (cyclic + root).cast("i2", 7)
        target.local[:] = -1
        xupc.all_broadcast(odd, start, n, flags)
        want[:] = 255
        want[3 : 3 + n] = values(number, root, 80)[:n]
        same(target.local.view("u1")[:40], want, "array", ("cast", number))
        # Memory that one thread made: the others have its pointer by pickle.
        mine = xupc.alloc(n, "u1") if me == root else None
        if mine is not None:
            mine.local(n)[:] = values(number + 1, root, n)
        alone = comm.bcast(mine, root=root)
        spread = comm.bcast(xupc.global_alloc(threads * 5, "f8", 5) if me == root else None, root)
        assert alone.thread == root
        assert alone.blocksize == 0
        xupc.all_broadcast(spread, alone, n, flags)
        got = np.empty(40, np.uint8)
        xupc.memget(got, spread + 5 * me, 40)
        want = np.zeros(40, np.uint8)
        want[:n] = values(number + 1, root, n)
        same(got, want, "array", ("alloc to global_alloc", number))
        xupc.barrier()
        xupc.all_gather(alone, spread, n // threads, flags)
        if me == root:
            part = values(number + 1, root, n // threads)
            same(mine.local(n)[: part.size * threads], np.tile(part, threads), "array", "gather")
            xupc.free(alone)
            xupc.free(spread)
        xupc.all_free(cyclic)
        xupc.all_free(target)


def main() -> None:
    xupc.init(timeout=30)
    usable = Usable()
    count = replays(usable)
    for flag in ALGORITHMS.values():
        pointers(flag)
    usable("all plans and pointers")
    done(count)


main()
