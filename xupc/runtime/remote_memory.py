"""One-sided access to heap segments of threads on other nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..backends.wait import Executor, WaitState
from ..comm.remote_completion import RemoteCompletions
from ..comm.team_comm import Window
from ..health.control_segment import Control
from ..topology.job_info import JobInfo

if TYPE_CHECKING:
    from ..comm.mpi_types import Request

Start = Callable[[int, int, int, int, list[int]], None]
"""Starts an access: (thread, displacement, address, bytes, number of accesses in progress)."""

__all__ = [
    "AccessServices",
    "RemoteMemory",
    "access_to",
]


class AccessServices(Protocol):
    """The part of the job that one-sided accesses use."""

    @property
    def info(self) -> JobInfo:
        """The places of the job's threads."""

    @property
    def control(self) -> Control:
        """Control segment of the machine."""

    @property
    def tuning(self) -> dict[str, int]:
        """Values of the selection table."""

    @property
    def completions(self) -> RemoteCompletions:
        """Return what accesses must wait for."""

    @property
    def engine(self) -> Executor:
        """Executor of the job."""

    def guarded_access(self, thread: int) -> AbstractContextManager[WaitState]:
        """Translate errors of MPI during an access to a thread's memory."""


def access_to(thread: int) -> str:
    """Return the text for an access to a thread's memory, for error messages."""
    return f"an access to thread {thread}'s memory"


class RemoteMemory:
    """One-sided access to a heap segment of `threads`, waited for by the engine.

    Attributes
    ----------
    pinned : bool
        True if a network card may have registered the segment's pages, so that they must stay.
    """

    def __init__(self, job: AccessServices, window: Window, threads: Sequence[int]) -> None:
        self.job = job
        self.window = window
        self.threads = threads
        self.pinned = job.info.transport == "fabric"

    def get(self, thread: int, displacement: int, out: NDArray[np.uint8]) -> None:
        """Read contiguous bytes into `out`."""
        self.job.control.ask_to_serve()
        self.job.completions.wait(thread)
        self.read(thread, displacement, out)

    def start(
        self,
        thread: int,
        displacement: int,
        address: int,
        nbytes: int,
        count: int = 1,
        stride: int = 0,
        far_stride: int = 0,
    ) -> Request:
        """Start to read `count` blocks with these strides here and there; return the request."""
        target = self.threads.index(thread)
        return self.window.get(target, displacement, address, nbytes, count, stride, far_stride)

    def read(self, thread: int, displacement: int, out: NDArray[np.uint8]) -> None:
        """Read as `get` does, without a check that the thread has left its last call."""
        with self.job.guarded_access(thread):
            self._pieces(thread, displacement, out, self._get)

    def start_put(
        self, thread: int, displacement: int, address: int, nbytes: int
    ) -> tuple[Request, bytearray]:
        """Start to write; return the request, and what must live until it is complete."""
        self.job.completions.note_write()
        return self.window.put(self.threads.index(thread), displacement, address, nbytes)

    def put(self, thread: int, displacement: int, data: NDArray[np.uint8]) -> None:
        """Write contiguous bytes; they are in place on return."""
        self.job.control.ask_to_serve()
        self.job.completions.wait(thread)
        with self.job.guarded_access(thread):
            self._pieces(thread, displacement, data, self._put)

    def fetch_add(self, thread: int, displacement: int, value: int) -> int:
        """Add to 8 bytes of a thread's memory atomically; return the value before."""
        with self.job.guarded_access(thread):
            request, old = self.window.fetch_add(self.threads.index(thread), displacement, value)
        self.job.engine.wait_for(request.Test, access_to(thread), threads=(thread,))
        return int.from_bytes(old, sys.byteorder, signed=True)

    def _pieces(
        self, thread: int, displacement: int, array: NDArray[np.uint8], start: Start
    ) -> None:
        piece = self.job.tuning["rma_get_max"]
        address = array.__array_interface__["data"][0]
        left = [0]
        what = access_to(thread)
        wait_for = self.job.engine.wait_for
        with self.job.engine.lock:
            for at in range(0, array.nbytes, piece):
                left[0] += 1
                start(thread, displacement + at, address + at, min(piece, array.nbytes - at), left)
                if left[0] >= self.job.tuning["window"]:
                    wait_for(lambda: left[0] < self.job.tuning["window"], what, threads=(thread,))
            wait_for(lambda: not left[0], what, threads=(thread,))

    def _get(self, thread: int, displacement: int, address: int, n: int, left: list[int]) -> None:
        def finished() -> None:
            left[0] -= 1

        self.window.track(self.start(thread, displacement, address, n), finished)

    def _put(self, thread: int, displacement: int, address: int, n: int, left: list[int]) -> None:
        request, old = self.start_put(thread, displacement, address, n)

        def finished(_old: object = old) -> None:
            left[0] -= 1

        self.window.track(request, finished)
