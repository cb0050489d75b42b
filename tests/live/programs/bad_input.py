"""Every argument error: on all threads, and on each thread alone, with correct calls after each.

A thread whose own arguments are bad raises the error for them; the others, if theirs are good,
raise CollectiveMismatchError.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from support.checked_calls import ALGORITHMS, FUNCTIONS, IN_PLACE, SYNC, Usable, done, raises

import xupc
from xupc import AffinityError, CollectiveMismatchError, FlagError, OverlapError

Case = tuple[str, type[BaseException], tuple[str, ...], Callable[[], Any]]
PART = 1024
FOREIGN = ">i4" if np.little_endian else "<i4"


class Bad:
    """Runs bad calls and checks which thread raises what."""

    def __init__(self) -> None:
        T = xupc.THREADS
        self.A = xupc.all_alloc(PART * T, "u1", PART)
        self.B = xupc.all_alloc(PART * T, "u1", PART)
        self.freed = xupc.all_alloc(PART * T, "u1", PART)
        xupc.all_free(self.freed)
        self.one = xupc.all_alloc(PART, "u1", 0)
        self.usable = Usable()
        self.turn = itertools.cycle(range(T))
        self.count = 0

    def of(self, name: str, method: str = "__call__") -> Callable[..., Any]:
        """The collective as a function of dst, src, nbytes and flags."""
        f = getattr(FUNCTIONS[name], method)
        if name in IN_PLACE:
            return lambda dst, src, *rest, **more: f(dst, *rest, **more)
        if name == "permute":
            return lambda dst, src, *rest, **more: f(dst, src, range(xupc.THREADS), *rest, **more)
        return f  # type: ignore[no-any-return]

    def run(self, cases: list[Case], good: Callable[[], Any], what: object) -> None:
        """Each case on every thread, then on one thread while the others make the good call."""
        me = xupc.MYTHREAD
        for name, kind, words, bad in cases:
            self.count += 1
            raises(kind, words, bad, (what, name, "on every thread"))
            self.usable.some((what, name, "on every thread"))
            if xupc.THREADS == 1:
                continue
            odd = next(self.turn)
            where = what, name, f"on thread {odd} alone"
            if me == odd:
                raises(kind, words, bad, where)
            else:
                raises(CollectiveMismatchError, (f"thread {odd}: {kind.__name__}",), good, where)
            self.usable.some(where)

    def collective(self, name: str, flags: int) -> None:
        """The arguments of one collective."""
        f, A, B, T = self.of(name), self.A, self.B, xupc.THREADS
        call = f"all_{name}"
        two = name not in IN_PLACE
        to = "dst" if two else "buf"
        transforms = name in ("gather_all", "exchange", "permute")  # src None or dst: in place
        cases: list[Case] = [
            (f"nbytes {n!r}", kind, (call, "nbytes"), lambda n=n: f(B, A, n, flags))
            for n, kind in [
                (0, ValueError),
                (-1, ValueError),
                (PART + 1, ValueError),
                (1 << 63, ValueError),
                (1 << 80, ValueError),
                (-(1 << 63), ValueError),
                (8.0, TypeError),
                (True, TypeError),
                (None, TypeError),
                ("8", TypeError),
                ([8], TypeError),
            ]
        ]
        for argument, other in ((to, A), ("src", B))[: 1 + two]:
            for x in (None, np.zeros(PART, "u1"), [1, 2], 0, "dst", bytearray(8)):
                if x is None and argument == "src" and transforms:
                    continue
                operands = (x, other) if argument == to else (other, x)
                cases.append(
                    (
                        f"{argument} {type(x).__name__}",
                        TypeError,
                        (call, argument),
                        lambda o=operands: f(*o, 8, flags),
                    )
                )
        F = self.freed
        end, beyond = A.ptr(len(A)), (A + PART - 4).cast("u1", 0) + 1
        before = A.ptr(0).cast("u1", 0) - 1
        cases += [
            ("dst freed", ValueError, (call, to, "freed"), lambda: f(F, A, 8, flags)),
            ("dst at the end", ValueError, (call, to), lambda: f(end, B, 8, flags)),
            ("dst beyond", ValueError, (call, to), lambda: f(beyond, B, 8, flags)),
            ("team", TypeError, (call, "team"), lambda: f(B, A, 8, flags, team=3)),
        ]
        apart: list[Case] = [
            ("src freed", ValueError, (call, "src", "freed"), lambda: f(B, F, 8, flags)),
            ("src at the end", ValueError, (call, "src"), lambda: f(B, end, 8, flags)),
            ("src beyond", ValueError, (call, "src"), lambda: f(B, beyond, 8, flags)),
            ("src before", ValueError, (call, "src"), lambda: f(B, before, 8, flags)),
            ("overlap", OverlapError, (call, "overlap"), lambda: f(A, A + 1, 8, flags)),
            ("overlap by one", OverlapError, (call,), lambda: f(A + 7, A, 8, flags)),
        ]
        cases += apart if two else []
        if not two and T > 1:
            cases.append(("one part", ValueError, (call, to), lambda: f(self.one, A, 8, flags)))
        far = B + PART * (T - 1)
        if T > 1 and two and name != "gather":
            cases.append(
                ("dst", AffinityError, (call, "dst", "thread 0"), lambda: f(far, A, 8, flags))
            )
        if T > 1 and name in ("gather", "gather_all", "exchange", "permute"):
            cases.append(
                ("src", AffinityError, (call, "src", "thread 0"), lambda: f(A, far, 8, flags))
            )
        self.run(cases, lambda: f(B, A, 8, flags), name)
        f(B, A, np.int64(8), xupc.Flags(flags), team=xupc.init())
        f(A + 8 * T, A, 8, flags)  # beside each other is no overlap

    def lists(self, flags: int) -> None:
        """Lists that are no permutation."""
        f, A, B, T = xupc.all_permute, self.A, self.B, xupc.THREADS
        good = list(range(T))
        kinds: list[tuple[Any, type[BaseException], tuple[str, ...]]] = [
            (None, TypeError, ("perm", "sequence")),
            (3, TypeError, ("perm", "sequence")),
            ("01", TypeError, ("perm", "sequence")),
            (np.zeros(T), TypeError, ("perm",)),
            (np.zeros((T, 1), "i4"), TypeError, ("perm",)),
            (np.ones(T, "?"), TypeError, ("perm",)),
            ([*good, T], ValueError, ("perm", f"got {T + 1}")),
            ([], ValueError, ("perm", "got 0")),
            ([*good[:-1], 1.0], TypeError, (f"perm[{T - 1}]", "1.0")),
            ([True, *good[1:]], TypeError, ("perm[0]", "True")),
            ([*good[:-1], T], ValueError, (f"perm[{T - 1}] is {T}",)),
            ([-1, *good[1:]], ValueError, ("perm[0] is -1",)),
            ([1 << 80, *good[1:]], ValueError, ("perm[0]", str(1 << 80))),
            (self.freed, ValueError, ("perm", "freed")),
            (xupc.all_alloc(T, "f8"), TypeError, ("perm", "float64")),
            (xupc.all_alloc(T, "i4").ptr(1), ValueError if T == 1 else AffinityError, ("perm",)),
            (B, OverlapError, ("perm", "overlap")),
        ]
        if T > 1:
            kinds.append(([0, *good[:-1]], ValueError, ("perm[1] is 0", "perm[0]")))
            kinds.append((xupc.all_alloc(T - 1, "i4"), ValueError, ("perm", "beyond")))
        cases: list[Case] = [
            (f"perm {x!r}", kind, ("all_permute", *words), lambda x=x: f(B, A, x, 8, flags))
            for x, kind, words in kinds
        ]
        self.run(cases, lambda: f(B, A, good, 8, flags), "permute")
        shared = xupc.all_alloc(2 * T, "u8", 1)
        for spoilt, value in ((0, T), (T - 1, 1 << 63), (T - 1, 0)):
            shared.local[:] = xupc.MYTHREAD
            if spoilt == value:
                continue
            xupc.barrier()
            if spoilt == xupc.MYTHREAD:
                shared.local[1] = value
            if not flags & xupc.IN_ALLSYNC:
                xupc.barrier()
            words = "all_permute", f"perm[{spoilt}] is {value}"
            for call in (f, f.plan):
                raises(ValueError, words, lambda c=call: c(B, A, shared + T, 8, flags), words)
                self.usable(words)
            f(B, A, shared, 8, flags)
            xupc.barrier()

    def flags(self, name: str) -> None:
        """Flags that contradict each other, or are none."""
        f, A, B = self.of(name), self.A, self.B
        call = f"all_{name}"
        pairs = [
            *itertools.combinations((xupc.PULL, xupc.PUSH, xupc.MULTICORE), 2),
            *itertools.combinations((xupc.IN_NOSYNC, xupc.IN_MYSYNC, xupc.IN_ALLSYNC), 2),
            *itertools.combinations((xupc.OUT_NOSYNC, xupc.OUT_MYSYNC, xupc.OUT_ALLSYNC), 2),
        ]
        cases: list[Case] = [
            (f"{a!r} and {b!r}", FlagError, (call, "flags"), lambda x=a | b: f(B, A, 8, x))
            for a, b in pairs
        ]
        cases += [
            (f"flags {x!r}", FlagError, (call, "flags"), lambda x=x: f(B, A, 8, x))
            for x in (1 << 13, 1 << 40, 1 << 70)
        ]
        cases += [
            (f"flags {x!r}", TypeError, (call, "flags"), lambda x=x: f(B, A, 8, x))
            for x in (None, "PULL", 64.0, True)
        ]
        cases.append(
            ("a bad plan", ValueError, ("nbytes",), lambda: self.of(name, "plan")(B, A, 0)),
        )
        self.run(cases, lambda: f(B, A, 8), (name, "flags"))

    def signature(self) -> None:
        """Check calls that Python itself refuses."""
        for call in (
            lambda: xupc.all_broadcast(self.B, self.A),
            lambda: xupc.all_broadcast(),
            lambda: xupc.all_broadcast(self.B, self.A, 8, 0, None),
            lambda: xupc.all_broadcast(self.B, self.A, 8, colour=3),
            lambda: xupc.all_alloc(),
        ):
            raises(TypeError, (), call)
            self.usable("a wrong signature")
        for value in (1.5, object(), {"a", "b"}, b"x"):
            raises(TypeError, ("barrier", "value"), lambda v=value: xupc.barrier(v), value)
            self.usable(value)
        self.run([("2 values", TypeError, ("barrier",), lambda: xupc.barrier(1, 2))],
                 xupc.barrier, "barrier")  # fmt: skip
        xupc.barrier(np.int64(3) if xupc.MYTHREAD else 3)

    def allocation(self) -> None:
        """all_alloc, alloc, global_alloc, all_free."""
        f = xupc.all_alloc
        cases: list[Case] = [
            (f"nelems {n!r}", kind, ("all_alloc", "nelems"), lambda n=n: f(n))
            for n, kind in [
                (-1, ValueError),
                (1 << 63, ValueError),
                (1 << 80, ValueError),
                (1.5, TypeError),
                (None, TypeError),
                ("8", TypeError),
                (True, TypeError),
                (xupc.PULL, TypeError),
                (xupc.ADD, TypeError),
            ]
        ]
        cases += [
            (f"dtype {d!r}", TypeError, (), lambda d=d: f(8, d))
            for d in (object, FOREIGN, None, ("i4", (2,)), "U0", "nope")
        ]
        cases += [
            (f"blocksize {b!r}", kind, (), lambda b=b: f(8, "i4", b))
            for b, kind in [(-1, ValueError), (1.5, TypeError), (True, TypeError)]
        ]
        cases.append(("team", TypeError, ("all_alloc", "team"), lambda: f(8, team=5)))
        self.run(cases, lambda: f(8, "i4"), "all_alloc")
        at_free: list[Case] = [
            ("freed", ValueError, ("all_free", "freed"), lambda: xupc.all_free(self.freed)),
            ("None", TypeError, ("all_free",), lambda: xupc.all_free(None)),
            ("middle", ValueError, ("all_free", "start"), lambda: xupc.all_free(self.A + 1)),
        ]
        self.run(at_free, lambda: xupc.all_free(self.B), "all_free")
        for function in (xupc.alloc, xupc.global_alloc):
            name = function.__name__
            raises(ValueError, (name, "nelems"), lambda f=function: f(-1))
            raises(TypeError, (name, "nelems"), lambda f=function: f("8"))
            raises(TypeError, (name, "nelems"), lambda f=function: f(xupc.PULL))
            raises(TypeError, (name,), lambda f=function: f(8, object))
            raises(xupc.HeapError, (name,), lambda f=function: f(1 << 50))
        # Not collective: an error on one thread does not concern the others.
        if xupc.MYTHREAD == 0:
            raises(ValueError, ("alloc",), lambda: xupc.alloc(-1))
        self.usable("alloc")

    def teams(self) -> None:
        """split, free, team=."""
        team, A, B = xupc.init(), self.A, self.B
        cases: list[Case] = [
            (f"split{args}", kind, ("split", word), lambda args=args: team.split(*args))
            for args, kind, word in [
                (("0",), TypeError, "color"),
                ((0.5,), TypeError, "color"),
                ((1 << 63,), ValueError, "color"),
                ((0, None), TypeError, "key"),
                ((0, -(1 << 70)), ValueError, "key"),
            ]
        ]
        self.run(cases, lambda: team.split(0), "split")
        raises(ValueError, ("finalize",), team.free)
        raises(ValueError, ("predefined",), team.node.free)
        part = team.split(0 if max(1, xupc.THREADS - 1) > xupc.MYTHREAD else 1)
        assert part is not None
        if xupc.THREADS > 2:
            elsewhere = next(t for t in range(xupc.THREADS) if t not in part.threads)
            there = A + elsewhere * PART
            raises(AffinityError, ("src",), lambda: xupc.all_broadcast(B, there, 8, team=part))
            own = xupc.all_alloc(8 * part.size, "u1", 8, team=part)
            raises(
                ValueError, ("nelems",), lambda: xupc.all_reduce_all(own, A, xupc.ADD, team=part)
            )
            xupc.all_free(own)
        part.free()
        raises(ValueError, ("freed",), part.barrier)
        raises(ValueError, ("freed",), lambda: xupc.all_broadcast(B, A, 8, team=part))
        self.usable("teams")

    def without_synchronising(self) -> None:
        """NOSYNC calls raise at once, and what only one thread raised is found later."""
        f, A, B = xupc.all_broadcast, self.A, self.B
        flags = SYNC["NOSYNC", "NOSYNC"] | xupc.PULL
        for odd in range(xupc.THREADS):
            raises(ValueError, ("nbytes",), lambda: f(B, A, 0, flags))
            xupc.barrier()
            self.usable("NOSYNC, bad on every thread")
            if xupc.THREADS == 1:
                continue
            if odd == xupc.MYTHREAD:
                raises(ValueError, ("nbytes",), lambda: f(B, A, 0, flags))
            else:
                f(B, A, 8, flags)
            raises(CollectiveMismatchError, (), xupc.barrier, ("NOSYNC", odd))
            self.usable(("NOSYNC, bad on one thread", odd))


def main() -> None:
    xupc.init(timeout=30)
    bad = Bad()
    syncs = itertools.cycle(sync for sync in SYNC if "ALLSYNC" in sync)
    for name, flag in zip(FUNCTIONS, itertools.cycle(ALGORITHMS.values()), strict=False):
        bad.collective(name, SYNC[next(syncs)] | flag)
        bad.flags(name)
    for into, out in (("ALLSYNC", "ALLSYNC"), ("ALLSYNC", "NOSYNC"), ("MYSYNC", "ALLSYNC")):
        bad.lists(SYNC[into, out])
    bad.signature()
    bad.allocation()
    bad.teams()
    bad.without_synchronising()
    done(bad.count)


main()
