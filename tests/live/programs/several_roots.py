"""All calls with several roots per node, some sizes, roots and sync modes, against numpy.

It prints the calls that ran. Its argument: numbers of roots.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np

import xupc

MODES = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC)
SIZES = (1, 1000, 40_003)
"""Elements of a block."""
RAN: set[str] = set()


def values(nelems: int, thread: int) -> np.ndarray:
    """Return the block of a thread."""
    return (np.arange(nelems) * 7 + thread * 1001) % 977 + 0.5


def total(nelems: int) -> np.ndarray:
    """Return the sum of all threads' blocks; such sums are exact."""
    found: np.ndarray = np.sum([values(nelems, x) for x in range(xupc.THREADS)], axis=0)
    return found


def _is(found: np.ndarray, expected: np.ndarray, name: str, n: int) -> None:
    """Compare a result."""
    assert np.array_equal(found, expected), f"{name} of {n} elements on thread {xupc.MYTHREAD}"
    RAN.add(name.partition(" ")[0])


def _shared(n: int, sync: int, roots: int) -> None:
    """Run the calls on shared arrays."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every = range(threads)
    src = xupc.all_alloc(n * threads, np.float64, blocksize=n)
    dst = xupc.all_alloc(n * threads, np.float64, blocksize=n)
    wide = xupc.all_alloc(n * threads**2, np.float64, blocksize=n * threads)
    cubes = xupc.all_alloc(n * threads**2, np.float64, blocksize=n * threads)
    src.local[:] = values(n, me)
    cubes.local[:] = np.concatenate([values(n, me * threads + x) for x in every])
    xupc.barrier()
    for root, variant in product({0, threads - 1}, ("chain", "circulant", "binary")):
        name = f"multicore:{variant}/{roots}"
        xupc.all_broadcast(dst, src + n * root, n * 8, sync, algorithm=name)
        _is(dst.local, values(n, root), f"broadcast {name}", n)
        dst.local[:] = values(n, me)
        xupc.barrier()
        flags = sync | xupc.IN_PLACE
        xupc.all_broadcast(dst, dst + n * root, n * 8, flags, algorithm=name)
        _is(dst.local, values(n, root), f"broadcast_in_place {name}", n)
    for variant in ("rounds", "ring", "circulant"):
        name = f"multicore:{variant}/{roots}"
        xupc.all_gather_all(wide, src, n * 8, sync, algorithm=name)
        _is(wide.local, np.concatenate([values(n, x) for x in every]), f"gather_all {name}", n)
    name = f"multicore:rounds/{roots}"
    xupc.all_exchange(wide, cubes, n * 8, sync, algorithm=name)
    expected = np.concatenate([values(n, x * threads + me) for x in every])
    _is(wide.local, expected, f"exchange {name}", n)
    for variant in ("parts", "circulant"):
        name = f"multicore:{variant}/{roots}"
        xupc.all_reduce_mpi_all(dst, src, xupc.ADD, n * threads, n, flags=sync, algorithm=name)
        _is(dst.local, total(n), f"reduce_mpi_all {name}", n)
    for array in (src, dst, wide, cubes):
        xupc.all_free(array)


def _private(n: int, roots: int) -> None:
    """Run the calls on private arrays."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every, name = range(threads), f"multicore:rounds/{roots}"
    wide = np.zeros(n * threads)
    xupc.allav_gather_all(wide, values(n, me), algorithm=name)
    _is(wide, np.concatenate([values(n, x) for x in every]), "allav_gather_all", n)
    cubes = np.concatenate([values(n, me * threads + x) for x in every])
    expected = np.concatenate([values(n, x * threads + me) for x in every])
    xupc.allav_exchange(wide, cubes, algorithm=name)
    _is(wide, expected, "allav_exchange", n)
    xupc.allav_exchange(cubes, None, algorithm=name)
    _is(cubes, expected, "allav_exchange_in_place", n)
    for root in {0, threads - 1}:
        block = values(n, me)
        xupc.allav_broadcast(block, root, algorithm=f"multicore:chain/{roots}")
        _is(block, values(n, root), "allav_broadcast", n)
    dst = np.zeros(n)
    xupc.allav_reduce_all(dst, values(n, me), xupc.ADD, algorithm=f"multicore:parts/{roots}")
    _is(dst, total(n), "allav_reduce_all", n)


def main() -> None:
    """Run all of them."""
    with xupc.init():
        for roots in map(int, sys.argv[1].split(",")):
            for n in SIZES:
                for sync in MODES:
                    _shared(n, sync, roots)
                _private(n, roots)
        if xupc.MYTHREAD == 0:
            print("\n".join(sorted(RAN)))


if __name__ == "__main__":
    main()
