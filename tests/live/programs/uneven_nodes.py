"""Element-wise reductions of many lengths in one order, on nodes of different sizes."""

from __future__ import annotations

import numpy as np

import xupc
from xupc import Op


def main() -> None:
    """Up to 400 KiB on each thread, to one and to all."""
    with xupc.init(timeout=30) as team:
        T, me = team.size, team.rank
        for nbytes in [*range(4096, 400_000, 13_000), 80_000, 160_000, 240_000]:
            n = nbytes // 8
            A = xupc.all_alloc(n * T, np.float64, n)
            B = xupc.all_alloc(n * T, np.float64, n)
            A.local[:] = np.arange(n) % 17 + me
            expected = np.arange(n) % 17 + 0.0
            for thread in range(1, T):
                expected = expected + np.arange(n) % 17 + thread
            xupc.barrier()
            for to_all in (False, True):
                form = xupc.all_reduce_mpi_all if to_all else xupc.all_reduce_mpi
                form(B, A, Op.ADD, flags=xupc.REPRODUCIBLE)
                assert np.array_equal(B.local, expected) or not (to_all or me == 0), nbytes
                form(B, A, Op.NONCOMM_FUNC, func=np.add)
                assert np.array_equal(B.local, expected) or not (to_all or me == 0), nbytes
                xupc.barrier()
            xupc.all_free(A)
            xupc.all_free(B)
    if me == 0:
        print("done: uneven nodes")


main()
