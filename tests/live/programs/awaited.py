"""Handles and plans that are awaited in coroutines of asyncio, several at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

import xupc

team = xupc.init()
threads, me = team.size, team.rank


async def gathered(k: int) -> None:
    mine, every = np.full(1000, me + 10.0 * k), np.empty(1000 * threads)
    await xupc.allav_gather_all(every, mine, xupc.ASYNC)
    assert (np.arange(threads) + 10.0 * k == every.reshape(threads, -1).T).all()


async def planned(plan: Any, mine: Any, total: Any) -> None:
    for k in range(3):
        mine[:] = me + k
        await plan
        assert (total == sum(range(threads)) + k * threads).all()


async def main() -> None:
    """Post in the same order on all threads: tasks start in the order of `gather`."""
    mine, total = np.empty(100), np.empty(100)
    plan = xupc.allav_reduce_all.plan(total, mine, xupc.ADD)
    await asyncio.gather(*(gathered(k) for k in range(5)))
    await planned(plan, mine, total)


asyncio.run(main())
print("done")
xupc.finalize()
