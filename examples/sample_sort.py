"""A sample sort of uneven data: any number of keys on any thread, any key any number of times.

    xupc run -n 4 --nodes 2x2 examples/sample_sort.py [keys]

Thread 0 starts with most of the keys, the last one with none, and more than a third of all keys
are the same one. In the end each thread's keys follow those of the thread before, and all threads
have about as many.

1. Each thread sorts its keys and takes samples of them at equal distances.
2. `all_gather_all_v` gives the samples of all threads to all threads, which then choose the same
   splitters. A splitter is a key at a place on a thread, which distinguishes even equal keys.
3. `all_exchange` sends each thread the number of keys that come to it from each other thread.
4. `all_exchange_v` moves them. The lists that it wants are shared arrays, in which each thread
   writes only what is its own: no thread needs the counts of all pairs.
5. What has come is some sorted runs, which numpy's stable sort merges.

At the end all threads check that the keys are in order and that none was lost or changed.
"""

import sys
import time
from typing import NamedTuple

import numpy as np

import xupc

SEED = 2008
OVERSAMPLING = (
    16  # samples per splitter and thread; with 16, parts are about 1/16 too large at worst
)
NO_KEY = 0  # below all keys


def shares(keys: int, threads: int) -> list[int]:
    """Return the keys that each thread starts with: most, then fewer and fewer, at last none."""
    others = [keys * t // (2 * threads**2) for t in range(threads - 2, -1, -1)]
    return [keys - sum(others), *others]


def make_keys(count: int, thread: int) -> np.ndarray:
    """Return a thread's keys: few different ones that come often, many that come seldom."""
    rng = np.random.default_rng([SEED, thread])
    return (rng.pareto(0.7, count) ** 2 + 1).clip(max=1e15).astype(np.int64)


def checksum(keys: np.ndarray) -> int:
    """Return a number that depends on all keys, but not on their order; sums may overflow."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return int(mixed.view(np.int64).sum())


class Splitters(NamedTuple):
    """Places in the order of all keys, which cut it into a part for each thread."""

    key: np.ndarray
    thread: np.ndarray
    place: np.ndarray  # among that thread's sorted keys

    def cut(self, keys: np.ndarray, me: int) -> np.ndarray:
        """Return how many of my keys come before each. Equal ones go by thread, then by place."""
        left, right = (np.searchsorted(keys, self.key, side) for side in ("left", "right"))
        on_others = np.where(me < self.thread, right, left)
        return np.where(me == self.thread, self.place, on_others)


def choose(samples: Splitters, parts: int) -> Splitters:
    """Return some of the samples, at equal distances; they come by thread, and there by place."""
    order = np.argsort(samples.key, kind="stable")
    chosen = order[len(order) * np.arange(1, parts) // parts]
    return Splitters(*(each[chosen] for each in samples))


def on_all_threads(value: int) -> np.ndarray:
    """Return the values of all threads, in the order of threads."""
    T = xupc.THREADS
    mine = xupc.all_alloc(T, np.int64)
    values = xupc.all_alloc(T * T, np.int64, T)
    mine.local[0] = value
    xupc.all_gather_all(values, mine, mine.itemsize)
    return values.local


def splitters(keys: np.ndarray) -> Splitters:
    """Choose splitters, the same on all threads, from samples of all threads' sorted keys."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    counts = on_all_threads(len(keys))
    every = max(1, int(counts.sum()) // (OVERSAMPLING * T * T))
    places = [np.arange(every // 2, count, every) for count in counts]
    sizes = np.array([len(each) for each in places])
    most, total = int(sizes.max()), int(sizes.sum())

    src = xupc.all_alloc(T * most, np.int64, most)
    dst = xupc.all_alloc(T * total, np.int64, total)
    src.local[: sizes[me]] = keys[places[me]]
    begin = np.cumsum(sizes) - sizes  # of a thread's samples among all
    to = total * np.arange(T)[:, None] + begin  # on the thread of the row, from that of the column
    xupc.all_gather_all_v(dst, src, to.ravel(), most * np.arange(T), sizes)
    samples = Splitters(dst.local, np.repeat(np.arange(T), sizes), np.concatenate(places))
    return choose(samples, T)


def exchange(keys: np.ndarray, outgoing: np.ndarray) -> np.ndarray:
    """Send the first outgoing[0] keys to thread 0, the next to thread 1 and so on; return mine."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    send, receive, sdisp, ddisp = (xupc.all_alloc(T * T, np.int64, T) for _ in range(4))
    send.local[:] = outgoing
    xupc.all_exchange(receive, send, send.itemsize)
    incoming = receive.local

    room_to_send = int(on_all_threads(len(keys)).max())
    room = int(on_all_threads(incoming.sum()).max())
    src = xupc.all_alloc(T * room_to_send, np.int64, room_to_send)
    dst = xupc.all_alloc(T * room, np.int64, room)
    src.local[: len(keys)] = keys
    sdisp.local[:] = me * room_to_send + np.cumsum(outgoing) - outgoing
    ddisp.local[:] = me * room + np.cumsum(incoming) - incoming
    xupc.all_exchange_v(dst, src, ddisp, sdisp, send)
    return dst.local[: incoming.sum()]


def sample_sort(keys: np.ndarray) -> np.ndarray:
    """Sort the keys of all threads; return my part."""
    keys = np.sort(keys)
    cuts = splitters(keys).cut(keys, xupc.MYTHREAD)
    outgoing = np.diff(cuts, prepend=0, append=len(keys))
    return np.sort(exchange(keys, outgoing), kind="stable")


def in_order(keys: np.ndarray) -> bool:
    """Return whether my keys are in order, and not below those of the threads before me."""
    highest = on_all_threads(keys.max(initial=NO_KEY))
    before = highest[: xupc.MYTHREAD].max(initial=NO_KEY)
    return bool((np.diff(keys, prepend=before) >= 0).all())


def main(total: int) -> int:
    """Sort and check; return 1 if keys are not in order or not all there, else 0."""
    if total < 1:
        print("usage: sample_sort.py [keys]", file=sys.stderr)
        return 2
    with xupc.init() as team:
        T, me = xupc.THREADS, xupc.MYTHREAD
        mine = make_keys(shares(total, T)[me], me)
        xupc.barrier()
        began = time.perf_counter()
        result = sample_sort(mine)
        xupc.barrier()
        seconds = time.perf_counter() - began

        before, after = (on_all_threads(len(keys)) for keys in (mine, result))
        sums = [on_all_threads(checksum(keys)).sum() for keys in (mine, result)]
        complete = before.sum() == after.sum() == total and sums[0] == sums[1]
        is_sorted = on_all_threads(in_order(result)).all()
        good = complete and is_sorted
        if me == 0:
            print(f"{total} keys, {T} threads on {len(team.tree.nodes)} nodes")
            print(f"at first    {before.min()} to {before.max()} keys on a thread")
            print(f"at last     {after.min()} to {after.max()} keys on a thread")
            print(f"imbalance   {before.max() * T / total:.3f}, then {after.max() * T / total:.3f}")
            print(f"time        {seconds * 1e3:.1f} ms")
            print(f"keys        {'all there' if complete else 'LOST OR CHANGED'}")
            print(f"order       {'sorted' if is_sorted else 'NOT SORTED'}")
            print(f"{'the sort is right' if good else 'THE SORT IS WRONG'}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000))
