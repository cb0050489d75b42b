"""Neighbourhood collectives that xupc carries out for a program written for mpi4py.

Under ``XUPC_COMM=force``. What mpi4py itself does on the same communicator is the oracle, and for
the exchange of equal blocks numpy by direct indexing, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

PLAIN = MPI.COMM_WORLD
world = xupc.Comm(PLAIN)
size, me = world.size, world.rank
GAP = MPI.DOUBLE.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()  # every other double
EMPTY = -1.0


def shapes() -> list[list[int]]:
    found = [[size], [size, 1]]
    return found + [[n, size // n] for n in range(2, size) if size % n == 0]


def cartesian() -> Iterator[Any]:
    for dims in shapes():
        for period in (False, True):
            yield world.Create_cart(dims, [period] * len(dims), reorder=False)


def graphs() -> Iterator[Any]:
    """Undirected graphs by all threads' lists: a ring, and one with a thread named twice."""
    ring = [sorted({(i - 1) % size, (i + 1) % size}) for i in range(size)]
    twice = [[i, i, (i + 1) % size, (i - 1) % size] for i in range(size)]
    for lists in (ring, twice):
        ends = np.cumsum([len(near) for near in lists]).tolist()
        yield world.Create_graph(ends, [x for near in lists for x in near], reorder=False)


def directed() -> Iterator[Any]:
    """Graphs by random edges; in some of them threads have no neighbours."""
    for seed in range(5):
        rng = random.Random(seed)
        count = (0, 1, 2 * size, 4 * size, size)[seed]
        edges = [(rng.randrange(size), rng.randrange(size)) for _ in range(count)]
        sources = [of for of, to in edges if to == me]
        destinations = [to for of, to in edges if of == me]
        yield world.Create_dist_graph_adjacent(sources, destinations, reorder=False)


def communicators() -> Iterator[Any]:
    yield from cartesian()
    yield from graphs()
    yield from directed()


def plain(comm: Any) -> Any:
    """Return the communicator as mpi4py's own."""
    return type(comm).stands_for(comm)


def carried(comm: Any, method: str) -> dict[str, int]:
    found: dict[str, int] = comm.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


def both(comm: Any, method: str, make: Any) -> None:
    """Call it on xupc and on mpi4py, with arrays of the same contents; compare what arrives."""
    sent, got, check = make()
    getattr(comm, method)(sent, got)
    other_sent, other_got, want = make()
    getattr(plain(comm), method)(other_sent, other_got)
    assert (check == want).all(), (comm.topology, method, check, want, plain(comm).inoutedges)


def numbers(n: int, k: int = 0) -> Any:
    return np.arange(n, dtype=float) + 1e6 * me + 1e4 * k


def equal() -> None:
    """Blocks of one size, many sizes, several times.

    With counts, since Open MPI compares that of a thread without sources with that of its blocks.
    """
    for comm in communicators():
        into, out = (len(ranks) for ranks in plain(comm).inoutedges)
        for n in (1, 3, 3, 200, 1, 3000, 40_000, 3):

            def exchanged(n: int = n, into: int = into, out: int = out) -> Any:
                got = np.full(into * n, EMPTY)
                return [numbers(out * n), n, MPI.DOUBLE], [got, n, MPI.DOUBLE], got

            def gathered(n: int = n, into: int = into) -> Any:
                got = np.full((into, n), EMPTY)
                return [numbers(n), n, MPI.DOUBLE], [got, n, MPI.DOUBLE], got

            both(comm, "Neighbor_alltoall", exchanged)
            both(comm, "Neighbor_allgather", gathered)
        if size > 1:
            assert carried(comm, "Neighbor_alltoall") == {"xupc": 8}, comm.explain()
            assert carried(comm, "Neighbor_allgather") == {"xupc": 8}, comm.explain()
        comm.Free()


def by_numpy() -> None:
    """A ring: from before comes what is given to the thread behind."""
    ring = world.Create_cart([size], [True])
    got, given = np.zeros((2, 5)), np.array([[10.0 * me] * 5, [10.0 * me + 1] * 5])
    for _ in range(3):
        got[:] = 0
        ring.Neighbor_alltoall(given, got)
        assert (got[0] == 10.0 * ((me - 1) % size) + 1).all(), got
        assert (got[1] == 10.0 * ((me + 1) % size)).all(), got
    ring.Free()


def described() -> None:
    """Other descriptions: counts and types, types with gaps, addresses, no contiguous array."""
    for comm in communicators():
        into, out = (len(ranks) for ranks in plain(comm).inoutedges)
        for make in _descriptions(into, out) if _all(into and out) else ():
            both(comm, "Neighbor_alltoall", make)
        comm.Free()


def _all(mine: Any) -> bool:
    return bool(PLAIN.allreduce(int(bool(mine)), MPI.MIN))


def _descriptions(into: int, out: int) -> list[Any]:
    n = 4

    def gaps() -> Any:
        got = np.full(2 * into * n, EMPTY)
        return [numbers(2 * out * n), n, GAP], [got, n, GAP], got

    def counted() -> Any:
        got = np.full(into * n + 3, EMPTY)
        return [numbers(out * n + 1), n, MPI.DOUBLE], [got, n, MPI.DOUBLE], got

    def in_one_array() -> Any:
        room = numbers((into + out) * n)
        return room[into * n :], room[: into * n], room

    return [gaps, counted, in_one_array]


def pair(of: int, to: int, k: int) -> int:
    """Return the doubles of a block, which both ends can compute; k differs from call to call."""
    return (3 * of + 5 * to + 7 * k) % 11 * (1 if k % 2 else 150)


def neighbours_of(comm: Any) -> tuple[list[int], list[int]]:
    into, out = plain(comm).inoutedges
    return list(into), list(out)


def vectors(comm: Any, k: int) -> None:
    """Blocks of different sizes with gaps, in the order of the neighbours."""
    into, out = neighbours_of(comm)

    def exchanged() -> Any:
        given, sent = [0 if x < 0 else pair(me, x, k) for x in out], numbers(2000 * len(out) + 1)
        taken, got = [0 if x < 0 else pair(x, me, k) for x in into], None
        got = np.full(2000 * len(into) + 1, EMPTY)
        places = [2000 * i for i in range(len(into))]
        return (
            [sent, (given, [1999 * i for i in range(len(out))]), MPI.DOUBLE],
            [got, (taken, places), MPI.DOUBLE], got,
        )  # fmt: skip

    def gathered() -> Any:
        taken = [0 if x < 0 else pair(x, 0, k) for x in into]
        got = np.full(2000 * len(into) + 1, EMPTY)
        return numbers(pair(me, 0, k)), [got, (taken, [2000 * i for i in range(len(into))])], got

    both(comm, "Neighbor_alltoallv", exchanged)
    both(comm, "Neighbor_allgatherv", gathered)


def wide(comm: Any, k: int) -> None:
    """Different types: every other double, bytes, doubles."""
    into, out = neighbours_of(comm)
    kinds = (GAP, MPI.DOUBLE, MPI.BYTE)

    def exchanged() -> Any:
        def side(peers: list[int], room: Any, *, gives: bool) -> Any:
            ends = [(me, x) if gives else (x, me) for x in peers]
            counts = [0 if min(of, to) < 0 else pair(of, to, k) for of, to in ends]
            types = [kinds[(me + x + k) % 3] for x in peers]
            return [room, counts, [32000 * i for i in range(len(peers))], types]

        sent, got = numbers(4000 * len(out) + 1), np.full(4000 * len(into) + 1, EMPTY)
        return side(out, sent, gives=True), side(into, got, gives=False), got

    both(comm, "Neighbor_alltoallw", exchanged)


def uneven() -> None:
    """The v and w forms, with sizes that change and come back."""
    for comm in communicators():
        for k in (0, 1, 1, 2, 0, 3):
            vectors(comm, k)
            wide(comm, k)
        if size > 1:
            for method in ("Neighbor_alltoallv", "Neighbor_allgatherv", "Neighbor_alltoallw"):
                assert carried(comm, method) == {"xupc": 6}, comm.explain()
        comm.Free()


def many_sizes() -> None:
    """More sizes than plans are kept, and the first ones again."""
    ring = world.Create_cart([size], [True])
    for n in [*range(1, 140), 1, 2, 3]:
        got, given = np.zeros((2, n)), np.stack([numbers(n, 1), numbers(n, 2)])
        ring.Neighbor_alltoall(given, got)
        want = np.zeros((2, n))
        plain(ring).Neighbor_alltoall(given, want)
        assert (got == want).all(), n
    ring.Free()


def wrong() -> None:
    """A wrong argument is mpi4py's error; too long a block is MPI's, on all threads."""
    ring = world.Create_cart([size], [True])
    for bad in (None, 3, np.zeros(3)):
        try:
            ring.Neighbor_alltoall(bad, np.zeros(4))
        except (TypeError, ValueError):
            continue
        raise AssertionError(bad)
    if size > 1:
        try:
            ring.Neighbor_alltoallv([np.zeros(4), [2, 2]], [np.zeros(2), [1, 1]])
        except MPI.Exception as error:
            assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
        else:
            raise AssertionError("no error of MPI")
    ring.Free()


def differing() -> None:
    """Threads in different calls: an error on all of them."""
    if size == 1:
        return
    ring = world.Create_cart([size], [True])
    one, two = np.zeros((2, 1)), np.zeros((2, 2))
    for array in (one, two):
        ring.Neighbor_alltoall(array, array.copy())
    try:
        mine = one if me else two
        ring.Neighbor_alltoall(mine, mine.copy())
        ring.Barrier()
    except MPI.Exception as error:
        assert "Neighbor_alltoall" in str(error), error
    else:
        raise AssertionError("no error")


equal()
by_numpy()
described()
uneven()
many_sizes()
wrong()
differing()
print("done")
