"""Functions declared as pure run in the core: the only visible difference is that none is called.

Observes which Python functions are called meanwhile, in the thread that makes the call.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import xupc
from xupc import Op
from xupc.flags import MULTICORE, PULL, PUSH

scale = 2.0
told = 0


@xupc.vectorized(pure=True)
def scaled(a: Any, b: Any) -> Any:
    """Commutative; associative for these numbers."""
    return a + b + scale


@xupc.vectorized
def counted(a: Any, b: Any) -> Any:
    """The same with an effect, not declared as pure."""
    global told
    told += 1
    return a + b + scale


@xupc.vectorized(pure=True)
def product(a: Any, b: Any) -> Any:
    """Meets errors of floating point with large numbers."""
    return a * b


def calls_of(func: Any, run: Callable[[], Any]) -> int:
    """Count the calls of `func` while `run` runs."""
    found = 0

    def see(frame: Any, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and frame.f_code is func.__code__

    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Everything, on all threads."""
    global scale, told
    native = sys.argv[1] == "native"
    with xupc.init() as team:
        T, me = team.size, team.rank
        for n in (1, 7, 1000, 40_000):
            A = xupc.all_alloc(n * T, np.float64, n)
            B = xupc.all_alloc(n * T, np.float64, n)
            A.local[:] = np.arange(n) + me
            every = np.arange(n)[:, None] + np.arange(T)
            xupc.barrier()
            for flag in (0, PULL, PUSH, MULTICORE):
                for given in (1.0, 2.0, 1.0):
                    scale = given  # the same call, which now means something else
                    xupc.all_reduce_all(B, A, Op.FUNC, func=scaled, flags=flag)
                    assert B.local[0] == every.sum() + given * (n * T - 1), (n, flag, given)
                    xupc.all_reduce_mpi_all(B, A, Op.FUNC, func=scaled, flags=flag)
                    assert np.array_equal(B.local[:n], every.sum(1) + given * (T - 1))
                    xupc.all_prefix_reduce(B, A, Op.FUNC, func=scaled, flags=flag)
                    before = every.T.ravel()[: me * n + 1].sum() + given * me * n
                    assert B.local[0] == before, (n, flag, given)

                by = partial(xupc.all_reduce_mpi_all, B, A, Op.FUNC, flags=flag)
                by(func=scaled)
                called = xupc.allv_reduce_all(calls_of(scaled, partial(by, func=scaled)), Op.ADD)
                assert called == 0 if native else called > 0 or T == 1, (n, flag, called)
                by(func=counted)
                told = 0
                by(func=counted)
                assert xupc.allv_reduce_all(told, Op.ADD) > 0 or T == 1
            xupc.barrier()
            posted(A, B, every)
            large_numbers(A, B, T)
            xupc.all_free(A)
            xupc.all_free(B)
    if me == 0:
        print("done: traced")


def posted(A: Any, B: Any, every: Any) -> None:
    """What a function looks up may change while a call with it is under way."""
    global scale
    T = xupc.THREADS
    C = xupc.all_alloc(every.size, np.float64, len(every))
    plan = partial(xupc.all_reduce_mpi_all, src=A, op=Op.FUNC, func=scaled, flags=xupc.ASYNC)
    for _ in range(5):
        scale = 1.0
        first = plan(B)
        scale = 2.0
        second = plan(C)
        xupc.wait_all([first, second])
        assert np.array_equal(C.local, every.sum(1) + 2.0 * (T - 1))
        added = B.local - every.sum(1)  # by functions of before the change and after it
        assert np.all((added >= T - 1) & (added <= 2 * (T - 1)))
    xupc.all_free(C)


def large_numbers(A: Any, B: Any, T: int) -> None:
    """An overflow has the same effect as in numpy; the function ran on each thread with results."""
    run = partial(xupc.all_reduce_mpi_all, B, A, Op.FUNC, func=product)
    A.local[:] = 1e200
    xupc.barrier()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
    assert T == 1 or np.all(np.isinf(B.local))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    assert {str(w.message) for w in caught} <= {"overflow encountered in multiply"}
    warned = xupc.allv_reduce_all(len(caught), Op.ADD)
    assert T == 1 or warned > 0
    for mode in ("raise", "warn"):
        hit: Exception | None = None
        try:
            with np.errstate(over=mode), warnings.catch_warnings():  # type: ignore[arg-type]
                warnings.simplefilter("error")
                run()
        except (FloatingPointError, RuntimeWarning, xupc.XupcError) as e:
            hit = e
        assert T == 1 or "overflow encountered in multiply" in str(hit), (mode, hit)
    A.local[:] = 2.0
    xupc.barrier()
    run()
    assert np.all(B.local == 2.0**T)


main()
