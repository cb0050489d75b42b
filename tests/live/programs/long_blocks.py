"""Reduce with block sizes beyond all elements, and beyond 64 bits: all are one block."""

from __future__ import annotations

import numpy as np

import xupc

N = 8  # elements on each thread

with xupc.init(heap_size="4MiB") as team:
    src, dst = (xupc.all_alloc(N * team.size, "i8", N) for _ in range(2))
    total = xupc.all_alloc(1, "i8", 0)
    numbers = np.arange(1, N + 1)
    src.local[:] = numbers
    sums = {
        xupc.all_prefix_reduce: np.cumsum(numbers),
        xupc.all_suffix_reduce: np.cumsum(numbers[::-1])[::-1],
    }
    for block in (N, N + 1, (1 << 31) - 1, 1 << 31, 1 << 60, 1 << 63, 1 << 64, 1 << 200):
        for call, expected in sums.items():
            for cast in (False, True):
                dst.local[:] = 0
                xupc.barrier()
                if cast:
                    to, given = ((x + 0).cast("i8", block) for x in (dst, src))
                    call(to, given, xupc.ADD, N)
                else:
                    call(dst, src, xupc.ADD, N, block)
                mine = expected if team.rank == 0 else 0
                assert (dst.local == mine).all(), (call, block, dst.local)
        xupc.all_reduce(total, src, xupc.ADD, N, block)
        assert total[0] == numbers.sum(), block
        xupc.barrier()
    print("done")
