"""The `_v` calls on private arrays, against numpy on the data of all threads.

``uneven_values.py SEED COUNT``: so many calls with drawn sizes, places, types and flags. Every
thread computes the data of all others from the seed.
"""

from __future__ import annotations

import random
import sys
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

Numbers = NDArray[np.int64]
FLAGS = (0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)
SYNCS = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_NOSYNC, xupc.OUT_NOSYNC)
LENGTHS = ((0,), (0, 1, 3), (5, 60, 61), (100, 2000), (1, 2, 40_000), (0, 9000))
FILL = 77


class Threads:
    """The data of all threads, computed on each."""

    def __init__(self, team: xupc.Team, seed: int) -> None:
        self.team, self.me, self.size = team, team.rank, team.size
        self.rng = random.Random(seed)  # the same on all threads
        self.numbers = np.random.default_rng(seed)

    def call(self) -> None:
        """Make one call, and check all elements of dst, those between blocks too."""
        lengths = self.rng.choice(LENGTHS)
        counts = np.array(
            [[self.rng.choice(lengths) for _ in range(self.size)] for _ in range(self.size)]
        )  # from thread, to thread
        dtype = self.rng.choice(("u1", "i4", "f8", "c16", "i2,f4"))
        flags = int(self.rng.choice(FLAGS) | self.rng.choice(SYNCS))
        what = self.rng.choice((self.gather, self.scatter, self.gather_all, self.exchange))
        how = self.rng.choice((run, post, replay))
        loose, strided = self.rng.random() < 0.5, self.rng.random() < 0.3
        root = self.rng.randrange(self.size)
        found, wanted = what(counts, dtype, flags, how, loose, strided, root)
        if wanted is not None:
            assert np.array_equal(found, wanted), (what.__name__, how.__name__, counts, flags)

    def places(self, counts: Numbers, loose: bool) -> tuple[list[int] | None, list[int], int]:
        """Return displacements to give, the places that they mean, and the elements of the array.

        All threads draw the same.
        """
        if not loose:
            return None, list(accumulate(counts[:-1].tolist(), initial=0)), int(counts.sum())
        order = self.rng.sample(range(self.size), self.size)
        at, found = 1, [0] * self.size
        for i in order:
            found[i] = at
            at += int(counts[i]) + self.rng.randrange(3)
        return found, found, at

    def data(self, n: int, dtype: str) -> NDArray[Any]:
        """Return drawn elements."""
        return self.numbers.integers(0, 100, n).astype(dtype)

    def array(self, values: NDArray[Any], strided: bool) -> NDArray[Any]:
        """Return an array of these values, maybe one that is not contiguous."""
        if not strided:
            return values.copy()
        out = np.zeros(2 * len(values), values.dtype)[::2]
        out[:] = values
        return out

    def gathered(self, sizes: Numbers, dtype: str, loose: bool) -> tuple[Any, Any, Any, Any, Any]:
        """Return blocks, displacements to give, dst before and after the call, and the places."""
        blocks = [self.data(int(n), dtype) for n in sizes]
        displs, places, length = self.places(sizes, loose)
        empty = np.full(length, FILL).astype(dtype)
        wanted = empty.copy()
        for block, at in zip(blocks, places, strict=True):
            wanted[at : at + len(block)] = block
        return blocks, displs, empty, wanted, places

    def gather(
        self, counts: Numbers, dtype: str, flags: int, how: Any, loose: bool, strided: bool,
        root: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        sizes = counts[0]
        blocks, displs, empty, wanted, _ = self.gathered(sizes, dtype, loose)
        dst = self.array(empty, strided) if self.me == root else None
        given = sizes if self.me == root else None
        src = self.array(blocks[self.me], strided)
        how(xupc.allav_gather_v, dst, src, given, root, flags=flags, displs=displs, team=self.team)
        return dst, None if dst is None else wanted

    def scatter(
        self, counts: Numbers, dtype: str, flags: int, how: Any, loose: bool, strided: bool,
        root: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        sizes = counts[0]
        displs, places, length = self.places(sizes, loose)
        values = self.data(length, dtype)
        n, at = int(sizes[self.me]), places[self.me]
        dst = self.array(np.full(n, FILL).astype(dtype), strided)
        src = self.array(values, strided) if self.me == root else None
        given = sizes.tolist() if self.me == root else "ignored"
        how(xupc.allav_scatter_v, dst, src, given, root, flags=flags, displs=displs, team=self.team)
        return dst, values[at : at + n]

    def gather_all(
        self, counts: Numbers, dtype: str, flags: int, how: Any, loose: bool, strided: bool,
        root: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        sizes = counts[0]
        blocks, displs, empty, wanted, places = self.gathered(sizes, dtype, loose)
        dst = self.array(empty, strided)
        src: Any = self.array(blocks[self.me], strided)
        if self.rng.random() < 0.4:
            at = places[self.me]
            dst[at : at + len(src)] = src
            src = None
        how(
            xupc.allav_gather_all_v,
            dst,
            src,
            tuple(sizes),
            flags=flags,
            displs=displs,
            team=self.team,
        )
        return dst, wanted

    def exchange(
        self, counts: Numbers, dtype: str, flags: int, how: Any, loose: bool, strided: bool,
        root: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        if self.rng.random() < 0.3:  # one block is much longer than the others
            counts[root, (root + 1) % self.size] = 50_000
        sides = [
            (self.places(counts[t], loose), self.places(counts[:, t], loose))
            for t in range(self.size)
        ]
        sent = [self.data(sides[t][0][2], dtype) for t in range(self.size)]
        displs, places, length = sides[self.me][1]
        wanted = np.full(length, FILL).astype(dtype)
        dst = self.array(wanted, strided)
        for of, at in enumerate(places):
            begin, n = sides[of][0][1][self.me], int(counts[of, self.me])
            wanted[at : at + n] = sent[of][begin : begin + n]
        src = self.array(sent[self.me], strided)
        how(
            xupc.allav_exchange_v, dst, src, counts[:, self.me], counts[self.me], flags=flags,
            recv_displs=displs, send_displs=sides[self.me][0][0], team=self.team,
        )  # fmt: skip
        return dst, wanted


def run(call: Any, *arguments: Any, **keywords: Any) -> None:
    """Make a blocking call."""
    assert call(*arguments, **keywords) is None


def post(call: Any, *arguments: Any, flags: int, **keywords: Any) -> None:
    """Make the call in the background."""
    call(*arguments, flags=flags | xupc.ASYNC, **keywords).wait()


def replay(call: Any, *arguments: Any, **keywords: Any) -> None:
    """Make a plan, run it in the background, then again."""
    plan = call.plan(*arguments, **keywords)
    assert plan.algorithm == "" or plan.algorithm.split(":")[0] in ("pull", "push", "multicore")
    plan.start().wait()
    plan()


def main() -> None:
    seed, count = (int(x) for x in sys.argv[1:])
    with xupc.init() as team:
        for on in (team, team.split(0, key=-team.rank)):
            assert on is not None
            threads = Threads(on, seed)
            for _ in range(count):
                threads.call()
        print("done")


if __name__ == "__main__":
    main()
