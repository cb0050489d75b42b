"""Copies of pointers whose memory was freed, and pointers kept in arrays: ``... CASE``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from support.cases import case, run_case
from support.checked_calls import raises

import xupc

team = xupc.init(timeout=20)
me, T = xupc.MYTHREAD, xupc.THREADS
right = (me + 1) % T


def copy(p: Any) -> Any:
    return pickle.loads(pickle.dumps(p))


def refused(call: Callable[[], object], *words: str) -> None:
    raises(ValueError, words, call)


def split() -> Any:
    part = team.split(0)
    assert part is not None
    return part


@case
def pointers_in_an_array() -> None:
    sub, other = split(), split()
    P = xupc.all_alloc(T * 4, xupc.pointer_dtype, 1, team=sub)
    W = xupc.all_alloc(T, np.int64, 1)
    C = xupc.all_alloc(T, np.int64, 1, team=other)
    p = xupc.alloc(1, np.int64)
    W.local[:], C.local[:], p[0] = 100 + me, 500 + me, 900 + me
    for k, q in enumerate((W + me, C + me, p)):
        P[k * T + me] = q
    xupc.barrier()
    for k in range(3):
        q = P[k * T + right].cast(np.int64)
        assert q[0] == 100 + 400 * k + right, (k, q)
        q[0] = k
    xupc.barrier()
    assert (W[me], C[me], p[0]) == (0, 1, 2)
    for offset in (1 << 40, 5000 << 46):
        P[3 * T + me] = W + right
        numbers = P.local[3:]
        for name in ("addr", "offset"):
            numbers[name] = offset
        refused(lambda: P[3 * T + me].cast(np.int64)[0])


@case
def freed_twice() -> None:
    p = xupc.allv_broadcast(xupc.global_alloc(16, np.int64) if me == 0 else None, 0)
    xupc.barrier()
    if me == 1:
        xupc.free(p)
        refused(lambda: xupc.free(copy(p)), "free: ", "freed")
    xupc.barrier()
    refused(lambda: xupc.all_free(copy(p)), "all_free: ", "freed")
    xupc.barrier()
    a, b = xupc.alloc(64), xupc.alloc(64)
    stale = copy(b)
    record = pickle.dumps(b)
    xupc.free(b)
    xupc.free(a)
    q = xupc.alloc(4096)
    q[0:4096] = np.full(4096, 7, "u1")
    refused(lambda: xupc.free(stale), "free: ", "freed")
    refused(lambda: xupc.free(pickle.loads(record)), "free: ", "freed")
    again = xupc.alloc(64)
    refused(lambda: xupc.free(pickle.loads(record)), "free: ", "freed")
    assert (q[0:4096] == 7).all()
    xupc.free(copy(q))
    refused(lambda: xupc.free(q), "free: ", "freed")
    xupc.barrier()
    del again


@case
def memory_of_a_freed_team() -> None:
    sub = split()
    A = xupc.all_alloc(T, np.int64, 1, team=sub)
    B = xupc.all_alloc(T, np.int64, 1, team=sub)
    P = xupc.all_alloc(2 * T, xupc.pointer_dtype, 1)
    P[me], P[T + me] = A + me, B + right
    record = pickle.dumps(A + me)
    assert pickle.loads(record)[0] == 0
    q = pickle.loads(pickle.dumps(B + right))
    xupc.barrier()
    assert P[me].cast(np.int64)[0] == 0
    xupc.all_free(A)
    refused(lambda: pickle.loads(record)[0], "freed")
    refused(lambda: P[me].cast(np.int64)[0], "freed")
    assert (q[0], P[T + me].cast(np.int64)[0]) == (0, 0)
    xupc.barrier()
    sub.free()
    refused(lambda: q[0], "freed")
    refused(lambda: B[right], "freed")
    refused(lambda: (B + right)[0], "freed")
    refused(lambda: xupc.memset(q, 1, 8), "freed")
    refused(lambda: P[T + me], "team")
    xupc.barrier()


run_case()
print("done: all", flush=True)
