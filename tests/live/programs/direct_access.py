"""Private memory that others cannot read, in place on some threads only, posted, on teams.

Argument: ``secret`` if arrays are to lie where no other process may look (memfd_secret).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import numpy as np

import xupc

SECRET = 447
"""The number of memfd_secret, on all machines alike."""


def array(n, secret):
    """So many float64, where others cannot read them."""
    if not secret:
        return np.zeros(n)
    fd = ctypes.CDLL(None, use_errno=True).syscall(SECRET, 0)
    if fd < 0:
        return None
    os.ftruncate(fd, 8 * n)
    mapped = mmap.mmap(fd, 8 * n)
    os.close(fd)
    return np.frombuffer(mapped, np.float64)


def main():
    secret = sys.argv[1:] == ["secret"]
    team = xupc.init()
    me, t = team.rank, team.size
    half = team.split(me % 2)
    whole = array(1, secret) is not None
    if not xupc.allv_reduce_all(int(whole), xupc.MIN):
        sys.stdout.write("no secrets here\n")
        return
    for n in (1000, 3000, 60_000):
        rows = np.arange(t * t * n, dtype=float).reshape(t, t, n)  # [giver][taker]
        a, b = array(n, secret), array(n, secret)
        many, all_ = array(t * n, secret), array(t * n, secret)
        part = array(half.size * n, secret)
        for turn, flags in enumerate((0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)):
            mine = rows + turn
            a[:] = mine[me, 0]
            many[:] = mine[me].reshape(-1)
            xupc.allav_broadcast(a, turn % t, flags)
            assert np.array_equal(a, mine[turn % t, 0])
            a[:] = mine[me, 0]
            xupc.allav_scatter(b, many if me == 1 % t else None, 1 % t, flags)
            assert np.array_equal(b, mine[1 % t, me])
            xupc.allav_gather(all_ if me == 0 else None, a, 0, flags)
            assert me or np.array_equal(all_, mine[:, 0].reshape(-1))
            xupc.allav_exchange(all_, many, flags)
            assert np.array_equal(all_, mine[:, me].reshape(-1))
            all_[me * n : (me + 1) * n] = a
            xupc.allav_gather_all(all_, None if me == 0 else a, flags)  # thread 0 alone in place
            assert np.array_equal(all_, mine[:, 0].reshape(-1))
            xupc.allav_permute(b, a, (me + 1) % t, flags)
            assert np.array_equal(b, mine[me - 1, 0])
            xupc.allav_permute(b, a, -me % t, flags)  # thread 0 keeps its own
            assert np.array_equal(b, mine[-me % t, 0])
            if me == 0:
                xupc.allav_exchange(many, None, flags)  # here too
                assert np.array_equal(many, mine[:, me].reshape(-1))
            else:
                xupc.allav_exchange(all_, many, flags)
                assert np.array_equal(all_, mine[:, me].reshape(-1))
            sums = mine[:, 0].sum(0)  # of integers, hence exact
            a[:] = mine[me, 0]
            xupc.allav_reduce_all(b, a, xupc.ADD)
            assert np.array_equal(b, sums)
            b[:] = a
            into, of = (b, None) if me == 0 else (all_[:n], b)  # thread 0 alone in place
            xupc.allav_reduce_all(into, of, xupc.ADD)
            assert np.array_equal(into, sums)
            xupc.allav_reduce(b if me == 0 else None, a, xupc.ADD, 0)
            assert me or np.array_equal(b, sums)
            xupc.allav_prefix_reduce(b, a, xupc.ADD)
            assert np.array_equal(b, mine[: me + 1, 0].sum(0))
            xupc.allav_suffix_reduce(a, None if me == 1 % t else a.copy(), xupc.ADD)
            assert np.array_equal(a, mine[me:, 0].sum(0))
            a[:] = mine[me, 0]
            many[:] = mine[me].reshape(-1)
            first = xupc.allav_exchange(all_, many, flags | xupc.ASYNC)
            second = xupc.allav_gather(part, a, half.size - 1, flags | xupc.ASYNC, half)
            second.wait()
            first.wait()
            assert np.array_equal(all_, mine[:, me].reshape(-1))
            if half.rank == half.size - 1:
                assert np.array_equal(part, mine[me % 2 :: 2, 0].reshape(-1))
            xupc.allav_reduce_all(a, a if me else None, xupc.ADD)
            assert np.array_equal(a, sums)
            if turn == 1:
                a, b = array(n, secret), array(n, secret)
                many, all_ = array(t * n, secret), array(t * n, secret)
    xupc.finalize()
    sys.stdout.write("done\n")


main()
