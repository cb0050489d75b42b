"""What a start of xupc returns that fails on all threads, so that the program can go on without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..comm.mpi import MpiContext
from ..comm.setup_collectives import Agreement
from ..health.failure_detector import FailureDetector
from ..health.init_watchdog import Unguarded
from ..pgas.heap import Heap

if TYPE_CHECKING:
    from ..comm.mpi_types import Intracomm

__all__ = ["give_back"]

PATIENCE = 2.0  # seconds for the last turn of the failure detector


class HalfDoneJob(Protocol):
    """The part of a job that a failed start needs."""

    guard: FailureDetector | Unguarded
    network: MpiContext
    agreement: Agreement
    given_back: bool

    def release(self, heap: Heap) -> None:
        """Free the windows of a heap, collectively."""


def give_back(job: HalfDoneJob, heap: Heap | None, node_comm: Intracomm | None) -> None:
    """Release the memory, communicators and failure detector of a start that has failed.

    Collective over all threads: all must have the same error. `heap` and `node_comm` are those of
    the job if it has them. Memory stays mapped until the job is deleted.
    """
    guard = job.guard
    if heap is not None:
        heap.close()
        job.release(heap)
        heap.unmap()
    if node_comm is not None:
        node_comm.Free()
    if isinstance(guard, FailureDetector):
        job.agreement.agree([0])  # so that no thread takes the end of another one for a death
        guard.finished()
    job.network.free()
    if isinstance(guard, FailureDetector):
        guard.stop(PATIENCE)  # its thread keeps the control segment
        job.guard = Unguarded()
    job.given_back = True
