"""Prove that threads share memory: they map a segment of one thread and read its nonce."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ..errors import HeapError
from ..health.init_watchdog import InitDeathWatch
from ..pgas.segment import attach, create
from ..topology.discovery import Trial

if TYPE_CHECKING:
    from ..comm.mpi_types import Intracomm

__all__ = ["prove_memory"]

NONCE = 16


def prove_memory(comm: Intracomm) -> Trial[InitDeathWatch]:
    """Test whether this thread shares memory with the lowest one of `comm`; collective.

    A thread that shares it keeps the segment, to watch for deaths.
    """
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
        return Trial(None, True, why_none)  # `Job` raises it as HeapError on every thread
    if lookout is None:
        # a peer out of reach, or another file under the same name: not my machine
        with contextlib.suppress(OSError, ValueError):
            segment = attach(path, size)
            if segment.map[:NONCE] == nonce:
                lookout = InitDeathWatch(segment, comm.Get_rank())
            else:
                segment.close_fd()
    comm.Barrier()
    return Trial(lookout, lookout is not None, "")
