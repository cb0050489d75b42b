"""Values of kinds that are not met every day: byte orders, times, classes of the user's."""

import enum

import numpy as np

import xupc
from xupc import upc

team = xupc.init()
ME, THREADS = team.rank, team.size
ALL = THREADS * (THREADS + 1) // 2


def refused(error: type[Exception], call: object, *args: object) -> None:
    try:
        call(*args)  # type: ignore[operator]
    except error:
        return
    raise AssertionError(f"{call} took {args}")


for dtype in (">f8", "<f8", ">i4", ">c16"):
    x, y = np.full(5, ME + 1).astype(dtype), np.zeros(5, dtype)
    xupc.allav_reduce_all(y, x, xupc.ADD)
    assert y.tolist() == [ALL] * 5, y
    assert y.dtype == np.dtype(dtype)
    xupc.allav_prefix_reduce(y, x, xupc.ADD)
    assert y.tolist() == [(ME + 1) * (ME + 2) // 2] * 5, y
    xupc.allav_reduce(y if ME == 0 else None, x, xupc.ADD, 0)
    assert ME or y.tolist() == [ALL] * 5, y
    xupc.allav_reduce_all(x, None, xupc.ADD)
    assert x.tolist() == [ALL] * 5, x
    plan = xupc.allav_reduce_all.plan(y, x, xupc.ADD)
    for _ in range(2):
        plan()
        assert y.tolist() == [THREADS * ALL] * 5, y
    every = np.zeros(5 * THREADS, dtype)
    xupc.allav_gather_all(every, x)
    assert every.tolist() == [ALL] * 5 * THREADS, every

mine, out = np.full(3, ME + 1).astype("m8[s]"), np.zeros(3, "m8[s]")
xupc.allav_reduce_all(out, mine, xupc.ADD)
assert out.astype("i8").tolist() == [ALL] * 3, out
days, out = np.full(3, ME + 1, "i8").astype("M8[D]"), np.zeros(3, "M8[D]")
xupc.allav_reduce_all(out, days, xupc.MAX)
assert out.astype("i8").tolist() == [THREADS] * 3, out
xupc.allav_prefix_reduce(out, days, xupc.MAX)
assert out.astype("i8").tolist() == [ME + 1] * 3, out
refused(TypeError, xupc.allav_reduce_all, out, days, xupc.ADD)


class Level(enum.IntEnum):
    HIGH = 3


class Length(float):
    pass


assert xupc.allv_gather_all(Level.HIGH) == [3] * THREADS
assert xupc.allv_gather_all(Length(2.5)) == [2.5] * THREADS

done = upc.UPC_HANDLE_COMPLETE
assert upc.upc_test(done) > 0
assert upc.upc_get_status(done) > 0
upc.upc_wait(done)

square = THREADS * THREADS
refused(xupc.FlagError, xupc.all_exchange_x, [None] * square, None, [4] * square)
refused(ValueError, lambda: xupc.init(timeout=3))
print("done", flush=True)
