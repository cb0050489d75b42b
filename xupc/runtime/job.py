"""The job on this thread: start-up, agreement among all threads, and the end.

Start-up, in order: duplicate the communicator; group threads into machines by host record and
proof; split into nodes; agree on the engine; map the machine's control segment and take my lock in
it; agree on the transport; make the heap.

What can go wrong meanwhile is `xupc.health.failure_detector`'s business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..backends.native.native_core import core, empty_caches, invalidate, why_not
from ..comm.mpi import STEP_NS, MpiContext, TeamComm, Window, start_mpi
from ..comm.setup_collectives import Agreement
from ..errors import (
    CollectiveMismatchError,
    HangError,
    HeapError,
    NotInitializedError,
    XupcError,
    said,
)
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord, compare
from ..health.control_segment import Control, control_bytes
from ..health.failure_detector import FailureDetector
from ..health.failure_tree import FailureTree
from ..health.init_watchdog import Deadline, Unguarded
from ..pgas.deferred_free import Allocating
from ..pgas.global_zone import TABLE_BYTES, GlobalZone
from ..pgas.heap import RANGE, Heap
from ..pgas.segment import Segment, drop_lock, free_space, shm_dir, sweep_stale, try_lock
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS, STAGING_BYTES
from ..topology import host
from ..topology.discovery import find_neighbours
from ..topology.host_record import read_host_record
from ..topology.node_spec import node_tree
from ..topology.tree import Tree
from ..tuning.probes import bypass_from, pids_in_reach, reaching
from .async_queue import AsyncCall, Progress
from .callers import Callers
from .dropped_teams import Dropped
from .executor import Engine, WaitState

if TYPE_CHECKING:
    from .team_state import TeamState

__all__ = ["Job", "RemoteMemory", "Settings", "RemoteCompletion"]

ZONE_BYTE = 1 << 40
DEFAULT_HEAP = 4 << 20
START_LEAST = 10.0  # seconds for MPI's start, whatever the timeout: programs load at their own pace

_Result = TypeVar("_Result")


class Settings:
    """What `init` was given, environment included."""

    def __init__(self, heap_size: int | None, nodes: str | None, timeout: float | None) -> None:
        self.heap_size = heap_size or DEFAULT_HEAP
        self.explicit_heap = heap_size is not None
        self.nodes = nodes
        self.timeout = timeout


class UserCallbackScope:
    """While a function of the user's is run: it may read and write memory, and call nothing.

    One thread of Python's at a time, since whoever moves calls on holds the engine; but one
    function that waits for memory may find another one's turn come within that wait.

    Attributes
    ----------
    by : int or None
        The thread of Python's that runs one.
    """

    def __init__(self) -> None:
        self.by: int | None = None

    def run(self, act: Callable[[], _Result]) -> _Result:
        """Do what calls one."""
        before, me = self.by, threading.get_ident()
        try:
            self.by = me
            if core is not None:
                core.calls_out(True)
            return act()
        finally:  # an assignment and a call of C: no signal's handler can come before them
            self.by = before
            if core is not None:
                core.calls_out(before is not None)


class RemoteMemory:
    """One-sided access to a heap segment of `threads`, waited for by the engine.

    `pinned`: a network card may have noted which pages the segment has, so these must stay.
    """

    def __init__(self, job: Job, window: Window, threads: Sequence[int]) -> None:
        self.job = job
        self.window = window
        self.threads = threads
        self.pinned = job.transport == "fabric"

    def get(self, thread: int, displacement: int, out: NDArray[np.uint8]) -> None:
        """Read contiguous bytes."""
        self.job.control.ask_to_serve()
        self.job.settle(thread)
        self.read(thread, displacement, out)

    def start(
        self, thread: int, displacement: int, address: int, nbytes: int, count: int = 1,
        stride: int = 0, far_stride: int = 0,
    ) -> Any:
        """Begin to read `count` blocks, so many bytes apart here and there; the request."""
        target = self.threads.index(thread)
        return self.window.get(target, displacement, address, nbytes, count, stride, far_stride)

    def read(self, thread: int, displacement: int, out: NDArray[np.uint8]) -> None:
        """`get` without asking whether the thread has left its last call."""
        with self._guarded(thread):
            self._pieces(thread, displacement, out, self._get)

    def start_put(self, thread: int, displacement: int, address: int, nbytes: int) -> Any:
        """Begin to write; the request, and what has to be kept until it is done."""
        for team in self.job.spanning:
            team.core.wrote()
        return self.window.put(self.threads.index(thread), displacement, address, nbytes)

    def put(self, thread: int, displacement: int, data: NDArray[np.uint8]) -> None:
        """Write contiguous bytes; they are there on return."""
        self.job.control.ask_to_serve()
        self.job.settle(thread)
        with self._guarded(thread):
            self._pieces(thread, displacement, data, self._put)

    def _guarded(self, thread: int) -> Any:
        wait = WaitState(self.job, None, f"an access to thread {thread}'s memory", (thread,))
        return self.job.engine.guarded(wait)

    def _pieces(self, thread: int, displacement: int, array: Any, start: Any) -> None:
        piece = self.job.tuning["rma_get_max"]
        address = array.__array_interface__["data"][0]
        left = [0]
        what = f"an access to thread {thread}'s memory"
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


class RemoteCompletion:
    """Whether a thread of another node has left a call that node roots lead, asked one-sided.

    Parameters
    ----------
    offset : int
        Where in the team's heap it notes which one it has left.
    """

    def __init__(self, team: TeamState, thread: int, epoch: int, offset: int) -> None:
        self.team, self.thread, self.epoch = team, thread, epoch
        self._remote, self._displacement = team.heap.displacement(thread, offset)
        self._word = np.zeros(1, np.uint64)
        self._asking = False

    def poll(self) -> bool:
        """Whether it has, as far as is known without waiting."""
        team = self.team
        if team.freed or team.core.debt < self.epoch:  # a barrier has come since
            return True
        if team.settled.get(self.thread, 0) >= self.epoch:
            return True
        if not self._asking:
            self._asking = True
            address = self._word.ctypes.data
            request = self._remote.start(self.thread, self._displacement, address, 8)
            self._remote.window.track(request, self._came)
        return False

    def _came(self) -> None:
        self._asking = False
        if self._word[0] >= self.epoch:
            self.team.settled[self.thread] = self.epoch


class Job:
    """Everything of this thread's side of the job.

    Attributes
    ----------
    tree
        Of all threads.
    native
        Whether the native core runs the plans (agreed by all threads).
    machine
        The threads of my machine; `machines` is how many there are.
    oversubscribed
        Whether my machine has more threads than cores; `crowded`: whether any has.
    pids
        Of my node's threads; None where not all threads of the job can read and write the
        private memory of those of their machine.
    reaching
        What that costs on my machine.
    bypass
        From how many bytes on copies are faster past the cache, on my machine; 0: none are.
    transport
        ``shm`` on one machine, ``fabric`` with RDMA devices on all, else ``tcp``.
    """

    control: Control

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.guard: FailureDetector | Unguarded = Unguarded()
        self.timeout = settings.timeout
        self.broken: BaseException | None = None
        self.ended = False
        self._watched = False  # by a deadline
        self.calling_out = UserCallbackScope()
        self.callers = Callers(self)
        self.pid = os.getpid()
        self.tuning: dict[str, int] = {}
        self.spanning: list[Any] = []  # open teams that span nodes
        self.teams: list[Any] = []  # all open teams but the world, in the order of their numbers
        self.next_team = 1
        self.dropped = Dropped(self)
        self.world: Any = None  # the team of all threads, when there is one
        self.pending: list[Any] = []  # teams with posted calls that are not over
        self.unfinished: set[AsyncCall] = set()  # posted calls that nobody has waited for
        self.background = Progress(self)
        self.agreed: list[BaseException] | None = None
        """Errors that all threads raise, of the present `whole`."""
        self._progressing = False
        self.host = socket.gethostname()

    # -- start-up ----------------------------------------------------------------------
    def start(self, comm: Any, prepare: Callable[[TeamComm], Any]) -> None:
        """Wait for all threads of the communicator, and make everything with them.

        `prepare` is called when all have come and nothing is made yet that would have to be given
        back; `prepared` is what it returned. What it raises must be raised on all threads.
        """
        sweep_stale()
        patience = None if self.timeout is None else max(self.timeout, START_LEAST)
        with Deadline(patience, "init", self._nobody_yet) as deadline:
            deadline.stage("MPI's start")
            start_mpi()
        self.network = MpiContext(comm, self._await_all)
        self.link = self.network.link
        self._ignore_signals()  # after MPI's start, which may install handlers
        self.me, self.threads = self.link.rank, self.link.size
        with self._deadline("init") as deadline:
            self._start(prepare, deadline)
        self.settings_comm = comm

    def differs(self, settings: Settings, comm: Any) -> str:
        """What another init asks for that this one did not, in words."""
        mine, theirs = vars(self.settings), vars(settings)
        for name in ("heap_size", "nodes", "timeout"):
            if mine[name] != theirs[name]:
                return f"{name}: {mine[name]!r}, not {theirs[name]!r}"
        world = self.network.mpi.COMM_WORLD
        if (self.settings_comm or world) != (comm or world):
            return "comm"
        return ""

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
        """Around calls of MPI in which threads wait for each other: the timeout holds there, too.

        Deaths are the guard's business. What MPI refuses to all, since it has no more
        communicators for instance, is an XupcError, after which all goes on.
        """
        with contextlib.ExitStack() as stack:
            if self.timeout is not None and not self._watched:
                deadline = stack.enter_context(self._deadline(call))
                deadline.stage("a call of MPI that all of them make")
            try:
                yield
            except self.network.mpi.Exception as e:
                raise self.guard.mpi_refused(e, WaitState(self, None, call)) from e

    @contextlib.contextmanager
    def whole(self, call: str, *, collective: bool = True) -> Iterator[None]:
        """Around what is done step by step: an interrupt leaves it half done.

        So does anything else that not all threads raise. `collective`: all of them do it together.
        """
        before = self.agreed
        self.agreed = [] if before is None else before
        try:
            with self.callers.within(call) if collective else contextlib.nullcontext():
                yield
        except XupcError:
            raise
        except BaseException as e:
            if not any(e is known for known in self.agreed):
                self.guard.interrupted(call, e)
            raise
        finally:
            self.agreed = before

    def agree(self, error: BaseException) -> BaseException:
        """Note one that all threads raise: nobody is interrupted by it."""
        if self.agreed is not None:
            self.agreed.append(error)
        return error

    @property
    def _nobody_yet(self) -> str:
        """This thread in words before it has a number."""
        return f"a thread on host {self.host} (pid {self.pid})"

    @property
    def who(self) -> str:
        """This thread in words."""
        return f"thread {self.me} (host {self.host}, pid {self.pid})"

    def _start(self, prepare: Callable[[TeamComm], Any], deadline: Deadline) -> None:
        """When all threads have called init."""
        deadline.stage("the comparison of settings", unwatched=True)
        self._agree_settings()
        self.prepared = prepare(self.link)
        deadline.stage("the proof of shared memory", unwatched=True)
        self.machine = self._find_machine(deadline)
        self._agree_segments()
        self.tree = self._find_tree()
        self.node = self.tree.node_of(self.me)
        deadline.stage("the joining of machines", unwatched=True)
        self.lifeline = self._join_machines()
        deadline.hear(self.lifeline)
        self.native = self._agree_engine()
        self.engine = Engine(self)
        self.allocating = Allocating(self)
        self.agreement = Agreement(self, self.link, range(self.threads))
        deadline.stage("the making of the control segment", unwatched=True)
        self.control = self._map_control()
        self.crowded, self.transport, self.pids = self._agree_place()
        deadline.hand_over()
        self.guard = FailureDetector(self)
        deadline.stage("the making of the heap")
        self.node_comm = self.link.split(self.node)
        self.heap = self._make_heap()
        self.global_zone = GlobalZone(self.heap, self._zone_lock)

    def _await_all(self, request: Any) -> None:
        """Wait until all threads have called init."""
        since, step = time.monotonic(), time.thread_time_ns()
        while not request.Test():
            worked = time.thread_time_ns() - step > STEP_NS
            waited = time.monotonic() - since
            if self.timeout is not None and waited > self.timeout:
                raise HangError(
                    f"init: {self._nobody_yet} has waited {waited:.1f} s for all threads of the "
                    "communicator to call init"
                )
            if not worked:  # else MPI moves the program's own messages: test again at once
                time.sleep(min(1e-3, waited / 10))
            step = time.thread_time_ns()

    def _agree_settings(self) -> None:
        """CollectiveMismatchError on every thread if they differ where they must not."""
        heap_size, nodes = self.settings.heap_size, self.settings.nodes
        comm, mpi = self.link.comm, self.link.mpi
        mine = fingerprint("init", heap_size, nodes or "") >> 1
        # of an array: mpi4py keeps the interpreter in reductions of objects
        most = np.empty(2, np.int64)
        comm.Allreduce(np.array([mine, -mine], np.int64), most, mpi.MAX)
        if most[0] == -most[1]:
            return
        arguments = [("heap_size", str(heap_size)), ("nodes", repr(nodes))]
        records = [CallRecord("init", theirs) for theirs in comm.allgather(arguments)]
        raise CollectiveMismatchError(compare(records, range(self.threads))["text"])

    def _find_machine(self, deadline: Deadline) -> list[int]:
        """Threads that proved to share memory with me."""
        record = read_host_record(shm_dir())
        machine, lookout, self._no_segment = find_neighbours(self.link.comm, record, self.who)
        if lookout is not None:
            deadline.look_out(lookout)
        return machine

    def _agree_segments(self) -> None:
        """HeapError on every thread if segments cannot be made somewhere."""
        first = self._of_all(self.me if self._no_segment else self.threads, self.link.mpi.MIN)
        if first < self.threads:
            words = self.link.comm.bcast(self._no_segment, root=first)
            raise HeapError(f"init: {words} (thread {first})")

    def _of_all(self, value: int, op: Any) -> int:
        """All threads' values in one, in init.

        By arrays: mpi4py keeps the interpreter in reductions of objects, and so would keep quiet
        whoever watches meanwhile.
        """
        found = np.empty(1, np.int64)
        self.link.comm.Allreduce(np.array([value], np.int64), found, op)
        return int(found[0])

    def _find_tree(self) -> Tree:
        """The node tree: machines, split as ``nodes`` asks."""
        of = np.empty(self.threads, np.int32)
        self.link.comm.Allgather(np.array([self.machine[0]], np.int32), of)
        self._machine_roots, _ = np.unique(of, return_counts=True)  # alone it imports numpy.ma
        self.machines = len(self._machine_roots)
        tree = node_tree(of, self.settings.nodes)
        self._machine_of_node = np.searchsorted(self._machine_roots, of[tree.node_roots])
        return tree

    def machine_of(self, thread: int) -> int:
        """The number of a thread's machine."""
        return int(self._machine_of_node[self.tree.node_of(thread)])

    def _agree_engine(self) -> bool:
        """Whether all threads want the native core, have it, and can have it call MPI."""
        wish = os.environ.get("XUPC_ENGINE", "native") != "python"
        can = core is not None and self.network.functions is not None
        found = np.empty(2, np.int32)
        self.link.comm.Allreduce(np.array([wish, can], np.int32), found, self.network.mpi.MIN)
        if found[0] and not found[1] and self.me == 0:
            why = why_not or "MPI's C functions cannot be called on all threads"
            warnings.warn(f"init: the Python engine runs, which is slow: {why}", stacklevel=2)
        return bool(found.all())

    def _map_control(self) -> Control:
        """The machine's control segment: made by its lowest thread, mapped by all."""
        mates = len(self.machine)
        index = self.machine.index(self.me)
        comm = self.link.split(self.machine[0])
        cores = frozenset().union(*comm.allgather(host.affinity()))
        self.cores = host.within_limit(len(cores))
        self.oversubscribed = mates > self.cores
        self.network.wait_with_progress(mates / self.cores)
        nodes = sorted({self.tree.node_of(t) for t in self.machine})
        sizes = [self._sync_bytes(self.tree.node_size(n)) for n in nodes]
        total = control_bytes(mates, self.machines, sum(sizes) + self.tree.nbytes)
        segment = self.agreement.shared_segment(comm, total, whole=True)
        control = Control(segment, index, mates, self.machines)
        control.introduce(self.me, self.host)
        number = self.link.comm.bcast(int.from_bytes(os.urandom(8)) >> 1 if self.me == 0 else None)
        if index == 0:
            control.describe(number, self.machine_of(self.me), self.threads)
            rows = self.lifeline.rows if self.lifeline is not None else [self._row]
            control.note_hosts([(r["pid"], r["thread"], r["host"]) for r in rows])
        start = control.sync_start + sum(sizes[: nodes.index(self.node)])
        self.sync_address = segment.address + start
        tables = segment.array[control.sync_start + sum(sizes) :][: self.tree.nbytes]
        if index == 0:
            self.tree.write_tables(tables)
        self._in_reach = pids_in_reach(comm)
        self.bypass: int = comm.bcast(bypass_from() if self.native and index == 0 else 0)
        self.reaching = reaching(comm, self._in_reach if self.native else None, self.cores)
        self.tree = self.tree.with_tables(tables)  # one copy for the machine, which is there by now
        comm.Free()
        return control

    def _agree_place(self) -> tuple[bool, str, NDArray[np.int32] | None]:
        """`crowded`, `transport`, `pids`: plans depend on them, so all threads say the same."""
        no_fabric = not os.path.isdir("/sys/class/infiniband")
        mine = np.array([self.oversubscribed, no_fabric, self._in_reach is None], np.int32)
        worst = np.empty_like(mine)
        self.link.comm.Allreduce(mine, worst, self.network.mpi.MAX)
        crowded, no_fabric, shut = (bool(v) for v in worst)
        pids = None
        if self.native and not shut:
            places = [self.machine.index(t) for t in self.tree.members(self.node).tolist()]
            pids = np.array(self._in_reach, np.int32)[places]
        if self.machines == 1:
            return crowded, "shm", pids
        return crowded, "tcp" if no_fabric else "fabric", pids

    def _join_machines(self) -> FailureTree | None:
        """The lowest threads of all machines hold on to each other."""
        if self.machines == 1:
            return None
        lowest = self.me == self.machine[0]
        comm = self.link.split(0 if lowest else 1)
        line = None
        if lowest:
            line = FailureTree(comm, self._row)
        comm.Free()
        return line

    @property
    def _row(self) -> dict[str, Any]:
        """This thread for threads of other machines."""
        return {"thread": self.me, "host": self.host, "pid": self.pid}

    def _sync_bytes(self, n: int) -> int:
        return int(core.sync_bytes(n)) if core is not None else 0

    def _make_heap(self) -> Heap:
        size = self.settings.heap_size
        mates = len(self.machine)
        why = ""
        if self.settings.explicit_heap and size * mates > free_space():
            why = (
                f"init: heap_size: {size} bytes for each of {mates} threads on this machine do "
                f"not fit: {free_space()} bytes are free in {shm_dir()}"
            )
        self.agreement.agree_room(why)
        zone = max(size // 4, 4 * TABLE_BYTES)
        lines = SLOTS * OP_SCRATCH_BYTES
        heap = Heap(
            self.tree, self.me, self._make_heap_segment, size, zone, lines + STAGING_BYTES, size
        )
        taken = heap.global_end - heap.individual_end + lines
        why = heap.room_for(taken * mates, "init") or ""
        self.agreement.agree_room(why)
        try:  # remote writes must never find the file system full
            heap.take(heap.individual_end, taken, "init")
        except HeapError as e:
            why = str(e)
        self.agreement.agree_room(why)
        return heap

    def _make_heap_segment(self, size: int) -> tuple[Segment, RemoteMemory | None]:
        mates = self.tree.node_size(self.node)
        segment = self.agreement.shared_segment(self.node_comm, size * mates)
        if self.tree.node_count == 1:
            return segment, None
        with self.blocking("all_alloc"):
            window = self.link.window(segment.address, size * mates)
        return segment, RemoteMemory(self, window, range(self.threads))

    @contextlib.contextmanager
    def _zone_lock(self) -> Iterator[None]:
        """The global zone's lock: a kernel lock on one node, a ticket lock across nodes."""
        if self.tree.node_count == 1:
            fd = self.control.segment.fd
            self.engine.wait_for(lambda: try_lock(fd, ZONE_BYTE), "the global zone's lock")
            try:
                yield
            finally:
                drop_lock(fd, ZONE_BYTE)
            return
        start = self.heap.individual_end
        with self.whole("the global zone", collective=False):
            ticket = self._fetch_add(start, 1)
            self.engine.wait_for(
                lambda: self._fetch_add(start + 8, 0) == ticket, "the global zone's lock"
            )
        try:
            yield
        finally:
            with self.whole("the global zone", collective=False):
                self._fetch_add(start + 8, 1)

    @property
    def heaps(self) -> Iterator[Heap]:
        """All of them."""
        yield self.heap
        for team in self.teams:
            yield team.heap

    def heap_at(self, offset: int) -> Heap:
        """The heap that an offset belongs to; ValueError if it is none that I know."""
        number = offset >> RANGE
        if not number:
            return self.heap
        for team in self.teams:
            if team.number == number:
                heap: Heap = team.heap
                return heap
        raise ValueError(f"offset {offset} is in the memory of a team that this thread is not in")

    def sync_windows(self) -> None:
        """Order my loads and stores with one-sided accesses to my memory."""
        for heap in self.heaps:
            for segment in heap.segments:
                if segment.remote is not None:
                    segment.remote.window.sync()

    def settle(self, thread: int) -> None:
        """Before memory of a thread of another node is accessed: see `TeamState.unsettled`."""
        for settling in self.unsettled(thread):
            what = f"an access to thread {thread}'s memory"
            self.engine.wait_for(settling.poll, what, threads=(thread,))

    def unsettled(self, thread: int) -> list[RemoteCompletion]:
        """The same, to be asked for."""
        return [s for team in self.spanning if (s := team.unsettled(thread)) is not None]

    def _fetch_add(self, offset: int, value: int) -> int:
        """Atomically add to a word of thread 0's memory; the value before."""
        remote, displacement = self.heap.displacement(0, offset)
        what = "an access to thread 0's memory"
        with self.engine.guarded(WaitState(self, None, what, (0,))):
            request, old = remote.window.fetch_add(0, displacement, value)
        self.engine.wait_for(request.Test, what, threads=(0,))
        return int.from_bytes(old, sys.byteorder, signed=True)

    def _ignore_signals(self) -> None:
        """Hydra tells survivors of a death by SIGUSR1, which would end them silently."""
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(ValueError, OSError):
                if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
                    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    # -- state -------------------------------------------------------------------------
    def check(self) -> None:
        """Raise if nothing can be called any more."""
        self.check_there()
        if self.broken is not None:
            raise XupcError(f"the job is broken: {self.broken}") from self.broken

    def check_there(self) -> None:
        """Raise if there is no job any more; a broken one knows who its threads are."""
        if os.getpid() != self.pid:
            raise NotInitializedError("a forked child cannot use its parent's xupc")
        if self.ended:
            raise NotInitializedError("xupc has been finalized; this is of an init() before that")

    def check_outside(self, call: str) -> None:
        """Raise if it is made by a function that a collective has called."""
        if self.in_function:
            raise XupcError(f"{call}: not allowed in a function that a collective calls")

    @property
    def in_function(self) -> bool:
        """Whether it is one of the user's, called by a collective, that asks."""
        return self.calling_out.by == threading.get_ident()

    def break_with(self, error: BaseException) -> None:
        """From now on nothing works; the program's end will not wait for anybody."""
        if self.broken is None:
            self.broken = error
        for team in self.pending:
            for posted in team.queue:
                posted.withdraw()
        invalidate()

    # -- posted calls ------------------------------------------------------------------
    def queued(self, team: Any) -> None:
        """A team's queue has become empty, or is so no more."""
        if team.queue and team not in self.pending:
            self.pending.append(team)
        elif not team.queue and team in self.pending:
            self.pending.remove(team)
        self._tell_teams()
        by_messages = team.spans_nodes or not self.native
        if self.pending and by_messages and self.network.threads_multiple:
            self.background.wake()

    def blocks(self, team: Any) -> bool:
        """Whether no call of a team may go straight to its instance."""
        return bool(self.pending) or team.notified is not None

    def _tell_teams(self) -> None:
        for team in (self.world, *self.teams):
            team.core.blocked = self.blocks(team)

    def serve(self, until: float) -> None:
        """Look for other nodes' one-sided accesses until then, whatever the program does."""
        if self.network.threads_multiple:
            self.background.serve(until)

    def progress(self, *, wait: bool = False) -> bool:
        """Move all queues on without waiting, except for a thread that is doing so, if asked to.

        A function of a posted call that waits does move those of the other teams on: what it
        waits for may be another thread in such a function. True if a call came to its end.
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

    def uses(self, allocation: Any = None, memory: Any = None) -> str:
        """The posted call that uses some memory and was not waited for, "" if none does.

        An allocation, or any of a heap.
        """
        for pending in list(self.unfinished):
            for a in pending.allocations:
                if a.memory is memory or (allocation is not None and a.same(allocation)):
                    return pending.call
        return ""

    # -- the end -----------------------------------------------------------------------
    def close(self) -> None:
        """After the last barrier: give everything back.

        The guards stay until all have done so. What comes then, MPI's own, can only be waited for.
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
        self.agreement.agree([0])  # of nothing, Open MPI would not wait
        guard.finished()
        with self._deadline("finalize") as deadline:
            deadline.stage("giving communicators back")
            self.network.free()
        guard.stop()
        self.ended = True

    @staticmethod
    def release(heap: Heap) -> None:
        """Blocking, all its threads together: no more remote accesses, no more memory taken."""
        for segment in heap.segments:
            if segment.remote is not None:
                segment.remote.window.free()
            segment.segment.close_fd()

    def end_job(self, status: int, error: BaseException | None = None) -> None:
        """End the whole job and this process without waiting for anybody, because of an error.

        Returns in init where MPI has not begun, or cannot be ended.
        """
        why = ""
        if error is not None:
            kind = type(error).__name__
            text = said(error)
            why = f"{kind}: {text}" if text else kind
        self.guard.end_job(status, why, ours=isinstance(error, XupcError))
