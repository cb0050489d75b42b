"""Threads in different methods of `xupc.Comm`: the error names what the program called.

Under ``XUPC_COMM=force``. Each method once against another one, the first time and repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.mpi.methods import TAKEN, names
from xupc.mpi.repeated import form_of

comm = xupc.Comm(MPI.COMM_WORLD)
size, me = comm.size, comm.rank
ring = comm.Create_cart([size], [True])
x, y = np.full(3, 1.0), np.zeros(3)
many, into = np.full(3 * size, 1.0), np.zeros(3 * size)
parts = [3] * size
listed = [many, parts, MPI.DOUBLE]
into_listed = [into, parts, MPI.DOUBLE]
sides, into_sides = np.full(6, 1.0), np.zeros(6)
two = ([3, 3], [0, 3])
wide = [sides, ([3, 3], [0, 24]), [MPI.DOUBLE] * 2]
into_wide = [into_sides, ([3, 3], [0, 24]), [MPI.DOUBLE] * 2]

CALLS: dict[str, Callable[[], Any]] = {
    "Barrier": lambda: comm.Barrier(),
    "barrier": lambda: comm.barrier(),
    "Bcast": lambda: comm.Bcast(y),
    "Gather": lambda: comm.Gather(x, into),
    "Scatter": lambda: comm.Scatter(many, y),
    "Allgather": lambda: comm.Allgather(x, into),
    "Alltoall": lambda: comm.Alltoall(many, into),
    "Reduce": lambda: comm.Reduce(x, y),
    "Allreduce": lambda: comm.Allreduce(x, y),
    "Scan": lambda: comm.Scan(x, y),
    "Exscan": lambda: comm.Exscan(x, y),
    "Reduce_scatter_block": lambda: comm.Reduce_scatter_block(many, y, MPI.MAX),
    "Reduce_scatter": lambda: comm.Reduce_scatter(many, y, parts),
    "Allgatherv": lambda: comm.Allgatherv(x, into_listed),
    "Gatherv": lambda: comm.Gatherv(x, into_listed),
    "Scatterv": lambda: comm.Scatterv(listed, y),
    "Alltoallv": lambda: comm.Alltoallv(listed, into_listed),
    "bcast": lambda: comm.bcast(me),
    "gather": lambda: comm.gather(me),
    "scatter": lambda: comm.scatter(parts),
    "allgather": lambda: comm.allgather(me),
    "alltoall": lambda: comm.alltoall(parts),
    "reduce": lambda: comm.reduce(me),
    "allreduce": lambda: comm.allreduce(me),
    "scan": lambda: comm.scan(me),
    "exscan": lambda: comm.exscan(me),
    "Neighbor_allgather": lambda: ring.Neighbor_allgather(x, into_sides),
    "Neighbor_allgatherv": lambda: ring.Neighbor_allgatherv(x, [into_sides, two, MPI.DOUBLE]),
    "Neighbor_alltoall": lambda: ring.Neighbor_alltoall(sides, into_sides),
    "Neighbor_alltoallv": lambda: ring.Neighbor_alltoallv(
        [sides, two, MPI.DOUBLE], [into_sides, two, MPI.DOUBLE]
    ),
    "Neighbor_alltoallw": lambda: ring.Neighbor_alltoallw(wide, into_wide),
}
MISSING = {name for name in names(TAKEN) if not name.startswith("I")} - set(CALLS)
assert not MISSING, MISSING


def other_than(name: str) -> tuple[str, Callable[[], Any]]:
    """Return a call of the same communicator by another method."""
    if name.startswith("N"):
        return "Bcast", lambda: ring.Bcast(y)
    return ("Allreduce", CALLS["Allreduce"]) if name.lower() == "barrier" else (
        "Barrier", CALLS["Barrier"])  # fmt: skip


def differ(name: str) -> str:
    """Call a method on thread 0 and another one on the others; return the text of the error."""
    on = ring if name.startswith("N") else comm
    try:
        (CALLS[name] if me == 0 else other_than(name)[1])()
        on.Barrier()  # of the root of a Bcast: it does not wait
    except xupc.CollectiveMismatchError as error:
        return str(error)
    raise AssertionError(f"{name}: no error")


def check(name: str, text: str) -> None:
    """Check that a text names the methods of the program, and no call of xupc's."""
    # calls that the core repeats for two methods have the names of both
    found = re.findall(r"((?:\w+ or )*\w+)\(", text)
    called = {word for words in found for word in words.split(" or ")}
    assert {name, other_than(name)[0]} <= called, (name, text)
    assert "allav_" not in text, (name, text)
    assert "neighbour_exchange" not in text, (name, text)
    assert called <= {*CALLS}, (name, text)


for method, call in CALLS.items():
    call()
    check(method, differ(method))
    other_than(method)[1]()
    form = form_of(method)
    if form is not None and (form.messages >= 0 or form.moves_object):  # the core repeats it
        for _ in range(3):
            call()
        other_than(method)[1]()
        check(method, differ(method))

state = comm._counts().team.state
titles = [title for team in (state, ring._counts().team.state) for title in team._titles]
assert len(titles) > len(CALLS)  # what reports of hangs show
assert not [title for title in titles if "allav_" in title or "_exchange" in title], titles

# the arguments differ
for root in (0, 1):
    comm.Bcast(x, root)
    assert comm.bcast(1, root) == 1
for method, call_with in (
    ("Bcast", comm.Bcast), ("bcast", comm.bcast), ("gather", comm.gather), ("reduce", comm.reduce),
):  # fmt: skip
    try:
        call_with(x, root=min(me, 1))
        comm.Barrier()
    except xupc.CollectiveMismatchError as error:
        assert f"{method}: root differs" in str(error), error
    else:
        raise AssertionError("no error")
# arguments are named in MPI's words: bytes of what is only moved, no value of a barrier
odd = me == size - 1
SAID: dict[str, Callable[[], Any]] = {
    "message differs: thread N: 40 bytes": lambda: comm.Bcast(np.zeros(10, "f4" if odd else "f8")),
    "op differs: thread N: MAX": lambda: comm.Allreduce(x, y, MPI.MAX if odd else MPI.SUM),
    "barrier()": lambda: comm.Barrier() if odd else comm.Bcast(y),
}
for words, call in SAID.items():
    try:
        call()
        comm.Barrier()
    except xupc.CollectiveMismatchError as error:
        # a call that the core repeats is a "barrier": which ones it does, depends on time
        found = str(error).replace("Barrier()", "barrier()")
        assert words.replace("N", str(size - 1)) in found, error
        assert "uint8" not in str(error), error
    else:
        raise AssertionError("no error")
# one thread alone has seen a long object before threads differ
for _ in range(3):
    comm.bcast(1)
try:
    if me == 0:
        comm.bcast(bytes(10_000))
    comm.Barrier()
except xupc.CollectiveMismatchError:
    pass
else:
    raise AssertionError("no error")
for n in (1, 20_000, 30_000, 2, 3, 4):
    assert comm.bcast(bytes(n) if me == 0 else None) == bytes(n)
# two methods that share a call: one of 512 bytes, and an object that is as long in messages
full = np.zeros(512, np.uint8)
for _ in range(3):
    comm.bcast(1)
    comm.Bcast(full)
for method in ("bcast", "Bcast"):
    try:
        if me:
            comm.Barrier()
        elif method == "bcast":
            comm.bcast(1)
        else:
            comm.Bcast(full)
        comm.Barrier()
    except xupc.CollectiveMismatchError as error:
        assert f"{method}(" in str(error), error
    else:
        raise AssertionError("no error")
print("done")
