"""`all_alloc` with a shape: a grid whose rows are dealt over the threads."""

from __future__ import annotations

from typing import Any

import numpy as np

import xupc


def refused(words: str, kind: type[Exception], call: Any) -> None:
    """Make a call that raises on this thread."""
    try:
        call()
    except kind as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"no error: {words}")


with xupc.init() as team:
    T, me = xupc.THREADS, xupc.MYTHREAD
    A = xupc.all_alloc((2 * T + 1, 5), np.float64)
    assert A.shape == (2 * T + 1, 5)
    A.local[:] = me
    xupc.barrier()
    rows = 3 if T < 3 else -(-(2 * T + 1) // T)
    assert np.array_equal(A[:], np.repeat(np.arange(2 * T + 1) // rows, 5).reshape(-1, 5))
    assert A[-1, 4] == 2 * T // rows
    xupc.barrier()
    total = xupc.all_alloc(1, np.float64)
    xupc.all_reduce(total, A, xupc.ADD)
    assert total[0] == (np.arange(2 * T + 1) // rows * 5).sum()
    B = xupc.all_alloc((3, 4), "i4", None, team=team.split(0, -me))
    assert B.local.shape == ((3, 4) if me == T - 1 else (0, 4))
    assert xupc.all_alloc((7,), blocksize=2).blocksize == 2
    if me == 0:
        one: Any
        for one in (xupc.alloc, xupc.global_alloc):
            refused("a pointer has no shape", TypeError, lambda one=one: one((3, 4)))
    refused("whole rows", ValueError, lambda: xupc.all_alloc((3 * T, 4), "i4", 1))
    refused("expected an integer for pointers", TypeError,
            lambda: xupc.all_alloc((3, 4), xupc.pointer_dtype))  # fmt: skip
    if T > 1:
        shape = (4, 3) if me else (3, 4)
        refused("nelems differs", xupc.CollectiveMismatchError, lambda: xupc.all_alloc(shape))
    print("done")
