"""Exclusive prefix and suffix reductions in all forms, against numpy on the data of all threads.

``exclusive_scans.py SEED COUNT``: so many calls with drawn sizes, types, operations, layouts and
flags. Every thread computes the data of all others from the seed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

Array = NDArray[Any]

FLAGS = (0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)
SYNCS = (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_MYSYNC, xupc.OUT_MYSYNC)
SIZES = (1, 2, 7, 100, 1000, 9000, 40_000)
POISON = 77
IDENTITIES = {xupc.ADD: 0, xupc.MULT: 1, xupc.XOR: 0, xupc.AND: -1, xupc.LOGAND: 1}


def affine(a: Any, b: Any) -> Any:
    """Compose two functions x -> s x + t, as (s, t) packed into an int: the order matters."""
    s, t, u, v = int(a) >> 8 & 255, int(a) & 255, int(b) >> 8 & 255, int(b) & 255
    return (s * u % 251) << 8 | (t * u + v) % 251


@xupc.vectorized
def affine_of_arrays(a: Array, b: Array) -> Array:
    """Compose arrays of such functions."""
    s, t, u, v = a >> 8 & 255, a & 255, b >> 8 & 255, b & 255
    found: Array = (s * u % 251) << 8 | (t * u + v) % 251
    return found


JOIN: dict[xupc.Op, Callable[[Any, Any], Any]] = {
    xupc.ADD: lambda a, b: a + b, xupc.MULT: lambda a, b: a * b, xupc.XOR: lambda a, b: a ^ b,
    xupc.AND: lambda a, b: a & b, xupc.LOGAND: lambda a, b: (a != 0) & (b != 0),
    xupc.MIN: np.minimum, xupc.MAX: np.maximum, xupc.NONCOMM_FUNC: affine_of_arrays,
    xupc.FUNC: np.maximum,
}  # fmt: skip


def identity(op: xupc.Op, dtype: np.dtype[Any]) -> Any:
    """Return what the first element gets; None with a function."""
    if op in (xupc.FUNC, xupc.NONCOMM_FUNC):
        return None
    if op not in (xupc.MIN, xupc.MAX):
        return np.array(IDENTITIES[op]).astype(dtype)[()]
    if dtype.kind == "f":
        return np.inf if op == xupc.MIN else -np.inf
    return np.iinfo(dtype).max if op == xupc.MIN else np.iinfo(dtype).min


def exclusive(op: xupc.Op, values: Array, first: Any, backward: bool) -> Array:
    """Return the exclusive results along the first axis, of which the first one is `first`."""
    line = values[::-1] if backward else values
    join = JOIN[op]
    step = (lambda a, b: join(b, a)) if backward else join
    results = np.empty_like(line)
    results[0] = first
    for i, result in enumerate(accumulate(line[:-1], step), 1):
        results[i] = result
    return results[::-1] if backward else results


class Calls:
    """Calls whose arguments are drawn alike on all threads."""

    def __init__(self, team: xupc.Team, seed: int) -> None:
        self.team = team
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)

    def draw(self) -> None:
        """Draw the arguments of one call that all forms have."""
        rng = self.rng
        dtypes = {xupc.FUNC: ("i8",), xupc.NONCOMM_FUNC: ("i8",), xupc.XOR: ("i4", "u2"),
                  xupc.AND: ("i8", "u1"), xupc.MULT: ("f8", "f4")}  # fmt: skip
        self.op = rng.choice(list(JOIN))
        self.dtype = np.dtype(rng.choice(dtypes.get(self.op, ("i4", "i8", "f8", "u2", "f2"))))
        self.func: Any = None
        if self.op == xupc.FUNC:
            self.func = rng.choice((max, np.maximum))
        elif self.op == xupc.NONCOMM_FUNC:
            self.func = rng.choice((affine, affine_of_arrays))
        self.n = rng.choice(SIZES[:4] if self.func or self.dtype == "f2" else SIZES)
        self.form = rng.choice((self.shared, self.private, self.value))
        if self.form == self.shared:  # whose oracle goes element by element
            self.n = min(self.n, 1000)
        self.backward = rng.random() < 0.5
        self.way = rng.choice(("suffix",) if self.backward else ("prefix",))
        self.flags = int(rng.choice(FLAGS) | rng.choice((0, xupc.REPRODUCIBLE)) | xupc.EXCLUSIVE)

    def drawn(self, shape: tuple[int, ...]) -> Array:
        """Return numbers of which the operation has exact results."""
        if self.op == xupc.MULT:
            return self.numbers.choice([1.0, -1.0], shape).astype(self.dtype)
        most = 2 if self.dtype == "f2" else 100
        found: Array = self.numbers.integers(0, most, shape).astype(self.dtype)
        return found + 256 if self.op == xupc.NONCOMM_FUNC else found

    def wanted(self, values: Array, left: Any = POISON) -> Array:
        """Return the results along the first axis; the first one of a function is `left`."""
        first = identity(self.op, self.dtype)
        if first is None:
            first = values[-1 if self.backward else 0] if left is None else left
        return exclusive(self.op, values, first, self.backward)

    def call(self, form: str) -> Any:
        """Return the public function of a form."""
        return getattr(xupc, f"{form}_{self.way}_reduce")

    # -- shared arrays ---------------------------------------------------------------
    def _shared(self, block: int) -> Any:
        size = self.team.size
        return xupc.all_alloc(max(1, self.n) * size, self.dtype, block)

    def own(self, count: int, block: int) -> NDArray[np.intp]:
        """Return which elements of a shared array this thread has, in their order."""
        elements = np.arange(count)
        owners = elements // block % self.team.size if block else np.zeros(count, np.intp)
        found: NDArray[np.intp] = elements[owners == self.team.rank]
        return found

    def shared(self) -> None:
        """Scan a shared array of any layout to another one, in place, as a plan, or posted."""
        rng, size = self.rng, self.team.size
        count = self.n * size - rng.choice((0, 0, 1)) if self.n > 1 or size > 1 else 1
        blocks = [rng.choice((0, 1, 3, self.n, self.n + 1)) for _ in range(2)]
        in_place = rng.random() < 0.3
        if in_place or rng.random() < 0.5:
            blocks[1] = blocks[0]
        src, dst = (self._shared(block) for block in blocks)
        values = self.drawn((count,))
        if in_place:
            src = dst
        dst.local[:] = POISON
        if not in_place:
            src.local[:] = POISON
        own = self.own(len(src), blocks[0])
        here = own < count
        src.local[: len(own)][here] = values[own[here]]
        xupc.barrier()
        args = dst, None if in_place else src, self.op, count, None, self.func
        sync = int(rng.choice(SYNCS))
        how = rng.randrange(3)
        if how == 0:
            self.call("all")(*args, self.flags | sync)
        elif how == 1:
            self.call("all").plan(*args, self.flags)()
        else:
            self.call("all")(*args, self.flags | int(xupc.ASYNC)).wait()
        xupc.barrier()
        wanted = np.full(len(dst), POISON, self.dtype)
        wanted[:count] = self.wanted(values, None if in_place else POISON)
        own = self.own(len(dst), blocks[1])
        what = self.op, self.dtype, count, blocks, self.way, self.flags, in_place, how
        wrong = own[dst.local[: len(own)] != wanted[own]]
        assert not wrong.size, (what, wrong[:9])
        xupc.barrier()
        xupc.all_free(dst)
        if not in_place:
            xupc.all_free(src)

    # -- private arrays --------------------------------------------------------------
    def private(self) -> None:
        """Scan private arrays of any strides, in place or not."""
        rng, me = self.rng, self.team.rank
        data = self.drawn((self.team.size, self.n))
        in_place, step = rng.random() < 0.4, rng.choice((1, 2))
        dst = np.full(step * self.n, POISON, self.dtype)[::step]
        if in_place:
            dst[:] = data[me]
        args = dst, None if in_place else data[me].copy(), self.op, self.func
        how = rng.randrange(3)
        if how == 0:
            self.call("allav")(*args, flags=self.flags)
        elif how == 1:
            self.call("allav").plan(*args, flags=self.flags)()
        else:
            self.call("allav")(*args, flags=self.flags | int(xupc.ASYNC)).wait()
        wanted = self.wanted(data, None if in_place else POISON)[me]
        what = self.op, self.dtype, self.n, self.way, self.flags, in_place, how
        assert np.array_equal(dst, wanted), (what, np.flatnonzero(dst != wanted)[:9])

    def value(self) -> None:
        """Scan one value of each thread."""
        me, size = self.team.rank, self.team.size
        values = self.drawn((size,))
        found = self.call("allv")(values[me], self.op, self.func, self.flags)
        first = me == (size - 1 if self.backward else 0)
        if first and self.func is not None:
            assert found is None
            return
        assert found == self.wanted(values)[me], (self.op, self.dtype, self.way, self.flags)
        assert type(found) is type(values[me])


def one(calls: Calls) -> None:
    """Make one drawn call in one drawn form."""
    calls.draw()
    calls.form()


def python_values(team: xupc.Team) -> None:
    """Numbers of Python come back as what they were; a record has the identity of MINLOC."""
    me, size = team.rank, team.size
    before = xupc.allv_prefix_reduce(me + 1, xupc.ADD, flags=xupc.EXCLUSIVE)
    behind = xupc.allv_suffix_reduce(me + 1, xupc.ADD, flags=xupc.EXCLUSIVE)
    assert (before, type(before)) == (me * (me + 1) // 2, int)
    assert before + me + 1 + behind == size * (size + 1) // 2
    assert xupc.allv_prefix_reduce(1.5, xupc.MIN, flags=xupc.EXCLUSIVE) == (1.5 if me else np.inf)
    assert xupc.allv_prefix_reduce(True, xupc.ADD, flags=xupc.EXCLUSIVE) is (me > 0)
    pair = np.dtype([("value", "f8"), ("index", "i4")])
    mine = np.array((2.0, me), pair)[()]
    found = xupc.allv_prefix_reduce(mine, xupc.MINLOC, flags=xupc.EXCLUSIVE)
    assert found.tolist() == ((2.0, 0) if me else (np.inf, 2**31 - 1))


def same_bits(team: xupc.Team) -> None:
    """Of shared arrays always, of private ones with REPRODUCIBLE, whatever the algorithm."""
    me, n = team.rank, 500
    rng = np.random.default_rng(5)
    data = rng.standard_normal((team.size, n)) * 10.0 ** rng.integers(-9, 9, (team.size, n))
    for nan in (False, True):
        ends = data.view(np.int64)
        ends[0, 0] = ends[-1, -1] = 0x7FF8_0000_0000_0123 if nan else 0  # with a payload
        for block in (1, n):
            _same_bits_of_shared(data, block)
        for flag in FLAGS:
            mine, moved = np.empty(n), np.empty(n)
            exact = int(flag | xupc.REPRODUCIBLE)
            xupc.allav_prefix_reduce(mine, data[me], xupc.ADD, flags=exact)
            xupc.allav_prefix_reduce(moved, data[me], xupc.ADD, flags=exact | int(xupc.EXCLUSIVE))
            rows = np.empty((2, team.size, n))
            for row, array in zip(rows, (mine, moved), strict=True):
                xupc.allav_gather_all(row, array)
            assert rows[1, 1:].tobytes() == rows[0, :-1].tobytes(), (flag, nan)


def _same_bits_of_shared(data: Array, block: int) -> None:
    """Every algorithm has the same bits; joined with the elements they are the inclusive ones."""
    src, dst, other = (xupc.all_alloc(data.size, np.float64, block) for _ in range(3))
    values = data.reshape(-1)
    if xupc.MYTHREAD == 0:
        src[:] = values
    for call, first in ((xupc.all_prefix_reduce, 0), (xupc.all_suffix_reduce, data.size - 1)):
        found = set()
        for flag in FLAGS:
            xupc.barrier()
            call(dst, src, xupc.ADD, flags=flag)
            call(other, src, xupc.ADD, flags=flag | xupc.EXCLUSIVE)
            assert other[first] == 0
            joined = other[:] + values
            joined[np.isnan(joined)] = np.nan
            assert joined.tobytes() == dst[:].tobytes(), (call, flag, block)
            found |= {dst[:].tobytes()}
        assert len(found) == 1, (call, block)
    for array in (src, dst, other):
        xupc.all_free(array)


def teams(team: xupc.Team) -> None:
    """Ranks count inside a team."""
    part = team.split(team.rank % 2)
    assert part is not None
    found = xupc.allv_prefix_reduce(team.rank, xupc.ADD, flags=xupc.EXCLUSIVE, team=part)
    assert found == sum(part.threads[: part.rank])
    part.free()


def refused(team: xupc.Team) -> None:
    """Every other call refuses the flag, on all threads, and the library stays usable."""
    n = team.size
    a, b = (xupc.all_alloc(n * n, np.int64, n) for _ in range(2))
    x, row = np.zeros(1, np.int64), np.zeros(n, np.int64)
    flag = xupc.EXCLUSIVE
    calls: tuple[Callable[[], Any], ...] = (
        lambda: xupc.all_broadcast(b, a, 8, flag),
        lambda: xupc.all_gather_v(b, a, [0] * n, [0] * n, [0] * n, flag),
        lambda: xupc.all_permute(b, a, list(range(n)), 8, flag),
        lambda: xupc.all_reduce(b, a, xupc.ADD, flags=flag),
        lambda: xupc.all_reduce_mpi_all(b, a, xupc.ADD, flags=flag),
        lambda: xupc.all_reduce_scatter(b, a, xupc.ADD, 1, flags=flag),
        lambda: xupc.allav_reduce_all(x, x.copy(), xupc.ADD, flags=flag),
        lambda: xupc.allav_gather_all(row, x, flag),
        lambda: xupc.allv_reduce_all(1, xupc.ADD, flags=flag),
        lambda: xupc.allv_broadcast(1, 0, flag),
    )
    for call in calls:
        try:
            call()
        except xupc.FlagError as e:
            assert "EXCLUSIVE is for prefix and suffix" in str(e), e
        else:
            raise AssertionError("not refused")
    assert xupc.allv_reduce_all(1, xupc.ADD) == n
    xupc.all_free(a)
    xupc.all_free(b)


def main(seed: int, count: int) -> None:
    """Make all calls."""
    team = xupc.init(heap_size="8MiB")
    calls = Calls(team, seed)
    for _ in range(count):
        one(calls)
    for check in (python_values, same_bits, teams, refused):
        check(team)
    xupc.finalize()
    print("done", flush=True)


main(*map(int, sys.argv[1:]))
