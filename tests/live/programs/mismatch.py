"""Calls that differ between threads, each with every thread as the odd one.

A call with ALLSYNC on either side raises on every thread. The error names the odd thread and both
values, and correct calls work after it. Calls that do not synchronise raise later.
Arguments: in how many combinations of algorithm and sync modes; which collectives, all if none.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from support.checked_calls import ALGORITHMS, FUNCTIONS, IN_PLACE, SYNC, Usable, done, group, raises

import xupc
from xupc import CollectiveMismatchError

Call = Callable[[], Any]
MEETING = [sync for sync in SYNC if "ALLSYNC" in sync]
APART = [sync for sync in SYNC if "ALLSYNC" not in sync]


def names(odd: int) -> tuple[str, ...]:
    """Return the texts by which a message must name the odd thread: with two threads each is."""
    others = [i for i in range(xupc.THREADS) if i != odd]
    if len(others) == 1:
        return "thread 0: ", "thread 1: "
    return f"thread {odd}: ", f"the other threads ({group(others)}): "


class Collisions:
    """All threads make one call, but one makes another."""

    def __init__(self) -> None:
        n, T = 64, xupc.THREADS
        self.usable = Usable()
        self.count = 0
        self.A = xupc.all_alloc(2 * n * T * T, "u1", 2 * n * T)
        self.B = xupc.all_alloc(2 * n * T * T, "u1", 2 * n * T)
        self.C = xupc.all_alloc(8, "u1", 0)
        self.P = xupc.all_alloc(2 * T, "i4", 1)
        self.P.local[:] = xupc.MYTHREAD
        xupc.barrier()

    def of(self, name: str) -> Callable[..., Any]:
        """The collective as a function of dst, src, nbytes and flags."""
        f = FUNCTIONS[name]
        if name in IN_PLACE:
            return lambda dst, src, *rest: f(dst, *rest)
        if name == "permute":
            return lambda dst, src, *rest: f(dst, src, range(xupc.THREADS), *rest)
        return f

    def collide(
        self, odd: int, call: Call, strange: Call, words: tuple[str, ...], what: Any
    ) -> None:
        """Thread `odd` makes the strange call; every thread must raise."""
        self.count += 1
        what = (*what, f"odd: {odd}")
        mine = strange if odd == xupc.MYTHREAD else call
        raises(CollectiveMismatchError, (*names(odd), *words), mine, what)
        self.usable.some(what)

    def arguments(self, name: str, flags: int, odd: int, what: Any) -> None:
        """One argument of a collective differs."""
        f, A, B, T = self.of(name), self.A, self.B, xupc.THREADS
        part = 128 * T
        last = part * (T - 1)
        at_root = {"broadcast": "src", "scatter": "src", "gather": "dst"}.get(name, "")
        dst = "buf" if name in IN_PLACE else "dst"
        strange: dict[str, tuple[Call, tuple[str, ...]]] = {
            "nbytes": (lambda: f(B, A, 72, flags), ("nbytes differs", "72", "64")),
            "dst": (lambda: f(B + 8, A, 64, flags), (f"{dst} differs", "offset")),
            "arrays": (lambda: f(A, B, 64, flags), (f"{dst} differs", "offset")),
        }
        if name in IN_PLACE:
            strange["root"] = lambda: f(B + last, A, 64, flags), ("buf differs", f"thread {T - 1} ")
        else:
            strange["src"] = lambda: f(B, A + 8, 64, flags), ("src differs", "offset")
        if name == "permute":
            swapped = [T - 1, *range(1, T - 1), 0]
            strange["perm"] = (
                lambda: xupc.all_permute(B, A, swapped, 64, flags),
                ("perm[0] differs", f"{T - 1}", "0"),
            )
            strange["perm shared"] = (
                lambda: xupc.all_permute(B, A, self.P, 64, flags),
                ("perm differs", "a private list", "thread 0 offset"),
            )
            call = lambda: xupc.all_permute(B, A, self.P + T, 64, flags)  # noqa: E731
            words = "perm differs", "thread 0 offset"
            self.collide(odd, lambda: xupc.all_permute(B, A, self.P, 64, flags), call, words, what)
        if at_root == "src":
            strange["root"] = lambda: f(B, A + last, 64, flags), ("src differs", f"thread {T - 1} ")
        if at_root == "dst":
            strange["root"] = lambda: f(B + last, A, 64, flags), ("dst differs", f"thread {T - 1} ")
        others = flags ^ xupc.PULL if flags & xupc.PULL else flags & ~0x1C0 | xupc.PULL
        strange["flags"] = lambda: f(B, A, 64, others), ("flags differs", "PULL")
        for argument, (call, words) in strange.items():
            self.collide(odd, lambda: f(B, A, 64, flags), call, words, (*what, argument))

    def kinds(self, flags: int, odd: int, what: Any) -> None:
        """A thread is in quite another call."""
        A, B, C = self.A, self.B, self.C

        def split_phase() -> None:
            xupc.notify()
            xupc.wait()

        strange: dict[str, Call] = {
            "all_gather": lambda: xupc.all_gather(B, A, 64, flags),
            "barrier": xupc.barrier,
            "barrier(value": lambda: xupc.barrier(5),
            "barrier(": split_phase,
            "all_alloc": lambda: xupc.all_alloc(1000, "f8"),
            "all_free": lambda: xupc.all_free(C),
            "all_broadcast.plan": lambda: xupc.all_broadcast.plan(B, A, 64, flags),
        }
        for name, call in strange.items():
            words = "different calls", name, "all_broadcast", "nbytes=64"
            self.collide(
                odd, lambda: xupc.all_broadcast(B, A, 64, flags), call, words, (*what, name)
            )

    def others(self, odd: int) -> None:
        """Barriers, allocations and frees that differ."""
        A, B, C = self.A, self.B, self.C
        cases: list[tuple[Call, Call, tuple[str, ...]]] = [
            (lambda: xupc.barrier(1), lambda: xupc.barrier(2), ("barrier", "1", "2")),
            (lambda: xupc.barrier("a"), lambda: xupc.barrier("b"), ("barrier", "'a'", "'b'")),
            (lambda: xupc.all_free(A), lambda: xupc.all_free(B), ("all_free", "x differs")),
            (lambda: xupc.all_free(A), xupc.barrier, ("all_free", "barrier")),
            (
                lambda: xupc.all_alloc(10, "f8"),
                lambda: xupc.all_alloc(11, "f8"),
                ("all_alloc", "nelems differs", "10", "11"),
            ),
            (
                lambda: xupc.all_alloc(10, "f8"),
                lambda: xupc.all_alloc(10, "i8"),
                ("all_alloc", "dtype differs", "f8", "i8"),
            ),
            (
                lambda: xupc.all_alloc(10, [("a", "i4"), ("b", "i4")]),
                lambda: xupc.all_alloc(10, [("x", "f8")]),
                ("all_alloc", "dtype differs", "'a'", "'x'"),
            ),
            (
                lambda: xupc.all_alloc(10, "f8", 2),
                lambda: xupc.all_alloc(10, "f8", None),
                ("all_alloc", "blocksize differs", "2", "None"),
            ),
        ]
        for call, strange, words in cases:
            self.collide(odd, call, strange, words, ("others", *words))
        assert not C[:].any()

    def ties(self) -> None:
        """Half against half: both sides are named."""
        T, me = xupc.THREADS, xupc.MYTHREAD
        if T % 2:
            return
        low, high = list(range(T // 2)), list(range(T // 2, T))
        words = ("nbytes differs", f"{group(low)}: 64", f"{group(high)}: 72")
        n = 64 if me in low else 72
        for flag in ALGORITHMS.values():
            call = lambda flag=flag: xupc.all_broadcast(self.B, self.A, n, flag)  # noqa: E731
            error = raises(CollectiveMismatchError, words, call, "tie")
            assert "other" not in str(error), error
            self.usable("a tie")

    def later(self, name: str, flags: int, odd: int, what: Any, every: int) -> None:
        """Without ALLSYNC: found by the next call that synchronises, if not before."""
        f, A, B = self.of(name), self.A, self.B
        one_more: list[tuple[Call, Call]] = [
            (lambda: f(B, A, 64, flags), lambda: f(B, A, 72, flags)),
            (lambda: f(B, A, 64, flags), lambda: f(B + 8, A, 64, flags)),
            (lambda: f(B, A, 64, flags), lambda: None),
            (lambda: None, lambda: f(B, A, 64, flags)),
        ]
        meet = (xupc.barrier, lambda: xupc.all_broadcast(B, A, 8), lambda: xupc.all_alloc(8))
        for k, (call, strange) in list(enumerate(one_more))[odd % every :: every]:
            mine = strange if odd == xupc.MYTHREAD else call

            def sequence(mine: Call = mine, k: int = k) -> None:
                mine()
                meet[k % 3]()

            self.count += 1
            raises(CollectiveMismatchError, (), sequence, (*what, "later", k, f"odd: {odd}"))
            self.usable.some((*what, "later", k, f"odd: {odd}"))


def values_that_match() -> None:
    """None matches any value; equal values match; split-phase barriers carry them too."""
    me = xupc.MYTHREAD
    for value in (7, "phase"):
        xupc.barrier(value)
        xupc.barrier(value if me % 2 else None)
        xupc.notify(value)
        xupc.wait(value if me % 2 else None)
        xupc.notify(None if me % 2 else value)
        xupc.wait()
    xupc.notify(me)
    raises(CollectiveMismatchError, (), xupc.wait, "notify with other values")


def main() -> None:
    times, names = int(sys.argv[1]), sys.argv[2:] or list(FUNCTIONS)
    xupc.init(timeout=30)
    c = Collisions()
    threads = range(xupc.THREADS)
    turn = itertools.cycle(ALGORITHMS.items())
    meeting = itertools.cycle(MEETING)
    for name, odd in itertools.product(names, threads):
        for _ in range(times):
            (algorithm, flag), sync = next(turn), next(meeting)
            c.arguments(name, flag | SYNC[sync], odd, (name, algorithm, *sync))
    for odd in threads:
        for _ in range(times):
            (algorithm, flag), sync = next(turn), next(meeting)
            c.kinds(flag | SYNC[sync], odd, ("kinds", algorithm, *sync))
        c.others(odd)
    c.ties()
    values_that_match()
    apart = itertools.cycle(APART)
    for name, odd in itertools.product(names, threads):
        (algorithm, flag), sync = next(turn), next(apart)
        c.later(name, flag | SYNC[sync], odd, (name, algorithm, *sync), every=3 // times)
    nothing_is_left_over()
    at_the_end(c)
    done(c.count)


def nothing_is_left_over() -> None:
    """A message of a call that was given up would one day be taken for a later call's."""
    xupc.barrier()
    MPI.COMM_WORLD.Barrier()
    comm, status = xupc.init().job.link.comm, MPI.Status()
    assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status), (
        f"a message from thread {status.Get_source()}, tag {status.Get_tag() & 0x7FFF:#x}"
    )
    MPI.COMM_WORLD.Barrier()


def at_the_end(c: Collisions) -> None:
    """The last chance to find a difference is finalize; it can be called again then."""
    if xupc.MYTHREAD == xupc.THREADS - 1:
        xupc.all_broadcast(c.B, c.A, 8, SYNC["NOSYNC", "NOSYNC"] | xupc.PULL)
    raises(CollectiveMismatchError, ("finalize",), xupc.finalize)
    c.usable("finalize")


main()
