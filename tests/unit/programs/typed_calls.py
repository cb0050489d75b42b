"""Calls that a type checker accepts (`right`) and refuses (`wrong`): tests/unit/test_call_types.py.

No line of it runs. Each line of `wrong` has one error.
"""

from __future__ import annotations

import array
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc import MULTICORE, PULL, SharedArray, SharedPointer, Team


def right(A: SharedArray, B: SharedArray, p: SharedPointer, team: Team, x: Any) -> None:
    a, b = np.zeros(8), np.zeros(8)
    counts = np.array([4, 4])
    xupc.all_broadcast(A, B, 8)
    xupc.all_broadcast(A, B + 3, 8, PULL)
    xupc.all_broadcast(A, p, np.int64(8), xupc.IN_NOSYNC | xupc.OUT_MYSYNC)
    xupc.all_broadcast(A, B, 8, team=team, algorithm="multicore:ring")
    xupc.all_scatter(dst=A, src=B, nbytes=8, flags=MULTICORE)
    xupc.all_gather(A, B, 8).wait()
    xupc.all_gather_all(A, None, 8)
    xupc.all_exchange(A, B, 8, xupc.ASYNC).wait()
    xupc.all_exchange.plan(A, B, 8)()
    print(xupc.all_exchange.plan(A, None, 8).algorithm)
    xupc.all_permute(A, B, [1, 0], 8)
    xupc.all_permute(A, B, counts, 8)
    xupc.all_broadcast_in_place(A, 8)
    xupc.all_reduce(A, B, xupc.ADD)
    xupc.all_reduce(A, p, np.add, 8)
    xupc.all_reduce_all(A, B, MPI.SUM, 8, None)
    xupc.all_prefix_reduce(A, B, xupc.FUNC, func=lambda x, y: x + y)
    xupc.all_reduce_scatter(A, B, xupc.MAX, 8)
    xupc.all_broadcast_v(A, B, [0, 8], 8)
    xupc.all_gather_all_v(A, B, [0] * 4, [0, 8], [8, 8], typesize=8)
    xupc.all_scatter_x([A + 0, A + 8], [p, p], [8, 8])
    xupc.allav_broadcast(a, 0)
    xupc.allav_broadcast(bytearray(8), root=0, flags=PULL)
    xupc.allav_scatter(a, None, 0)
    xupc.allav_gather(None, [1.0, 2.0], 0)
    xupc.allav_gather_all(a, memoryview(b"1234"), 0, team)
    xupc.allav_exchange(a, b, algorithm="pull:staged")
    xupc.allav_permute(a, b, 1)
    xupc.allav_reduce(a, b, xupc.ADD, 0)
    xupc.allav_reduce_all(a, array.array("d", [1.0]), MPI.SUM)
    xupc.allav_suffix_reduce(a, None, np.maximum, None, xupc.EXCLUSIVE)
    xupc.allav_gather_v(a, b, [4, 4], 0)
    xupc.allav_scatter_v(a, None, None, 0)
    xupc.allav_gather_all_v(a, b, counts, displs=(0, 4))
    xupc.allav_exchange_v(a, b, counts, counts, xupc.ASYNC).wait()
    xupc.allv_reduce_all(3, xupc.ADD)
    xupc.all_alloc((3, 4), np.float64)
    xupc.all_alloc(8, "f8", "*", team=team)
    xupc.all_gather(x, x, x)
    call = xupc.all_gather if x else xupc.all_scatter
    call(A, B, 8)


def wrong(A: SharedArray, B: SharedArray, p: SharedPointer, team: Team) -> None:
    a, b = np.zeros(8), np.zeros(8)
    xupc.all_broadcast(A, B)
    xupc.all_broadcast(a, B, 8)
    xupc.all_broadcast(A, 3, 8)
    xupc.all_broadcast(A, B, "x")
    xupc.all_broadcast(A, B, 8.0)
    xupc.all_broadcast(A, B, 8, "pull")
    xupc.all_broadcast(A, B, 8, team=0)
    xupc.all_broadcast(A, B, 8, algorithm=PULL)
    xupc.all_broadcast(A, B, 8, 0, team)
    xupc.all_scatter(A, B, nbyte=8)
    xupc.all_gather(None, B, 8)
    xupc.all_gather_all([A], B, 8)
    xupc.all_exchange.plan(A, B)
    xupc.all_exchange.start(A, B, 8)
    xupc.all_permute(A, B, 1, 8)
    xupc.all_permute(A, B, [1.5], 8)
    xupc.all_broadcast_in_place(A, B, 8, 0)
    xupc.all_reduce(A, B)
    xupc.all_reduce(A, B, "ADD")
    xupc.all_reduce(A, B, xupc.ADD, 8, func=3)
    xupc.all_reduce(A, B, 0, 8)
    xupc.all_reduce_scatter(A, B, xupc.ADD)
    xupc.all_broadcast_v(A, B, 0, 8)
    xupc.all_gather_all_v(A, B, [0], [0], [8], typesize="f8")
    xupc.all_scatter_x([1, 2], p, [8, 8])
    xupc.allav_broadcast(a)
    xupc.allav_broadcast(3, 0)
    xupc.allav_broadcast([1.0], 0)
    xupc.allav_broadcast(a, "root")
    xupc.allav_scatter([0.0], a, 0)
    xupc.allav_gather(a, "text", 0)
    xupc.allav_gather_all(A, b)
    xupc.allav_exchange(a, b, root=0)
    xupc.allav_permute(a, b)
    xupc.allav_reduce(a, b, xupc.ADD)
    xupc.allav_reduce_all(a, b, max)
    xupc.allav_gather_v(a, b, 4, 0)
    xupc.allav_gather_all_v(a, b, [4, 4], displ=[0, 4])
    xupc.allav_exchange_v(a, b, [4, 4])
    xupc.all_alloc("8")
