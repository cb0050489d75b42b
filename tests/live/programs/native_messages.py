"""Messages of the core between nodes, with few types, or without MPI's functions: ``... CASE``."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.cases import case, run_case

import xupc


@case
def few_types() -> None:
    """Messages of exchanges are blocks far apart. MPI is given the types of those back that were
    not used for long, and the core must not use them then, however often a call has run.
    """
    exchange_with(5)


@case
def one_type() -> None:
    """As few_types, with fewer types than one plan names."""
    exchange_with(1)


def exchange_with(types: int) -> None:
    """Exchange blocks of many sizes while at most so many types are kept."""
    from xupc.comm import datatypes

    datatypes.TYPES = types
    team = xupc.init()
    T, me, most = team.size, team.rank, 320
    src = xupc.all_alloc(T * T * most, np.int64, T * most)
    dst = xupc.all_alloc(T * T * most, np.int64, T * most)
    for turn in range(4):
        for n in range(200, most, 10):  # too long to be led
            src.local[: T * n] = 1000 * turn + 100 * me + np.repeat(np.arange(T), n)
            xupc.all_exchange(dst, src, 8 * n, xupc.MULTICORE)
            here = 1000 * turn + 100 * np.repeat(np.arange(T), n) + me
            assert (dst.local[: T * n] == here).all(), (turn, n)
    freed = team.job.network.types_freed
    xupc.finalize()
    print("freed" if freed else "kept")


@case
def new_addresses() -> None:
    """Calls of one plan at many addresses, in memory whose threads are at two distances.

    Their messages are described once for each distance, and Python posts none of them. Blocks of
    n elements travel alone, those of 3 n elements as parts of a datatype.
    """
    from xupc.comm.message_layout import MessageLayout
    from xupc.comm.plan_messages import NetContext

    described, posted, plain, post = [], [], MessageLayout.describe, NetContext.post

    def describe(self: Any, step: Any) -> Any:
        described.append(step)
        return plain(self, step)

    def noted(self: Any, step: Any, instance: Any) -> None:
        posted.append(step)
        post(self, step, instance)

    setattr(MessageLayout, "describe", describe)  # noqa: B010
    setattr(NetContext, "post", noted)  # noqa: B010
    team = xupc.init()
    T, me, n, most = team.size, team.rank, 3000, 20
    near, far = (
        [xupc.all_alloc((T * 3 * n + most) * T * k, np.int64, (T * 3 * n + most) * k)
         for _ in range(2)] for k in (1, 100)
    )  # fmt: skip
    memory: Any = near[0].allocation.memory
    strides = [memory.bind(arrays[0].allocation.offset)[1] for arrays in (near, far)]
    for collective, blocks in ((xupc.all_gather_all, 1), (xupc.all_exchange, T)):
        for known, (dst, src) in enumerate((near, far)):
            before = len(described)
            for i in range(most):
                src.local[i : i + blocks * n] = 1000 * i + 10 * me + np.arange(blocks * n) // n
                collective(dst + i, src + i, 8 * n, xupc.MULTICORE)
                mine = me if blocks == T else 0
                assert (dst.local[i : i + T * n] == 1000 * i + 10 * (np.arange(T * n) // n) + mine
                        ).all(), (collective, known, i)  # fmt: skip
                if i == 0:
                    once = len(described) - before
            assert len(described) - before == once, (collective, known)
    assert not posted
    xupc.finalize()
    print(f"described {len(described)}", *(["distances differ"] * (strides[0] != strides[1])))


@case
def no_functions() -> None:
    """One thread does not find a function of MPI's."""
    import mpi4py.MPI

    from xupc.comm import mpi

    module: Any = mpi
    if mpi4py.MPI.COMM_WORLD.rank == 1:
        module.FUNCTIONS = (*mpi.FUNCTIONS[1:], "MPI_nothing_of_the_kind")
    team = xupc.init()
    total = xupc.allv_reduce_all(team.rank, xupc.ADD)
    print(team.native, total)
    xupc.finalize()


@case
def no_core() -> None:
    """Start twice where the core is not installed."""
    for _ in range(2):
        team = xupc.init()
        print(team.native, xupc.allv_reduce_all(team.rank, xupc.ADD))
        xupc.finalize()


run_case()
