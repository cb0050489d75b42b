"""Which threads share memory with me: host records are compared, then it is proven.

Threads on one machine can open each other's segments; threads whose records agree but who cannot,
in containers for instance, are on machines of their own.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from ..errors import HeapError
from ..health.init_watchdog import InitDeathWatch
from ..pgas.segment import attach, create
from .host_record import HostRecord

__all__ = ["Neighbours", "find_neighbours"]

NONCE = 16


class Neighbours(NamedTuple):
    """The threads of my machine.

    Attributes
    ----------
    threads
        Ascending, me among them.
    lookout
        Over them, None if no segment can be made.
    why_none
        Why I could make none, "" if I was not the one to do so or could.
    """

    threads: list[int]
    lookout: InitDeathWatch | None
    why_none: str


def find_neighbours(comm: Any, record: HostRecord, who: str) -> Neighbours:
    """Collective over all threads' communicator: those of my machine.

    The memory it takes goes by the threads of a machine, not by all: the communicator is split by a
    hash of the record, and whole records are compared inside a part.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all threads.
    record : HostRecord
        Mine.
    who : str
        Me in words, for the lookout.
    """
    me, mine = comm.Get_rank(), record.pack()
    part = comm.Split(record.digest() & 0x3FFFFFFF, me)
    rows = part.allgather((me, mine))
    alike = [thread for thread, theirs in rows if theirs == mine]
    color = next(i for i, (_, theirs) in enumerate(rows) if theirs == mine)
    candidates = part.Split(color, me)
    part.Free()
    return _proven(candidates, alike, who)


def _proven(comm: Any, threads: list[int], who: str) -> Neighbours:
    """Map the lowest candidate's nonce; those who cannot try again among themselves."""
    while True:
        lookout, proven, why_none = _try(comm)
        rows = comm.allgather((proven, who))
        together = [t for t, (ok, _) in zip(threads, rows, strict=True) if ok]
        if lookout is not None:
            lookout.segment.settle()
            lookout.names = [words if ok else "" for ok, words in rows]
        rest = comm.Split(0 if proven else 1, comm.Get_rank())
        comm.Free()
        if proven:
            rest.Free()
            return Neighbours(together, lookout, why_none)
        comm, threads = rest, [t for t in threads if t not in together]


def _try(comm: Any) -> tuple[InitDeathWatch | None, bool, str]:
    """My lookout, whether I share memory with the lowest, and why there is no segment."""
    nonce, size = os.urandom(NONCE), InitDeathWatch.bytes_for(comm.Get_size())
    lookout, why_none = None, ""
    offer: tuple[str, bytes] | None = None
    if comm.Get_rank() == 0:
        try:
            segment = create(size)
            segment.reserve(0, size)
            segment.map[:NONCE] = nonce
            lookout, offer = InitDeathWatch(segment, 0), (segment.path, nonce)
        except HeapError as e:
            why_none, offer = str(e), ("", b"")
    path, nonce = comm.bcast(offer)
    if not path:
        return None, True, why_none  # `Job` raises it as HeapError on every thread
    if lookout is None:
        # a peer out of reach, or another file under the same name: not my machine
        with contextlib.suppress(OSError, ValueError):
            segment = attach(path, size)
            if segment.map[:NONCE] == nonce:
                lookout = InitDeathWatch(segment, comm.Get_rank())
            else:
                segment.close_fd()
    comm.Barrier()
    return lookout, lookout is not None, ""
