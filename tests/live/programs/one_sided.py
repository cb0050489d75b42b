"""One-sided collectives: data, while the others wait or compute, all callers at once, errors.

Argument: how many calls.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np
from support.checked_calls import POISON, Buffers, Usable, blocks, done, expected, raises, values

import xupc
from xupc import AffinityError, CollectiveMismatchError, OverlapError

CALLS = {
    "broadcast": xupc.broadcast,
    "scatter": xupc.scatter,
    "gather": xupc.gather,
    "exchange": xupc.exchange,
}
SIZES = (1, 8, 1000, 65537, 300_000)


def remote(pointer: Any, nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes of any thread."""
    out = np.empty(nbytes, np.uint8)
    xupc.memget(out, pointer, nbytes)
    return out


def one_caller(count: int) -> None:
    """The caller sees all of the result at once, the others after the barrier."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    rng = random.Random(11)
    buffers = Buffers(max(SIZES) * T)
    for number in range(count):
        name = rng.choice(list(CALLS))
        n, root, caller = rng.choice(SIZES), rng.randrange(T), rng.randrange(T)
        compute = rng.randrange(3) == 0
        what = number, name, n, f"root {root}, caller {caller}"
        buffers.fill(name, number, n)
        xupc.barrier()
        dst, src = buffers.operands(name, root)
        if me == caller:
            assert CALLS[name](dst, src, n) is None
            for thread in range(T):
                want = expected(name, number, n, root, thread)
                if want is not None:
                    found = remote(buffers.pointer("dst", thread), want.size)
                    assert np.array_equal(found, want), (what, thread)
            if name in ("broadcast", "scatter"):  # src may be written again
                size = blocks(name, T)[1] * n
                xupc.memset(src, POISON, size)
                xupc.memput(src, values(number, root, size), size)
        elif compute:
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                np.arange(1000).sum()
        xupc.barrier()
        buffers.check(name, number, n, root, 0, what)
        xupc.barrier()
    buffers.free()


def all_at_once() -> None:
    """Every thread makes its own calls, on memory of its own choice."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    sets = [Buffers(1000 * T) for _ in range(T)]
    for number, name in enumerate(CALLS):
        for buffers in sets:
            buffers.fill(name, number, 1000)
        xupc.barrier()
        CALLS[name](*sets[me].operands(name, me), 1000)
        xupc.barrier()
        for caller, buffers in enumerate(sets):
            buffers.check(name, number, 1000, caller, 0, (name, "all at once", caller))
        xupc.barrier()
    for buffers in sets:
        buffers.free()


def errors(usable: Usable) -> None:
    """On the caller alone; the others do not even notice."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    part = 64
    A, B = (xupc.all_alloc(T * part, "u1", part) for _ in range(2))
    freed = xupc.all_alloc(T * part, "u1", part)
    xupc.all_free(freed)
    team = xupc.init()
    if me == T - 1:
        for name, f in CALLS.items():
            cases: list[tuple[Any, type[BaseException], tuple[str, ...]]] = [
                ((B, A, 0), ValueError, ("nbytes",)),
                ((B, A, 8.0), TypeError, ("nbytes",)),
                ((B, A, part + 1), ValueError, ("beyond",)),
                ((None, A, 1), TypeError, ("dst",)),
                ((B, np.zeros(4), 1), TypeError, ("src",)),
                ((B, freed, 1), ValueError, ("src", "freed")),
                ((A, A, 1), OverlapError, ("overlap",)),
            ]
            last = part * (T - 1)
            if T > 1 and name != "gather":
                cases.append(((B + last, A, 1), AffinityError, ("dst", "thread 0")))
            if T > 1 and name in ("gather", "exchange"):
                cases.append(((B, A + last, 1), AffinityError, ("src", "thread 0")))
            for args, kind, words in cases:
                raises(kind, (f"{name}: ", *words), lambda f=f, a=args: f(*a), (name, args))
            raises(TypeError, ("team",), lambda f=f: f(B, A, 1, team=3))
            f(B, A, 1, team=team)
    usable("one-sided errors")
    xupc.barrier()
    if T > 1:  # nothing has disturbed the account of calls
        odd = (lambda: xupc.barrier(1)) if me else (lambda: xupc.barrier(2))
        raises(CollectiveMismatchError, ("barrier",), odd)
    usable("a mismatch")


def main() -> None:
    count = int(sys.argv[1])
    xupc.init(timeout=30)
    one_caller(count)
    all_at_once()
    errors(Usable())
    done(count)


main()
