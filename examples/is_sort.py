"""Integer sort, as in the NAS Parallel Benchmarks (IS): ranks keys ten times and verifies them.

    xupc run -n 4 --nodes 2x2 examples/is_sort.py [S | W | A]

Each iteration changes two keys, then finds every key's rank: how many keys are smaller.

1. Each thread counts its keys by bucket, a bucket being a range of keys; `all_reduce_mpi_all` adds
   the counts up.
2. All threads deal the buckets out in the same way, so that each gets about as many keys.
3. `all_gather_all` gives all threads the number of keys that go from each thread to each other
   one; `all_exchange` moves them, in blocks as long as the longest.
4. A thread now has all keys of a range, and counting them gives their ranks.

After each iteration the ranks of five keys are compared with known ones; at the end the keys are
written in the order of their ranks and checked to be sorted. Any number of threads will do.
"""

import sys
import time
from typing import NamedTuple

import numpy as np

import xupc

ITERATIONS = 10
SEED, FACTOR = 314159265, 1220703125  # random numbers: x -> x * FACTOR modulo 2**46
BITS = 46
GRANULE = 256  # keys; exchanged blocks are rounded up, so that most iterations use one plan


class KnownRank(NamedTuple):
    """The known rank of the key at a place; the changed keys move it by one in each iteration."""

    place: int
    rank: int
    drift: int
    late: int = 0

    def in_iteration(self, iteration: int) -> int:
        """Return the rank in an iteration, counted from 1."""
        return self.rank + self.drift * (iteration - self.late)


class Size(NamedTuple):
    """A problem class of the benchmark: numbers as powers of two, and five tests."""

    keys: int
    max_key: int
    buckets: int
    tests: tuple[KnownRank, ...]


SIZES = {
    "S": Size(16, 11, 9, (
        KnownRank(48427, 0, +1), KnownRank(17148, 18, +1), KnownRank(23627, 346, +1),
        KnownRank(62548, 64917, -1), KnownRank(4431, 65463, -1),
    )),
    "W": Size(20, 16, 10, (
        KnownRank(357773, 1249, +1, 2), KnownRank(934767, 11698, +1, 2),
        KnownRank(875723, 1039987, -1), KnownRank(898999, 1043896, -1),
        KnownRank(404505, 1048018, -1),
    )),
    "A": Size(23, 19, 10, (
        KnownRank(2112377, 104, +1, 1), KnownRank(662041, 17523, +1, 1),
        KnownRank(5336171, 123928, +1, 1), KnownRank(3642833, 8288932, -1, 1),
        KnownRank(4250760, 8388264, -1, 1),
    )),
}  # fmt: skip


def randoms(first: int, count: int) -> np.ndarray:
    """Return random numbers `first` .. `first + count`, as integers below 2**46.

    Number i is SEED * FACTOR**(i + 1), so a thread starts anywhere and doubles what it has. The
    products overflow 64 bits, which does no harm to the lowest 46.
    """
    x = np.empty(count, np.uint64)
    x[:1] = SEED * pow(FACTOR, first + 1, 1 << BITS) % (1 << BITS)
    have = 1
    while have < count:
        more = min(have, count - have)
        x[have : have + more] = x[:more] * np.uint64(pow(FACTOR, have, 1 << BITS))
        x[have : have + more] &= np.uint64((1 << BITS) - 1)
        have += more
    return x


def make_keys(size: Size, first: int, count: int) -> np.ndarray:
    """Return keys `first` .. `first + count`: means of four random numbers each, a bell curve."""
    sums = randoms(4 * first, 4 * count).reshape(count, 4).sum(axis=1)
    return (sums >> np.uint64(BITS + 2 - size.max_key)).astype(np.int32)


class Ranks(NamedTuple):
    """A thread's result of an iteration: the ranks of keys in range(low, low + len(counts))."""

    low: int
    counts: np.ndarray  # how many there are of each
    smaller: np.ndarray  # and of smaller ones on all threads: the rank


class Sorter:
    """Hold the keys and what is needed to rank them."""

    def __init__(self, size: Size, team: xupc.Team) -> None:
        T, me = xupc.THREADS, xupc.MYTHREAD
        B = 1 << size.buckets
        self.size = size
        self.keys = xupc.all_alloc(1 << size.keys, np.int32, "*")  # one block per thread
        self.keys.local[:] = make_keys(size, me * self.keys.blocksize, len(self.keys.local))
        self.counts = xupc.all_alloc(T * B, np.int32, B)
        self.totals = xupc.all_alloc(T * B, np.int32, B)
        self.row = xupc.all_alloc(T * T, np.int32, T)
        self.matrix = xupc.all_alloc(T * T * T, np.int32, T * T)
        self.buffers: list[xupc.SharedArray] = []  # to exchange keys; made when their size is known
        self.room = 0  # keys per block in them

        node = np.array([team.tree.node_of(t) for t in range(T)])
        self.between_nodes = node[:, None] != node[None, :]
        self.crossed = 0  # keys, so far

    def rank(self, iteration: int) -> Ranks:
        """Run one iteration of the benchmark; return the ranks of my keys."""
        T, me, size = xupc.THREADS, xupc.MYTHREAD, self.size
        self.change(iteration, iteration)
        self.change(iteration + ITERATIONS, (1 << size.max_key) - iteration)

        shift = size.max_key - size.buckets
        buckets = self.keys.local >> shift
        self.counts.local[:] = np.bincount(buckets, minlength=1 << size.buckets)
        xupc.all_reduce_mpi_all(self.totals, self.counts, xupc.ADD)
        totals = self.totals.local.astype(np.int64)
        before = np.cumsum(totals) - totals  # keys in lower buckets

        # A bucket belongs to the thread that its middle key would be on if all were sorted.
        owner = np.minimum((before + totals // 2) * T >> size.keys, T - 1)
        mine = np.flatnonzero(owner == me)
        low, high = (mine[0], mine[-1] + 1) if len(mine) else (0, 0)

        received = self.exchange(owner[buckets])
        counts = np.bincount(received - (low << shift), minlength=(high - low) << shift)
        return Ranks(low << shift, counts, np.cumsum(counts) - counts + before[low])

    def change(self, index: int, key: int) -> None:
        """Change a key, on the thread that has it."""
        if self.keys.threadof(index) == xupc.MYTHREAD:
            self.keys[index] = key

    def exchange(self, to: np.ndarray) -> np.ndarray:
        """Send my key i to thread to[i]; return what I get."""
        T, me = xupc.THREADS, xupc.MYTHREAD
        outgoing = np.bincount(to, minlength=T)
        self.row.local[:] = outgoing
        xupc.all_gather_all(self.matrix, self.row, T * self.row.itemsize)
        matrix = self.matrix.local.reshape(T, T)  # from a row's thread to a column's
        self.crossed += int(matrix[self.between_nodes].sum())

        block = -(-int(matrix.max()) // GRANULE) * GRANULE
        src, dst = self.room_for(block)
        sent = src.local[: T * block].reshape(T, block)
        by_thread = self.keys.local[np.argsort(to.astype(np.uint16), kind="stable")]
        for t, part in enumerate(np.split(by_thread, np.cumsum(outgoing)[:-1])):
            sent[t, : len(part)] = part
        xupc.all_exchange(dst, src, block * src.itemsize)
        got = dst.local[: T * block].reshape(T, block)
        return np.concatenate([got[t, : matrix[t, me]] for t in range(T)])

    def room_for(self, block: int) -> list[xupc.SharedArray]:
        """Return two arrays with a block for each pair of threads; collective."""
        if block > self.room:
            for buffer in self.buffers:
                xupc.all_free(buffer)
            T, self.room = xupc.THREADS, block
            self.buffers = [xupc.all_alloc(T * T * block, np.int32, T * block) for _ in range(2)]
        return self.buffers


def right_ranks(tests: list[tuple[int, KnownRank]], ranks: Ranks, iteration: int) -> int:
    """Return how many of the test keys I have with the rank that they should have."""
    right = 0
    for key, test in tests:
        if 0 <= key - ranks.low < len(ranks.counts):
            right += int(ranks.smaller[key - ranks.low] == test.in_iteration(iteration))
    return right


def in_order(ranks: Ranks, total: int) -> bool:
    """Write the keys to the places that their ranks name; return whether mine are sorted then."""
    keys = xupc.all_alloc(total, np.int32, "*")
    keys.local[:] = -1  # no key
    xupc.barrier()
    if ranks.counts.any():
        begin = int(ranks.smaller[0])
        mine = np.repeat(np.arange(ranks.low, ranks.low + len(ranks.counts)), ranks.counts)
        keys[begin : begin + len(mine)] = mine
    xupc.barrier()
    block = keys.local
    first = xupc.MYTHREAD * keys.blocksize
    if first > 0 and len(block):
        block = np.concatenate([keys[first - 1 : first], block])
    return bool((block >= 0).all() and (np.diff(block) >= 0).all())


def main(name: str) -> int:
    """Run the benchmark; return 1 if it found a wrong rank or order, else 0."""
    if name not in SIZES:
        print(f"usage: is_sort.py [{' | '.join(SIZES)}]", file=sys.stderr)
        return 2
    with xupc.init() as team:
        size, total = SIZES[name], 1 << SIZES[name].keys
        one_each = xupc.all_alloc(xupc.THREADS, np.float64)
        result = xupc.all_alloc(xupc.THREADS, np.float64)

        def over_threads(op: xupc.Op, value: float) -> float:
            one_each.local[0] = value
            xupc.all_reduce_all(result, one_each, op)
            return float(result.local[0])

        sorter = Sorter(size, team)
        xupc.barrier()
        tests = [(int(sorter.keys[test.place]), test) for test in size.tests]
        sorter.rank(1)  # once for free: pages, plans

        sorter.crossed = right = 0
        xupc.barrier()
        began = time.perf_counter()
        for iteration in range(1, ITERATIONS + 1):
            ranks = sorter.rank(iteration)
            right += right_ranks(tests, ranks, iteration)
        seconds = over_threads(xupc.MAX, time.perf_counter() - began)

        right = int(over_threads(xupc.ADD, right))
        is_sorted = over_threads(xupc.MIN, in_order(ranks, total)) == 1
        good = is_sorted and right == ITERATIONS * len(tests)
        if xupc.MYTHREAD == 0:
            crossed = sorter.crossed * sorter.keys.itemsize / ITERATIONS / 1e6
            print(f"IS class {name}: {total} keys below {1 << size.max_key}")
            print(f"placed                 {xupc.THREADS} threads on {len(team.tree.nodes)} nodes")
            print(f"time per iteration     {seconds / ITERATIONS * 1e3:.3f} ms")
            print(f"keys ranked per second {ITERATIONS * total / seconds / 1e6:.2f} million")
            print(f"keys between nodes     {crossed:.3f} MB per iteration")
            print(f"ranks                  {right} of {ITERATIONS * len(tests)} right")
            print(f"order                  {'sorted' if is_sorted else 'NOT SORTED'}")
            print(f"VERIFICATION {'SUCCESSFUL' if good else 'FAILED'}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "S"))
