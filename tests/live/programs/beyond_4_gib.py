"""Collectives of blocks larger than 2**32 bytes, every byte of them checked. No arguments."""

from __future__ import annotations

import time

import numpy as np
from support.checked_calls import done

import xupc

EXTRA = 4099  # beyond 4 GiB, and no multiple of anything
SIZE = (1 << 32) + EXTRA
PIECE = 1 << 24


def pattern(start: int, n: int, salt: int) -> np.ndarray:
    """Bytes that differ wherever an offset is wrong by a power of two."""
    i = np.arange(start, start + n, dtype=np.uint64)
    return ((i * np.uint64(2654435761) >> np.uint64(24)) + np.uint64(salt)).astype(np.uint8)


def fill(view: np.ndarray, salt: int) -> None:
    for k in range(0, view.size, PIECE):
        n = min(PIECE, view.size - k)
        view[k : k + n] = pattern(k, n, salt)


def check(view: np.ndarray, salt: int) -> None:
    for k in range(0, view.size, PIECE):
        n = min(PIECE, view.size - k)
        assert np.array_equal(view[k : k + n], pattern(k, n, salt)), f"wrong after byte {k}"


def main() -> None:
    T, me = xupc.init(timeout=120).size, xupc.MYTHREAD
    A = xupc.all_alloc(SIZE * T, "u1", SIZE)
    times = []
    for root, flags in ((T - 1, 0), (0, int(xupc.PULL)), (T - 1, int(xupc.PUSH))):
        if me == root:
            fill(A.local, root + flags)
        else:
            A.local[-EXTRA:] = 0
        xupc.barrier()
        began = time.perf_counter()
        xupc.all_broadcast_in_place(A + SIZE * root, SIZE, flags)
        times.append(time.perf_counter() - began)
        check(A.local, root + flags)
        xupc.barrier()
    last = A + (SIZE * T - 8)
    last.cast("u1", 0)[0:8] = np.arange(8)
    xupc.barrier()
    assert list(A[SIZE * T - 8 : SIZE * T]) == list(range(8))
    xupc.barrier()
    # a reduction whose elements lie beyond 2**32 bytes
    n = SIZE // 8
    D = A.cast("i8", 0)
    if me == 0:
        A.local[: n * 8].view("i8")[:] = 1
        A.local[: n * 8].view("i8")[-1] = 1000
    S = xupc.all_alloc(T, "i8", 1)
    xupc.barrier()
    xupc.all_reduce(S, D, xupc.ADD, n, 0)
    assert S[0] == n - 1 + 1000, (S[0], n)
    if me == 0:
        print("seconds:", *(f"{t:.1f}" for t in times))
    done(SIZE)


main()
