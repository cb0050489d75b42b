"""Sizes that differ between threads in `_v` calls on private arrays, and wrong arguments of one.

Every thread must get an error before anything moves, and the next call must work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import xupc

FILL = 7.0


class Raises:
    """An integer whose value cannot be had."""

    def __index__(self) -> int:
        raise ZeroDivisionError("asked")


def arrays(n: int = 4) -> tuple[Any, Any]:
    """Return a dst with room for n elements of each thread, and a src of n elements."""
    return np.full(n * xupc.THREADS, FILL), np.arange(float(n))


def raises(kind: type[Exception], words: str, call: Callable[[], Any], *untouched: Any) -> None:
    """Make a call that must raise; arrays must be as before; then a good call must work."""
    try:
        handle = call()
        if handle is not None:
            handle.wait()
    except kind as e:
        assert words in str(e), f"{e}\nexpected: {words}"
    else:
        raise AssertionError(f"no error: {words}")
    assert all((x == FILL).all() for x in untouched)
    dst, src = arrays()
    xupc.allav_gather_all_v(dst, src, [4] * xupc.THREADS)
    assert (dst == np.tile(src, xupc.THREADS)).all()


def sizes_that_differ(T: int, me: int, flags: int) -> None:
    """The counts of two threads do not fit together: all threads raise the same error."""
    last, mismatch = T - 1, xupc.CollectiveMismatchError
    dst, src = arrays()
    mine = src[:3] if me == last else src
    raises(
        mismatch,
        f"allav_gather_v: thread {last} has 3 elements in src, counts[{last}] of the root "
        "(thread 0) is 4",
        lambda: xupc.allav_gather_v(dst, mine, [4] * T, 0, flags), dst,
    )  # fmt: skip
    short, row = np.full(5 if me == last else 4, FILL), np.zeros(4 * T)
    raises(
        mismatch,
        f"allav_scatter_v: thread {last} has 5 elements in dst, counts[{last}] of the root "
        "(thread 0) is 4",
        lambda: xupc.allav_scatter_v(short, row, [4] * T, 0, flags), short,
    )  # fmt: skip
    sent = [3 if me == 0 and i == last else 4 for i in range(T)]
    raises(
        mismatch,
        f"allav_exchange_v: thread 0 sends 3 elements to thread {last} (send_counts[{last}]), "
        "which expects 4 (recv_counts[0])",
        lambda: xupc.allav_exchange_v(dst, row, [4] * T, sent, flags), dst,
    )  # fmt: skip
    counts = [4] * (T - 1) + [4 if me else 3]
    raises(
        mismatch if me or T > 2 else Exception, "counts differs",
        lambda: xupc.allav_gather_all_v(dst, src, counts, flags), dst,
    )  # fmt: skip


def wrong_on_one(T: int, me: int) -> None:
    """One thread's arguments are wrong: it raises that error, the others name it."""
    dst, src = arrays()
    one = me == 0

    def case(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
        raises(kind if one else xupc.CollectiveMismatchError, words if one else "thread 0", call)

    gather_all: Any = xupc.allav_gather_all_v
    at = [4 * i for i in range(T)]
    case(ValueError, f"counts: expected {T} integers, one for each thread, got 1",
         lambda: gather_all(dst, src, [4] if one else [4] * T))  # fmt: skip
    for few in ("4", [4.0], [None]):  # a wrong type is one at any length
        case(TypeError, f"counts: expected {T} integers, one for each thread, got {few!r}",
             partial(gather_all, dst, src, few if one else [4] * T))  # fmt: skip
    case(ZeroDivisionError, "asked",
         lambda: gather_all(dst, src, [Raises() if one else 4] + [4] * (T - 1)))  # fmt: skip
    case(ZeroDivisionError, "asked",
         lambda: gather_all(dst, src, [4] * T, displs=[Raises() if one else 0, *at[1:]]),
         )  # fmt: skip
    case(ValueError, "counts[0]: expected at least 0, got -1",
         lambda: gather_all(dst, src, [-1 if one else 4] + [4] * (T - 1)))  # fmt: skip
    case(ValueError, f"dst: expected at least {4 * T} elements, the sum of counts, got 2",
         lambda: gather_all(dst[:2] if one else dst, src, [4] * T))  # fmt: skip
    out, over = [*at[:-1], 4 * T - 3], [*at[:-1], at[-1] - 1]
    case(ValueError, f"displs[{T - 1}]: expected 4 elements inside dst, which has {4 * T}",
         lambda: gather_all(dst, src, [4] * T, displs=out if one else at))  # fmt: skip
    case(xupc.OverlapError, f"blocks {T - 2} and {T - 1} of dst overlap",
         lambda: gather_all(dst, src, [4] * T, displs=over if one else at))  # fmt: skip
    case(xupc.OverlapError, "dst and src overlap",
         lambda: gather_all(dst, dst[2:6] if one else src, [4] * T))  # fmt: skip
    case(ValueError, "src: expected counts[0] = 4 elements, got 3",
         lambda: gather_all(dst, src[:3] if one else src, [4] * T))  # fmt: skip
    case(TypeError, "missing a required argument: 'counts'",
         lambda: gather_all(dst, src) if one else gather_all(dst, src, [4] * T))  # fmt: skip
    case(TypeError, "dst: expected float64 as in src, got int64",
         lambda: gather_all(dst.view("i8") if one else dst, src, [4] * T))  # fmt: skip
    row = np.zeros(4 * T)
    case(xupc.FlagError, "IN_PLACE",
         lambda: xupc.allav_exchange_v(dst, row, [4] * T, [4] * T,
                                       xupc.IN_PLACE if one else 0))  # fmt: skip


def main() -> None:
    with xupc.init():
        for flags in (0, int(xupc.ASYNC), int(xupc.PUSH)):
            sizes_that_differ(xupc.THREADS, xupc.MYTHREAD, flags)
        wrong_on_one(xupc.THREADS, xupc.MYTHREAD)
        print("done")


if __name__ == "__main__":
    main()
