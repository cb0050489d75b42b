"""The job on this thread: start-up, agreement among all threads, and the end.

Start-up, in order: duplicate the communicator; group threads into machines by host record and
proof; split into nodes; agree on the engine; map the machine's control segment and lock this
thread's byte of it; agree on the transport; make the heap.

`xupc.health.failure_detector` handles failures meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ..backends.native.native_core import empty_caches, invalidate
from ..backends.own_threads import PROGRESS
from ..backends.protocol import TeamCore
from ..backends.running_time import RunningTime
from ..backends.wait import WaitState
from ..comm.mpi import STEP_NS, MpiContext, start_mpi
from ..comm.remote_completion import RemoteCompletion, RemoteCompletions
from ..comm.setup_collectives import Agreement
from ..comm.team_comm import TeamComm
from ..errors import CollectiveMismatchError, HangError, HeapError, XupcError, said, thread_name
from ..health.call_record import CallRecord
from ..health.failure_detector import FailureDetector
from ..health.init_watchdog import Deadline, Unguarded
from ..pgas.allocation import Allocation
from ..pgas.deferred_free import Allocating
from ..pgas.global_zone import TABLE_BYTES, GlobalZone
from ..pgas.heap import RANGE, Heap
from ..pgas.segment import Segment, drop_lock, free_space, shm_dir, sweep_stale, try_lock
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS, STAGING_BYTES
from ..records import replace
from ..topology.discovery import find_neighbours
from ..topology.host_record import read_host_record
from ..topology.machine import Machine
from ..tuning.selection import Table
from .async_queue import AsyncCall, Progress
from .callers import Callers
from .dropped_teams import Dropped
from .executor import Engine
from .failed_start import give_back
from .job_state import JobState
from .memory_proof import prove_memory
from .remote_memory import RemoteMemory, access_to
from .settings import Settings, agree_settings

if TYPE_CHECKING:
    from ..comm.mpi_types import Intracomm, Request
    from .recorder import Recorder

__all__ = ["Job", "OpenTeam"]


Prepare = Callable[[TeamComm], tuple[Table, Machine | None, "Recorder | None"]]
ZONE_BYTE = 1 << 40
START_LEAST = 10.0  # seconds for MPI's start, also with a shorter timeout: programs load slowly


class OpenTeam(Protocol):
    """An open team, as the job sees it.

    Attributes
    ----------
    queue
        Its posted calls that are not complete.
    notified
        The barrier between notify and wait, and its value; None outside.
    """

    number: int
    spans_nodes: bool
    heap: Heap
    core: TeamCore
    queue: deque[AsyncCall]
    notified: tuple[AsyncCall, object] | None

    def progress(self) -> bool:
        """Advance the queue without waiting; return True if a call completed."""

    def end_posted(self) -> None:
        """Wait for all posted calls, those of requests of `xupc.Comm` too."""

    def meet(self, signature: int, record: CallRecord) -> None:
        """Run a barrier in which all threads must have the same signature."""

    def forget_plans(self) -> None:
        """Drop cached plans."""

    def close(self) -> None:
        """Release the team; collective."""


class Job(JobState):
    """The job on this thread: its services, its state and its memory.

    `info` says where its threads run.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.guard: FailureDetector | Unguarded = Unguarded()
        self.timeout = settings.timeout
        self._watched = False  # by a deadline
        self.callers = Callers(self)
        self.tuning: dict[str, int] = {}
        self.completions = RemoteCompletions(self._wait_for_completion)
        self.teams: list[OpenTeam] = []  # all open teams but the world, ordered by number
        self.next_team = 1
        self.dropped = Dropped(self)
        self.world: OpenTeam | None = None  # the team of all threads, when there is one
        self.pending: list[OpenTeam] = []  # teams with posted calls that are not complete
        self.unfinished: set[AsyncCall] = set()  # posted calls that the program has not waited for
        self.background = Progress(self)
        self._progressing = False
        self.host = os.uname().nodename

    # -- start-up ----------------------------------------------------------------------
    def start(self, comm: Intracomm | None, prepare: Prepare) -> None:
        """Wait for all threads of the communicator, and start the job with them.

        `prepare` is called when all threads have arrived and no resource is allocated. It returns
        `prepared`, `described`, `recorder`. An error that it raises must be raised on all threads.
        """
        sweep_stale()
        patience = None if self.timeout is None else max(self.timeout, START_LEAST)
        with Deadline(patience, "init", self._nobody_yet) as deadline:
            deadline.stage("MPI's start")
            start_mpi()
        self.network = MpiContext(comm, self._await_all)
        self.link = self.network.link
        self._ignore_signals()  # after MPI's start, which may install handlers
        self.who = thread_name(self.link.rank, self.host, self.pid)
        with self._deadline("init") as deadline:
            try:
                self._start(prepare, deadline)
            except (HeapError, ValueError, CollectiveMismatchError):  # on all threads
                deadline.stage("giving memory back")
                give_back(self, vars(self).get("heap"), vars(self).get("node_comm"))
                raise
        self.settings_comm = comm

    def differs(self, settings: Settings, comm: Intracomm | None) -> str:
        """Return what another init asks for that this one did not, as text; empty if nothing."""
        difference = self.settings.difference(settings)
        world = self.network.mpi.COMM_WORLD
        if not difference and (self.settings_comm or world) != (comm or world):
            return "comm"
        return difference

    @contextlib.contextmanager
    def _deadline(self, call: str) -> Iterator[Deadline]:
        self._watched = True
        try:
            with Deadline(self.timeout, call, self.who) as deadline:
                yield deadline
        finally:
            self._watched = False

    @contextlib.contextmanager
    def blocking(self, call: str) -> Iterator[None]:
        """Apply the timeout to calls of MPI in which threads wait for each other.

        The failure detector handles deaths. An error that MPI reports on all threads, such as
        too many communicators, becomes an XupcError, and the job continues.
        """
        with contextlib.ExitStack() as stack:
            if self.timeout is not None and not self._watched:
                deadline = stack.enter_context(self._deadline(call))
                deadline.stage("a call of MPI that all of them make")
            try:
                yield
            except self.network.mpi.Exception as e:
                raise self.guard.mpi_refused(e, WaitState(None, call)) from e

    def check_call(self, call: str, team: object) -> None:
        """Raise if a call on a team cannot begin: the job is over, or it is inside another call."""
        self.check()
        self.check_outside(call)
        self.callers.check(call, team)

    @contextlib.contextmanager
    def whole(self, call: str, team: object = None, *, collective: bool = True) -> Iterator[None]:
        """Mark a sequence of steps that an interrupt would leave incomplete.

        Any other error that not all threads raise breaks the job as well. `collective`: all threads
        take these steps together.
        """
        before = self.agreed
        self.agreed = [] if before is None else before
        try:
            with self.callers.within(call, team) if collective else contextlib.nullcontext():
                yield
        except XupcError:
            raise
        except BaseException as e:
            if not any(e is known for known in self.agreed):
                self.guard.interrupted(call, e)
            raise
        finally:
            self.agreed = before

    @property
    def _nobody_yet(self) -> str:
        """Description of this thread before it has a number."""
        return f"a thread on host {self.host} (pid {self.pid})"

    def _start(self, prepare: Prepare, deadline: Deadline) -> None:
        """Start the job when all threads have called init."""
        deadline.stage("the comparison of settings", unwatched=True)
        agree_settings(self.settings, self.link)
        self.prepared, self.described, self.recorder = prepare(self.link)
        deadline.stage("the proof of shared memory", unwatched=True)
        machine = self._find_machine(deadline)
        self._agree_segments()
        self.info = self._find_nodes(machine)
        deadline.stage("the joining of machines", unwatched=True)
        self.lifeline = self._join_machines()
        deadline.watch_with(self.lifeline)
        self.info = replace(self.info, native=self._agree_engine())
        if self.recorder is not None:
            self.recorder.start(self.info, self.link, self.host)
        self.engine = Engine(self)
        self.allocating = Allocating(self)
        self.agreement = Agreement(self, self.link, range(self.link.size))
        deadline.stage("the making of the control segment", unwatched=True)
        self.control = self._map_control(self.agreement.shared_segment)
        self.info = self._agree_place()
        deadline.hand_over()
        self.guard = FailureDetector(self)
        deadline.stage("the making of the heap")
        self.node_comm = self.link.split(self.info.node)
        self._make_heap()
        self.global_zone = GlobalZone(self.heap, self._zone_lock)

    def _await_all(self, request: Request) -> None:
        """Wait until all threads have called init."""
        running, step = RunningTime(), time.thread_time_ns()
        while not request.Test():
            worked = time.thread_time_ns() - step > STEP_NS
            waited = running.look()
            if self.timeout is not None and waited > self.timeout:
                who = f"{self._nobody_yet} has waited {waited:.1f} s for all threads"
                raise HangError(f"init: {who} of the communicator to call init")
            if not worked:  # else MPI moves the program's own messages: test again immediately
                time.sleep(min(1e-3, waited / 10))
            step = time.thread_time_ns()

    def _find_machine(self, deadline: Deadline) -> list[int]:
        """Return the threads that proved to share memory with this one."""
        record = read_host_record(shm_dir())
        machine, lookout, self._no_segment = find_neighbours(
            self.link.comm, record, self.who, prove_memory
        )
        if lookout is not None:
            deadline.look_out(lookout)
        return machine

    def _agree_segments(self) -> None:
        """Raise HeapError on every thread if some thread cannot create segments."""
        link = self.link
        first = self._of_all(link.rank if self._no_segment else link.size, link.mpi.MIN)
        if first < link.size:
            reason = link.comm.bcast(self._no_segment, root=first)
            raise HeapError(f"init: {reason} (thread {first})")

    def _make_heap(self) -> None:
        size = self.settings.heap_size
        count = len(self.info.machine)
        why = ""
        if self.settings.explicit_heap and size * count > free_space():
            why = (
                f"init: heap_size: {size} bytes for each of {count} threads on this machine do "
                f"not fit: {free_space()} bytes are free in {shm_dir()}"
            )
        self.agreement.agree_room(why)
        zone = max(size // 4, 4 * TABLE_BYTES)
        lines = SLOTS * OP_SCRATCH_BYTES
        tree, me, scratch = self.info.tree, self.info.me, lines + STAGING_BYTES
        heap = Heap(tree, me, self._make_heap_segment, size, zone, scratch, size)
        self.heap = heap  # `give_back` needs it where the rest fails
        taken = heap.global_end - heap.individual_end + lines
        why = heap.room_for(taken * count, "init") or ""
        self.agreement.agree_room(why)
        try:  # a remote write must not fail because the file system is full
            heap.take(heap.individual_end, taken, "init")
        except HeapError as e:
            why = str(e)
        self.agreement.agree_room(why)

    def _make_heap_segment(self, size: int) -> tuple[Segment, RemoteMemory | None]:
        count = self.info.tree.node_size(self.info.node)
        segment = self.agreement.shared_segment(self.node_comm, size * count)
        if not self.info.spans_nodes:
            return segment, None
        with self.blocking("all_alloc"):
            window = self.link.window(segment.address, size * count)
        return segment, RemoteMemory(self, window, range(self.info.threads))

    @contextlib.contextmanager
    def _zone_lock(self) -> Iterator[None]:
        """Hold the global zone's lock: a kernel lock on one node, a ticket lock across nodes."""
        if not self.info.spans_nodes:
            fd = self.control.segment.fd
            self.engine.wait_for(lambda: try_lock(fd, ZONE_BYTE), "the global zone's lock")
            try:
                yield
            finally:
                drop_lock(fd, ZONE_BYTE)
            return
        with self.whole("the global zone", collective=False):
            ticket = self._add_to_zone_lock(0, 1)
            self.engine.wait_for(
                lambda: self._add_to_zone_lock(8, 0) == ticket, "the global zone's lock"
            )
        try:
            yield
        finally:
            with self.whole("the global zone", collective=False):
                self._add_to_zone_lock(8, 1)

    def _add_to_zone_lock(self, offset: int, value: int) -> int:
        """Add to a counter of the global zone's ticket lock; return the value before."""
        remote, displacement = self.heap.displacement(0, self.heap.individual_end + offset)
        return int(remote.fetch_add(0, displacement, value))

    def guarded_access(self, thread: int) -> contextlib.AbstractContextManager[WaitState]:
        """Translate errors of MPI during an access to a thread's memory."""
        self.check_thread(access_to(thread), but=PROGRESS)
        return self.engine.guarded(WaitState(None, access_to(thread), (thread,)))

    @property
    def heaps(self) -> Iterator[Heap]:
        """Heaps of the world and of all open teams."""
        yield self.heap
        for team in self.teams:
            yield team.heap

    def heap_at(self, offset: int) -> Heap:
        """Return the heap that an offset belongs to; ValueError if this thread has no such heap."""
        number = offset >> RANGE
        if not number:
            return self.heap
        for team in self.teams:
            if team.number == number:
                return team.heap
        raise ValueError(f"offset {offset} is in the memory of a team that this thread is not in")

    def sync_windows(self) -> None:
        """Order loads and stores of this thread with one-sided accesses to its memory."""
        for heap in self.heaps:
            for segment in heap.segments:
                if segment.remote is not None:
                    segment.remote.window.sync()

    def _wait_for_completion(self, completion: RemoteCompletion) -> None:
        thread = completion.thread
        self.check_thread(access_to(thread), but=PROGRESS)
        self.engine.wait_for(completion.poll, access_to(thread), threads=(thread,))

    def _ignore_signals(self) -> None:
        """Ignore SIGUSR1, which Hydra sends to survivors of a death and which would end them."""
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(ValueError, OSError):
                if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
                    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    # -- state -------------------------------------------------------------------------
    def break_with(self, error: BaseException) -> None:
        """Mark the job as broken: later calls raise, and the exit waits for no thread."""
        if self.broken is None:
            self.broken = error
        for team in self.pending:
            for posted in team.queue:
                posted.withdraw()
        invalidate()

    # -- posted calls ------------------------------------------------------------------
    def queued(self, team: OpenTeam) -> None:
        """Note that a team's queue has become empty, or is no longer empty."""
        if team.queue and team not in self.pending:
            self.pending.append(team)
        elif not team.queue and team in self.pending:
            self.pending.remove(team)
        self._update_teams()
        by_messages = team.spans_nodes or not self.info.native
        if self.pending and by_messages and self.network.threads_multiple:
            self.background.wake()

    def blocks(self, team: OpenTeam) -> bool:
        """Return True if calls of a team must not take the cached path."""
        return bool(self.pending) or team.notified is not None

    def _update_teams(self) -> None:
        for team in (*filter(None, (self.world,)), *self.teams):
            team.core.blocked = self.blocks(team)

    def serve(self, until: float) -> None:
        """Serve one-sided accesses of other nodes in the background until a time."""
        if self.network.threads_multiple:
            self.background.serve(until)

    def progress(self, *, wait: bool = False) -> bool:
        """Advance all queues without waiting; return True if a call completed.

        With `wait` it waits for a thread that is advancing them. A user's function that waits in
        a posted call advances the queues of other teams: it may depend on another thread that is
        in such a function.
        """
        if not self.engine.lock.acquire(blocking=wait):
            return False
        before = self._progressing
        try:
            if before and not self.in_function:
                return False
            self._progressing = True
            ended = [team.progress() for team in list(self.pending)]
            return any(ended)
        finally:
            self._progressing = before
            self.engine.lock.release()

    def uses(self, allocation: Allocation | None = None, memory: Heap | None = None) -> str:
        """Return the name of a posted call, not waited for, that uses some memory; "" if none.

        The memory is an allocation, or all of a heap.
        """
        for pending in list(self.unfinished):
            for a in pending.allocations:
                if a.memory is memory or (allocation is not None and a.same(allocation)):
                    return pending.call
        return ""

    # -- the end -----------------------------------------------------------------------
    def close(self) -> None:
        """Release all resources, after the last barrier.

        The failure detector runs until all threads have done so. MPI's own end comes after that.
        """
        guard = self.guard
        assert isinstance(guard, FailureDetector)
        invalidate()
        empty_caches()
        self.background.stop()
        with self._deadline("finalize") as deadline:
            deadline.stage("giving memory back")
            while self.teams:
                self.teams[0].close()
            self.heap.close()
            self.release(self.heap)
            self.heap.unmap()
            self.node_comm.Free()
            self.link.settle()
        if self.recorder is not None:
            self.recorder.stop(self.info, self.link)
        self.agreement.agree([0])  # Open MPI does not wait in an agreement on nothing
        guard.finished()
        with self._deadline("finalize") as deadline:
            deadline.stage("giving communicators back")
            self.network.free()
        guard.stop()
        self.ended = True
        if self.recorder is not None:
            self.recorder.close()
            if self.info.me == 0:
                self.recorder.join()

    @staticmethod
    def release(heap: Heap) -> None:
        """Free the windows of a heap, collectively; no remote access or growth follows."""
        for segment in heap.segments:
            if segment.remote is not None:
                segment.remote.window.free()
            segment.segment.close_fd()

    def end_job(self, status: int, error: BaseException | None = None) -> None:
        """End the whole job and this process after an error, without waiting for other threads.

        It returns in init if MPI has not started, or cannot be ended.
        """
        why = ""
        if error is not None:
            kind = type(error).__name__
            text = said(error)
            why = f"{kind}: {text}" if text else kind
        self.guard.end_job(status, why, ours=isinstance(error, XupcError))
