"""Random teams: each thread checks what it must find after every collective on every one of them.

Teams that have no thread in common make their calls at the same time, and different ones.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import numpy as np
from support.checked_calls import ALGORITHMS, SYNC, raises

import xupc

FLAGS = [
    SYNC[modes] | algorithm
    for modes in (("ALLSYNC", "ALLSYNC"), ("MYSYNC", "MYSYNC"), ("NOSYNC", "NOSYNC"))
    for algorithm in ALGORITHMS.values()
]


class Checks:
    """Calls on one team over memory of the team or of all threads, checked by each member."""

    def __init__(self, team: Any, seed: int, world: tuple[Any, Any]) -> None:
        self.team = team
        self.me = int(xupc.MYTHREAD)
        self.random = np.random.default_rng(seed)  # the same on all its threads
        self.world = world
        self.count = 0

    def data(self, thread: int, n: int) -> Any:
        """What a thread has to give, in this call."""
        return np.arange(n) * 7 + thread * 1_000_003 + self.count

    def operands(self, blocks: int, n: int) -> tuple[Any, Any]:
        """dst of `blocks` blocks and src of one; src is written, dst is spoilt."""
        team, size = self.team, self.team.size
        if self.random.integers(2):
            dst = xupc.all_alloc(size * n * blocks, "i8", n * blocks, team=team)
            src = xupc.all_alloc(size * n, "i8", n, team=team)
        else:
            dst, src = self.world
        src.local[:n] = self.data(self.me, n)
        dst.local[:] = -1
        team.barrier()
        return dst, src

    def done(self, *arrays: Any) -> None:
        """Wait until all threads have checked, then free arrays other than the world's."""
        self.team.barrier()
        if arrays[0] is not self.world[0]:
            for array in arrays:
                xupc.all_free(array)

    def call(self) -> None:
        """One call, chosen at random."""
        self.count += 1
        flags = FLAGS[self.random.integers(len(FLAGS))]
        n = int(self.random.choice([1, 5, 700, 9000]))
        names = ["broadcast", "gather", "gather_all", "uneven", "exchange", "permute"]
        names += ["sum", "prefix", "private"]
        getattr(self, self.random.choice(names))(n, flags)

    def root(self) -> tuple[int, int]:
        rank = int(self.random.integers(self.team.size))
        return rank, self.team.threads[rank]

    def at(self, array: Any, rank: int) -> Any:
        """A pointer to the start of a member's part, or the array alone for the first one's."""
        return self.pointer(array, rank) if rank else array

    def pointer(self, array: Any, rank: int) -> Any:
        block = self.team.threads[rank] if any(array is w for w in self.world) else rank
        return array + block * array.blocksize

    def see(self, found: Any, wanted: Any, what: object) -> None:
        assert np.array_equal(found, wanted), (what, self.team.threads, self.count, found, wanted)

    def broadcast(self, n: int, flags: int) -> None:
        rank, thread = self.root()
        dst, src = self.operands(1, n)
        xupc.all_broadcast(dst, self.at(src, rank), 8 * n, flags, team=self.team)
        self.team.barrier()
        self.see(dst.local[:n], self.data(thread, n), "broadcast")
        self.done(dst, src)

    def gather(self, n: int, flags: int) -> None:
        rank, thread = self.root()
        team = self.team
        dst, src = self.operands(team.size, n)
        xupc.all_gather(self.at(dst, rank), src, 8 * n, flags, team=team)
        team.barrier()
        wanted = np.concatenate([self.data(t, n) for t in team.threads])
        if thread != self.me:
            wanted[:] = -1
        self.see(dst.local[: n * team.size], wanted, "gather")
        self.done(dst, src)

    def gather_all(self, n: int, flags: int) -> None:
        team = self.team
        dst, src = self.operands(team.size, n)
        xupc.all_gather_all(dst, src, 8 * n, flags, team=team)
        team.barrier()
        wanted = np.concatenate([self.data(t, n) for t in team.threads])
        self.see(dst.local[: n * team.size], wanted, "gather_all")
        self.done(dst, src)

    def uneven(self, n: int, flags: int) -> None:
        """Pointers to blocks of sizes that differ, 0 among them."""
        team = self.team
        dst, src = self.operands(team.size, n)
        sizes = [int(k) for k in self.random.integers(0, n + 1, team.size)]
        ranks = range(team.size)
        to = [self.pointer(dst, i) + j * n for i in ranks for j in ranks]
        of = [self.pointer(src, j) for j in ranks]
        xupc.all_gather_all_x(to, of, [8 * k for k in sizes], flags, team=team)
        team.barrier()
        wanted = np.full((team.size, n), -1)
        for row, thread, k in zip(wanted, team.threads, sizes, strict=True):
            row[:k] = self.data(thread, n)[:k]
        self.see(dst.local[: n * team.size], wanted.ravel(), "gather_all_x")
        self.done(dst, src)

    def private(self, n: int, flags: int) -> None:
        """Arrays of values, and single ones."""
        team = self.team
        mine, out = self.data(self.me, n), np.empty(n, np.int64)
        xupc.allav_reduce_all(out, mine, xupc.ADD, None, flags, team)
        self.see(out, sum(self.data(t, n) for t in team.threads), "allav_reduce_all")
        every = np.empty(n * team.size, np.int64)
        xupc.allav_gather_all(every, mine, flags, team)
        wanted = np.concatenate([self.data(t, n) for t in team.threads])
        self.see(every, wanted, "allav_gather_all")
        rank, thread = self.root()
        assert xupc.allv_broadcast(self.me, rank, flags, team) == thread
        assert xupc.allv_gather_all(self.me, flags, team) == list(team.threads)

    def exchange(self, n: int, flags: int) -> None:
        team, k = self.team, max(1, n // self.team.size)
        dst, _ = self.operands(1, k * team.size)
        src = xupc.all_alloc(team.size**2 * k, "i8", k * team.size, team=team)
        src.local[:] = self.data(self.me, k * team.size)
        team.barrier()
        xupc.all_exchange(dst, src, 8 * k, flags, team=team)
        team.barrier()
        mine = slice(team.rank * k, team.rank * k + k)
        wanted = np.concatenate([self.data(t, k * team.size)[mine] for t in team.threads])
        self.see(dst.local[: k * team.size], wanted, "exchange")
        self.done(dst, src) if dst is not self.world[0] else team.barrier()

    def permute(self, n: int, flags: int) -> None:
        team = self.team
        perm = self.random.permutation(team.size).tolist()
        dst, src = self.operands(1, n)
        xupc.all_permute(dst, src, perm, 8 * n, flags, team=team)
        team.barrier()
        self.see(dst.local[:n], self.data(team.threads[perm.index(team.rank)], n), "permute")
        self.done(dst, src)

    def sum(self, n: int, flags: int) -> None:
        team = self.team
        dst, src = self.operands(1, n)
        args = {"nelems": n * team.size, "blk_size": n}
        xupc.all_reduce_mpi_all(dst, src, xupc.ADD, **args, flags=flags, team=team)
        team.barrier()
        self.see(dst.local[:n], sum(self.data(t, n) for t in team.threads), "reduce_mpi_all")
        team.barrier()
        xupc.all_reduce_all(dst, src, xupc.MAX, **args, flags=flags, team=team)
        team.barrier()
        self.see(dst.local[0], max(self.data(t, n).max() for t in team.threads), "reduce_all")
        self.done(dst, src)

    def prefix(self, n: int, flags: int) -> None:
        team = self.team
        dst, src = self.operands(1, n)
        args = {"nelems": n * team.size, "blk_size": n}
        xupc.all_prefix_reduce(dst, src, xupc.ADD, **args, flags=flags, team=team)
        team.barrier()
        wanted = np.concatenate([self.data(t, n) for t in team.threads]).cumsum().reshape(-1, n)
        self.see(dst.local[:n], wanted[team.rank], "prefix_reduce")
        self.done(dst, src)


def used() -> int:
    """Bytes of nameless shared memory that I have mapped and touched."""
    total, nameless = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                nameless = bool(re.search(r"/#\d+ \(deleted\)", line))
            elif nameless and line.startswith("Rss:"):
                total += int(line.split()[1]) << 10
    return total


def check(team: Any, seed: int, calls: int, world: tuple[Any, Any]) -> None:
    checks = Checks(team, seed, world)
    for _ in range(calls):
        checks.call()


def mismatch(team: Any) -> None:
    """Found on the team, named by thread; the others go on undisturbed."""
    if team.size > 1:
        odd = team.threads[-1]
        error = raises(
            xupc.CollectiveMismatchError,
            ("value", f"thread {odd}"),
            lambda: team.barrier("odd" if odd == xupc.MYTHREAD else "even"),
        )
        others = [t for t in range(xupc.THREADS) if t not in team.threads]
        assert not any(f"thread {t}:" in str(error) for t in others), error
    team.barrier()


def main(rounds: int, calls: int) -> None:
    seed = int(os.environ.get("XUPC_TEST_SEED", 20))
    random = np.random.default_rng(seed)
    team = xupc.init(timeout=30)
    T, me = int(xupc.THREADS), int(xupc.MYTHREAD)
    room = 9000 * T
    world = xupc.all_alloc(T * room, "i8", room), xupc.all_alloc(T * 9000, "i8", 9000)
    assert team.node.tree.nodes == (tuple(team.tree.nodes[team.tree.node_of(me)]),)
    assert (team.roots is None) == (me not in team.tree.roots)
    for part in (team.node, team.roots, team.node.node):
        if part is not None:
            check(part, part.threads[0], calls, world)
    xupc.barrier()
    for k in range(rounds):
        colors = random.integers(-1, 3, T).tolist()
        keys = random.integers(-5, 5, T).tolist()
        color = None if colors[me] < 0 else colors[me]
        part = team.split(color, keys[me])
        if part is None:
            continue
        threads = sorted((t for t in range(T) if colors[t] == color), key=lambda t: (keys[t], t))
        assert list(part.threads) == threads, (part.threads, threads)
        assert part.threads[part.rank] == me
        assert part.size == len(threads)
        placed = {team.tree.node_of(t) for t in threads}
        assert len(part.tree.nodes) == len(placed)
        assert {t for node in part.tree.nodes for t in node} == set(threads)
        assert part.tree.root_of(me) in part.tree.roots
        check(part, 100 * k + color, calls, world)
        mismatch(part)
        nested = part.split(part.rank % 2)
        check(nested, 1000 * k + 10 * color + part.rank % 2, 2, world)
        check(part, 200 * k + color, 2, world)
        nested.free()
        if part.roots is not None:
            check(part.roots, k, 2, world)
        part.free()
    xupc.barrier()
    before = used()
    part = team.split(me % 2)
    array = xupc.all_alloc((4 << 20) * part.size, "u1", 4 << 20, team=part)
    array.local[:] = 1
    view = array.local
    xupc.barrier()
    most = used()
    part.free()
    raises(ValueError, ("freed",), lambda: array[0])
    assert view[-1] == 1
    del view
    xupc.barrier()
    assert used() - before < 2 << 20, used() - before
    assert most - used() >= 3 << 20, most - used()  # all but a few pages that stay in use
    xupc.barrier()
    print(f"thread {me}: done, seed {seed}")
    xupc.finalize()


main(*json.loads(sys.argv[1]))
