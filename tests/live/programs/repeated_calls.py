"""A call like an earlier one is not looked at again: it takes the short way. No arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import xupc
from xupc.api.array_call import ArrayCall
from xupc.api.collectives import Collective


def main() -> None:
    team = xupc.init()
    me, t = team.rank, team.size
    long: list[str] = []  # calls that took the long way
    kinds: tuple[Any, ...] = Collective, ArrayCall
    for kind in kinds:

        def slow(self: Any, args: Any, kwargs: Any, kept: Any = kind.slow) -> Any:
            long.append(self.__name__)
            return kept(self, args, kwargs)

        kind.slow = slow

    a, b, all_, many = np.ones(4), np.ones(4), np.ones(4 * t), np.ones(4 * t)
    root, zero = 0, np.int64(0)
    mine = me == root
    d, s = (xupc.all_alloc(4 * t * t, np.float64, 4 * t) for _ in range(2))
    calls: list[Callable[[], object]] = [
        lambda: xupc.allav_broadcast(a, root),
        lambda: xupc.allav_broadcast(a, zero, xupc.PULL),
        lambda: xupc.allav_scatter(a, many if mine else None, root),
        lambda: xupc.allav_gather(all_ if mine else None, a, root),
        lambda: xupc.allav_gather_all(all_, a),
        lambda: xupc.allav_gather_all(all_, None),
        lambda: xupc.allav_exchange(all_, many),
        lambda: xupc.allav_reduce(b if mine else None, a, xupc.ADD, root),
        lambda: xupc.allav_reduce_all(b, a, xupc.ADD),
        lambda: xupc.allav_reduce_all(b, None, xupc.MAX, flags=xupc.MULTICORE),
        lambda: xupc.allav_prefix_reduce(b, a, xupc.ADD, team=team),
        lambda: xupc.allav_suffix_reduce(b, a, xupc.ADD),
        lambda: xupc.all_broadcast(d, s, 8),
        lambda: xupc.all_broadcast(d, s, 8, flags=xupc.PUSH),
        lambda: xupc.all_scatter(d, s, 8),
        lambda: xupc.all_gather(d, s, 8),
        lambda: xupc.all_gather_all(d, s, 8),
        lambda: xupc.all_exchange(d, s, 8),
        lambda: xupc.all_reduce_mpi_all(d, s, xupc.ADD),
        lambda: xupc.barrier(),
    ]
    for k, call in enumerate(calls):
        call()
        long.clear()
        for _ in range(3):
            call()
        assert not long, (k, long)
    xupc.finalize()
    sys.stdout.write("done\n")


main()
