"""Results on more nodes than send straight to each other. No arguments."""

from __future__ import annotations

import numpy as np

import xupc


def main() -> None:
    team = xupc.init()
    T, me, rng = team.size, team.rank, np.random.default_rng(5)
    for n in (1, 100, 40_000):  # of 8 bytes: a line, a message, some chunks
        src = xupc.all_alloc(T * n, np.int64, n)
        dst = xupc.all_alloc(T * T * n, np.int64, T * n)
        data = rng.integers(0, 1000, (T, n))
        root, flag = int(rng.integers(T)), xupc.MULTICORE
        src.local[:] = data[me]
        xupc.all_broadcast(dst, src + root * n, 8 * n, flag)
        assert (dst.local[:n] == data[root]).all(), ("broadcast", n)
        out = data[me].copy()
        xupc.allav_broadcast(out, root, flags=flag)
        assert (out == data[root]).all(), ("allav_broadcast", n)
        xupc.all_gather_all(dst, src, 8 * n, flag)
        assert (dst.local[: T * n].reshape(T, n) == data).all(), ("gather_all", n)
        xupc.all_reduce_mpi(dst + root * T * n, src, xupc.ADD, flags=flag)
        if me == root:
            assert (dst.local[:n] == data.sum(0)).all(), ("reduce_mpi", n)
        xupc.all_reduce_mpi_all(dst, src, xupc.ADD, flags=flag)
        assert (dst.local[:n] == data.sum(0)).all(), ("reduce_mpi_all", n)
        xupc.allav_reduce_all(out, data[me].copy(), xupc.MAX, flags=flag)
        assert (out == data.max(0)).all(), ("allav_reduce_all", n)
        for run, until in ((xupc.allav_prefix_reduce, data[: me + 1]), (
            xupc.allav_suffix_reduce, data[me:]
        )):
            run(out, data[me].copy(), xupc.ADD, flags=flag)
            assert (out == until.sum(0)).all(), (run.__name__, n)
    xupc.finalize()
    print("right")


main()
