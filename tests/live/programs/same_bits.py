"""Results that must not depend on nodes, algorithms or engines: their hash is printed.

The operands cancel: another order of operations gives other bits. Argument, JSON: the numbers of
layouts.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys

import numpy as np
from mpi4py import MPI
from reduction_cases import FORMS, PAIRS, Array, Case, Memory, layout, pairs
from support.checked_calls import ALGORITHMS, POISON

import xupc
from xupc import Op


def halfway(a: float, b: float) -> float:
    """Not associative, and the order counts."""
    return a / 2 - b / 4


@xupc.vectorized(pure=True)
def all_halfway(a: Array, b: Array) -> Array:
    """The same for arrays."""
    return a / 2 - b / 4


OPERATIONS = [
    (Op.ADD, None), (Op.ADD, None), (Op.MULT, None), (Op.FUNC, np.add),
    (Op.NONCOMM_FUNC, halfway), (Op.NONCOMM_FUNC, all_halfway),
]  # fmt: skip


def either(a: np.void, b: np.void) -> tuple:
    """Not associative: the value of one, and half of the other's index."""
    return b["value"], a["index"] // 2


@xupc.vectorized
def all_either(a: Array, b: Array) -> Array:
    """The same for arrays."""
    out = b.copy()
    out["index"] = a["index"] // 2
    return out


ON_RECORDS = [
    (Op.MINLOC, None), (Op.MAXLOC, None), (Op.NONCOMM_FUNC, either), (Op.NONCOMM_FUNC, all_either),
]  # fmt: skip


def operands(dtype: np.dtype, op: Op, n: int, k: int, rng: np.random.Generator) -> Array:
    """Three that cancel, at other positions each time, among others that get lost or not.

    Records have garbage in their padding.
    """
    if dtype.names:
        return pairs(dtype, n, rng)
    huge = {4: 1e30, 8: 1e300}.get(dtype.itemsize, 1e300)
    x = rng.choice(np.array([huge, -huge, 1 / huge, 1.0]), n)
    if op == Op.MULT:
        x = 1 + rng.random(n) / 8
    elif k % 2:  # alone
        x = rng.random(n)
        where = [(k * 7 + j * 3) % n for j in range(3)]
        x[where] = [huge, -huge, 1 / huge]
    out = np.zeros(n, dtype)
    out[:] = x.astype(dtype)
    if dtype == np.longdouble:
        out.view("u1").reshape(n, -1)[:, 10:] = 0  # padding that is copied
    return out


def collected(memory: Memory, dtype: np.dtype) -> list[bytes]:
    """Return the hashes of all threads' results."""
    xupc.barrier()
    mine = memory.dst.local.copy()
    if dtype == np.longdouble:
        mine.reshape(-1, dtype.itemsize)[:, 10:] = 0  # padding is no part of a value
    return MPI.COMM_WORLD.allgather(hashlib.sha256(mine).digest())


def main() -> None:
    layouts = json.loads(sys.argv[1])
    xupc.init(timeout=30)
    rng, numbers = random.Random(5), np.random.default_rng(5)
    memory, T = Memory(), xupc.THREADS
    for k in layouts:
        dtype = np.dtype(("f8", "f4", "g", "f8")[k % 4])
        n = rng.choice([2, 3, 5, 9, 31, 32, 50, 200, 777, 3000])
        block = rng.choice([0, 1, 2, 3, 7, 33, n // T + 1, n // (2 * T) + 1])
        op, func = OPERATIONS[k % len(OPERATIONS)]
        if k % 3 == 2:
            dtype = PAIRS[k // 3 % len(PAIRS)]
            op, func = ON_RECORDS[k // 3 % len(ON_RECORDS)]
        if func in (halfway, either):
            n = min(n, 200)
        for form, call in FORMS.items():
            src = layout(rng, dtype, n, block, phase="mpi" not in form)
            dst = src
            if "fix" not in form:
                dst = layout(rng, dtype, n, 0, phase=False)
            elif k % 3 == 0:
                dst = layout(rng, dtype, n, block, phase=True)
            if form.endswith("all"):
                dst = layout(random.Random(k), dtype, 1, 0, phase=False)
                dst = type(dst)(0, 0, 0, dst.offset)
            c = Case(form, dtype, op, func, n, src, dst, given=False)
            x = operands(dtype, op, n, k, numbers)
            memory.write(c, x, xupc.MYTHREAD)
            found = set()
            for flag in list(ALGORITHMS.values())[1:]:
                memory.dst.local[:] = POISON
                call(*memory.arguments(c, flag | xupc.REPRODUCIBLE))
                found.add(tuple(collected(memory, dtype)))
                if "mpi" in form and op != Op.NONCOMM_FUNC:
                    memory.dst.local[:] = POISON
                    call(*memory.arguments(c, flag))
                    everywhere = collected(memory, dtype)
                    if form.endswith("all"):
                        assert len(set(everywhere)) == 1, (k, c, "differs between threads")
            if xupc.MYTHREAD == 0:
                one = hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16]
                print(f"bits {k} {form} {op.name} {n} {block} {len(found)} {one}", flush=True)


main()
