"""Which library carries a call without ``XUPC_COMM``: ``drop_in_auto.py CHECK``.

``XUPC_TUNING`` names a table that gives to MPI short Bcasts, exscan, and blocks from 5,000 bytes
on; all other calls are for xupc.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

PLAIN = MPI.COMM_WORLD
comm = xupc.Comm(PLAIN)
size, me = comm.size, comm.rank
total = size * (size + 1) // 2
PATIENCE = 64
TABLE = "table: MPI is faster here"
FOR_MPI = 5000  # bytes, from which on the table gives calls to MPI
V_FORMS = "Gatherv", "Scatterv", "Alltoallv"


def carried(method: str, of: Any = comm) -> dict[str, int]:
    """Return the calls of a method by carrier."""
    found: dict[str, int] = of.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


def summed(of: Any = comm) -> None:
    y = np.zeros(3)
    of.Allreduce(np.full(3, of.rank + 1.0), y)
    assert (y == of.size * (of.size + 1) // 2).all(), y


def warm_up(of: Any = comm, calls: int = PATIENCE) -> None:
    for _ in range(calls):
        summed(of)


# --- checks -------------------------------------------------------------------------------------


def begin() -> None:
    """MPI carries the first calls, without xupc; the next one starts it."""
    assert re.fullmatch(r"<Comm of xupc at 0x\w+, no call yet>", repr(comm)), comm
    for k in range(PATIENCE // 2):
        summed()
        assert comm.bcast(k, root=size - 1) == k
    assert carried("Allreduce") == {"MPI": PATIENCE // 2}
    (why,) = comm.explain(as_dict=True)["bcast"]["why"]
    assert why.startswith("warm-up")
    assert repr(comm) == f"<Comm of xupc, rank {me} of {size}, calls by MPI ({why})>"
    assert not {"xupc.mpi.collectives", "xupc.runtime.job"} & set(sys.modules)
    warm_up(calls=3)
    assert carried("Allreduce") == {"MPI": PATIENCE // 2, "xupc": 3}
    assert repr(comm) == f"<Comm of xupc, rank {me} of {size}, xupc has a team>"
    reasons = [set(each["why"]) for each in comm.explain(as_dict=True).values()]
    assert reasons == [{why}, {why}], reasons


def bytes_of_calls() -> None:
    """Bytes that this thread does not know are no 0: of MPI's first calls, of objects, of a table.

    Calls that repeat an earlier one count like it.
    """
    warm_up()
    assert known("Allreduce") is None
    before = comm.Dup()
    warm_up(before)
    for _ in range(3):
        before.Barrier()
        before.Allgather(np.zeros(2), np.zeros(2 * size))
        before.bcast(1)
        before.exscan(1)
    assert known("Barrier", before) == 0
    assert known("Allgather", before) == 3 * 16 * size
    assert known("bcast", before) is None
    assert known("exscan", before) is None
    assert carried("exscan", before) == {"MPI": 3}
    text = before.explain()
    assert re.search(r"exscan +3 +- +MPI", text), text
    assert re.search(r"Barrier +3 +0 +xupc", text), text
    assert "does not know the bytes" in text, text


def known(method: str, of: Any = comm) -> int | None:
    """Return the bytes of the calls of a method."""
    found: int | None = of.explain(as_dict=True)[method]["bytes"]
    return found


def errors() -> None:
    """A call that meets no other thread does not count; one that does, counts."""
    for k in range(PATIENCE - 1):
        summed()
        if me == k % size:
            for call in (
                lambda: comm.Bcast(object()),
                lambda: comm.Bcast(np.zeros(1), 5 * size),
                lambda: comm.bcast(lambda: None, root=me),
                lambda: comm.scatter([None] * (size + 1), root=me),
                lambda: comm.Allreduce(np.zeros(2), np.zeros(2, int)),
            ):
                failing(call)
    failing(lambda: comm.reduce(1, op=broken))  # on the root alone
    for _ in range(3):
        summed()
    assert carried("Allreduce") == {"MPI": PATIENCE - 1, "xupc": 3}


def broken(a: int, b: int) -> int:
    raise ArithmeticError


def failing(call: Any) -> None:
    try:
        call()
    except Exception:
        return
    assert call.__code__.co_names[1] == "reduce", "no error"
    assert me, "no error"


def by_table() -> None:
    """The table gives calls to MPI, by method and size; repeated calls stay there."""
    warm_up()
    for k in range(20):
        for n in (1, 8, 9, 100):
            x = np.full(n, float(k) if me == k % size else -1.0)
            comm.Bcast(x, k % size)
            assert (x == k).all(), x
        short = np.full(2, float(k) if me == 0 else -1.0)
        comm.Bcast([short, 1, MPI.DOUBLE], root=0)
        assert me == 0 or list(short) == [k, -1]
        assert comm.exscan(k) == (me * k if me else None)
        assert comm.bcast(k) == k
        comm.Barrier()
    found = comm.explain(as_dict=True)
    assert found["Bcast"]["carried_by"] == {"MPI": 60, "xupc": 40}, found
    assert found["Bcast"]["why"] == {TABLE: 60}
    assert found["Bcast"]["bytes"] == 20 * (1 + 8 + 9 + 100 + 1) * 8
    assert found["exscan"]["why"] == {TABLE: 20}
    assert found["bcast"]["carried_by"] == found["Barrier"]["carried_by"] == {"xupc": 20}
    for wrong in (None, object(), np.zeros(3, object)):
        failing(lambda given=wrong: comm.Bcast(given))


def same(a: Any, b: Any) -> bool:
    """Return whether two results are equal, arrays in them included."""
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(np.all(a == b))


def objects() -> list[Callable[[int], Any]]:
    """Return functions that make an object for a thread; some are long on the last thread alone."""
    return [
        lambda i: (i, 2.5), lambda i: "z" * (3000 + i), lambda i: "y" * (6000 * (i + 1)),
        lambda i: np.arange(1000) + i, lambda i: i,
        lambda i: np.arange(40_000) + i,  # its memory stays out of the pickle
        lambda i: [i, np.full(300_000, i, np.uint8), np.full(400_000, i, np.uint8)],
        lambda i: bytes(4000 * size) if i == size - 1 else i,
        lambda i: bytes(6000 * size) if i == size - 1 else i, lambda i: [i],
    ]  # fmt: skip


def by_size() -> None:
    """The average size of the objects decides, which the first exchange brings to all threads."""
    warm_up()
    last = size - 1
    for make in objects():
        every = [make(i) for i in range(size)]
        mine, lengths = every[me], [len(pickle.dumps(each)) for each in every]
        calls: dict[str, tuple[Any, ...]] = {
            "bcast": (mine if me == last else None, last), "gather": (mine, last),
            "scatter": (every if me == last else None, last), "allgather": (mine,),
            "alltoall": (every,), "allreduce": (mine, pair), "reduce": (mine, pair, last),
            "scan": (mine, pair),
        }  # fmt: skip
        for method, arguments in calls.items():
            length = lengths[last] if method == "bcast" else sum(lengths) / size
            before, want = carried(method), getattr(PLAIN, method)(*arguments)
            for _ in range(3):
                got = getattr(comm, method)(*arguments)
                assert same(want, got), (method, lengths)
            carrier = "MPI" if length >= FOR_MPI else "xupc"
            assert gained(method, before) == {carrier: 3}, (method, lengths)
    assert set(comm.explain(as_dict=True)["gather"]["why"]) == {TABLE}
    vectors_by_size()
    differ()


def pair(a: Any, b: Any) -> Any:
    return a, b


def gained(method: str, before: dict[str, int]) -> dict[str, int]:
    """Return the calls of a method since an earlier count, by carrier."""
    calls = {carrier: n - before.get(carrier, 0) for carrier, n in carried(method).items()}
    return {carrier: n for carrier, n in calls.items() if n}


def vectors_by_size() -> None:
    """The sizes of blocks decide in the same way where only their senders have them."""
    for nbytes, carrier in ((100, "xupc"), (3000, "xupc"), (6000, "MPI"), (10, "xupc")):
        one, many = np.full(nbytes, me, np.uint8), np.zeros((size, nbytes), np.uint8)
        every = np.repeat(np.arange(size, dtype=np.uint8), nbytes).reshape(size, nbytes)
        counts = [nbytes] * size
        before = {name: carried(name) for name in V_FORMS}
        comm.Gatherv(one, [many, counts, MPI.BYTE], 0)
        assert me or (many == every).all()
        comm.Scatterv([every, counts, MPI.BYTE], one, 0)
        assert (one == me).all()
        comm.Alltoallv([np.full_like(many, me), counts, MPI.BYTE], [many, counts, MPI.BYTE])
        assert (many == every).all()
        for name in V_FORMS:
            assert gained(name, before[name]) == {carrier: 1}, (name, nbytes)


def differ() -> None:
    """Calls that differ are found by the first exchange, also where MPI would carry the rest."""
    long = "y" * 9000
    try:
        (comm.allgather if me else comm.gather)(long)
        comm.Barrier()
    except xupc.CollectiveMismatchError as error:
        assert "allgather(" in str(error), error
    else:
        raise AssertionError("no error")
    assert comm.allgather(long) == [long] * size


def communicators() -> None:
    """Each communicator has its own count; part of the threads cannot start xupc."""
    half = comm.Split(me % 2, me)
    warm_up(half, PATIENCE + 1)
    assert set(half.explain(as_dict=True)["Allreduce"]["carried_by"]) == {"MPI"}
    warm_up(calls=PATIENCE + 1)
    assert carried("Allreduce") == {"MPI": PATIENCE, "xupc": 1}
    warm_up(half, 8)
    mine = carried("Allreduce", half)
    assert mine == ({"MPI": PATIENCE + 9} if half.size == 1 else {"MPI": PATIENCE + 8, "xupc": 1})
    half.Free()
    other = comm.Dup()
    warm_up(other, PATIENCE + 1)
    assert carried("Allreduce", other) == {"MPI": PATIENCE, "xupc": 1}
    other.Free()
    xupc.finalize()
    summed()
    assert carried("Allreduce") == {"MPI": PATIENCE + 1, "xupc": 1}


def threads() -> None:
    """A communicator that another Python thread uses stays with MPI."""
    other = comm.Dup()
    thread = threading.Thread(target=lambda: warm_up(other, PATIENCE + 50))
    thread.start()
    warm_up(calls=PATIENCE + 50)
    thread.join()
    assert carried("Allreduce") == {"MPI": PATIENCE, "xupc": 50}
    why = other.explain(as_dict=True)["Allreduce"]["why"]
    assert why["not called by the main Python thread"] == 50, why


def limited() -> None:
    """With a limit of waits xupc carries the first call, too: MPI's waits would have none."""
    os.environ["XUPC_TIMEOUT"] = "30"
    assert comm.bcast(me, root=size - 1) == size - 1
    summed()
    assert carried("Allreduce") == {"xupc": 1}
    assert carried("bcast") == {"xupc": 1}


CHECKS = [begin, bytes_of_calls, errors, by_table, by_size, communicators, threads, limited]

if __name__ == "__main__":
    next(check for check in CHECKS if check.__name__ == sys.argv[1])()
    print("done")
