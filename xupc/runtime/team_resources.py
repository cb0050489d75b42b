"""The resources of a team: its messages, its sync area on my node, its heap.

The job creates those of the world team. For any other team, all its threads, and only these, create
the resources together with the team.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..backends.native.native_core import core
from ..comm.setup_collectives import Agreement
from ..comm.team_comm import TeamComm
from ..errors import HeapError, XupcError
from ..pgas.heap import RANGE, Heap
from ..pgas.segment import Segment
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS, STAGING_BYTES
from ..records import mutable_record
from ..topology.tree import Tree
from .job import Job
from .remote_memory import RemoteMemory

if TYPE_CHECKING:
    from ..comm.mpi_types import Intracomm

__all__ = ["TEAMS", "TeamResources"]

LINES_BYTES = SLOTS * OP_SCRATCH_BYTES
LEFT_BYTES = 64
HEAP_BYTES = 1 << 16  # of a team's heap to begin with, on each thread; it grows
TEAMS = 1 << 63 - RANGE  # their numbers are less: offsets have 63 bits
_HERE = 1  # tag


@mutable_record
class TeamResources:
    """The resources of one team on this thread.

    Attributes
    ----------
    number
        An identifier, different for teams that have a thread in common; 0 is the world.
    node_comm
        A communicator of the team's threads on my node, for rare calls; on one node the link's.
    sync_address
        The address of the sync area on my node.
    left_word
        Offset in the heap where each thread notes the last led call that it has left.
    """

    job: Job
    number: int
    link: TeamComm
    agreement: Agreement
    node_comm: Intracomm
    heap: Heap
    sync_address: int
    left_word: int
    sync: Segment | None = None

    @classmethod
    def of_world(cls, job: Job) -> TeamResources:
        """Return the resources of the world team."""
        return cls(
            job, 0, job.link, job.agreement, job.node_comm, job.heap, job.sync_address,
            job.global_zone.left_word,
        )

    @classmethod
    def open(cls, job: Job, threads: Sequence[int], tree: Tree, *, here: bool) -> TeamResources:
        """Make the resources of a new team; collective over its threads.

        Parameters
        ----------
        tree
            The tree of `threads`, by rank in the team.
        here
            True if each thread is in this call already, or about to make it; else they wait for
            each other first.

        Raises
        ------
        HeapError
            On all of them: there is no room.
        XupcError
            On all of them: MPI has no communicator left.
        """
        if not here:
            _gather(job, threads)
        made = contextlib.ExitStack()
        try:
            with job.blocking("split"):
                link = job.network.meeting.among(threads)  # where no message is discarded
                made.callback(link.free)
                node = tree.node_of(link.rank)
                node_comm = link.comm
                if tree.node_count > 1:
                    node_comm = link.split(node)
                    made.callback(node_comm.Free)
            agreement = Agreement(job, link, threads)
            number = _number(job, agreement)
            sync = None
            if core is not None and job.info.native:
                nbytes = int(core.sync_bytes(tree.node_size(node)))
                sync = agreement.shared_segment(node_comm, nbytes, "split", whole=True)
                sync.close_fd()
            heap = _make_heap(job, link, agreement, node_comm, threads, tree, number)
        except XupcError:  # on all of them; and if one has died, or all are lost otherwise
            if job.broken is None:
                with job.blocking("split"):
                    made.close()
            raise
        address = sync.address if sync is not None else 0
        return cls(
            job, number, link, agreement, node_comm, heap, address, heap.individual_end, sync
        )

    def close(self) -> None:
        """Give all resources back; collective and blocking. Views of arrays stay valid."""
        self.job.release(self.heap)
        self.heap.alive = partial(_gone, self.job)
        self.heap.unmap()
        if self.node_comm is not self.link.comm:
            self.node_comm.Free()
        self.link.settle()
        self.link.free()
        self.sync = None


def _gone(job: Job) -> None:
    job.check()
    raise ValueError("the team was freed, and its memory with it")


def _number(job: Job, agreement: Agreement) -> int:
    """Return a number that no other team of these threads has: a new one, else one to reuse."""
    number = agreement.agree([job.next_team])[0]
    job.next_team = min(number + 1, TEAMS)
    if number < TEAMS:
        return number
    taken = {team.number for team in job.teams}
    number = 1
    while True:
        number = next(n for n in range(number, TEAMS + 1) if n not in taken)
        number, least = agreement.agree([number, -number])
        if number == TEAMS:
            raise XupcError(
                f"split: no more than {TEAMS - 1} teams at a time: call team.free() on some"
            )
        if number == -least:
            return number


def _make_heap(
    job: Job,
    link: TeamComm,
    agreement: Agreement,
    node_comm: Intracomm,
    threads: Sequence[int],
    tree: Tree,
    number: int,
) -> Heap:
    # as wide as a node is, so that a thread has the same place in all heaps; that costs no memory
    width = job.info.tree.node_size(job.info.node)

    def make_segment(size: int) -> tuple[Segment, RemoteMemory | None]:
        segment = agreement.shared_segment(node_comm, size * width, "split")
        if tree.node_count == 1:
            return segment, None
        try:
            with job.blocking("split"):
                window = link.window(segment.address, size * width)
        except XupcError:
            segment.close_fd()
            raise
        return segment, RemoteMemory(job, window, threads)

    heap = Heap(
        job.info.tree, job.info.me, make_segment, 0, LEFT_BYTES, LINES_BYTES + STAGING_BYTES,
        HEAP_BYTES, base=number << RANGE,
    )
    heap.world = job.heap.world
    heap.alive = job.check
    heap.find = job.heap_at
    why = ""
    try:  # remote writes must never find the file system full
        heap.take(heap.individual_end, heap.global_end - heap.individual_end + LINES_BYTES, "split")
    except HeapError as e:
        why = str(e)
    try:
        agreement.agree_room(why)
    except HeapError:
        with job.blocking("split"):
            job.release(heap)
        raise
    return heap


def _gather(job: Job, threads: Sequence[int]) -> None:
    """Wait until all of them are here: what follows in MPI blocks."""
    link, engine, first = job.network.meeting, job.engine, threads[0]
    what = f"{job.control.last_call(job.control.index)}, the opening of a team"
    mine = repr([int(t) for t in threads]).encode()
    missing = {t for t in threads if t != job.info.me}
    odd: list[int] = []

    def all_here() -> bool:
        for thread in list(missing):
            data = link.take(thread, _HERE)
            if data is not None:
                missing.discard(thread)
                if data != mine:
                    odd.append(thread)
        return not missing

    if job.info.me == first:
        engine.wait_for(all_here, what, threads=sorted(missing))
        sends = [link.send_bytes(t, _HERE, mine) for t in threads if t != first]
        engine.wait_for(lambda: link.network.all_done(sends), what)
    else:
        missing = {first}
        sends = [link.send_bytes(first, _HERE, mine)]
        engine.wait_for(lambda: all_here() and link.network.all_done(sends), what, threads=[first])
    if odd:
        raise XupcError(f"threads {odd} are opening another team than {mine.decode()}")
