"""Calls with blocks of different sizes that xupc carries out for a program written for mpi4py.

Under ``XUPC_COMM=force``. Each thread describes its blocks in its own way: with gaps, in another
order, with a derived type, by an address alone. Results must be those of numpy, and what lies
between the blocks must stay as it was.
"""

from __future__ import annotations

import array
import itertools
import mmap
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

PLAIN = MPI.COMM_WORLD
comm = xupc.Comm(PLAIN)
size, me = comm.size, comm.rank

GAP = MPI.DOUBLE.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()  # every other double
EMPTY = -1.0


def carried(method: str) -> dict[str, int]:
    """Return the calls of a method by carrier."""
    found: dict[str, int] = comm.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


def lengths() -> list[list[int]]:
    """Return lists with the doubles of each thread's block, from no data to much."""
    threads = range(size)
    return [
        [0] * size, [i + 1 for i in threads], [3 * (i % 2) for i in threads], [5] * size,
        [40 * (i + 1) for i in threads], [1000 + i for i in threads], [0] * (size - 1) + [3000],
        [20_000 + i for i in threads], [300_000 if i == size - 1 else 10 for i in threads],
        [200_000 + i for i in threads],
    ]  # fmt: skip


def values(n: int, of: int, to: int = 0) -> Any:
    """Return what a thread gives to another one."""
    return np.arange(n, dtype=float) + 1e6 * of + 1e8 * to


# --- descriptions: each takes blocks of doubles and returns (description, room, where) -----------


class Described:
    """A message with blocks, and where they are in an array of doubles."""

    def __init__(self, spec: Any, room: Any, where: list[Any]) -> None:
        self.spec, self.room, self.where = spec, room, where
        self.before = room.copy()

    def fill(self, blocks: list[Any]) -> Described:
        for at, block in zip(self.where, blocks, strict=True):
            self.room[at] = block
        self.before = self.room.copy()
        return self

    def check(self, blocks: list[Any], *about: Any) -> None:
        """Blocks are there, and nothing else has changed."""
        want = self.before
        for at, block in zip(self.where, blocks, strict=True):
            want[at] = block
        assert (self.room == want).all(), about


def in_a_row(counts: list[int]) -> tuple[Any, list[Any]]:
    ends = list(itertools.accumulate(counts))
    room = np.full(sum(counts), EMPTY)
    return room, [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]


def counted(counts: list[int]) -> Described:
    room, where = in_a_row(counts)
    return Described([room, counts], room, where)


def typed(counts: list[int]) -> Described:
    room, where = in_a_row(counts)
    return Described([room, np.array(counts), MPI.DOUBLE], room, where)


def named(counts: list[int]) -> Described:
    room, where = in_a_row(counts)
    return Described((room, (tuple(counts), None), "d"), room, where)


def in_four(counts: list[int]) -> Described:
    """Blocks with gaps, the last one first."""
    room = np.full(sum(counts) + 3 * size, EMPTY)
    places, at = [0] * size, 1
    for i in reversed(range(size)):
        places[i] = at
        at += counts[i] + 2
    where = [slice(at, at + n) for at, n in zip(places, counts, strict=True)]
    return Described([room, counts, np.array(places), MPI.DOUBLE], room, where)


def strided(counts: list[int]) -> Described:
    """One number stands for the distance between blocks."""
    each = max(counts) + 1
    room = np.full(each * size, EMPTY)
    where = [slice(each * i, each * i + n) for i, n in enumerate(counts)]
    return Described([room, (counts, np.int64(each))], room, where)


def of_bytes(counts: list[int]) -> Described:
    """Buffers that are no arrays of numpy, as OSU's programs for mpi4py have them."""
    data = np.full(sum(counts), EMPTY).tobytes()
    memory: Any = bytearray(data)
    if sum(counts) % 3 == 1:
        memory = array.array("d", data)
    elif sum(counts) % 3 == 2:
        memory = mmap.mmap(-1, len(data))
        memory[:] = data
    _, where = in_a_row(counts)
    return Described([memory, counts, MPI.DOUBLE], np.frombuffer(memory), where)


def derived(counts: list[int]) -> Described:
    room = np.full(2 * sum(counts), EMPTY)
    ends = itertools.accumulate(counts)
    where = [slice(2 * (end - n), 2 * end, 2) for end, n in zip(ends, counts, strict=True)]
    return Described([room, counts, GAP], room, where)


def before_the_buffer(counts: list[int]) -> Described:
    """MPI allows a block before the address that is given."""
    room = np.full(sum(counts) + 2, EMPTY)
    _, where = in_a_row(counts)
    places = [at.start - 1 for at in where]
    shifted = [slice(at.start + 1, at.stop + 1) for at in where]
    return Described([room[2:], counts, places, MPI.DOUBLE], room, shifted)


def absolute(counts: list[int]) -> Described:
    room, where = in_a_row(counts)
    begin = MPI.Get_address(room) if room.size else 0
    kind = MPI.DOUBLE.Create_resized(0, 1).Commit()
    places = [begin + 8 * at.start for at in where]
    refused = size == 1 and MPI.get_vendor()[0] == "Open MPI"  # by MPI itself, in Allgatherv
    if max(counts) > 1 or refused:  # elements of such a type overlap
        kind.Free()
        return counted(counts)
    return Described([MPI.BOTTOM, counts, places, kind], room, where)


SPELLINGS = [
    counted, typed, named, in_four, strided, of_bytes, derived, before_the_buffer, absolute,
]  # fmt: skip


def spellings(turn: int) -> tuple[Any, Any]:
    """Return two description functions, others on each thread."""
    n = len(SPELLINGS)
    return SPELLINGS[(me + turn) % n], SPELLINGS[(2 * me + 3 * turn + 1) % n]


def single(block: Any, turn: int) -> Any:
    """Describe one block."""
    ways = [block, [block, MPI.DOUBLE], [block, len(block), MPI.DOUBLE], (block, (len(block), 0))]
    return ways[(me + turn) % len(ways)]


# --- checks -------------------------------------------------------------------------------------


def allgatherv() -> None:
    calls = 0
    for counts, turn in itertools.product(lengths(), range(len(SPELLINGS))):
        want = [values(n, i) for i, n in enumerate(counts)]
        to = spellings(turn)[0](counts)
        if (me + turn) % 3 == 0:
            to.fill([want[i] if i == me else EMPTY for i in range(size)])
            comm.Allgatherv(MPI.IN_PLACE, to.spec)
        else:
            comm.Allgatherv(single(want[me], turn), to.spec)
        to.check(want, turn, counts)
        calls += 1
    if size > 1:
        assert carried("Allgatherv") == {"xupc": calls}
    even = np.full(3 * size + 1, EMPTY)  # without counts the buffer is dealt out
    comm.Allgatherv(np.full(3 + (me == 0), float(me)), even)
    assert (even == sorted([*range(size)] * 3 + [0])).all()
    pairs = np.full(2 * size, EMPTY)
    comm.Allgatherv(np.full(2, float(me)), [pairs, 2])
    assert (pairs == np.repeat(np.arange(size), 2)).all()
    shared = np.full(2 * size, float(me))  # the block that is sent is part of the result
    comm.Allgatherv(shared[2 * me : 2 * me + 2].copy(), [shared, [2] * size])
    assert (shared == pairs).all()


def gatherv() -> None:
    for turn, counts in enumerate(lengths() * 3):
        want, root = [values(n, i, 3) for i, n in enumerate(counts)], turn % size
        to = spellings(turn)[0](counts)
        at, in_place = me == root, turn % 2 == 0
        if at and in_place:
            to.fill([want[i] if i == me else EMPTY for i in range(size)])
        mine = MPI.IN_PLACE if at and in_place else single(want[me], turn)
        comm.Gatherv(mine, to.spec if at else None, root=root)
        if at:
            to.check(want, turn, counts)
    if size > 1:
        assert carried("Gatherv")["xupc"] > 20


def scatterv() -> None:
    for turn, counts in enumerate(lengths() * 3):
        want, root = [values(n, i, 5) for i, n in enumerate(counts)], turn % size
        source = spellings(turn)[0](counts).fill(want)
        at, in_place = me == root, turn % 2 == 0
        block = np.full(counts[me], EMPTY)
        stays = at and in_place
        into = MPI.IN_PLACE if stays else single(block, turn)
        comm.Scatterv(source.spec if at else None, into, root=root)
        assert (block == (EMPTY if stays else want[me])).all(), (turn, counts)
        source.check(want, turn)
    if size > 1:
        assert carried("Scatterv")["xupc"] > 20


def alltoallv() -> None:
    """What i sends to j is what j expects of i; in place the sizes are the same both ways."""
    for turn, counts in enumerate(lengths() * 3):
        table = [
            [counts[(i + j) % size] // (1 + (i > j)) for j in range(size)] for i in range(size)
        ]
        if turn % 3 == 0:
            table = [[counts[(i + j) % size] for j in range(size)] for i in range(size)]
        sent = [values(n, me, j) for j, n in enumerate(table[me])]
        want = [values(row[me], i, me) for i, row in enumerate(table)]
        one, other = spellings(turn)
        to = other([row[me] for row in table])
        if turn % 3 == 0:
            to.fill(sent)
            comm.Alltoallv(MPI.IN_PLACE, to.spec)
        else:
            source = one(table[me]).fill(sent)
            comm.Alltoallv(source.spec, to.spec)
            source.check(sent, turn)
        to.check(want, turn, counts)
    if size > 1:
        assert carried("Alltoallv")["xupc"] > 20


def reduce_scatter() -> None:
    for turn, counts in enumerate(lengths() * 2):
        operands = [values(sum(counts), i, 1) for i in range(size)]
        end = sum(counts[: me + 1])
        want = sum(operands)[end - counts[me] : end]
        if turn % 2:
            room = operands[me].copy()
            comm.Reduce_scatter([MPI.IN_PLACE, None][me % 2], room, counts, op=MPI.SUM)
            assert (room[counts[me] :] == operands[me][counts[me] :]).all()
        else:
            room = np.full(counts[me], EMPTY)
            comm.Reduce_scatter(operands[me], room, np.array(counts), op=MPI.SUM)
        assert (room[: counts[me]] == want).all(), (turn, counts)
    if size > 1:
        assert carried("Reduce_scatter")["xupc"] == 2 * len(lengths())


def one_long_block() -> None:
    """MPI carries the rest of a call in which most places would be empty."""
    why = "one block is much longer than the others"
    counts = [0] * (size - 1) + [40_000]
    whole = derived(counts)
    comm.Gatherv(np.full(counts[me], 7.0), whole.spec if me == 0 else None)
    whole.check([np.full(n, 7.0 if me == 0 else EMPTY) for n in counts])
    block = np.zeros(counts[me])
    comm.Scatterv(whole.spec if me == 0 else None, block)
    assert (block == 7).all()
    sent, got = np.full(40_000, 5.0), derived([0] * (size - 1) + [40_000 if me == 0 else 0])
    comm.Alltoallv(
        [sent, [40_000 if me == size - 1 and i == 0 else 0 for i in range(size)]], got.spec
    )
    got.check([np.full(n, 5.0) for n in ([0] * (size - 1) + [40_000 if me == 0 else 0])])
    for method in ("Gatherv", "Scatterv", "Alltoallv"):
        found = comm.explain(as_dict=True)[method]
        assert (why in found["why"]) == (size > 2 or method == "Alltoallv"), found
        assert found["carried_by"]["xupc"] > 0


def less_than_expected() -> None:
    """MPI's implementations take a block that is shorter; one that is longer is an error."""
    room = np.full(3 * size, EMPTY)
    comm.Alltoallv([np.full(2 * size, float(me)), [2] * size], [room, [3] * size])
    assert (room.reshape(-1, 3)[:, 2] == EMPTY).all()
    assert (room.reshape(-1, 3)[:, 0] == range(size)).all()
    for n in (3, 3000):
        try:
            comm.Alltoallv([np.zeros(n * size), [n] * size], [room, [2] * size])
            raise AssertionError("no error")
        except MPI.Exception as error:
            assert error.Get_error_class() == MPI.ERR_TRUNCATE
    comm.Barrier()


def errors() -> None:
    """A wrong argument raises what mpi4py raises, on that thread, and meets no other one."""
    comm.Barrier()
    x, ones = np.zeros(size), [1] * size
    fixed = np.zeros(size)
    fixed.flags.writeable = False
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("Allgatherv", (x[:1], object())), ("Allgatherv", (x[:1], [x, [1] * (size + 1)])),
        ("Allgatherv", (object(), [x, ones])), ("Allgatherv", (x[:1], [x, ones, 1, 2, 3])),
        ("Allgatherv", (x[:1], [fixed, ones])), ("Allgatherv", (x[:1], [x, ["a"] * size])),
        ("Allgatherv", (x[:1], [np.zeros(2 * size)[::2], ones])),
        ("Allgatherv", (x[:1], None)), ("Gatherv", (x[:1], None, me)),
        ("Gatherv", (object(), None, size - 1)), ("Scatterv", (None, x[:1], me)),
        ("Scatterv", (object(), x[:1], me)), ("Alltoallv", ([x, ones], [x.copy(), [1]])),
        ("Alltoallv", ([x, ones, [0]], [x.copy(), ones])),
        ("Reduce_scatter", (x, x[:1].copy(), [1] * (size + 1))),
        ("Reduce_scatter", (x, x[:1].copy(), ["a"])),
    ]  # fmt: skip
    if me == 0 and size > 1:  # the others are in no call
        for method, arguments in wrong:
            seen = []
            for of in (PLAIN, comm):
                try:
                    getattr(of, method)(*arguments)
                except Exception as error:
                    seen.append((type(error), str(error)))
            assert len(seen) == 2, (method, arguments, seen)
            assert seen[0] == seen[1], seen
    comm.Barrier()


CHECKS = [
    allgatherv, gatherv, scatterv, alltoallv, reduce_scatter, one_long_block,
    less_than_expected, errors,
]  # fmt: skip

if __name__ == "__main__":
    for check in CHECKS:
        if size > 1 or check not in (less_than_expected, one_long_block):
            check()
    print("done")
