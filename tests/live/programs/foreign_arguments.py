"""Arguments of other libraries: buffers, lists, tensors, np.add, MPI.SUM."""

from __future__ import annotations

import array
import ctypes
import itertools
import mmap
import weakref

import numpy as np
from mpi4py import MPI

import xupc
from xupc import upc

xupc.init(heap_size="4MiB")
me, t = xupc.MYTHREAD, xupc.THREADS


class Tensor:
    """An array of another library: DLPack, and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **how):
        return self.values.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnADevice(Tensor):
    def __dlpack__(self, **how):
        raise BufferError("the tensor is in the memory of a GPU")


class OffersACopy(Tensor):
    """A tensor of a GPU that is copied for a reader on the CPU, as CuPy's are."""

    def __dlpack_device__(self):
        return 2, 1


def raises(error, what, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except error as found:
        assert what in str(found), found
    else:
        raise AssertionError(f"nothing raised: {what}")


def buffers(nbytes):
    """Some memory to write to, of each kind, and its bytes."""
    view = np.zeros(2 * nbytes, np.uint8)
    yield bytearray(nbytes)
    yield memoryview(bytearray(nbytes))
    yield array.array("B", bytes(nbytes))
    yield mmap.mmap(-1, nbytes)
    yield memoryview(view)[::2]
    yield Tensor(np.zeros(nbytes, np.uint8))


# --- memory of all kinds --------------------------------------------------------------------------
for _ in range(3):  # the second call must not take the way of a cached one
    for number, dst in enumerate(buffers(2 * t)):
        for src in (bytes([me, number]), [np.uint8(me), np.uint8(number)], bytearray([me, number])):
            xupc.allav_gather_all(dst, src)
            seen = dst.values if isinstance(dst, Tensor) else np.asarray(memoryview(dst))
            assert seen.tolist() == [x for i in range(t) for x in (i, number)], (number, seen)
numbers = array.array("d", [1.0 + me, 2.0])
sums = np.zeros(2)
for step in range(3):
    numbers[1] = step
    xupc.allav_reduce_all(sums, numbers, np.add)
    assert sums.tolist() == [t * (t + 1) / 2, t * step], sums
listed = [me, 0]
for step in range(3):
    listed[1] = step  # the same list with other values
    found = np.zeros(2, np.int64)
    xupc.allav_reduce_all(found, listed, MPI.SUM)
    assert found.tolist() == [t * (t - 1) // 2, t * step], found
xupc.allav_broadcast((2.5, 3.5) if me == 0 else (got := np.zeros(2)), 0)
assert me == 0 or got.tolist() == [2.5, 3.5]
one = np.float64(me)  # a number has a buffer, too
xupc.allav_reduce_all(sums[:1], one, np.maximum)
assert sums[0] == t - 1
both = bytearray(np.array([me + 1], np.int64).tobytes())
xupc.allav_prefix_reduce(memoryview(both).cast("q"), None, MPI.SUM)
assert np.frombuffer(both, np.int64)[0] == (me + 1) * (me + 2) // 2
same = memoryview(bytearray(np.array([2], np.int64).tobytes())).cast("q")
xupc.allav_reduce_all(same, same, MPI.PROD, flags=xupc.IN_PLACE)
assert same[0] == 2**t
plan = xupc.allav_reduce_all.plan(sums, numbers, MPI.MAX)
for step in range(3):
    numbers[0] = step + me  # a plan reads the buffer anew
    plan()
    assert sums[0] == step + t - 1
handle = xupc.allav_gather_all(np.zeros(t, np.uint8), bytes([me]), xupc.ASYNC)
handle.wait()

# --- what cannot be taken -------------------------------------------------------------------------
room = np.zeros(2)
itself = [1.0]
itself += [itself, itself]  # numpy alone would take 2^64 steps
masked = np.ma.masked_array([1.0, 2.0], [True, False])
for wrong, what in (
    (masked, "masked array"),
    ("no", "expected an ndarray or a buffer, got 'no'"),
    ([1.0, "two", None], "Python objects"),
    ([[1.0], [2.0, 3.0]], "expected an array of numbers"),
    (3, "expected an ndarray or a buffer"),
    (OnADevice(room), "memory of a GPU"),
    (OffersACopy(room), "memory of device 1"),
    ([masked], "masked array"),
    ((np.ma.masked, 2.0), "masked array"),
    ([[0.0], [masked[0]]], "masked array"),
    (itself, "does it hold itself?"),
    ([[itself]], "at most 64 dimensions"),
    (None if t < 0 else {1.0, 2.0}, "expected an ndarray or a buffer"),
):
    raises(TypeError, what, xupc.allav_gather_all, np.zeros(2 * t), wrong)
raises(TypeError, "dst: expected an ndarray or a buffer to write to",
       xupc.allav_reduce_all, [0.0, 0.0], room, xupc.ADD)  # fmt: skip
raises(ValueError, "read-only", xupc.allav_reduce_all, bytes(16), bytes(16), xupc.MAX)
raises(TypeError, "masked array", xupc.allav_reduce_all, masked, room, xupc.ADD)
shared = xupc.all_alloc(2 * t, np.float64, 2)
raises(TypeError, "masked array", shared.__setitem__, slice(0, 2), masked)
for wrong in (np.ma.masked, np.ma.masked_array(1.0, True), [np.ma.masked]):
    raises(TypeError, "masked array", shared.__setitem__, 0, wrong)
    raises(TypeError, "masked array", (shared + 1).__setitem__, 0, wrong)
    raises(TypeError, "masked array", shared.__setitem__, slice(0, 1), wrong)
for place in (0, slice(0, 2)):
    raises(TypeError, "hold itself", shared.__setitem__, place, itself)
raises(TypeError, "memory of device 1", xupc.allav_reduce_all, OffersACopy(room), room, xupc.ADD)
raises(TypeError, "masked array", xupc.memput, shared, masked, 16)
raises(TypeError, "masked array", xupc.memget, masked, shared, 16)
raises(xupc.CollectiveMismatchError if me else TypeError, "masked array", xupc.node_broadcast,
       masked if me == 0 else None, 0)  # fmt: skip

# --- objects that never end, are gone, or have no memory of their own -----------------------------
class Gone:
    pass


class Says:
    """An object that says that it is a shared array, as mocks do."""

    @property
    def __class__(self):
        return xupc.SharedArray


gone = weakref.proxy(Gone())
at_end = ctypes.pointer(ctypes.c_int(0))  # Python would read on behind it
for call in (xupc.neighbours, xupc.cartesian):
    for wrong in (at_end, gone, 3):
        raises((TypeError, ReferenceError), "", call, wrong)
    raises((TypeError, ValueError), "more than", call, itertools.repeat(0))
raises(TypeError, "several handles", xupc.wait_all, at_end)
raises(TypeError, "expected handles", xupc.wait_all, itertools.repeat(3, 5))
many = np.broadcast_to(np.int8(1), (1 << 40,))
raises(ValueError, f"one for each thread, got {1 << 40}", xupc.allav_gather_all_v, room, room, many)
released = memoryview(bytearray(8))
released.release()
raises(ValueError, "released", xupc.allav_gather_all_v, room, room, released)
both_ways = memoryview(bytearray(64)).cast("B", (8, 8))
raises(TypeError, "one dimension", xupc.all_permute, shared, shared, both_ways, 8)
for text in ("\udcff", 3):
    raises(TypeError, "", shared.__array__, text)
other = xupc.all_alloc(2 * t, np.float64, 2)
xupc.all_broadcast(weakref.proxy(other), weakref.proxy(shared), 8)  # of what is there
# One thread's error is that of all, in the same call: nothing is asked of the object before.
of_user = TypeError, AttributeError, ReferenceError
for x in (gone, Says()):
    mine = x if me == 0 else other
    mismatch = of_user if me == 0 else xupc.CollectiveMismatchError
    raises(mismatch, "", xupc.all_broadcast, mine, shared, 8)
    raises(mismatch, "", xupc.all_broadcast.plan, mine, shared, 8)
    raises(mismatch, "", upc.upc_all_prefix_reduceD, shared, mine, xupc.ADD, 2 * t, 2)
    raises(mismatch, "", xupc.all_reduce, mine, shared, xupc.ADD)
    op = x if me == 0 else xupc.ADD
    raises(mismatch, "", xupc.allv_reduce_all, 1, op)
    raises(mismatch, "", xupc.all_reduce, other, shared, op)


class Raises(int):
    def __index__(self):
        raise ZeroDivisionError("asked")


raises(ZeroDivisionError if me == 0 else xupc.CollectiveMismatchError,
       "asked" if me == 0 else "thread 0: ZeroDivisionError", upc.upc_all_alloc,
       type("Asked", (), {"__index__": Raises.__index__})() if me == 0 else 4, 8)  # fmt: skip

# --- operations -----------------------------------------------------------------------------------
data = np.array([3, 5], np.int32) << me % 3
everyone = np.stack([np.array([3, 5], np.int32) << i % 3 for i in range(t)])
out = np.zeros(2, np.int32)
single = xupc.all_alloc(1, np.int32, 0)
dealt = xupc.all_alloc(2 * t, np.int32, 2)
dealt.local[:] = data
for ufunc, name in (
    (np.add, "SUM"), (np.multiply, "PROD"), (np.minimum, "MIN"), (np.maximum, "MAX"),
    (np.bitwise_and, "BAND"), (np.bitwise_or, "BOR"), (np.bitwise_xor, "BXOR"),
    (np.logical_and, "LAND"), (np.logical_or, "LOR"),
):  # fmt: skip
    for op in (ufunc, getattr(MPI, name)):
        xupc.allav_reduce_all(out, data, op)
        wanted = ufunc.reduce(everyone) if t > 1 else data  # one operand stays as it is
        assert (out == wanted).all(), (name, out)
        assert xupc.allv_reduce_all(int(data[0]), op) == wanted[0]
        xupc.all_reduce(single, dealt, op)
        assert single[0] == ufunc.reduce(everyone.reshape(-1)), name
        xupc.barrier()
pair = np.dtype([("value", np.float64), ("index", np.int64)])
least = xupc.allv_reduce_all(np.array((abs(me - 1), me), pair)[()], MPI.MINLOC)
assert least["index"] == min(1, t - 1)
if t > 1:  # one operation under several names is no difference
    xupc.allav_reduce_all(out, data, (xupc.ADD, np.add, MPI.SUM)[me % 3])
    assert (out == everyone.sum(0)).all()
raises(TypeError, "such as np.add or MPI.SUM", xupc.allav_reduce_all, out, data, np.subtract)
own = MPI.Op.Create(lambda a, b, _: None)
raises(TypeError, "such as np.add or MPI.SUM", xupc.allav_reduce_all, out, data, own)
raises(TypeError, "such as np.add or MPI.SUM", xupc.all_reduce, single, dealt, MPI.LXOR)
own.Free()
xupc.barrier()
if me == 0:
    print("done")
xupc.finalize()
