"""Messages among the threads of a team, and one-sided access to their segments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..backends.protocol import MessageEngine
from .datatypes import Grid
from .tags import LOW_BITS, RESYNC, STALL, tag_of

if TYPE_CHECKING:
    from .mpi_types import BufferSpec, Intracomm, Request, Win

__all__ = ["Network", "TeamComm", "Window"]


class Network(Protocol):
    """The services of the MPI context that communicators use."""

    tag_bits: int

    @property
    def mpi(self) -> ModuleType:
        """Return the module ``mpi4py.MPI``."""

    def track(
        self, owner: object, request: Request, finished: Callable[[], None], receives: bool = False
    ) -> None:
        """Call `finished` when a request of the owner's is complete."""

    def spec(self, grids: Sequence[Grid], shift: int = 0) -> BufferSpec:
        """Return a buffer description of all blocks of the grids."""

    def all_done(self, requests: list[Request]) -> bool:
        """Return whether all these requests are complete."""


class TeamComm:
    """A private communicator for the threads of a team; messages name threads by rank.

    Attributes
    ----------
    rank, size
        The rank of this thread, and the number of threads.
    early
        Messages that `peek` has received before their call expects them, by sender and tag.
    wire
        The message engine of the core that uses this communicator, if any.
    """

    def __init__(self, network: Network, comm: Intracomm) -> None:
        self.network = network
        self.mpi = network.mpi
        self.comm = comm
        self.wire: MessageEngine | None = None
        comm.Set_errhandler(self.mpi.ERRORS_RETURN)
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.early: dict[tuple[int, int], bytes] = {}
        self._rooms: dict[int, bytearray] = {}
        self._notices: list[tuple[int, Request]] = []  # on their way, with their receivers

    def among(self, ranks: Sequence[int]) -> TeamComm:
        """Create a communicator of these ranks; blocking, and only these ranks call it."""
        whole = self.comm.Get_group()
        group = whole.Incl(list(ranks))
        link = TeamComm(self.network, self.comm.Create_group(group))
        group.Free()
        whole.Free()
        return link

    def track(
        self, request: Request, finished: Callable[[], None], *, receives: bool = False
    ) -> None:
        """Call `finished` when a request is complete; `receives`: it receives a message."""
        self.network.track(self, request, finished, receives)

    # -- messages ----------------------------------------------------------------------
    def discard(self) -> None:
        """Receive and drop every message except records of a mismatch.

        Call it when all threads have given up one call and no thread has begun another. Tags
        repeat after 1024 operations, so a message that stayed could match a later call.
        """
        status = self.mpi.Status()
        while self.comm.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
            low = status.Get_tag() & ((1 << LOW_BITS) - 1)
            if low >= RESYNC and low != STALL:
                return
            message = self.comm.Mprobe(status.Get_source(), status.Get_tag(), status)
            room = bytearray(status.Get_count(self.mpi.BYTE))
            request = message.Irecv([room, len(room), self.mpi.BYTE])  # it keeps the buffer
            self.track(request, lambda: None)
        self.early.clear()

    def call_tag(self, operation: int, kind: int, fingerprint: int) -> int:
        """Return the tag of a call's own messages."""
        high = fingerprint & ((1 << self.network.tag_bits) - 1)
        return high << LOW_BITS | tag_of(operation, kind)

    def peek(self, of: int, tag: int) -> bytes | None:
        """Return a small message that a call will receive later, or None if it has not arrived."""
        key = (of, tag)
        if key not in self.early:
            data = self.take(of, tag)
            if data is None:
                return None
            self.early[key] = data
            if self.wire is not None:
                self.wire.look_out()
        return self.early[key]

    def send(self, to: int, tag: int, memory: BufferSpec) -> Request:
        """Start to send the memory that `MpiContext.spec` describes."""
        return self.comm.Isend(memory, to, tag)

    def recv(self, of: int, tag: int, memory: BufferSpec) -> Request:
        """Start to receive into the memory that `MpiContext.spec` describes."""
        return self.comm.Irecv(memory, of, tag)

    def send_bytes(self, to: int, tag: int, data: bytes) -> Request:
        """Start to send a small message; the request keeps the bytes."""
        return self.comm.Isend([data, len(data), self.mpi.BYTE], to, tag)

    def send_notices(self, ranks: Iterable[int], tag: int, data: bytes) -> None:
        """Send a small message that a receiver may never look for; `settle` receives it then."""
        self.unread()  # forget those that were received
        for to in ranks:
            self._notices.append((to, self.comm.Issend([data, len(data), self.mpi.BYTE], to, tag)))

    def unread(self) -> set[int]:
        """Return the ranks that have not received a notice yet."""
        self.mpi.Request.Testsome([request for _, request in self._notices])
        self._notices = [(to, r) for to, r in self._notices if r != self.mpi.REQUEST_NULL]
        return {to for to, _ in self._notices}

    def recv_into(self, of: int, tag: int, buffer: bytearray) -> Request:
        """Start to receive a small message of at most the buffer's size."""
        return self.comm.Irecv([buffer, len(buffer), self.mpi.BYTE], of, tag)

    def room(self, of: int, nbytes: int) -> bytearray:
        """Return a buffer for the messages of one thread, which arrive one after the other."""
        buffer = self._rooms.get(of)
        if buffer is None or len(buffer) < nbytes:
            buffer = self._rooms[of] = bytearray(nbytes)
        return buffer

    def take(self, of: int, tag: int) -> bytes | None:
        """Receive a small message of unknown size; None if none has arrived."""
        status = self.mpi.Status()
        message = self.comm.Improbe(of, tag, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(self.mpi.BYTE))
        message.Recv([data, len(data), self.mpi.BYTE])
        return bytes(data)

    def take_any(self, tag: int) -> tuple[int, bytes] | None:
        """Receive a small message from any thread: (sender, bytes)."""
        status = self.mpi.Status()
        message = self.comm.Improbe(self.mpi.ANY_SOURCE, tag, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(self.mpi.BYTE))
        message.Recv([data, len(data), self.mpi.BYTE])
        return status.Get_source(), bytes(data)

    # -- rare calls ------------------------------------------------------------------
    def split(self, color: int) -> Intracomm:
        """Split the communicator, for rare calls; blocking."""
        part: Intracomm = self.comm.Split(color, self.rank)  # type: ignore[assignment]
        return part

    def window(self, address: int, nbytes: int) -> Window:
        """Expose this node's mapping of a segment to all threads; blocking."""
        memory = self.mpi.buffer.fromaddress(address, nbytes)
        win = self.mpi.Win.Create(memory, 1, self.mpi.INFO_NULL, self.comm)
        win.Set_errhandler(self.mpi.ERRORS_RETURN)
        win.Lock_all(self.mpi.MODE_NOCHECK)
        return Window(self, win)

    def settle(self) -> None:
        """Receive the notices that no thread has looked for; blocking, and all threads call it.

        Call it before `free` if there can have been any. MPICH gives the number of a freed
        communicator to a later one, which would receive what stayed, be it one of xupc's or of the
        program's.
        """
        received: Request | None = None  # complete when no thread has a notice on its way
        while received is None or not received.Test():
            while self.take_any(self.mpi.ANY_TAG) is not None:
                pass
            if received is None and not self.unread():
                received = self.comm.Ibarrier()
            os.sched_yield()

    def free(self) -> None:
        """Free the communicator; blocking, and all its threads call it."""
        self.comm.Free()


class Window:
    """One-sided access to a segment on every thread of a communicator."""

    def __init__(self, link: TeamComm, win: Win) -> None:
        self.link = link
        self.network = link.network
        self.win = win

    def get(
        self, target: int, displacement: int, address: int, nbytes: int, count: int = 1,
        stride: int = 0, far_stride: int = 0,
    ) -> Request:
        """Start to read `count` blocks, `stride` bytes apart here, `far_stride` at the target."""
        here = self.network.spec([Grid.of(address, nbytes, count, stride, 1, 0)])
        _, n, datatype = self.network.spec([Grid.of(address, nbytes, count, far_stride, 1, 0)])
        return self.win.Rget(here, target, [displacement, n, datatype])

    def put(
        self, target: int, displacement: int, address: int, nbytes: int
    ) -> tuple[Request, bytearray]:
        """Start to write; the request is complete when the bytes are at the target.

        This is a get-accumulate with REPLACE: its reply follows the write at the target, so no
        blocking flush is needed.
        """
        mpi = self.network.mpi
        old = bytearray(nbytes)
        spec = [mpi.buffer.fromaddress(address, nbytes), nbytes, mpi.BYTE]
        where = [displacement, nbytes, mpi.BYTE]
        request = self.win.Rget_accumulate(
            spec, [old, nbytes, mpi.BYTE], target, where, op=mpi.REPLACE
        )
        return request, old

    def fetch_add(self, target: int, displacement: int, value: int) -> tuple[Request, bytearray]:
        """Start an atomic addition to an int64; the buffer receives the old value."""
        mpi = self.network.mpi
        old = bytearray(8)
        request = self.win.Rget_accumulate(
            [np.array([value], np.int64), 1, mpi.INT64_T],
            [old, 1, mpi.INT64_T],
            target,
            [displacement, 1, mpi.INT64_T],
            op=mpi.SUM,
        )
        return request, old

    def track(self, request: Request, finished: Callable[[], None]) -> None:
        """Call `finished` when an access is complete, even if its call is given up."""
        self.network.track(self, request, finished)

    def sync(self) -> None:
        """Order loads and stores of this thread with one-sided accesses to its memory."""
        self.win.Sync()

    def free(self) -> None:
        """Free the window; blocking, and all threads call it."""
        self.win.Unlock_all()
        self.win.Free()
