"""Calls that xupc carries out for a program written for mpi4py: ``drop_in_calls.py CHECK``.

Under ``XUPC_COMM=force``. Each thread describes its messages in its own way, as MPI allows: one
thread gives an array, another one a derived type. The results must be those of plain mpi4py.
"""

from __future__ import annotations

import array
import mmap
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.spare_communicators import spare

import xupc
from xupc.mpi import carrier

PLAIN = MPI.COMM_WORLD
comm = xupc.Comm(PLAIN)
size, me = comm.size, comm.rank

LENGTHS = [0, 1, 7, 1000, 70_000]  # doubles
Read = Callable[[], np.ndarray[Any, Any]]
GAP = MPI.DOUBLE.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()  # every other double
BACKWARDS = MPI.DOUBLE.Create_resized(0, 8).Commit()


def carried(comm: Any, method: str) -> dict[str, int]:
    """Return the calls of a method by carrier."""
    found: dict[str, int] = comm.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


# --- descriptions: each takes doubles and returns (description, how to read it afterwards) -------


def plain_array(x: Any) -> tuple[Any, Read]:
    return x, lambda: x


def with_type(x: Any) -> tuple[Any, Read]:
    return [x, MPI.DOUBLE], lambda: x


def with_count(x: Any) -> tuple[Any, Read]:
    room = np.concatenate([x, [-1.0, -1.0]])
    return [room, len(x), MPI.DOUBLE], lambda: room[: len(x)]


def with_displacement(x: Any) -> tuple[Any, Read]:
    room = np.concatenate([[-1.0], x])
    return [room, (len(x), 1), "d"], lambda: room[1:]


def in_four(x: Any) -> tuple[Any, Read]:
    room = np.concatenate([[-1.0], x])
    return (room, len(x), 1, MPI.DOUBLE), lambda: room[1:]


def matrix(x: Any) -> tuple[Any, Read]:
    room = x.reshape(-1, 1)
    return room, lambda: room.ravel()


def fortran(x: Any) -> tuple[Any, Read]:
    if len(x) % 2:
        return plain_array(x)
    room = np.asfortranarray(x.reshape(2, -1).T.reshape(2, -1, order="F").copy())
    room[...] = x.reshape(room.shape, order="F")
    return room, lambda: room.ravel(order="F")


def bytes_of_it(x: Any) -> tuple[Any, Read]:
    room = bytearray(x.tobytes())
    return [room, MPI.DOUBLE], lambda: np.frombuffer(room)


def mapped(x: Any) -> tuple[Any, Read]:
    room = mmap.mmap(-1, max(8, x.nbytes))
    room[: x.nbytes] = x.tobytes()
    return [room, len(x), MPI.DOUBLE], lambda: np.frombuffer(room[: x.nbytes])


def of_python(x: Any) -> tuple[Any, Read]:
    room = array.array("d", x)
    return room, lambda: np.array(room)


def with_gaps(x: Any) -> tuple[Any, Read]:
    room = np.full(2 * len(x), -1.0)
    room[::2] = x

    def read() -> Any:
        assert (room[1::2] == -1).all()
        return room[::2]

    return [room, len(x), GAP], read


def absolute(x: Any) -> tuple[Any, Read]:
    """Describe memory by its address alone.

    In a Bcast of Open MPI 5.0.11 a thread with one element of an empty type waits for a root that
    has no element.
    """
    if not len(x):
        return plain_array(x)
    kind = MPI.DOUBLE.Create_hindexed([len(x)], [MPI.Get_address(x)]).Commit()
    return [MPI.BOTTOM, 1, kind], lambda: x


SPELLINGS = [
    plain_array, with_type, with_count, with_displacement, in_four, matrix, fortran, bytes_of_it,
    mapped, of_python, with_gaps, absolute,
]  # fmt: skip
BASIC = SPELLINGS[:-2]  # those without a derived type, which reductions do not take
WITH_BLOCKS = [plain_array, with_type, matrix, bytes_of_it, of_python]  # the count is inferred


def spellings(of: list[Any]) -> Any:
    """Return the description functions of this thread, a different one on each thread."""
    return [of[(me + k) % len(of)] for k in range(len(of))]


def values(n: int, of: int) -> Any:
    return np.arange(n, dtype=float) + 1000.0 * of


# --- checks -------------------------------------------------------------------------------------


def barrier() -> None:
    """No thread leaves before the last one has entered."""
    for turn in range(20):
        if me == turn % size:
            for other in range(size):
                if other != me:
                    PLAIN.send(turn, other, 5)
        else:  # a barrier that let this thread pass early would find no message later
            assert PLAIN.recv(source=turn % size, tag=5) == turn
        comm.Barrier()
        comm.barrier()
    assert carried(comm, "Barrier") == {"xupc" if size > 1 else "MPI": 20}


def bcast() -> None:
    """Every description, every root, every length."""
    calls = 0
    for spell in spellings(SPELLINGS):
        for n in LENGTHS:
            for root in (0, size - 1, np.int64(0)):
                message, read = spell(values(n, me))
                comm.Bcast(message, root)
                assert (read() == values(n, int(root))).all(), (spell.__name__, n, root)
                calls += 1
    if size > 1:
        assert carried(comm, "Bcast")["xupc"] == calls
    read_only = values(5, 3)
    read_only.flags.writeable = me != 0
    comm.Bcast(read_only, 0)
    assert (read_only == values(5, 3)).all()


def allgather() -> None:
    """Every description of blocks, in place on some threads."""
    for spell in spellings(SPELLINGS):
        for to in spellings(WITH_BLOCKS):
            for n in LENGTHS[:4]:
                room = np.full(n * size, -1.0)
                room[n * me : n * (me + 1)] = values(n, me)
                whole, read = to(room)
                mine, _ = spell(values(n, me))
                comm.Allgather(MPI.IN_PLACE if (n + me) % 3 == 0 else mine, whole)
                want = np.concatenate([values(n, i) for i in range(size)])
                assert (read() == want).all(), (spell.__name__, to.__name__, n)
    n = 6
    room = np.full(2 * n * size, -1.0)
    blocks: list[Any] = [[room[: n * size], n, MPI.DOUBLE], [room, n, GAP], [room, (n, 0), GAP]]
    block = blocks[me % 3]
    comm.Allgather(values(n, me), block)
    got = room[: n * size] if me % 3 == 0 else room[::2]
    assert (got == np.concatenate([values(n, i) for i in range(size)])).all()
    shared = np.full(size * 4, me, float)  # the block that is sent is part of the result
    comm.Allgather(shared[:4].copy(), shared)
    assert (shared == np.repeat(np.arange(size), 4)).all()


def allreduce() -> None:
    """Every description, in place on some threads, the same operands and result on others."""
    for spell in spellings(BASIC):
        for n in LENGTHS:
            want = np.zeros(n)
            PLAIN.Allreduce(values(n, me), want, MPI.MAX)
            mine, _ = spell(values(n, me))
            other = plain_array if spell is fortran else spell
            result, read = other(np.zeros(n))
            comm.Allreduce(mine, result, MPI.MAX)
            assert (read() == want).all(), (spell.__name__, n)
            result, read = spell(values(n, me))
            if me % 2 or size == 1 or type(result) is not np.ndarray:
                comm.Allreduce(MPI.IN_PLACE, result, op=MPI.SUM)
            else:  # MPICH alone would refuse it
                comm.Allreduce(result, result)
            assert (read() == sum(values(n, i) for i in range(size))).all(), (spell.__name__, n)


def gather_and_scatter() -> None:
    """Every description, every root, in place on the root or not."""
    calls = 0
    for spell in spellings(SPELLINGS):
        for to in spellings(WITH_BLOCKS):
            for n in LENGTHS[:4]:
                root, in_place = n % size, n % 2
                want = np.concatenate([values(n, i) for i in range(size)])
                whole, read = to(want.copy() if in_place else np.full(n * size, -1.0))
                mine, _ = spell(values(n, me))
                at = me == root
                comm.Gather(
                    MPI.IN_PLACE if at and in_place else mine, whole if at else None, root=root
                )
                assert not at or (read() == want).all(), (spell.__name__, to.__name__, n)
                out, read = spell(np.full(n, -1.0))
                source, _ = to(want.copy())
                comm.Scatter(
                    source if at else None, MPI.IN_PLACE if at and in_place else out, root
                )
                assert (at and in_place) or (read() == values(n, me)).all(), (spell.__name__, n)
                calls += 1
    if size > 1:
        assert carried(comm, "Gather")["xupc"] == carried(comm, "Scatter")["xupc"] == calls
    if size > 1:  # the root's own block is part of the source, which MPICH alone would refuse
        shared = np.arange(size * 4.0)
        comm.Scatter(shared, shared[4:8].copy() if me else shared[4:8], 0)
        assert me or (shared[4:8] == np.arange(4.0)).all()


def alltoall() -> None:
    """Every description of blocks, in place on all threads or on none."""
    for spell in spellings(WITH_BLOCKS):
        for to in spellings(WITH_BLOCKS):
            for n in LENGTHS[:4]:
                give = np.concatenate([values(n, 10 * me + i) for i in range(size)])
                want = np.concatenate([values(n, 10 * i + me) for i in range(size)])
                out, read = to(give.copy() if n % 2 else np.full(n * size, -1.0))
                source, _ = spell(give)
                comm.Alltoall(MPI.IN_PLACE if n % 2 else source, out)
                assert (read() == want).all(), (spell.__name__, to.__name__, n)
    if size > 1:
        assert set(carried(comm, "Alltoall")) == {"xupc"}


def reduce_and_scan() -> None:
    """Every description; in place on some threads where MPI allows it."""
    for spell in spellings(BASIC):
        for n in LENGTHS:
            root = n % size
            operands = [values(n, i) for i in range(size)]
            mine, _ = spell(values(n, me))
            result, read = spell(values(n, me))
            at, place = me == root, n % 2
            comm.Reduce(
                MPI.IN_PLACE if at and place else mine, result if at else None, MPI.SUM, root
            )
            assert not at or (read() == sum(operands)).all(), (spell.__name__, n)
            for method, upto in ((comm.Scan, me + 1), (comm.Exscan, me)):
                result, read = spell(values(n, me))
                method(MPI.IN_PLACE if place else mine, result, MPI.MAX)
                want = np.max(operands[:upto], axis=0) if upto else values(n, me)
                assert (read() == want).all(), (spell.__name__, n, method)
    if size > 1:
        for name in ("Reduce", "Scan", "Exscan"):
            assert carried(comm, name)["xupc"] == len(BASIC) * len(LENGTHS), name


def reduce_scatter() -> None:
    """Both methods, in place or not."""
    for spell in spellings(WITH_BLOCKS):
        for n in LENGTHS[:4]:
            operands = [values(n * size, i) for i in range(size)]
            want = sum(operands)[n * me : n * (me + 1)]
            for call in (comm.Reduce_scatter_block, comm.Reduce_scatter):
                counts: list[Any] = [[n] * size] if call == comm.Reduce_scatter else []
                if n % 2:
                    result, read = spell(operands[me].copy())
                    call(MPI.IN_PLACE, result, *counts, op=MPI.SUM)
                else:
                    result, read = spell(np.full(n, -1.0))
                    call(spell(operands[me])[0], result, *counts, op=MPI.SUM)
                assert (read()[:n] == want).all(), (spell.__name__, n, call)
    block, room = np.zeros(3), np.full(3 * size + 1, 1.0)
    comm.Reduce_scatter_block([room, 3, MPI.DOUBLE], block)  # the count is that of one block
    assert (block == size).all()
    counts = list(range(1, size + 1))
    block = np.zeros(me + 1)
    comm.Reduce_scatter(np.ones(sum(counts)), block, counts)
    comm.Reduce_scatter(np.ones(size * 2), np.zeros(2))
    assert (block == size).all()
    if size > 1:
        why = comm.explain(as_dict=True)["Reduce_scatter"]["why"]
        assert why["mpi4py itself has to exchange the counts"] == 1


def operations() -> None:
    """Every pair of operation and type that MPI has, and pairs that only MPI carries out."""
    taken = 0
    for code in "bBhHiIlLqQfdFD?":
        for name in ("SUM", "PROD", "MAX", "MIN", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR"):
            op = getattr(MPI, name)
            mine = ((np.arange(6) + me) % 3).astype(code)
            want, got = np.zeros_like(mine), np.zeros_like(mine)
            try:
                PLAIN.Allreduce(mine, want, op)
            except MPI.Exception:
                continue
            comm.Allreduce(mine, got, op)
            assert (want == got).all(), (code, name, want, got)
            taken += 1
    assert taken > 80, taken
    mine = np.array([(float(me), 7)], np.dtype("d,i"))
    got = mine.copy()
    comm.Allreduce([mine, 1, MPI.DOUBLE_INT], [got, 1, MPI.DOUBLE_INT], MPI.MAXLOC)
    assert got[0][0] == size - 1
    own = MPI.Op.Create(lambda a, b, kind: None, commute=True)
    x = np.ones(2)
    before = comm.explain(as_dict=True)["Allreduce"]["calls"]
    comm.Allreduce(MPI.IN_PLACE, x, own)
    assert comm.explain(as_dict=True)["Allreduce"]["calls"] == before + 1
    own.Free()
    single = np.array(float(me))
    total = np.array(0.0)
    comm.Allreduce(single, total)
    assert total == sum(range(size))
    why = comm.explain(as_dict=True)["Allreduce"]["why"]
    assert size == 1 or "an operation or a type that xupc does not combine" in why


def errors() -> None:
    """A wrong argument raises what mpi4py raises, on that thread, and meets no other one."""
    comm.Barrier()
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("Bcast", (object(),)), ("Bcast", (None,)), ("Bcast", ([1, 2, 3, 4, 5],)),
        ("Bcast", (np.zeros(3), "a")), ("Bcast", (np.zeros(3, dtype=object),)),
        ("Bcast", (np.zeros(4)[::2],)), ("Allgather", (np.zeros(1), None)),
        ("Allreduce", (np.zeros(2), np.zeros(3))), ("Allreduce", (np.zeros(2), np.zeros(2), 5)),
        ("Allreduce", (np.zeros(2), np.zeros(2, int))),
        ("Gather", (object(), np.zeros(1))), ("Scatter", (object(), np.zeros(1))),
        ("Alltoall", (np.zeros(1), None)), ("Reduce", (np.zeros(2), np.zeros(3))),
        ("Reduce", (np.zeros(2), np.zeros(2), 5, size - 1)), ("Scan", (np.zeros(2), np.zeros(3))),
        ("Exscan", (np.zeros(2), np.zeros(2, int))), ("Reduce_scatter", (np.zeros(2), None, [3])),
        ("Reduce_scatter_block", (np.zeros(2 * size), np.zeros(3))),
        *[("Alltoall", (np.zeros(n), np.zeros(n))) for n in [size + 1] if n % size],
    ]  # fmt: skip
    if me == 0:  # the others are in no call
        for method, arguments in wrong:
            seen = []
            for of in (PLAIN, comm):
                try:
                    getattr(of, method)(*arguments)
                except (TypeError, ValueError, KeyError, BufferError, MPI.Exception) as error:
                    seen.append((type(error), str(error)))
            assert len(seen) == 2, (method, arguments, seen)
            assert seen[0] == seen[1], seen
    comm.Barrier()
    for of in (PLAIN, comm):  # all threads
        try:
            of.Bcast(np.zeros(1), size + 5)
            raise AssertionError("no error")
        except MPI.Exception as error:
            assert error.Get_error_class() == MPI.ERR_ROOT
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for of in (PLAIN, comm):
        try:
            of.Allreduce(np.zeros(3), fixed)
            raise AssertionError("no error")
        except (ValueError, BufferError):
            pass
    comm.Barrier()


def communicators() -> None:
    """Every communicator has a team of its own threads in its order; freed ones end."""
    x = np.zeros(3)
    by = {"xupc": 1} if size > 1 else {"MPI": 1}
    comm.Barrier()
    for _ in range(30):
        new = comm.Dup()
        new.Bcast(x)
        assert carried(new, "Bcast") == by
        part = comm.Split(me % 2)
        y = np.array([float(me), part.rank])
        part.Bcast(y, part.size - 1)
        assert (y == [(size - 1 - me) // 2 * 2 + me, part.size - 1]).all()
        assert carried(part, "Bcast") == {"xupc" if part.size > 1 else "MPI": 1}
        backwards = comm.Split(0, -me)
        z = np.full(size, -1.0)
        backwards.Allgather(np.array([float(me)]), z)
        assert (z == range(size)[::-1]).all()
        assert carried(backwards, "Allgather") == by
        for each in (new, part, backwards)[:: 1 if me % 2 else -1]:
            each.Free()
        try:
            new.Barrier()
            raise AssertionError("no error")
        except MPI.Exception:
            pass
    grid = comm.Create_cart([size])
    grid.Barrier()
    assert carried(grid, "Barrier") == by
    if size > 1:
        assert len(xupc.init().state.job.teams) < 12  # dropped teams are closed
    comm.Bcast(x)
    xupc.init()
    xupc.finalize()
    comm.Bcast(x)  # MPI carries it
    grid.Barrier()
    if size > 1:
        assert carried(grid, "Barrier") == {"xupc": 1, "MPI": 1}
        assert "xupc was finalized" in comm.explain()


def parts() -> None:
    """Threads of a part meet without the others; xupc is started by the world alone."""
    part, apart = (xupc.Comm(PLAIN.Split(min(me, 1))) for _ in range(2))
    members = part.size > 1
    x = np.zeros(1)
    for _ in range(7):
        part.Barrier()
    assert carried(part, "Barrier") == {"MPI": 7}
    assert not members or "xupc does not run yet" in part.explain()
    comm.Barrier()
    for k in range(100):  # a team is tried again at some call
        x[0] = k if part.rank == 0 else -1
        part.Bcast(x)
        assert x[0] == k
    if members:
        assert carried(part, "Bcast") == {"MPI": 1, "xupc": 99}
    if me:  # thread 0 is in no call meanwhile
        for _ in range(20):
            smaller = apart.Dup()
            y = np.array([float(me)])
            smaller.Allreduce(MPI.IN_PLACE, y)
            assert y == sum(range(1, size))
            smaller.Free()
        if members:
            assert len(xupc.init().state.job.teams) < 8  # given back by these threads alone
        PLAIN.send(0, 0) if me == 1 else None
    elif size > 1:
        PLAIN.recv(source=1)
    comm.Barrier()


def crowded() -> None:
    """Communicators beyond those that have teams go by MPI, until others were freed."""
    comm.Barrier()
    one, before = comm.Dup(), spare()
    one.Barrier()
    assert before - spare() <= (1 if xupc.init().tree.node_count == 1 else 3)
    one.Free()
    carrier.TEAMS = 3
    several = [comm, *(comm.Dup() for _ in range(4))]
    for each in several:
        each.Barrier()
    ways = [carried(each, "Barrier") for each in several]
    assert ways == [{"xupc": 2}] + [{"xupc": 1}] * 2 + [{"MPI": 1}] * 2, ways
    assert "many communicators" in several[-1].explain()
    for each in several[1:3]:
        each.Free()
    for _ in range(8):
        several[-1].Barrier()
    assert carried(several[-1], "Barrier") == {"MPI": 8, "xupc": 1}


def other_job() -> None:
    """If the program has started xupc on other threads, MPI carries the calls."""
    half = PLAIN.Split(me % 2)
    xupc.init(half)
    comm.Barrier()
    assert carried(comm, "Barrier") == {"MPI": 1}


def differing() -> None:
    """Threads in different calls get an error, where MPI would hang or give wrong data.

    It is an error of MPI's, too: programs catch those.
    """
    comm.Barrier()
    try:
        if me:
            comm.Barrier()
        else:
            comm.Allreduce(MPI.IN_PLACE, np.zeros(3))
            comm.Barrier()
        raise AssertionError("no error")
    except MPI.Exception as error:
        assert isinstance(error, xupc.CollectiveMismatchError)
        assert error.Get_error_class() == MPI.ERR_OTHER
        again = pickle.loads(pickle.dumps(error))
        for text in (str(error), str(again), repr(error)):
            assert "Allreduce(" in text and "Barrier" in text


def looks() -> None:
    """After a call that waits for thread 0 one look finds what it did in MPI before the call."""
    window = MPI.Win.Create(np.zeros(8), 8, comm=comm)
    group = window.Get_group()
    others = group.Excl([0]) if me == 0 else group.Incl([0])
    word = np.zeros(1)
    a, every = np.zeros(size), np.zeros(size * size)
    calls: dict[str, Callable[[], Any]] = {
        "Barrier": comm.Barrier, "Ibarrier": lambda: comm.Ibarrier().Wait(),
        "Bcast": lambda: comm.Bcast(a, 0), "Allgather": lambda: comm.Allgather(a, every),
        "Alltoall": lambda: comm.Alltoall(a.copy(), a), "Scan": lambda: comm.Scan(a.copy(), a),
        "Allreduce": lambda: comm.Allreduce(a, every[:size]),
        "Iallreduce": lambda: comm.Iallreduce(a, every[:size]).Wait(),
        "bcast": lambda: comm.bcast(me, 0), "allgather": lambda: comm.allgather(me),
        "allreduce": lambda: comm.allreduce(me),
    }  # fmt: skip
    missed: list[str] = []
    for name, call in calls.items():
        for _ in range(50 if "arrier" in name else 15):
            if me == 0:
                window.Start(others)
                comm.Barrier()
                window.Complete()
                for other in range(1, size):
                    comm.Send(word, other)
                call()
            else:
                window.Post(others)
                comm.Barrier()
                call()  # it need not wait if this thread is late
                found = {"Win.Test": window.Test(), "Iprobe": comm.Iprobe(0)}
                missed += [f"{name}, {look}" for look, seen in found.items() if not seen]
                comm.Recv(word, 0)
                while not (found["Win.Test"] or window.Test()):
                    pass
            comm.Barrier()
    assert not missed, missed
    group.Free()
    window.Free()


CHECKS = [
    barrier, bcast, allgather, gather_and_scatter, alltoall, allreduce, reduce_and_scan,
    reduce_scatter, operations, errors, communicators, parts, looks, crowded, other_job,
    differing,
]  # fmt: skip

if __name__ == "__main__":
    next(check for check in CHECKS if check.__name__ == sys.argv[1])()
    print("done")
