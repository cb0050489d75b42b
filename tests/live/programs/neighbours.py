"""Exchanges between neighbours, in grids and in random graphs; argument: seed.

The oracle is numpy: what arrives is computed by direct indexing from the ranks of the neighbours.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import xupc

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
ALGORITHMS = (0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)
SYNCS = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_ALLSYNC | xupc.OUT_MYSYNC)
LENGTHS = (1, 7, 100, 700, 5000, 60_000)

team = xupc.init()
T, me = xupc.THREADS, xupc.MYTHREAD


def value(of: int, k: int, n: int, turn: int = 0) -> Any:
    """Return what thread `of` gives as its k-th block."""
    return np.arange(n, dtype=float) + 1e6 * of + 1e4 * k + 1e9 * turn


def edges(rng: random.Random, *counts: int) -> list[tuple[int, int]]:
    """Return some edges (from, to), in the order in which both ends list them."""
    count = rng.choice((0, 1, T, 2 * T, 4 * T, *counts))
    return [(rng.randrange(T), rng.randrange(T)) for _ in range(count)]


def of_edges(found: list[tuple[int, int]]) -> tuple[list[int | None], list[int | None]]:
    """Return this thread's sources and destinations, with places without a neighbour."""
    into: list[int | None] = [of for of, to in found if to == me]
    out: list[int | None] = [to for of, to in found if of == me]
    into.insert(len(into) // 2, None)
    out.append(None)
    return into, out


def number(found: list[tuple[int, int]], edge: int) -> int:
    """Return the number of an edge in the list of its source."""
    of = found[edge][0]
    return sum(pair[0] == of for pair in found[:edge])


def strided(n: int, like: int) -> Any:
    """Return an array of n doubles that is contiguous, or not."""
    whole = np.full((n, 1 + like % 3), -1.0)
    return whole[:, -1]


def graphs() -> None:
    """Random graphs, private arrays: blocks of all sizes, in all kinds of arrays."""
    rng = random.Random(SEED)
    for trial in range(12):
        found = edges(rng, 100 * T)  # more than are gathered in one step
        sizes = [rng.choice((0, *(LENGTHS if len(found) < 9 * T else (1, 7)))) for _ in found]
        flags, like = rng.choice(ALGORITHMS), rng.randrange(3)
        into, out = of_edges(found)
        near = xupc.neighbours(into, out)
        mine = [e for e, (of, _) in enumerate(found) if of == me]
        coming = [e for e, (_, to) in enumerate(found) if to == me]
        send: list[Any] = [strided(sizes[e], like + e) for e in mine] + [None]
        receive: list[Any] = [strided(sizes[e], like + 2 * e) for e in coming]
        receive.insert(len(receive) // 2, None)
        exchange = xupc.allav_neighbour_exchange(near, receive, send, flags)
        arrived = [x for x in receive if x is not None]
        for turn in range(3):
            for k, e in enumerate(mine):
                send[k][:] = value(me, k, sizes[e], turn)
            if turn == 1:
                exchange.start().wait()
            else:
                exchange()
            for x, e in zip(arrived, coming, strict=True):
                want = value(found[e][0], number(found, e), sizes[e], turn)
                assert (x == want).all(), (trial, turn, e, found, exchange)


def shared_graphs() -> None:
    """The same on shared arrays, under all modes."""
    rng = random.Random(SEED + 1)
    most = 40_000
    src = xupc.all_alloc(most * T, float, most)
    dst = xupc.all_alloc(most * T, float, most)
    for trial in range(12):
        found = edges(rng)
        sizes = [rng.choice((0, 1, 7, 100, 900)) for _ in found]
        flags = rng.choice(ALGORITHMS) | rng.choice(SYNCS)
        near = xupc.neighbours(*of_edges(found))
        mine = [e for e, (of, _) in enumerate(found) if of == me]
        coming = [e for e, (_, to) in enumerate(found) if to == me]
        send = [slice(1000 * k, 1000 * k + sizes[e]) for k, e in enumerate(mine)]
        receive: list[Any] = [slice(1001 * k, 1001 * k + sizes[e]) for k, e in enumerate(coming)]
        receive.insert(len(receive) // 2, None)
        exchange = xupc.all_neighbour_exchange(near, dst, src, receive, [*send, None], flags)
        want = dst.local.copy()
        for turn in range(3):
            for k, e in enumerate(mine):
                src.local[send[k]] = value(me, k, sizes[e], turn)
            for part, e in zip([x for x in receive if x is not None], coming, strict=True):
                want[part] = value(found[e][0], number(found, e), sizes[e], turn)
            if turn == 1:
                exchange.start().wait()
            else:
                exchange()
            assert (dst.local == want).all(), (trial, turn, found, exchange)


def shapes() -> list[tuple[int, ...]]:
    """Return grids of all threads."""
    found = [(T,), (1, T), (T, 1, 1)]
    return found + [(n, T // n) for n in range(2, T) if T % n == 0]


def halos() -> None:
    """The faces of blocks of two dimensions, in grids with and without periods."""
    rng = random.Random(SEED + 2)
    for dims in shapes():
        for periods in (False, True):
            near = xupc.cartesian(dims, periods)
            check_grid(near, dims, periods)
            axes, n = len(dims), 6
            block = np.full((n,) * axes, -1.0)
            inner = (slice(1, -1),) * axes
            exchange = xupc.allav_neighbour_exchange(
                near, faces(block, axes, outer=True), faces(block, axes, outer=False),
                rng.choice(ALGORITHMS),
            )  # fmt: skip
            whole = np.arange(float((n - 2) ** axes * T)).reshape([(n - 2) * d for d in dims])
            where = tuple(slice((n - 2) * c, (n - 2) * (c + 1)) for c in near.coords)
            block[inner] = whole[where]
            exchange()
            framed = np.pad(whole, 1, mode="wrap" if periods else "constant", constant_values=-1) \
                if not periods else np.pad(whole, 1, mode="wrap")
            area = tuple(slice((n - 2) * c, (n - 2) * (c + 1) + 2) for c in near.coords)
            want = framed[area]
            for part in faces(block, axes, outer=True, slices=True):
                assert (block[part] == want[part]).all(), (dims, periods, part, block, want)


def faces(block: Any, axes: int, *, outer: bool, slices: bool = False) -> list[Any]:
    """Return the faces of a block, or of the halo around it, in the order of neighbours."""
    out = []
    for axis in range(axes):
        for side in (0, 1):
            part = [slice(1, -1)] * axes
            at = (0, -1)[side] if outer else (1, -2)[side]
            part[axis] = slice(at, at + 1 or None)
            out.append(tuple(part) if slices else block[tuple(part)])
    return out


def check_grid(near: xupc.Neighbours, dims: tuple[int, ...], periods: bool) -> None:
    """Neighbours and coordinates are those of MPI."""
    from mpi4py import MPI

    cart = MPI.COMM_WORLD.Create_cart(dims, [periods] * len(dims), reorder=False)
    assert near.coords == tuple(cart.coords), (near.coords, cart.coords)
    want: list[int | None] = []
    for axis in range(len(dims)):
        before, behind = cart.Shift(axis, 1)
        want += [None if x == MPI.PROC_NULL else x for x in (before, behind)]
    assert list(near.sources) == want == list(near.destinations), (near, want)
    cart.Free()


def teams() -> None:
    """Ranks are those of the team."""
    part = team.split(me % 2, -me)
    assert part is not None
    near = part.cartesian([part.size], True)
    assert part.neighbours([part.rank]).sources == (part.rank,)
    got, given = np.zeros(2), np.array([10.0 * me, 10.0 * me + 1])
    xupc.allav_neighbour_exchange(near, [got[:1], got[1:]], [given[:1], given[1:]])()
    before = part.threads[(part.rank - 1) % part.size]
    behind = part.threads[(part.rank + 1) % part.size]
    assert got.tolist() == [10.0 * before + 1, 10.0 * behind]
    array = xupc.all_alloc(4 * part.size, int, 4, team=part)
    array.local[:] = [me, me + 100, -1, -1]
    halves = [slice(0, 1), slice(1, 2)]
    plan = xupc.all_neighbour_exchange(near, array, array, [slice(2, 3), slice(3, 4)], halves)
    plan()
    assert array.local.tolist() == [me, me + 100, before + 100, behind]


def raises(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")


def errors() -> None:
    """Errors come on all threads before anything moves, and the next call works."""
    other = xupc.CollectiveMismatchError
    ring = xupc.cartesian([T], True)
    a, b = np.zeros(8), np.zeros(8)
    both = [a[:1], a[1:2]]
    if T > 1:
        last = T - 1
        unknown = [0] if me == last else []
        raises(
            ValueError, f"thread {last} has thread 0 once in its destinations, and thread 0 has "
            f"thread {last} not in its sources", lambda: xupc.neighbours([], unknown),
        )  # fmt: skip
        bad, words = (ValueError, "expected 0 <= rank") if me == last else (other, f"thread {last}")
        raises(bad, words, lambda: xupc.neighbours([T + 3 if me == last else 0], [0]))
        longer = [b[:2] if me == last else b[:1], b[3:4]]
        raises(
            ValueError, f"thread {last} sends 16 bytes as send[0]",
            lambda: xupc.allav_neighbour_exchange(ring, both, longer),
        )  # fmt: skip
        typed = [b[:1].view(np.int64 if me == last else float), b[3:4]]
        raises(
            ValueError, "of another type",
            lambda: xupc.allav_neighbour_exchange(ring, both, typed),
        )  # fmt: skip
        same = [a[:1], a[:1]] if me == last else both
        bad, words = (xupc.OverlapError, "receive[1] and receive[0]") if me == last else (
            other, f"thread {last}"
        )  # fmt: skip
        raises(bad, words, lambda: xupc.allav_neighbour_exchange(ring, same, [b[:1], b[1:2]]))
        raises(other, "periods", lambda: xupc.cartesian([T], me == last))
        flags = xupc.PULL if me == last else xupc.PUSH
        raises(
            other, "flags",
            lambda: xupc.allav_neighbour_exchange(ring, both, [b[:1], b[1:2]], flags),
        )  # fmt: skip
    raises(ValueError, "whose product is", lambda: xupc.cartesian([T + 1]))
    raises(TypeError, "expected a sequence of ranks", lambda: xupc.neighbours(3))  # type: ignore
    raises(TypeError, "expected Neighbours", lambda: xupc.allav_neighbour_exchange(None, [], []))  # type: ignore
    raises(ValueError, "expected 2 items", lambda: xupc.allav_neighbour_exchange(ring, [], []))
    raises(
        xupc.OverlapError, "send[0]", lambda: xupc.allav_neighbour_exchange(ring, both, both)
    )
    A = xupc.all_alloc(4 * T, float, 4)
    half = [slice(0, 1), slice(1, 2)]
    raises(
        ValueError, "expected a slice of the 4 elements",
        lambda: xupc.all_neighbour_exchange(ring, A, A, half, [slice(2, 3), slice(3, 9)]),
    )  # fmt: skip
    raises(
        xupc.OverlapError, "receive[0] and send[0]",
        lambda: xupc.all_neighbour_exchange(ring, A, A, half, half),
    )
    raises(
        TypeError, "expected a SharedArray",
        lambda: xupc.all_neighbour_exchange(ring, a, A, half, half),  # type: ignore
    )
    plan = xupc.all_neighbour_exchange(ring, A, A, half, [slice(2, 3), slice(3, 4)])
    xupc.all_free(A)
    raises(ValueError, "freed", plan)
    exchange = xupc.allav_neighbour_exchange(ring, both, [b[:1], b[1:2]])
    b[:] = np.arange(8) + 100 * me
    exchange()
    assert a[0] == 100 * ((me - 1) % T) + 1
    assert a[1] == 100 * ((me + 1) % T)


def differing() -> None:
    """Threads in different plans: an error on all of them that names the calls."""
    if T == 1:
        return
    ring = xupc.cartesian([T], True)
    a, b = np.zeros(8), np.zeros(8)
    one = xupc.allav_neighbour_exchange(ring, [a[:1], a[1:2]], [b[:1], b[1:2]])
    two = xupc.allav_neighbour_exchange(ring, [a[:2], a[2:4]], [b[:2], b[2:4]])

    def call() -> None:
        (two if me == 0 else one)()
        xupc.barrier()

    raises(xupc.CollectiveMismatchError, "allav_neighbour_exchange", call)


graphs()
shared_graphs()
halos()
teams()
errors()
differing()
print("done")
xupc.finalize()
