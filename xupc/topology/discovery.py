"""Find the threads that share memory with this one: compare host records, then prove it.

Threads on one machine can open each other's segments. Threads with equal records that cannot, in
containers for instance, are on machines of their own. The proof itself is passed in, since it
needs segments (`xupc.runtime.memory_proof`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .host_record import HostRecord

__all__ = ["Neighbours", "Trial", "Watch", "find_neighbours"]


class Watch(Protocol):
    """The watch for deaths that a proof of shared memory leaves on each of its threads.

    Attributes
    ----------
    names
        The names of the threads to watch, by index; "" for threads of other machines.
    """

    names: Sequence[str]

    def settle(self) -> None:
        """Note that all threads have mapped the segment."""


_Watch = TypeVar("_Watch", bound=Watch)


class Trial(NamedTuple, Generic[_Watch]):
    """The result of one proof on one thread.

    Attributes
    ----------
    watch
        The watch over the threads of the proof; None without shared memory.
    proven
        Whether this thread shares memory with the lowest one.
    why_none
        Why this thread cannot make a segment; "" if it can, or did not have to.
    """

    watch: _Watch | None
    proven: bool
    why_none: str


class Neighbours(NamedTuple, Generic[_Watch]):
    """The threads of this thread's machine.

    Attributes
    ----------
    threads
        Ascending, with this thread.
    lookout
        The watch over them; None if no segment can be made.
    why_none
        Why this thread cannot make a segment; "" if it can, or did not have to.
    """

    threads: list[int]
    lookout: _Watch | None
    why_none: str


def find_neighbours(
    comm: Any, record: HostRecord, who: str, prove: Callable[[Any], Trial[_Watch]]
) -> Neighbours[_Watch]:
    """Return the threads of this machine; collective over all threads.

    The memory it takes goes by the threads of a machine, not by all: the communicator is split by a
    hash of the record, and whole records are compared inside a part.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Communicator of all threads.
    record : HostRecord
        Record of this thread.
    who : str
        Description of this thread, for the watch.
    prove : callable
        Test whether the threads of a communicator share memory with its lowest one; collective.
    """
    me, mine = comm.Get_rank(), record.pack()
    part = comm.Split(record.digest() & 0x3FFFFFFF, me)
    rows = part.allgather((me, mine))
    alike = [thread for thread, theirs in rows if theirs == mine]
    color = next(i for i, (_, theirs) in enumerate(rows) if theirs == mine)
    candidates = part.Split(color, me)
    part.Free()
    return _proven(candidates, alike, who, prove)


def _proven(
    comm: Any, threads: list[int], who: str, prove: Callable[[Any], Trial[_Watch]]
) -> Neighbours[_Watch]:
    """Repeat the proof among the threads that it left out, until this thread is in one."""
    while True:
        lookout, proven, why_none = prove(comm)
        rows = comm.allgather((proven, who))
        together = [t for t, (ok, _) in zip(threads, rows, strict=True) if ok]
        if lookout is not None:
            lookout.settle()
            lookout.names = [words if ok else "" for ok, words in rows]
        rest = comm.Split(0 if proven else 1, comm.Get_rank())
        comm.Free()
        if proven:
            rest.Free()
            return Neighbours(together, lookout, why_none)
        comm, threads = rest, [t for t in threads if t not in together]
