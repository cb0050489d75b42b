"""Reductions whose calls differ, whose arguments are bad, whose functions raise.

Each raises an error on every thread, and correct calls work after it. Arguments: which, with commas
between ("mismatch,bad,func"), and every how many cases.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from reduction_cases import FORMS
from support.checked_calls import ALGORITHMS, SYNC, Usable, done, raises

import xupc
from xupc import AffinityError, CollectiveMismatchError, FlagError, Op, OverlapError

PART = 512
Call = Callable[[], Any]
MEETING = itertools.cycle(sync for sync in SYNC if "ALLSYNC" in sync)
AT_ONCE = itertools.cycle(sync for sync in SYNC if sync[1] == "ALLSYNC")
LATER = itertools.cycle(sync for sync in SYNC if sync[1] != "ALLSYNC")
WAYS = itertools.cycle(ALGORITHMS.values())


def add(a: Any, b: Any) -> Any:
    """A function."""
    return a + b


def add_of_set(a: Any, b: Any) -> Any:
    """The same; the order of the set's elements is another one on every thread."""
    return a + b if "sum" in {"sum", "total", "all", ("more", b"bytes", 7)} else a


def add_too(a: Any, b: Any) -> Any:
    """The same under another name."""
    return a + b


def twins() -> list[Callable[..., Any]]:
    """The same name and module, another code."""
    out = []
    for text in ("def f(a, b): return a + b", "def f(a, b): return a - b"):
        names: dict[str, Any] = {"__name__": "twins"}
        exec(text, names)
        out.append(names["f"])
    return out


class BadError(Exception):
    """Cannot be pickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"bad {a} {b}")


class SilentError(Exception):
    """Has no text to give."""

    def __str__(self) -> str:
        raise ValueError("in str")


class Trouble:
    """Arrays, and correct calls between the bad ones."""

    def __init__(self) -> None:
        T = xupc.THREADS
        self.A = xupc.all_alloc(PART * T, "i4", 8)
        self.B = xupc.all_alloc(PART * T, "i4", 8)
        self.F = xupc.all_alloc(PART * T, "f8", 8)
        self.G = xupc.all_alloc(PART * T, "f8", 8)
        self.pairs = xupc.all_alloc(PART * T, "f4,i4", 8)
        self.more = xupc.all_alloc(PART * T, "f4,i4", 8)
        self.records = xupc.all_alloc(PART * T, "f4,f4,i4", 8)
        self.long = xupc.all_alloc(PART * T, "300u1,i4", 8)
        self.freed = xupc.all_alloc(PART * T, "i4", 8)
        xupc.all_free(self.freed)
        self.A.local[:] = 1
        self.others = Usable()
        self.count = 0
        xupc.barrier()

    def usable(self, what: object) -> None:
        """A reduction of each kind, then all else now and then."""
        T = xupc.THREADS
        n = 8 * T - 3
        self.A.local[:] = 1  # a call that differed may have written there
        xupc.all_reduce_all(self.B, self.A, Op.ADD, n)
        assert self.B.local[0] == n, what
        xupc.barrier()
        func = (add, add_of_set)[self.count % 2]
        xupc.all_reduce(self.B + 8 * (T - 1), self.A, Op.NONCOMM_FUNC, n, func=func)
        assert self.B[8 * (T - 1)] == n, what
        xupc.barrier()
        if self.count % 10 == 0:
            self.others(what)

    # -- calls that differ ----------------------------------------------------------------
    def collide(self, odd: int, call: Call, strange: Call, words: tuple[str, ...]) -> None:
        """Thread `odd` makes the strange call."""
        self.count += 1
        named = f"thread {odd}" if xupc.THREADS > 2 else "thread 0"
        mine = strange if odd == xupc.MYTHREAD else call
        raises(CollectiveMismatchError, (named, *words), mine, (*words, odd))
        self.usable((words, odd))

    def differences(self, form: str, odd: int) -> None:
        """Each argument."""
        f, A, B, T = FORMS[form], self.A, self.B, xupc.THREADS
        flags = SYNC[next(MEETING)] | xupc.PUSH
        one, other = twins()
        user = Op.NONCOMM_FUNC

        def call(func: Any) -> Call:
            return lambda: f(B, A, user, 24, func=func, flags=flags)

        def usual() -> None:
            f(B, A, Op.ADD, 24, 8, None, flags)

        cases: list[tuple[Call, Call, tuple[str, ...]]] = [
            (usual, lambda: f(B, A, Op.MULT, 24, 8, None, flags), ("op", "ADD", "MULT")),
            (usual, lambda: f(B, A, Op.ADD, 25, 8, None, flags), ("nelems", "24", "25")),
            (usual, lambda: f(B, A, Op.ADD, 24, 4, None, flags), ("blk_size", "8", "4")),
            (usual, lambda: f(B, A, Op.ADD, 24, 8, None, flags ^ 3 << 6), ("flags", "PULL")),
            (usual, lambda: f(B + 8 * T, A, Op.ADD, 24, 8, None, flags), ("dst", "offset")),
            (usual, lambda: f(B, A + 8, Op.ADD, 24, 8, None, flags), ("src", "offset")),
            (usual, lambda: f(self.G, self.F, Op.ADD, 24, 8, None, flags), ("dst", "offset")),
            (usual, lambda: f(A, B, Op.ADD, 24, 8, None, flags), ("dst", "offset")),
            (call(add), call(add_too), ("func", "add", "add_too")),
            (call(add), call(np.add), ("func", "add", "numpy.add")),
            (call(one), call(other), ("func", "twins")),
            (usual, xupc.barrier, ("different calls", "barrier")),
            (
                usual,
                lambda: xupc.all_broadcast(B, A, 8),
                ("different calls", "all_broadcast", f"all_{form}"),
            ),
            (
                usual,
                lambda: f.plan(B, A, Op.ADD, 24, 8, None, flags),
                ("different calls", f"all_{form}.plan"),
            ),
        ]
        for most, strange, words in cases:
            self.collide(odd, most, strange, words)
        views = (A + 0).cast("u4", 8), (B + 0).cast("u4", 8)
        self.collide(
            odd, usual, lambda: f(views[1], views[0], Op.ADD, 24, 8, None, flags), ("uint32",)
        )
        if form != "reduce_all":
            everywhere = form.endswith("all")
            second = next(x for x in FORMS if x != form and x.endswith("all") == everywhere)
            self.collide(
                odd, usual, lambda: FORMS[second](B, A, Op.ADD, 24, 8, None, flags),
                ("different calls", f"all_{second}"),
            )  # fmt: skip

    # -- bad arguments ---------------------------------------------------------------------
    def bad(self, form: str) -> None:
        """On every thread, and on one."""
        f, A, B, F, T = FORMS[form], self.A, self.B, self.F, xupc.THREADS
        flags = SYNC[next(MEETING)] | next(WAYS)

        def call(op: Any = Op.ADD, n: Any = 24, blk: Any = 8, func: Any = None, dst: Any = B,
                 src: Any = A, more: Any = 0) -> Call:  # fmt: skip
            return lambda: f(dst, src, op, n, blk, func, flags | more)

        floats = {"dst": self.G, "src": F}
        apart = int(form == "reduce_mpi_all" or "fix" in form)  # the same place: in place
        cases: list[tuple[type[BaseException], tuple[str, ...], Call]] = [
            *((TypeError, ("op", op.name), call(op, **floats)) for op in (Op.AND, Op.OR, Op.XOR)),
            *((TypeError, ("op", op.name, "value", "index"), call(op))
              for op in (Op.MINLOC, Op.MAXLOC)),
            *((TypeError, ("op", "ADD", "MINLOC", "FUNC"), call(dst=x, src=x))
              for x in (self.records, self.pairs)),
            (TypeError, ("op", "MINLOC", "value", "index"),
             call(Op.MINLOC, dst=self.records, src=self.records)),
            (ValueError, ("func", "MAXLOC"),
             call(Op.MAXLOC, func=add, dst=self.pairs, src=self.pairs)),
            (TypeError, ("func", "add is not for records"),
             call(Op.FUNC, func=np.add, dst=self.pairs, src=self.pairs)),
            (TypeError, ("256 bytes",), call(Op.FUNC, func=add, dst=self.long, src=self.long)),
            *((TypeError, ("op",), call(op)) for op in (None, "ADD", 0, 99, 1.0)),
            (ValueError, ("func",), call(Op.FUNC)),
            (ValueError, ("func",), call(Op.NONCOMM_FUNC)),
            (ValueError, ("func",), call(Op.ADD, func=add)),
            (TypeError, ("func",), call(Op.FUNC, func=5)),
            (TypeError, ("func",), call(Op.FUNC, func=np.negative)),
            *((ValueError, ("nelems",), call(n=n)) for n in (0, -1)),
            (ValueError, ("src",), call(n=PART * T + 1)),
            (ValueError, ("src",), call(n=1 << 40)),
            *((TypeError, ("nelems",), call(n=n)) for n in (2.0, "3", True, [4])),
            (ValueError, ("blk_size",), call(blk=-1)),
            *((TypeError, ("blk_size",), call(blk=b)) for b in (2.0, "3", True)),
            (TypeError, ("dst", "float64", "int32"), call(dst=F)),
            (TypeError, ("dst",), call(dst=None)),
            (TypeError, ("src",), call(src=np.zeros(9, "i4"))),
            (ValueError, ("dst", "freed"), call(dst=self.freed)),
            (ValueError, ("src", "freed"), call(src=self.freed)),
            (OverlapError, ("overlap",), call(src=B, dst=B + apart)),
            (OverlapError, ("overlap",), call(src=B + 0, dst=B + apart)),
            (ValueError, ("dst",), call(dst=B.ptr(len(B)))),
            (ValueError, ("nelems",), call(n=None, src=A + 0)),
            (FlagError, ("flags",), call(more=(xupc.PULL | xupc.PUSH | xupc.MULTICORE))),
            (TypeError, ("flags",), lambda: f(B, A, Op.ADD, 24, 8, None, "PULL")),
        ]
        if "mpi" in form:
            cases.append((ValueError, ("src", "phase"), call(src=A + 3)))
        else:
            cases.append((ValueError, ("blk_size", "phase"), call(blk=3, src=A + 3)))
        if "fix" in form:
            cases.append((ValueError, ("blk_size", "phase"), call(blk=3, dst=B + 5)))
            cases.append((ValueError, ("dst",), call(dst=B.ptr(len(B) - 16))))
        if form.endswith("all") and T > 1:
            cases.append((AffinityError, ("dst", "affinity"), call(dst=B + 8)))
        for k, (kind, words, bad) in enumerate(cases):
            self.count += 1
            what = form, kind.__name__, words, k
            raises(kind, (f"all_{form}", *words), bad, what)
            self.usable(what)
            odd = self.count % T
            if T == 1 or k % 3:
                continue
            if odd == xupc.MYTHREAD:
                raises(kind, words, bad, what)
            else:
                named = f"thread {odd}: {kind.__name__}"
                raises(CollectiveMismatchError, (named,), call(), what)
            self.usable((*what, "on one thread"))

    # -- functions that raise ------------------------------------------------------------
    def raising(self, form: str, odd: int) -> None:
        """Only thread `odd`'s function does."""
        f, A, B, T, me = FORMS[form], self.A, self.B, xupc.THREADS, xupc.MYTHREAD

        def fails(error: Callable[[], Exception]) -> Callable[..., Any]:
            def function(a: Any, b: Any) -> Any:
                called.append(me)
                if me == odd:
                    raise error()
                return a

            return function

        called: list[int] = []
        errors: list[tuple[Callable[[], Exception], type[BaseException]]] = [
            (lambda: ZeroDivisionError("zero"), ZeroDivisionError),
            (lambda: BadError(1, 2), BadError),
        ]
        for (error, kind), at_once in itertools.product(errors, (True, False)):
            self.count += 1
            flags = SYNC[next(AT_ONCE if at_once else LATER)] | next(WAYS)
            function = fails(error)
            what = form, kind.__name__, odd, xupc.Flags(flags)
            called.clear()
            hit: list[BaseException] = []
            try:
                f(B, A, Op.NONCOMM_FUNC, 24 * T, func=function, flags=flags)
                if not at_once:
                    xupc.barrier()
            except Exception as e:
                hit.append(e)
            involved = MPI_any(me == odd and bool(called))
            if not involved:  # this thread's function was not needed
                assert not hit, (what, hit)
                self.usable(what)
                continue
            assert len(hit) == 1, what
            local = me == odd
            expected = (kind,) if local or kind is not BadError else (kind, xupc.XupcError)
            assert type(hit[0]) in expected, (what, hit)
            notes = " ".join([*getattr(hit[0], "__notes__", ()), str(hit[0])])
            assert f"all_{form} on thread {odd}" in notes, (what, notes)
            assert ("zero" if kind is ZeroDivisionError else "bad 1 2") in str(hit[0]), (what, hit)
            self.usable(what)

    def odd_errors(self, form: str, odd: int) -> None:
        """Of those that would end a generator on their way, and those that have no text."""
        f, A, B, T = FORMS[form], self.A, self.B, xupc.THREADS
        errors: list[tuple[Exception, type[BaseException], str]] = [
            (StopIteration("mine"), RuntimeError, "raised StopIteration('mine')"),
            (SilentError(), SilentError, ""),
        ]
        for error, kind, words in errors:
            self.count += 1
            called: list[int] = []

            def function(a: Any, b: Any, error: Exception = error, called: Any = called) -> Any:
                called.append(1)
                if odd == xupc.MYTHREAD:
                    raise error
                return a

            hit: Exception | None = None
            try:
                f(B, A, Op.NONCOMM_FUNC, 24 * T, func=function)
            except Exception as e:
                hit = e
            assert hit is not None or not (odd == xupc.MYTHREAD and called), (form, kind)
            if hit is not None:
                assert type(hit) in (kind, xupc.XupcError), (form, kind, type(hit))
                assert type(hit) is SilentError or words in str(hit), (form, kind, str(hit))
            self.usable((form, kind))

    def wrong_results(self, form: str) -> None:
        """What a function returns must be one value of the type, or an array like its own."""
        f, A, B, T = FORMS[form], self.A, self.B, xupc.THREADS
        for result in (None, (1, 2), np.zeros(3)):
            self.count += 1
            raises(
                TypeError, ("func",),
                lambda r=result: f(B, A, Op.FUNC, 24 * T, func=lambda a, b: r), (form, result),
            )  # fmt: skip
            self.usable(form)
        for result in ("x", object()):
            raises(
                (TypeError, ValueError), (),
                lambda r=result: f(B, A, Op.FUNC, 24 * T, func=lambda a, b: r), (form, result),
            )  # fmt: skip
            self.usable(form)
        for result in (None, 5, (1,), (1, 2, 3), "x", np.zeros(2)):
            raises(
                TypeError, ("func", "expected a record"),
                lambda r=result: f(self.more, self.pairs, Op.FUNC, 24 * T,
                                   func=lambda a, b: r), (form, result),
            )  # fmt: skip
        short = xupc.vectorized(lambda a, b: a[:0])
        raises(ValueError, ("shape",), lambda: f(B, A, Op.FUNC, 24 * T, func=short), form)
        writes = xupc.vectorized(lambda a, b: a.__iadd__(b))
        raises(ValueError, ("read-only",), lambda: f(B, A, Op.FUNC, 24 * T, func=writes), form)
        self.usable(form)

    def calling_functions(self, form: str) -> None:
        """A function may read shared memory, and call nothing that all have to call."""
        f, A, B, T = FORMS[form], self.A, self.B, xupc.THREADS
        plan = xupc.all_broadcast.plan(self.G, self.F, 8)
        plan()
        xupc.barrier()
        for inner in (
            xupc.barrier, xupc.notify, plan, plan.start,
            lambda: xupc.all_broadcast(self.G, self.F, 8),
            lambda: xupc.allv_reduce_all(1, Op.ADD), lambda: xupc.all_alloc(8),
            lambda: xupc.init().split(0), xupc.init().barrier,
        ):  # fmt: skip
            def func(a: Any, b: Any, inner: Call = inner) -> Any:
                inner()
                return a + b

            self.count += 1
            words = ("not allowed in a function",)
            raises(xupc.XupcError, words, lambda func=func: f(B, A, Op.FUNC, 24 * T, func=func))
            self.usable((form, inner))
        f(B, A, Op.FUNC, 24 * T, func=lambda a, b: a + b + A[0] - A[8])

    def calls_of_functions(self, form: str) -> None:
        """At most two for each element on a thread, together hardly more than needed."""
        f, A, B, T = FORMS[form], self.A, self.B, xupc.THREADS
        for flag, block in itertools.product(ALGORITHMS.values(), (8, 1, 0, 64)):
            calls = [0]

            def count(a: Any, b: Any, calls: list[int] = calls) -> Any:
                calls[0] += 1
                return a + b

            n = 64 * T
            f(B, A, Op.NONCOMM_FUNC, n, block, count, flag)
            where = n if block == 0 else n // T
            # what is joined on the way: one value of each thread for each result or row
            rows = max(1, n // (block * T)) if block else 1
            width = block if "mpi" in form else rows
            most = 2 * where + 2 * width * (T.bit_length() + 1)
            total = MPI_sum(calls[0])
            assert calls[0] <= max(most, n), (form, flag, block, calls, most)
            assert total <= 2 * n + 2 * T * width * (T.bit_length() + 1), (form, flag, block, total)
            xupc.barrier()


def MPI_any(value: bool) -> bool:
    """Return whether `value` is true on any thread."""
    return bool(MPI_sum(int(value)))


def MPI_sum(value: int) -> int:
    """Return the sum of `value` over all threads."""
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.allreduce(value))


def main() -> None:
    xupc.init(timeout=30)
    kinds, every = sys.argv[1].split(","), int(sys.argv[2])
    trouble = Trouble()
    T = xupc.THREADS
    odds = sorted({0, T // 2, T - 1})
    for what, (k, form) in itertools.product(kinds, enumerate(FORMS)):
        if what == "mismatch":
            for odd in odds[k % every :: every]:
                trouble.differences(form, odd)
        elif what == "bad":
            if k % every == 0:
                trouble.bad(form)
        else:
            for odd in odds[k % every :: every]:
                trouble.raising(form, odd)
            trouble.odd_errors(form, odds[k % len(odds)])
            trouble.wrong_results(form)
            trouble.calling_functions(form)
            trouble.calls_of_functions(form)
    done(trouble.count)


main()
