"""IN_PLACE: every form, algorithm, pair of sync modes and size at random, and what is refused.

Argument: how many cases. Memory is modelled whole, on all threads: each compares all that it has.
"""

from __future__ import annotations

import pickle
import random
import sys
from functools import partial
from typing import Any

import numpy as np
from support.checked_calls import (
    ALGORITHMS,
    GUARD,
    SYNC,
    Buffers,
    Dawdle,
    Usable,
    done,
    permutation,
    raises,
)
from support.checked_calls import values as bytes_of

import xupc
from xupc import CollectiveMismatchError, FlagError, OverlapError

FORMS = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
SIZES = (1, 8, 129, 1023, 65537, 1_200_000)
HERE = xupc.IN_PLACE


def transform(name: str, memory: Any, n: int, root: int) -> None:
    """Apply a call to the bytes of all threads from the shift on: one row per thread."""
    T = len(memory)
    others = [i for i in range(T) if i != root]
    old = memory.copy()
    if name == "broadcast":
        memory[others, :n] = old[root, :n]
    elif name == "scatter":
        for i in others:  # the own block is where it is in the root's row
            memory[i, root * n : root * n + n] = old[root, i * n : i * n + n]
    elif name == "gather":
        for i in others:
            memory[root, i * n : i * n + n] = old[i, root * n : root * n + n]
    elif name == "gather_all":
        memory[:] = np.concatenate([old[i, i * n : i * n + n] for i in range(T)])
    elif name == "exchange":
        memory[:] = old.reshape(T, T, n).swapaxes(0, 1).reshape(T, -1)
    else:
        for i, to in enumerate(permutation(root)):
            memory[to, :n] = old[i, :n]


def arguments(name: str, buffers: Buffers, n: int, root: int, shift: int, turn: int) -> Any:
    """(the function, what it is called with before nbytes, more flags)."""
    whole = buffers.pointer("dst", 0, shift)
    at_root = buffers.pointer("dst", root, shift)
    own = buffers.pointer("dst", 0, shift + root * n)
    if name in ("broadcast", "scatter", "gather"):
        f = getattr(xupc, f"all_{name}")
        pairs = {"broadcast": (whole, at_root), "scatter": (own, at_root), "gather": (at_root, own)}
        return f, pairs[name], HERE
    src, flag = [(None, 0), (whole, 0), (None, HERE), (whole + 0, HERE)][turn % 4]
    if name == "permute":
        return xupc.all_permute, (whole, src, buffers.permutation(root, turn)), flag
    return getattr(xupc, f"all_{name}"), (whole, src), flag


def moves(count: int) -> None:
    """Relocalization."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    rng, dawdle = random.Random(23), Dawdle(23)
    buffers = Buffers(SIZES[-1] * T + 5)
    for number in range(count):
        name, n = rng.choice(FORMS), rng.choice(SIZES if number % 8 == 0 else SIZES[:-1])
        root, shift = rng.randrange(T), rng.choice([0, 5])
        way, (into, out) = rng.choice(list(ALGORITHMS)), rng.choice(list(SYNC))
        f, operands, more = arguments(name, buffers, n, root, shift, number)
        flags = SYNC[into, out] | ALGORITHMS[way] | more
        call = f.plan(*operands, n, flags) if number % 3 == 0 else None
        for repetition in range(2):
            size = T * n + 2 * GUARD
            key = 2 * number + repetition
            everything = np.stack([bytes_of(key, i, size) for i in range(T)])
            begin = shift
            buffers.dst.local[begin : begin + size] = everything[me]
            if into == "NOSYNC":
                xupc.barrier()
            dawdle()
            assert (call() if call is not None else f(*operands, n, flags)) is None
            if out == "NOSYNC":
                xupc.barrier()
            transform(name, everything[:, GUARD:-GUARD], n, root)
            found = buffers.dst.local[begin : begin + size]
            if not np.array_equal(found, everything[me]):
                wrong = np.flatnonzero(found != everything[me])
                what = number, name, way or "no flag", into, out, n, f"root {root}", repetition
                raise AssertionError(f"{what}: thread {me}: {wrong.size} bytes, {wrong[0] - GUARD}")
    buffers.free()


def computations(count: int) -> None:
    """Prefix, suffix and element-wise reductions."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    rng, numbers = random.Random(29), np.random.default_rng(29)
    for number in range(count):
        form = rng.choice(["prefix_reduce", "suffix_reduce", "reduce_mpi_all"])
        block = rng.choice([1, 3, 64, 5000])
        nelems = rng.choice([1, block * T, 3 * block * T + 1, max(1, block // 2)])
        room = -(-nelems // (block * T)) * block
        A = xupc.all_alloc(room * T, "i8", block)
        data = numbers.integers(-99, 99, room * T)
        layout = np.arange(room * T).reshape(-1, T, block)[:, me].ravel()
        A.local[:] = data[layout]
        want = data.copy()
        if form == "prefix_reduce":
            want[:nelems] = np.cumsum(data[:nelems])
        elif form == "suffix_reduce":
            want[:nelems] = np.cumsum(data[:nelems][::-1])[::-1]
        into, out = rng.choice(list(SYNC))
        flags = SYNC[into, out] | rng.choice(list(ALGORITHMS.values()))
        src, more = rng.choice([(None, 0), (A, 0), (None, HERE), (A + 0, HERE)])
        f = getattr(xupc, f"all_{form}")
        xupc.barrier()
        blk_size = rng.choice([None, block])
        assert f(A, src, xupc.ADD, nelems, blk_size, None, flags | more) is None
        xupc.barrier()
        mine = want[layout]
        if form == "reduce_mpi_all":
            total = np.zeros(min(block, nelems), np.int64)
            for b in range(0, nelems, block):
                part = data[b : min(b + block, nelems)]
                total[: part.size] += part
            mine[: total.size] = total
        what = number, form, block, nelems, into, out, flags
        assert np.array_equal(A.local, mine), (what, me)
        xupc.all_free(A)


def errors(usable: Usable) -> None:
    """On every thread, and on one alone."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    A, B = (xupc.all_alloc(T * T * 64, "u1", T * 64) for _ in range(2))
    every = range(T)
    X = xupc
    cases: list[tuple[Any, type[BaseException], tuple[str, ...]]] = [
        (lambda: X.all_gather_all(B, A, 8, HERE), FlagError, ("all_gather_all", "IN_PLACE")),
        (lambda: X.all_exchange(B, A, 8, HERE), FlagError, ("all_exchange", "same as dst")),
        (lambda: X.all_permute(B, A, every, 8, HERE), FlagError, ("all_permute",)),
        (lambda: X.all_exchange(B, B + 1, 8, HERE), FlagError, ("all_exchange",)),
        (lambda: X.all_exchange(B, B + 1, 8), OverlapError, ("all_exchange",)),
        (lambda: X.all_broadcast(B, None, 8, HERE), FlagError, ("all_broadcast", "src")),
        (lambda: X.all_scatter(B, None, 8, HERE), FlagError, ("all_scatter", "src")),
        (lambda: X.all_gather(B, None, 8, HERE), FlagError, ("all_gather", "src")),
        (lambda: X.all_broadcast(B, B + 1, 8, HERE), OverlapError, ("all_broadcast",)),
        (lambda: X.all_broadcast(B, B, 8), OverlapError, ("all_broadcast",)),
        (lambda: X.all_scatter(B + 1, B, 8, HERE), OverlapError, ("all_scatter",)),
        (lambda: X.all_scatter(B, B, 8), OverlapError, ("all_scatter",)),
        (lambda: X.all_gather(B, B + 1, 8, HERE), OverlapError, ("all_gather",)),
        (lambda: X.all_broadcast_in_place(B, 8, HERE), FlagError, ("broadcast_in_place",)),
        (lambda: X.all_exchange(B, None, 65), ValueError, ("all_exchange", "dst", "beyond")),
        (lambda: X.all_exchange(None, None, 8), TypeError, ("all_exchange", "dst")),
        (lambda: X.all_permute(B, None, [0] * (T + 1), 8), ValueError, ("perm",)),
        (lambda: X.all_reduce(B, A, X.ADD, flags=HERE), FlagError, ("all_reduce",)),
        (lambda: X.all_reduce_all(B, A, X.ADD, flags=HERE), FlagError, ("all_reduce_all",)),
        (lambda: X.all_reduce_mpi(B, A, X.ADD, flags=HERE), FlagError, ("all_reduce_mpi",)),
        (lambda: X.all_reduce(B, None, X.ADD), TypeError, ("all_reduce", "src")),
        (lambda: X.all_prefix_reduce(B, A, X.ADD, flags=HERE), FlagError, ("prefix", "same")),
        (lambda: X.all_reduce_mpi_all(B, A, X.ADD, flags=HERE), FlagError, ("mpi_all", "same")),
        (
            lambda: X.all_prefix_reduce(B.cast(blocksize=1), B, X.ADD, 8),
            OverlapError if T > 1 else FlagError,
            (),
        ),
    ]
    for k, (call, kind, words) in enumerate(cases):
        if kind is FlagError and not words:
            continue
        raises(kind, words, call, (k, words))
        usable.some((k, words))
        if T > 1:
            odd = k % T
            if me == odd:
                raises(kind, words, call, (k, words))
            else:
                good = lambda: X.all_exchange(B, None, 8)  # noqa: E731
                raises(CollectiveMismatchError, (f"thread {odd}",), good, (k, words))
            usable.some((k, words))
    if T > 1:
        call = lambda: X.all_exchange(B, None if me else A, 8)  # noqa: E731
        raises(CollectiveMismatchError, ("all_exchange",), call)
        usable("in place on some")
    xupc.all_free(A)
    F = xupc.all_exchange.plan(B, None, 8)
    xupc.all_free(B)
    raises(ValueError, ("freed",), F)
    usable("freed")


def from_elsewhere(usable: Usable) -> None:
    """A pointer that was sent has an allocation of its own, and stands for the same memory."""
    X, T = xupc, xupc.THREADS
    given = X.global_alloc(64 * T, "i8", 64) + 0 if X.MYTHREAD == 0 else None
    p = X.allv_broadcast(given, 0)
    q = pickle.loads(pickle.dumps(p))
    for far in (p, q):
        for call, more in ((X.all_prefix_reduce, ()), (X.all_reduce_mpi, (32,))):
            bad = partial(call, far + 1, p, X.ADD, 48, *more)
            raises(OverlapError, (call.__name__,), bad)
        X.all_exchange(far, p, 8)
        X.all_exchange(far, p, 8, HERE)
        X.all_reduce_mpi_all(far, p, X.ADD, 64 * T, flags=HERE)
        X.all_prefix_reduce(far, p, X.ADD, 64 * T, flags=HERE)
        usable("a pointer from elsewhere")
    handle = X.all_exchange(q, q, 8, xupc.ASYNC)
    raises(ValueError, ("all_free", "all_exchange"), lambda: X.all_free(p))
    handle.wait()
    X.all_free(p)


def main() -> None:
    count = int(sys.argv[1])
    xupc.init(timeout=40)
    moves(count)
    computations(count)
    errors(Usable())
    from_elsewhere(Usable())
    done(count)


main()
