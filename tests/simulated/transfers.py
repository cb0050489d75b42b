"""The `_v` and `_x` forms for the simulator: random lists, and what must become of memory.

`Lists` are a call's as the documents have them; `moved` says in a few lines what the call does
with them, entry by entry. The algorithms are given what `xupc.algorithms.transfer_lists` makes of
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from simulated.matrix import (
    SYNCS,
    THREADS,
    TUNINGS,
    Areas,
    Planner,
    Story,
    Sync,
    Tuning,
    placements,
)
from simulated.pool import naming

from xupc.algorithms.registry import Entry, Variant, find, registered
from xupc.algorithms.transfer_lists import COLLECTIVES, Transfers, entries
from xupc.backends.simulator.script import Call
from xupc.flags import ALGORITHM_NAMES
from xupc.plan.plan import Plan
from xupc.plan.recorder import Operand, trace
from xupc.topology.tree import Tree

ENTRIES = [find(f"{name}_x", flag) for name in COLLECTIVES for flag in ALGORITHM_NAMES]
"""The `_v` forms have the same ones."""
NAMES = {entry.collective for entry in registered() if entry.collective[-2:] in ("_v", "_x")}

Place = tuple[int, int]
"""Rank and offset."""


@dataclass
class Lists:
    """A call's lists; `perm` only of permute."""

    dst: list[Place]
    src: list[Place]
    nbytes: list[int]
    perm: list[int]


@lru_cache(4096)
def some_lists(name: str, threads: int, n: int, seed: int) -> Lists:
    """Uneven, empty, repeated and overlapping source blocks; or, with seed 0, all alike.

    Where blocks of one thread go they are dealt in random order, with gaps.
    """
    rng = random.Random(f"{name} {threads} {n} {seed}")
    every = range(threads)
    root = rng.randrange(threads)
    perm = rng.sample(every, threads)
    kind = rng.randrange(4) if seed else 0

    def size() -> int:
        return n if kind == 0 else rng.randrange(n + 1) if rng.random() < 0.8 else 0

    def heavy(count: int) -> list[int]:
        sizes = [size() for _ in range(count)]
        if kind == 3:  # nearly all is in one block
            sizes = [rng.randrange(3) for _ in range(count)]
            sizes[rng.randrange(count)] = n
        return sizes

    used = [0] * threads

    def place(rank: int, nbytes: int) -> Place:
        at = used[rank] + rng.randrange(2)
        used[rank] = at + nbytes
        return rank, at

    def anywhere(rank: int, nbytes: int) -> Place:
        if kind == 2:  # all read the same
            return rank, 1
        return rank, rng.randrange((threads - 1) * n + 1)

    if name == "broadcast":
        return Lists([place(i, n) for i in every], [anywhere(root, n)], [n], perm)
    if name in ("gather_all", "exchange"):
        counts = heavy(threads if name == "gather_all" else threads**2)
        dst: list[Any] = [None] * threads**2
        for i in rng.sample(every, threads):
            for j in rng.sample(every, threads):
                k = j * threads + i if name == "exchange" else j
                dst[i * threads + j] = place(i, counts[k])
        owners = every if name == "gather_all" else [k // threads for k in range(threads**2)]
        src = [anywhere(rank, k) for rank, k in zip(owners, counts, strict=True)]
        return Lists(dst, src, counts, perm)
    counts = heavy(threads)
    src = [anywhere(root if name == "scatter" else i, counts[i]) for i in every]
    dst = [None] * threads
    for i in rng.sample(every, threads):
        to = {"scatter": i, "gather": root, "permute": perm[i]}[name]
        dst[perm[i] if name == "permute" else i] = place(to, counts[i])
    return Lists(dst, src, counts, perm)


def moved(name: str, threads: int, lists: Lists) -> Iterator[tuple[Place, Place, int]]:
    """(to, from, bytes) of each block, as the documents say it."""
    dst, src, nbytes = lists.dst, lists.src, lists.nbytes
    for i in range(threads):
        if name == "broadcast":
            yield dst[i], src[0], nbytes[0]
        elif name in ("scatter", "gather"):
            yield dst[i], src[i], nbytes[i]
        elif name == "permute":
            yield dst[lists.perm[i]], src[i], nbytes[i]
        else:
            for j in range(threads):
                k = j if name == "gather_all" else j * threads + i
                yield dst[i * threads + j], src[k], nbytes[k]


def transfers(name: str, threads: int, lists: Lists) -> Transfers:
    """Return the transfers that the algorithms get."""
    e = entries(name, threads, np.array(lists.perm))
    dst, src = np.array(lists.dst)[e.dst], np.array(lists.src)[e.src]
    nbytes = np.array(lists.nbytes)[e.nbytes]
    return Transfers.of(dst[:, 0], dst[:, 1], src[:, 0], src[:, 1], nbytes)


class Moved(NamedTuple):
    """What a call with some lists does: to the algorithms, to its users, to memory."""

    transfers: Transfers
    sources: Areas
    results: Areas
    blocks: list[tuple[Place, Place, int]]


@lru_cache(4096)
def some_moved(collective: str, threads: int, n: int, seed: int) -> Moved:
    """That of `some_lists`, of which there are few."""
    name = collective.removesuffix("_x")
    lists = some_lists(name, threads, n, seed)
    blocks = [block for block in moved(name, threads, lists) if block[2]]
    sources = _areas([(*of, nbytes) for _, of, nbytes in blocks])
    results = _areas([(*to, nbytes) for to, _, nbytes in blocks])
    return Moved(transfers(name, threads, lists), sources, results, blocks)


class ListPlanner(Planner):
    """Plans of the forms; the `root` of a plan is the seed of its lists."""

    def plan(
        self, entry: Entry | Variant, me: int, sync: Sync, tuning: Tuning, root: int, n: int
    ) -> Plan:
        moves = some_moved(entry.collective, self.tree.size, n, root).transfers
        given = (Operand(0), Operand(1), moves)
        return trace(
            entry.function, entry.name, entry.collective, me, self.tree, sync, tuning, given
        )


class ListStory(Story):
    """Calls with lists, on memory with room for all of them."""

    def call(
        self, entry: Entry | Variant, root: int, n: int, sync: Sync, tuning: Tuning, *, tight: bool
    ) -> None:
        """What users do before the call, and the call."""
        _, sources, results, blocks = some_moved(entry.collective, self.threads, n, root)
        base = self._prepare(sync, sources, results, tight=tight)
        programs = self.planner.programs(entry, sync, tuning, root, n)
        self._make(Call(programs, (("dst", base), ("src", base))))
        dst, src = self.expected["dst"], self.expected["src"]
        for (to, there), (of, here), nbytes in blocks:
            there, here = there + base, here + base
            dst[to, there : there + nbytes] = src[of, here : here + nbytes]


def _areas(blocks: list[tuple[int, int, int]]) -> Areas:
    """The bytes of blocks, each once."""
    out: Areas = []
    for rank, lo, nbytes in sorted(blocks):
        if out and out[-1][0] == rank and lo <= out[-1][2]:
            out[-1] = rank, out[-1][1], max(out[-1][2], lo + nbytes)
        else:
            out.append((rank, lo, lo + nbytes))
    return out


@dataclass(frozen=True)
class Case:
    """A story: the lists `seed` twice, others, a different collective, the first again."""

    entry: Entry
    labels: tuple[int, ...]
    sync: Sync
    tuning: str
    n: int
    seed: int

    def run(self, schedule: int | None = None) -> None:
        """Simulate it; what is wrong is raised with the case's name."""
        threads, tuning = len(self.labels), TUNINGS[self.tuning][0]
        planner = ListPlanner(Tree(self.labels))
        told = ListStory(planner, threads * (self.n + 2), self.seed)
        other = ENTRIES[(ENTRIES.index(self.entry) + 4 + self.seed) % len(ENTRIES)]
        plan = [
            (self.entry, self.seed), (self.entry, self.seed), (self.entry, self.seed + 1),
            (other, self.seed), (self.entry, self.seed),
        ]  # fmt: skip
        for i, (entry, lists) in enumerate(plan):
            tight = bool((i + self.seed) % 3)
            told.call(entry, lists, self.n, self.sync, tuning, tight=tight)
        with naming(self):
            told.run(schedule)


def cases(entry: Entry, per_placement: int | None, seed: int) -> Iterator[Case]:
    """So many cases of each placement, None: every pair of sync modes and tuning."""
    rng = random.Random(f"{seed} {entry.collective} {entry.name}")
    for threads in THREADS:
        for labels in placements(threads).values():
            every = [(sync, name) for sync in SYNCS for name in TUNINGS]
            chosen = every if per_placement is None else rng.sample(every, per_placement)
            for sync, name in chosen:
                n = rng.choice((1, 5, 13, 17, 40))
                yield Case(entry, tuple(labels), sync, name, n, rng.randrange(6))
