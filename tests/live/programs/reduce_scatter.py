"""Reduce-scatter in all forms, against numpy on the data of all threads.

``reduce_scatter.py SEED COUNT``: so many calls with drawn sizes, types, operations and flags. Every
thread computes the data of all others from the seed.
"""

from __future__ import annotations

import random
import sys
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

FLAGS = (0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)
SYNCS = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_MYSYNC, xupc.OUT_MYSYNC)
OPERATIONS = {
    xupc.ADD: np.add, xupc.MIN: np.minimum, xupc.MAX: np.maximum, xupc.XOR: np.bitwise_xor,
}  # fmt: skip
SIZES = (1, 2, 7, 8, 100, 1000, 33_000)


def affine(a: Any, b: Any) -> Any:
    """Compose two functions x -> s x + t, as (s, t) packed into an int: the order matters."""
    s, t, u, v = int(a) >> 8 & 255, int(a) & 255, int(b) >> 8 & 255, int(b) & 255
    return (s * u % 251) << 8 | (t * u + v) % 251


class Threads:
    """The data of all threads, computed on each."""

    def __init__(self, team: xupc.Team, seed: int) -> None:
        self.team = team
        self.rng = random.Random(seed)  # the same on all threads
        self.numbers = np.random.default_rng(seed)

    def drawn(self, n: int, dtype: str) -> NDArray[Any]:
        """Return T blocks of n elements of each thread: (thread, block, element)."""
        shape = self.team.size, self.team.size, n
        return self.numbers.integers(0, 100, shape).astype(dtype)

    def call(self) -> None:
        """Make one call in a drawn form, and check this thread's block."""
        n, dtype = self.rng.choice(SIZES), self.rng.choice(("i4", "i8", "f8", "u2"))
        op, ufunc = self.rng.choice(list(OPERATIONS.items()))
        op = xupc.ADD if dtype == "f8" and op == xupc.XOR else op
        ufunc = OPERATIONS[op]
        flags = self.rng.choice(FLAGS) | self.rng.choice((0, xupc.REPRODUCIBLE))
        data = self.drawn(n, dtype)
        wanted = reduce(ufunc, data[:, self.team.rank])
        how = self.rng.choice((self.shared, self.plan, self.private, self.posted))
        found = how(data[self.team.rank], op, n, int(flags))
        assert np.array_equal(found, wanted), (n, dtype, op, flags, how.__name__)

    def _arrays(self, mine: NDArray[Any], n: int) -> tuple[Any, Any]:
        size = self.team.size
        src = xupc.all_alloc(size * size * n, mine.dtype, size * n)
        dst = xupc.all_alloc(size * n, mine.dtype, n)
        src.local[:], dst.local[:] = mine.reshape(-1), 77
        return dst, src

    def _taken(self, dst: Any, src: Any) -> NDArray[Any]:
        xupc.barrier()
        found: NDArray[Any] = dst.local.copy()
        xupc.all_free(src)
        xupc.all_free(dst)
        return found

    def shared(self, mine: NDArray[Any], op: xupc.Op, n: int, flags: int) -> NDArray[Any]:
        """Reduce shared arrays, under drawn sync modes."""
        dst, src = self._arrays(mine, n)
        sync = int(self.rng.choice(SYNCS))
        xupc.barrier()
        xupc.all_reduce_scatter(dst, src, op, n, flags=flags | sync)
        return self._taken(dst, src)

    def plan(self, mine: NDArray[Any], op: xupc.Op, n: int, flags: int) -> NDArray[Any]:
        """Run a plan twice."""
        dst, src = self._arrays(mine, n)
        plan = xupc.all_reduce_scatter.plan(dst, src, op, n, flags=flags)
        plan()
        dst.local[:] = 78
        plan()
        return self._taken(dst, src)

    def private(self, mine: NDArray[Any], op: xupc.Op, n: int, flags: int) -> NDArray[Any]:
        """Reduce private arrays, of which dst may have strides."""
        step = self.rng.choice((1, 2))
        dst = np.full(step * n, 77, mine.dtype)[::step]
        xupc.allav_reduce_scatter(dst, mine.copy(), op, flags=flags)
        return dst

    def posted(self, mine: NDArray[Any], op: xupc.Op, n: int, flags: int) -> NDArray[Any]:
        """Post the call, and another one after it."""
        dst, src = self._arrays(mine, n)
        again = np.empty(n, mine.dtype)
        handles = [
            xupc.all_reduce_scatter(dst, src, op, n, flags=flags | xupc.ASYNC),
            xupc.allav_reduce_scatter(again, mine.copy(), op, flags=flags | xupc.ASYNC),
        ]
        for handle in handles:
            handle.wait()
        assert np.array_equal(again, dst.local)
        return self._taken(dst, src)

    def ordered(self) -> None:
        """Operands of a function that is not commutative keep their places, in every way."""
        data = self.drawn(3, "i8") + 256
        wanted = [reduce(affine, column) for column in data[:, self.team.rank].T.tolist()]
        for flag in FLAGS:
            dst = np.zeros(3, np.int64)
            xupc.allav_reduce_scatter(
                dst, data[self.team.rank], xupc.NONCOMM_FUNC, affine, flags=int(flag)
            )
            assert dst.tolist() == wanted, flag
            args = data[self.team.rank, :, 0].tolist(), xupc.NONCOMM_FUNC, affine, int(flag)
            assert xupc.allv_reduce_scatter(*args) == wanted[0], flag


def main(seed: int, count: int) -> None:
    """Make all calls."""
    threads = Threads(xupc.init(), seed)
    for _ in range(count):
        threads.call()
    threads.ordered()
    xupc.finalize()
    print("done", flush=True)


main(*map(int, sys.argv[1:]))
