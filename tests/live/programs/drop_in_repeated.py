"""Calls that look like an earlier one, under ``XUPC_COMM=force``.

Nothing of the earlier call may be used again that is no longer right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

comm = xupc.Comm(MPI.COMM_WORLD)
other = comm.Dup()
size, me = comm.size, comm.rank
total = size * (size + 1) // 2


def summed(x: Any, y: Any, on: Any = comm) -> None:
    """Check the sum of x, to which each thread gives its number from 1 on."""
    x[...] = me + 1
    y[...] = -1
    on.Allreduce(x, y)
    assert (y == total).all(), y


x, y = np.zeros(6), np.zeros(6)
for _ in range(3):
    summed(x, y)
    summed(x, y, other)  # two communicators in turn
x.resize(4, refcheck=False)
y.resize(4, refcheck=False)
summed(x, y)
for _ in range(20):  # new arrays, some of them at old addresses
    summed(np.zeros(6), np.zeros(6))
for dtype in ("f4", "i8", "q", "f8"):
    summed(np.zeros(4, dtype), np.zeros(4, dtype))
try:  # strided, after contiguous ones of this size: an error of mpi4py's
    comm.Allreduce(np.ones(8)[::2], np.zeros(8)[::2])
    raise AssertionError("no error")
except (ValueError, BufferError):
    pass
summed(np.zeros((2, 2)), np.zeros((2, 2)))
summed(np.zeros(()), np.zeros(()))
summed(np.zeros((2, 2), order="F").T, np.zeros(4))

whole = np.zeros(8)  # operands and result that overlap
whole[:6] = me + 1
comm.Allreduce(whole[:6], whole[2:])
assert (whole == [me + 1] * 2 + [total] * 6).all(), whole
whole[:] = me + 1
comm.Allreduce(MPI.IN_PLACE, whole)
assert (whole == total).all(), whole
whole[:] = me + 1
comm.Allreduce([whole, 3, MPI.DOUBLE], [y, 3, MPI.DOUBLE])  # fewer than the array has
assert (y == [total] * 3 + [y[3]]).all(), y

fixed = np.full(4, me + 1.0)
fixed.flags.writeable = False
comm.Allreduce(fixed, y)
assert (y == total).all(), y
try:  # a result that cannot be written: an error of mpi4py's, before any thread is met
    comm.Allreduce(np.ones(4), fixed)
    raise AssertionError("no error")
except (ValueError, BufferError, TypeError):
    pass
assert (fixed == me + 1).all(), fixed

for root in [*range(size), 0]:
    x[...] = me + 1
    y[...] = -1
    comm.Reduce(x, y, root=root)
    assert (y == (total if me == root else -1)).all(), y
    comm.Bcast(x, root)
    assert (x == root + 1).all(), x

other.Free()
other = comm.Split(0)
summed(np.zeros(4), np.zeros(4), other)
carried = comm.explain(as_dict=True)["Allreduce"]["carried_by"]
assert set(carried) == {"xupc"}, carried
xupc.finalize()
summed(np.zeros(4), np.zeros(4))
summed(np.zeros(4), np.zeros(4), other)
print("done")
