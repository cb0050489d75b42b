"""Reductions of records: in place, in the background, as plans, on teams, with nested fields."""

from __future__ import annotations

import numpy as np
from reduction_cases import first_of
from support.checked_calls import ALGORITHMS, done, raises

import xupc

PAIR = np.dtype([("value", np.float64), ("index", np.int32)], align=True)
DEEP = np.dtype([("n", "i4"), ("map", "i8", (3, 3)), ("more", [("x", "f4"), ("y", "u1")])])
N = 37


def mine(rank: int) -> np.ndarray:
    """A thread's records; many are equal but for their index."""
    out = np.zeros(N, PAIR)
    out["value"], out["index"] = np.random.default_rng(rank).integers(0, 4, N), np.arange(N) + rank
    return out


def folded(op: xupc.Op, rows: list[np.ndarray]) -> list[tuple]:
    """Rows joined element by element."""
    out = rows[0].copy()
    for row in rows[1:]:
        out = np.array([first_of(op, a, b) for a, b in zip(out, row, strict=True)], PAIR)
    return out.tolist()


def after(a: np.void, b: np.void) -> tuple:
    """Counts, and maps one after the other; the last one's rest."""
    return a["n"] + b["n"], a["map"] @ b["map"] % 101, b["more"]


@xupc.vectorized
def all_after(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same for arrays."""
    out = b.copy()
    out["n"], out["map"] = a["n"] + b["n"], a["map"] @ b["map"] % 101
    return out


def deep(rank: int) -> np.ndarray:
    """One record whose map commutes with hardly any other."""
    out = np.zeros(1, DEEP)
    out["n"], out["map"] = 1, np.random.default_rng(rank).integers(0, 101, (3, 3))
    out["more"] = (rank / 2, rank)
    return out


def main() -> None:
    team = xupc.init(timeout=30)
    T, me = xupc.THREADS, xupc.MYTHREAD
    dst, src = (xupc.all_alloc(N * T, PAIR, N) for _ in range(2))
    rows, count = [mine(i) for i in range(T)], 0
    for flag in ALGORITHMS.values():
        for op in (xupc.MINLOC, xupc.MAXLOC):
            wanted = folded(op, rows)
            for start in (dst, src):
                start.local[:] = mine(me)
            plan = xupc.all_reduce_mpi_all.plan(dst, src, op, flags=flag)
            plan.start().wait()
            assert dst.local.tolist() == wanted
            dst.local[:] = mine(me)
            xupc.barrier()
            xupc.all_reduce_mpi_all(dst, None, op, flags=flag | xupc.ASYNC).wait()
            assert dst.local.tolist() == wanted
            line = np.concatenate(rows)
            for back, form in ((0, xupc.all_prefix_reduce), (1, xupc.all_suffix_reduce)):
                dst.local[:] = mine(me)
                xupc.barrier()
                form(dst, None, op, flags=flag)
                way = -1 if back else 1
                running = [line[::way][0]]
                for x in line[::way][1:]:
                    running.append(first_of(op, running[-1], x))
                wanted_here = np.array(running, PAIR)[::way][N * me : N * (me + 1)]
                assert dst.local.tolist() == wanted_here.tolist(), (flag, op, back)
                xupc.barrier()
            values, result = mine(me), np.zeros(N, PAIR)
            kept = xupc.allav_reduce_all.plan(result, values, op, flags=flag)
            for _ in range(2):
                result[:] = 0
                kept()
                assert result.tolist() == wanted
            xupc.allav_reduce_all(values, None, op, flags=flag | xupc.ASYNC).wait()
            assert values.tolist() == wanted
            values = mine(me)[::-1]
            xupc.allav_prefix_reduce(result[::-1], values, op, flags=flag)
            assert result.tolist() == folded(op, rows[: me + 1])
            some = team.split(me % 2)
            assert some is not None
            xupc.allav_reduce_all(result, mine(me), op, flags=flag, team=some)
            assert result.tolist() == folded(op, rows[me % 2 :: 2])
            some.free()
            count += 1
        for func in (after, all_after):
            want = deep(0)[0]
            for i in range(1, T):
                want = np.array(after(want, deep(i)[0]), DEEP)[()]
            out = np.zeros(1, DEEP)
            xupc.allav_reduce_all(out, deep(me), xupc.NONCOMM_FUNC, func, flags=flag)
            assert out.tobytes() == want.tobytes()
            one = xupc.allv_reduce_all(deep(me)[0], xupc.NONCOMM_FUNC, func)
            assert (type(one), one.tobytes()) == (np.void, want.tobytes())
            count += 1
    words = ("objects",)
    things = np.zeros(2, [("value", "O"), ("index", "i8")])
    raises(TypeError, words, lambda: xupc.allav_reduce_all(things, None, xupc.MINLOC), "objects")
    other = PAIR if me else np.dtype([("value", np.float64), ("index", np.uint32)], align=True)
    if T > 1:
        x = np.zeros(2, other)
        words = ("elements",)
        raises(xupc.CollectiveMismatchError, words,
               lambda: xupc.allav_reduce_all(x, None, xupc.MINLOC), "types differ")  # fmt: skip
    xupc.barrier()
    done(count)


main()
