"""A program written for mpi4py, which does not know of xupc: ``mpi_program.py WHAT ...``.

It prints a line per thread: what it found, for the test that started it to judge.
"""

# ruff: noqa: E721 -- comparing types is what is tested here

from __future__ import annotations

import atexit
import copy
import importlib.util
import pickle
import sys
from pathlib import Path

import mpi4py

if sys.argv[1] == "found":  # the program looks for the module before it imports it
    assert importlib.util.find_spec("mpi4py.MPI") is not None
if sys.argv[1] == "late":  # the program itself starts MPI, after the import
    mpi4py.rc.initialize = False
from mpi4py import MPI

what = sys.argv[1]
log: object = None


def world_is_replaced() -> str:
    """Return the class of the constant, and check how it pickles and ends."""
    world = MPI.COMM_WORLD
    kind = f"{type(world).__module__}.{type(world).__qualname__}"
    assert type(world) == MPI.Intracomm
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(world, protocol)) is world
        plain = pickle.loads(pickle.dumps(MPI.Intracomm(world), protocol))
        assert type(plain) is MPI.Intracomm
        assert plain == world
    assert copy.copy(world) is world
    assert copy.deepcopy(world) is world
    assert world.sendrecv(world, world.rank, 0, None, world.rank, 0) is world
    for _ in range(3):
        world.free()
        assert world
    clone = type(world)(world)
    clone.free()
    assert not clone
    assert world
    assert MPI.COMM_SELF.Get_size() == 1
    return kind


def start_with_handlers(path: str) -> None:
    """Have xupc start after the program has registered a handler, and leave a file open."""
    global log
    atexit.register(Path(f"{path}.handler").write_text, "done", encoding="utf-8")
    for _ in range(70):
        comm.Barrier()
    file = log = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 -- that it is open is tested
    file.write("last words")


if what == "late":
    assert not MPI.Is_initialized()
    MPI.Init()
comm = MPI.COMM_WORLD
if what in ("plain", "late", "found"):
    print(f"{world_is_replaced()} {comm.allreduce(1)} {' '.join(sys.argv[2:])}")
elif what == "error":  # the other threads wait: the job ends all the same
    if sys.argv[2:]:
        start_with_handlers(f"{sys.argv[2]}{comm.rank}")
    if comm.rank == 1:
        raise RuntimeError("an error of the program")
    comm.Recv(bytearray(1), 1)
elif what == "exit":
    if sys.argv[2:]:
        start_with_handlers(f"{sys.argv[2]}{comm.rank}")
    if comm.rank == 1:
        sys.exit(7)
    comm.Recv(bytearray(1), 1)
elif what == "counts":
    comm.Barrier()
    half = comm.Split(comm.rank % 2)
    half.bcast(1)
    half.Free()
elif what == "many":
    for _ in range(67):
        comm.Barrier()
elif what.startswith("requests"):  # of calls that xupc carries
    comm.Barrier()
    mine, result = bytearray(8), bytearray(8)
    comm.Iallreduce([mine, MPI.DOUBLE], [result, MPI.DOUBLE]).Wait()
    copied = MPI.Request(comm.Iallreduce([mine, MPI.DOUBLE], [result, MPI.DOUBLE]))
    MPI.Request.Waitall([copied, comm.Ibarrier()])
    if what == "requests left":
        for _ in range(5):
            comm.Iallreduce([mine, MPI.DOUBLE], [bytearray(8), MPI.DOUBLE])
        comm.Ibarrier()
elif what == "window":
    MPI.Win.Allocate(8, 1, comm=comm).Free()
    print(f"{type(comm).__module__} {comm.allreduce(1)}")
elif what == "finalized":
    comm.Barrier()
    MPI.Finalize()
