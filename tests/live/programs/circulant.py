"""All circulant variants on shared arrays, some sizes, roots and sync modes, against numpy.

It prints the variants that ran.
"""

from __future__ import annotations

from itertools import product

import numpy as np

import xupc

NAME = "multicore:circulant"
MODES = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC)
SIZES = (1, 1000, 100_003)
"""Elements of a block; the table makes up to 13 chunks of the longest one."""


def values(nelems: int, thread: int) -> np.ndarray:
    """Return the block of a thread."""
    return (np.arange(nelems) * 7 + thread * 1001) % 977 + 0.5


def total(nelems: int) -> np.ndarray:
    """Return the sum of all threads' blocks; such sums are exact."""
    found: np.ndarray = np.sum([values(nelems, x) for x in range(xupc.THREADS)], axis=0)
    return found


def main() -> None:
    """Run all of them."""
    with xupc.init():
        for n, sync in product(SIZES, MODES):
            for root in {0, xupc.THREADS - 1}:
                _rooted(n, root, sync)
            _to_all(n, sync)
        _uneven()
        if xupc.MYTHREAD == 0:
            print("\n".join(sorted(RAN)))


RAN: set[str] = set()


def _filled(n: int) -> xupc.SharedArray:
    """Return an array of a block of each thread, with its values."""
    src = xupc.all_alloc(n * xupc.THREADS, np.float64, blocksize=n)
    src.local[:] = values(n, xupc.MYTHREAD)
    xupc.barrier()
    return src


def _is(found: np.ndarray, expected: np.ndarray, name: str, n: int) -> None:
    """Compare a result."""
    assert np.array_equal(found, expected), f"{name} of {n} elements on thread {xupc.MYTHREAD}"
    RAN.add(name)


def _rooted(n: int, root: int, sync: int) -> None:
    src = _filled(n)
    dst = xupc.all_alloc(n * xupc.THREADS, np.float64, blocksize=n)
    own = n * root
    xupc.all_broadcast(dst, src + own, n * 8, sync, algorithm=NAME)
    _is(dst.local, values(n, root), "broadcast", n)
    xupc.all_reduce_mpi(dst + own, src, xupc.ADD, n * xupc.THREADS, n, flags=sync, algorithm=NAME)
    me = xupc.MYTHREAD
    if me == root:
        _is(dst.local, total(n), "reduce_mpi", n)
    xupc.all_free(src)
    xupc.all_free(dst)


def _to_all(n: int, sync: int) -> None:
    threads = range(xupc.THREADS)
    src, dst = _filled(n), xupc.all_alloc(n * xupc.THREADS, np.float64, blocksize=n)
    xupc.all_reduce_mpi_all(dst, src, xupc.ADD, n * xupc.THREADS, n, flags=sync, algorithm=NAME)
    _is(dst.local, total(n), "reduce_mpi_all", n)
    wide = xupc.all_alloc(n * xupc.THREADS**2, np.float64, blocksize=n * xupc.THREADS)
    wide.local[:] = np.tile(values(n, xupc.MYTHREAD), xupc.THREADS)
    xupc.all_reduce_scatter(dst, wide, xupc.ADD, n, flags=sync, algorithm=NAME)
    _is(dst.local, total(n), "reduce_scatter", n)
    xupc.all_gather_all(wide, src, n * 8, sync, algorithm=NAME)
    _is(wide.local, np.concatenate([values(n, x) for x in threads]), "gather_all", n)
    for array in (src, dst, wide):
        xupc.all_free(array)


def _uneven() -> None:
    """Gather blocks of 0, 1000, 2000, ... bytes, in the places where they are in src."""
    threads, unit = xupc.THREADS, 1000
    src = xupc.all_alloc(unit * threads**2, np.uint8, blocksize=unit * threads)
    dst = xupc.all_alloc(unit * threads**3, np.uint8, blocksize=unit * threads**2)
    src.local[:] = xupc.MYTHREAD + 1
    xupc.barrier()
    sizes = [unit * i for i in range(threads)]
    blocks = [dst + unit * threads * k for k in range(threads**2)]
    sources = [src + unit * threads * i for i in range(threads)]
    xupc.all_gather_all_x(blocks, sources, sizes, algorithm=NAME)
    found = dst.local.reshape(threads, -1)
    for i, row in enumerate(found):
        expected = np.where(np.arange(row.size) < sizes[i], i + 1, 0)
        _is(row, expected, "gather_all_x", sizes[i])
    xupc.all_free(src)
    xupc.all_free(dst)


if __name__ == "__main__":
    main()
