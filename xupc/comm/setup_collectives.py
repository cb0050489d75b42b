"""Agreements of a team's threads in rare calls: maxima, texts, shared segments.

They use non-blocking collectives of MPI on the team's communicator; the executor waits for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..backends.wait import Executor, Waitable, WaitState
from ..errors import HeapError, XupcError, death_text
from ..pgas.segment import Segment, attach, create, free_space, shm_dir, shortage
from ..topology.job_info import JobInfo
from .team_comm import TeamComm

if TYPE_CHECKING:
    from .mpi_types import Intracomm

__all__ = ["Agreement"]

OFFER = 4096


class AgreementLog(Protocol):
    """The part of the control segment that shows agreements to the threads of the machine."""

    index: int

    def last_call(self, index: int) -> str:
        """Return the text of the call that a thread is in, or was in last."""

    def agrees(self) -> int:
        """Enter an agreement of all threads; return its number."""


class ErrorsOfMpi(Protocol):
    """The part of the failure detector that explains errors of MPI."""

    def mpi_failed(self, error: Exception, waiting: WaitState, what: str = ...) -> XupcError:
        """Return the error to raise for an error of MPI."""


class AgreementServices(Protocol):
    """The part of the job that agreements use."""

    info: JobInfo
    who: str

    @property
    def link(self) -> TeamComm:
        """The communicator of all threads."""

    @property
    def control(self) -> AgreementLog:
        """Control segment of the machine."""

    @property
    def engine(self) -> Executor:
        """Executor of the job."""

    @property
    def guard(self) -> ErrorsOfMpi:
        """Failure detector of the job."""


class Agreement:
    """Agreements among the threads of a communicator.

    Parameters
    ----------
    threads : sequence of int
        Thread ids by rank.
    """

    def __init__(self, job: AgreementServices, link: TeamComm, threads: Sequence[int]) -> None:
        self.job = job
        self.link = link
        self.threads = threads

    def agree(self, values: list[int]) -> list[int]:
        """Return the element-wise maximum over all threads; this is also a barrier."""
        job = self.job
        mine = np.array(values, np.int64)
        out = np.empty_like(mine)
        what = f"{job.control.last_call(job.control.index)}, the agreement of all threads"
        number = job.control.agrees() if self.link is job.link else 0
        request = self._begin(what, self.link.comm.Iallreduce, mine, out, self.link.mpi.MAX)
        job.engine.wait_for(request.Test, what, threads=self._others(), agreement=number)
        return [int(v) for v in out]

    def all_here(self) -> Waitable:
        """Begin a barrier; no other agreement may begin until it is complete."""
        control = self.job.control
        number = control.agrees() if self.link is self.job.link else 0
        what = f"{control.last_call(control.index)}, a barrier of all threads"
        request = self._begin(what, self.link.comm.Ibarrier)
        return Waitable(request.Test, what, self._others(), agreement=number)

    def gather_all(self, values: Sequence[int]) -> list[list[int]]:
        """Return the values of all threads, by rank."""
        mine = np.array(values, np.int64)
        rows = np.empty((self.link.size, len(mine)), np.int64)
        what = f"{self.job.control.last_call(self.job.control.index)}, an exchange of all threads"
        request = self._begin(what, self.link.comm.Iallgather, mine, rows)
        self.job.engine.wait_for(request.Test, what, threads=self._others())
        return [[int(v) for v in row] for row in rows]

    def agree_room(self, why: str, value: int = 0) -> int:
        """Raise HeapError on all threads if one gives a reason; else return the largest `value`."""
        first = np.array([self.link.rank if why else self.link.size, -value], np.int32)
        worst = np.empty_like(first)
        what = "the agreement of all threads on a shared segment"
        request = self._begin(what, self.link.comm.Iallreduce, first, worst, self.link.mpi.MIN)
        self.job.engine.wait_for(request.Test, what)
        if worst[0] < self.link.size:
            root = int(worst[0])
            raise HeapError(f"{self.share(why, root)} (thread {self.threads[root]})")
        return -int(worst[1])

    def share(self, text: str, root: int) -> str:
        """Return the text of thread `root` on all threads."""
        return str(self._share(self.link.comm, text, root))

    def shared_segment(
        self, comm: Intracomm, nbytes: int, call: str = "init", *, whole: bool = False
    ) -> Segment:
        """Create a segment on the first thread of `comm` and map it on all; collective.

        All threads of the link call it at the same time, each with the threads of its node or
        machine. `whole`: reserve all pages now. If one of them fails, all threads of the link
        raise HeapError.
        """
        segment: Segment | None = None
        path = why = ""
        if comm.Get_rank() == 0:
            try:
                if whole and nbytes > free_space():
                    raise HeapError(
                        f"{call}: {nbytes} bytes for what the threads share do not fit: "
                        f"{free_space()} bytes are free in {shm_dir()}"
                    )
                segment = create(nbytes)
                if whole:
                    segment.reserve(0, nbytes)
                path = segment.path
                if len(json.dumps(path)) > OFFER // 4:
                    raise HeapError(f"{call}: the path of {shm_dir()} is too long")
            except HeapError as e:
                why = str(e)
            except OSError as e:
                why = f"{call}: cannot find out how many bytes are free in {shm_dir()}: {e}"
        path, why, maker = self._share(comm, (path, why, self.job.who))
        if segment is None and not why:
            try:
                segment = attach(path, nbytes)
            except FileNotFoundError as e:  # the file ends with the thread that made it
                wait = WaitState(None, "the making of a shared segment")
                raise self.job.guard.mpi_failed(e, wait, death_text(maker)) from e
            except OSError as e:
                why = f"{call}: cannot map {nbytes} bytes of {shm_dir()}: {shortage(e)}"
        try:
            self.agree_room(why)
        except HeapError:
            if segment is not None:
                segment.discard()
            raise
        assert segment is not None
        segment.settle()
        return segment

    def _share(self, comm: Intracomm, data: Any, root: int = 0) -> Any:
        """Return a text or several of thread `root` on all of `comm`; long texts are cut."""
        buffer = bytearray(OFFER)
        if comm.Get_rank() == root:
            text = json.dumps(data).encode()
            if len(text) > OFFER:
                text = json.dumps(_cut(data)).encode()
            buffer[: len(text)] = text
        what = "the agreement of all threads on a shared segment"
        request = self._begin(what, comm.Ibcast, [buffer, OFFER, self.link.mpi.BYTE], root)
        self.job.engine.wait_for(request.Test, what)
        return json.loads(buffer.rstrip(b"\0"))

    def _begin(self, what: str, start: Callable[..., Any], *arguments: Any) -> Any:
        """Start an MPI call; errors are handled as those of a wait for it."""
        with self.job.engine.guarded(WaitState(None, what)):
            return start(*arguments)

    def _others(self) -> list[int]:
        """Return the threads that this one waits for; empty if agreement numbers show them."""
        if self.link is self.job.link:
            return []
        return [t for t in self.threads if t != self.job.info.me]


def _cut(data: Any) -> Any:
    """Cut texts so that their JSON fits into OFFER bytes; paths are short enough."""
    if isinstance(data, str):
        return data[: OFFER // 16]
    return [text if len(json.dumps(text)) <= OFFER // 4 else text[: OFFER // 64] for text in data]
