"""Random programs of element, slice, pointer and block accesses against a numpy array.

Arguments: rounds, seed. All threads draw the same numbers, so each knows the whole array; in each
round another thread writes, then all read.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from support.checked_calls import done

import xupc


def part_of(model: np.ndarray, block: int, threads: int, thread: int) -> np.ndarray:
    """The oracle's elements with affinity to a thread."""
    if block == 0:
        return model if thread == 0 else model[:0]
    return model[[i for i in range(model.size) if i // block % threads == thread]]


def write(A: xupc.SharedArray, model: np.ndarray, draw: random.Random, mine: bool) -> None:
    """One random write; `mine`: I make it, else only the model changes."""
    n = model.size
    i, j = sorted(draw.choices(range(n + 1), k=2))
    step = draw.choice([1, 1, 2, 3, 7])
    value = draw.randrange(100)
    kind = draw.randrange(5)
    if kind == 0:
        at = draw.randrange(-n, n)
        model[at] = value
        if mine:
            A[at] = value
    elif kind == 1:
        data = (np.arange(len(range(i, j, step))) + value).astype(model.dtype)
        model[i:j:step] = data
        if mine:
            A[i:j:step] = data
    elif kind == 2:
        model[i:j][::-step] = value
        if mine and j > i:
            A[i:j] = model[i:j]
    elif kind == 3:
        model[i:j] = value
        if mine:
            (A + i)[0 : j - i] = value
    elif i < n:
        model[i] = value
        if mine:
            p = A + i if draw.randrange(2) else A.ptr(n) - (n - i)
            p[0] = value
        else:
            draw.randrange(2)


def check(A: xupc.SharedArray, model: np.ndarray, draw: random.Random, what: object) -> None:
    """Read in random ways, and my own part."""
    n, T, me = model.size, xupc.THREADS, xupc.MYTHREAD
    local = part_of(model, A.blocksize, T, me)
    assert np.array_equal(A.local, local), what
    assert np.array_equal(np.asarray(A), model), what
    for _ in range(4):
        i, j = draw.randrange(-n, n), draw.randrange(-n, n)
        step = draw.choice([1, 2, 5, -1, -3])
        assert np.array_equal(A[i:j:step], model[i:j:step]), (what, i, j, step)
        assert A[i] == model[i], (what, i)
        i %= n
        p = A + i
        assert (p.thread, p.phase) == (A.threadof(i), A.phaseof(i))
        if A.blocksize:
            assert (p.thread, p.phase) == (i // A.blocksize % T, i % A.blocksize)
        back = draw.randrange(i + 1)
        assert p[-back] == model[i - back], (what, i, back)
        assert p - A == i
    mine = list(xupc.forall(n, A))
    assert np.array_equal(model[mine], local), what
    if A.blocksize:
        assert mine == list(xupc.forall(n, blocksize=A.blocksize))


def main() -> None:
    rounds, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    xupc.init(timeout=30)
    T = xupc.THREADS
    count = 0
    for dtype in ("u1", "i4", "f8", "c16"):
        for block in (1, 3, 8, "*", 0):
            n = draw.choice([1, 7 * T, 40, 101])
            A = xupc.all_alloc(n, dtype, block)
            assert (A.nelems, A.dtype, len(A), A.nbytes) == (n, np.dtype(dtype), n, n * A.itemsize)
            model = np.zeros(n, dtype)
            for k in range(rounds):
                count += 1
                for _ in range(3):
                    write(A, model, draw, mine=k % T == xupc.MYTHREAD)
                xupc.barrier()
                check(A, model, draw, (seed, dtype, block, n, k))
                xupc.barrier()
            xupc.all_free(A)
    done(count)


main()
