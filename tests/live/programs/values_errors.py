"""Scalars, wrong arguments and differing calls on arrays of values."""

from __future__ import annotations

from functools import partial

import numpy as np

import xupc

xupc.init(heap_size="4MiB")
me, t = xupc.MYTHREAD, xupc.THREADS


def same(found, wanted):
    assert type(found) is type(wanted), (me, found, wanted)
    assert found == wanted, (me, found, wanted)


# --- scalars --------------------------------------------------------------------------------
for _ in range(3):
    for make in (int, float, complex, bool, np.float32, np.int16, np.uint64):
        value = make(me % 2 + 1)
        same(xupc.allv_broadcast(value if me == t - 1 else None, t - 1), make((t - 1) % 2 + 1))
        same(xupc.allv_scatter([make(i % 2) for i in range(t)] if me == 0 else None, 0),
             make(me % 2))  # fmt: skip
        everyone = [make(i % 2 + 1) for i in range(t)]
        for x, y in zip(xupc.allv_gather_all(value), everyone, strict=True):
            same(x, y)
        assert xupc.allv_gather(value, t - 1) == (everyone if me == t - 1 else None)
        got = xupc.allv_exchange([make((me + i) % 2) for i in range(t)])
        assert got == [make((me + i) % 2) for i in range(t)]
        same(xupc.allv_permute(value, (me + 1) % t), make((me - 1) % t % 2 + 1))
        if make is not bool:
            same(xupc.allv_reduce_all(value, xupc.ADD), make(sum(i % 2 + 1 for i in range(t))))
            same(xupc.allv_prefix_reduce(value, xupc.ADD),
                 make(sum(i % 2 + 1 for i in range(me + 1))))  # fmt: skip
            same(xupc.allv_suffix_reduce(value, xupc.ADD),
                 make(sum(i % 2 + 1 for i in range(me, t))))  # fmt: skip
        total = xupc.allv_reduce(value, xupc.MULT, 0)
        assert (total is None) == (me != 0)
same(xupc.allv_reduce_all(me == 0, xupc.LOGOR), True)
same(xupc.allv_reduce_all(me, xupc.FUNC, max), t - 1)
pair = np.dtype([("value", np.float64), ("index", np.int32)], align=True)
for root in range(t):
    value = np.array((abs(me - root), me), pair)[()]
    least, most = (xupc.allv_reduce_all(value, op) for op in (xupc.MINLOC, xupc.MAXLOC))
    assert (type(least), least.dtype, least.tolist()) == (np.void, pair, (0.0, root))
    assert most.tolist() == (max(root, t - 1 - root), 0 if 2 * root >= t - 1 else t - 1)
    found = xupc.allv_reduce(value, xupc.MINLOC, root)
    assert found is None if me != root else found.tolist() == (0.0, root)
    before = xupc.allv_prefix_reduce(value, xupc.MINLOC).tolist()
    assert before == (abs(min(me, root) - root), min(me, root))
    behind = xupc.allv_suffix_reduce(value, xupc.MINLOC).tolist()
    assert behind == (abs(max(me, root) - root), max(me, root))
    first = xupc.allv_reduce_all(value, xupc.NONCOMM_FUNC, lambda a, b: (b["value"], a["index"]))
    assert first.tolist() == (abs(t - 1 - root), 0)
A = xupc.all_alloc(8 * t, "f8", 4)
p = A + 3 * (me + 1)
assert xupc.allv_broadcast(A + 5 if me == 0 else None, 0) == A + 5
q = xupc.allv_gather_all(p)
assert q == [A + 3 * (i + 1) for i in range(t)]
assert q[-1].dtype == A.dtype
assert xupc.allv_gather(p, 0) == (q if me == 0 else None)


record = np.zeros(1, [("a", "i4"), ("b", "f4")])[0]
record["a"], record["b"] = me, 2.5
for got, of in (
    (xupc.allv_broadcast(record if me == t - 1 else None, t - 1), t - 1),
    (xupc.allv_scatter([record] * t if me == 0 else None, 0), 0),
    (xupc.allv_gather_all(record)[0], 0),
    (xupc.allv_permute(record, me), me),
):
    assert got.dtype == record.dtype, got.dtype
    assert (got["a"], got["b"]) == (of, 2.5), got


# --- plans ------------------------------------------------------------------------------------
for wide in (np.zeros(3), np.zeros(9)[::3], np.zeros(200000), np.zeros(400000)[::2]):
    mine = np.zeros_like(wide)
    sums = xupc.allav_reduce_all.plan(wide, mine, xupc.ADD)
    turn = xupc.allav_permute.plan(wide, None, (me + 1) % t, xupc.PUSH)
    fan = xupc.allav_broadcast.plan(wide, t - 1)
    assert sums.algorithm.startswith("multicore:")
    assert turn.algorithm.startswith("push:")
    assert "allav_permute" in str(turn)
    for k in range(3):
        mine[...] = k + me
        sums()
        assert (wide == k * t + t * (t - 1) // 2).all()
        wide[...] = me + k
        turn()
        assert (wide == (me - 1) % t + k).all(), (me, wide)
        wide[...] = me
        fan()
        assert (wide == t - 1).all()
        assert xupc.allv_reduce_all(1, xupc.ADD) == t


wide = np.zeros(400000)[::2]
sums = xupc.allav_reduce_all.plan(wide, None, xupc.ADD)
for k in range(8):
    wide[:] = k
    xupc.barrier()
    handle = sums.start()
    if not handle.done:
        refused = None
        try:
            sums.start()
        except xupc.XupcError as e:
            refused = str(e)
        assert refused is not None
        assert "wait for its handle" in refused
    handle.wait()
    assert (wide == k * t).all(), (me, k, wide)
flags = np.int64(int(xupc.ASYNC))
handle = xupc.allav_reduce_all(np.ones(3), np.ones(3), xupc.ADD, flags=flags)
assert isinstance(handle, xupc.Handle)
handle.wait()


# --- permutations that change while some threads give to the same thread as before ---------------
order = [*range(1, t), 0]
for k in range(12):
    if k % 4 == 3 and t > 2:
        order[1], order[-1] = order[-1], order[1]
    give = np.full(3, 10.0 * k + me)
    if k % 3:
        got = np.zeros(3)
        xupc.allav_permute(got, give, order[me])
    else:
        got = give
        xupc.allav_permute(got, None, order[me])
    assert (got == 10 * k + order.index(me)).all(), (me, k, got)
    assert xupc.allv_permute(me + k, order[me]) == order.index(me) + k

# --- wrong arguments, on all threads ------------------------------------------------------------
def raises(error, call, *args, **keywords):
    said = None
    try:
        call(*args, **keywords)
    except error as e:
        said = str(e)
    assert said is not None, f"thread {me}: no {error.__name__} from {call!r}{args}"
    assert call.__name__ in said, said
    return said


one, many = np.ones(2), np.ones(2 * t)
ADD = xupc.ADD
for _ in range(2):
    raises(TypeError, xupc.allav_broadcast, {1, 2}, 0)
    raises(ValueError, xupc.allav_broadcast, one, t)
    raises(TypeError, xupc.allav_broadcast, np.array([None]), 0)
    raises(xupc.FlagError, xupc.allav_broadcast, one, 0, xupc.PULL | xupc.PUSH)
    raises(xupc.FlagError, xupc.allav_gather, many, one, 0, flags=xupc.IN_PLACE)
    raises(ValueError, xupc.allav_gather_all, np.ones(2 * t + 1), one)
    raises(TypeError, xupc.allav_reduce_all, np.ones(2, "i4"), one, ADD)
    raises(ValueError, xupc.allav_reduce_all, np.ones(3), one, ADD)
    raises(TypeError, xupc.allav_reduce_all, one, None, "add")
    raises(TypeError, xupc.allav_gather_all, many, one, ADD)
    raises(TypeError, xupc.allav_reduce_all, np.ones(2), one, xupc.XOR)
    raises(TypeError, xupc.allav_reduce_all, np.zeros(2, "S3"), np.zeros(2, "S3"), ADD)
    raises(ValueError, xupc.allav_reduce_all, np.ones(2), one, xupc.FUNC)
    overlapping = np.ones(3 * t)
    raises(xupc.OverlapError, xupc.allav_exchange, overlapping[: 2 * t], overlapping[t:])
    raises(ValueError, xupc.allav_permute, np.ones(2), one, t)
    raises(xupc.FlagError, xupc.allav_permute, np.ones(2), one, 0, xupc.IN_PLACE)
    if t > 1:
        assert "permutation" in raises(ValueError, xupc.allav_permute, np.ones(2), one, 0)
    read_only = np.ones(2)
    read_only.flags.writeable = False
    raises(ValueError, xupc.allav_reduce_all, read_only, one, ADD)
    raises(OverflowError, xupc.allv_reduce_all, 1 << 64, ADD)
    raises(TypeError, xupc.allv_reduce_all, "text", ADD)
    raises(ValueError, xupc.allv_exchange, [1] * (t + 1))
    # the library stays usable
    total = np.empty(2)
    xupc.allav_reduce_all(total, one, ADD)
    assert (total == t).all()
    empty = np.ones(0)
    xupc.allav_gather_all(np.ones(0), empty)

far = xupc.all_alloc(t, [(f"a_field_{k}", "f8") for k in range(60)])
assert "bytes" in raises(ValueError, xupc.allv_gather_all, far.ptr(0))

# --- calls that differ ---------------------------------------------------------------------------
def large(blocks, more):
    """Return an array in a mapping of its own: access after it is unmapped crashes."""
    return np.full((400000 + more) * blocks, float(me))


def exchange(flag):
    xupc.allav_exchange(large(t, last), large(t, last), flags=flag)


def gather_all(flag):
    xupc.allav_gather_all(large(t, last), large(1, last), flags=flag)


last = me == t - 1
if t > 1:
    flags = (xupc.PULL, xupc.PUSH, xupc.MULTICORE)
    for call in (
        *(partial(exchange, flag) for flag in 2 * flags),
        *(partial(gather_all, flag) for flag in flags),
        lambda: xupc.allav_reduce_all(np.ones(2 + last), np.ones(2 + last), ADD),
        lambda: xupc.allav_gather_all(np.ones((2 + last) * t), np.ones(2 + last)),
        lambda: xupc.allav_reduce_all(np.ones(2), np.ones(2), xupc.MAX if last else ADD),
        lambda: xupc.allv_reduce_all(1.0 if last else 1, ADD),
        lambda: xupc.allav_gather_all(np.ones(2 * t), "no" if last else np.ones(2)),
    ):
        guard = np.full(1000, 7.0)
        raised = None
        try:
            call()
        except (xupc.CollectiveMismatchError, TypeError) as e:
            raised = e
        assert raised is not None, f"thread {me}: nothing raised"
        after = large(t, 0)
        xupc.barrier()
        assert (after == me).all(), "what was under way went on"
        if not isinstance(raised, xupc.CollectiveMismatchError):
            assert last
            assert "expected an ndarray" in str(raised), raised
        assert (guard == 7.0).all()
        xupc.barrier()
    # what was wrong with an earlier call is not said of a later one
    for _ in range(2):
        said = ""
        try:
            xupc.allav_permute(np.ones(1), np.ones(1), "no" if last else me)
        except (xupc.CollectiveMismatchError, TypeError) as e:
            said = str(e)
        assert "to: expected an int" in said if last else f"thread {t - 1}" in said, said
        assert "both give" not in said, said
        assert "permutation" in raises(ValueError, xupc.allav_permute, np.ones(1), np.ones(1), 0)
    # in a call in which not all wait for all, some threads raise at the barrier
    said = ""
    try:
        xupc.allav_broadcast(np.ones(2 + last), 0)
        xupc.barrier()
    except xupc.CollectiveMismatchError as e:
        said = str(e)
    assert "differ" in said, said
xupc.barrier()

# --- functions that raise -------------------------------------------------------------------------
def bad(a, b):
    if me == 0:
        raise ZeroDivisionError("on purpose")
    return a + b


if t > 1:
    try:
        xupc.allav_reduce_all(np.ones(2), np.ones(2), xupc.FUNC, bad)
        xupc.barrier()
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError(f"thread {me}: nothing raised")
xupc.barrier()
if me == 0:
    print("done")
xupc.finalize()
