"""The job on this thread: start-up, what is watched while waiting, and the end.

Start-up, in order: duplicate the communicator; group threads into machines by host
record and proof (DESIGN 5); split into nodes; agree on the engine; map the machine's
control segment and take my lock in it; make the heap.

Watching (`Job.watch`, from every wait, and once a second from a daemon thread so that
a thread that only computes does not outlive the others): locks that became free
(death), notices of deaths from other nodes, a launcher that is gone, the deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import (
    DeadThreadError,
    HangError,
    HeapError,
    NotInitializedError,
    XupcError,
)
from ..memory.global_zone import TABLE_BYTES, GlobalZone
from ..memory.heap import Heap
from ..memory.segment import (
    Segment,
    attach,
    cgroup_folders,
    create,
    drop_lock,
    free_space,
    shm_dir,
    sweep_stale,
    try_lock,
)
from ..topology import HostRecord, Tree, diagnose, parse_nodes, read_host_record
from .control import Control, control_bytes
from .live import Engine, Waiting
from .mpi import CONTROL, NOTICE, Network, Window
from .native_core import core, invalidate
from .reports import Record, Verdict, compare

__all__ = ["Job", "Settings"]

RESYNC = 2048 * 8
WARN_AFTER = 60.0
GRACE = 1.5
ZONE_BYTE = 1 << 40
DEFAULT_HEAP = 4 << 20


def _affinity() -> set[int]:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _cpu_limit() -> int | None:
    """Whole cores that the cgroup grants, None without a limit."""
    for folder in cgroup_folders():
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                return max(1, int(quota) // int(period))
    return None


class Settings:
    """What `init` was given, environment included."""

    def __init__(
        self, heap_size: int | None, nodes: str | None, timeout: float | None, explicit: bool
    ) -> None:
        self.heap_size = heap_size or DEFAULT_HEAP
        self.explicit_heap = heap_size is not None
        self.nodes = nodes
        self.timeout = timeout
        self.explicit = explicit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.heap_size, self.nodes, self.timeout))


class RemoteMemory:
    """One-sided access to a heap segment, waited for by the engine."""

    def __init__(self, job: Job, window: Window) -> None:
        self.job = job
        self.window = window

    def get(self, thread: int, displacement: int, out: NDArray[np.uint8]) -> None:
        """Read contiguous bytes."""
        self._pieces(thread, displacement, out, self._get)

    def put(self, thread: int, displacement: int, data: NDArray[np.uint8]) -> None:
        """Write contiguous bytes; they are there on return."""
        self._pieces(thread, displacement, data, self._put)

    def _pieces(self, thread: int, displacement: int, array: Any, start: Any) -> None:
        piece = self.job.tuning["get_piece"]
        address = array.__array_interface__["data"][0]
        left = [0]
        for at in range(0, array.nbytes, piece):
            left[0] += 1
            start(thread, displacement + at, address + at, min(piece, array.nbytes - at), left)
            if left[0] >= self.job.tuning["window"]:
                self.job.engine.wait_for(lambda: left[0] < self.job.tuning["window"], "memory")
        self.job.engine.wait_for(lambda: not left[0], f"thread {thread}'s memory")

    def _get(self, thread: int, displacement: int, address: int, n: int, left: list[int]) -> None:
        def finished() -> None:
            left[0] -= 1

        self.job.network.track(self.window.get(thread, displacement, address, n), finished)

    def _put(self, thread: int, displacement: int, address: int, n: int, left: list[int]) -> None:
        request, old = self.window.put(thread, displacement, address, n)

        def finished(_old: object = old) -> None:
            left[0] -= 1

        self.job.network.track(request, finished)


class Job:
    """Everything of this thread's side of the job.

    Attributes
    ----------
    tree
        Of all threads.
    native
        Whether the native core runs the plans (agreed by all threads).
    """

    def __init__(self, comm: Any, settings: Settings) -> None:
        self.settings = settings
        self.timeout = settings.timeout
        self.broken: BaseException | None = None
        self.pid = os.getpid()
        self.parent = os.getppid()
        self.tuning: dict[str, int] = {}
        self.team: Any = None
        self.host = socket.gethostname()
        sweep_stale()
        self.network = Network(comm)
        self.me, self.threads = self.network.rank, self.network.size
        self.machine, self.warnings = self._find_machine()
        self.tree = self._find_tree()
        self.node = self.tree.node_of(self.me)
        self.native = self._agree_engine()
        self.control = self._map_control()
        self.engine = Engine(self)
        self.node_comm = self.network.split(self.node)
        self.heap = self._make_heap()
        self.global_zone = GlobalZone(self.heap, self._zone_lock)
        self.settings_comm = comm
        self._ignore_signals()
        self._watcher = threading.Thread(target=self._watch_always, daemon=True)
        self._stop = threading.Event()
        self._watcher.start()

    # -- start-up ----------------------------------------------------------------------
    def _find_machine(self) -> tuple[list[int], list[str]]:
        """Threads that proved to share memory with me, and what is odd about host ids."""
        record = read_host_record(shm_dir())
        group = self.network.split(record.digest() & 0x3FFFFFFF)
        rows = group.allgather((self.me, record.pack()))
        alike = [rank for rank, packed in rows if packed == record.pack()]
        color = next(i for i, (_, packed) in enumerate(rows) if packed == record.pack())
        candidates = group.Split(color, self.me)
        machine = self._prove(candidates, alike)
        group.Free()
        odd = self._odd_records(record, machine)
        return machine, odd

    def _prove(self, comm: Any, ranks: list[int]) -> list[int]:
        """Map the lowest candidate's nonce; those who cannot try again among themselves."""
        while True:
            proven, segment = self._prove_once(comm)
            together = [rank for rank, ok in zip(ranks, comm.allgather(proven), strict=True) if ok]
            if segment is not None:
                segment.settle()
                segment.close_fd()
            others = [rank for rank in ranks if rank not in together]
            rest = comm.Split(0 if proven else 1, self.me)
            comm.Free()
            if proven:
                rest.Free()
                return together
            comm, ranks = rest, others

    def _prove_once(self, comm: Any) -> tuple[bool, Segment | None]:
        nonce = secrets.token_bytes(16)
        segment: Segment | None = None
        offer: tuple[str, bytes] | None = None
        if comm.Get_rank() == 0:
            segment = create(4096)
            segment.map[:16] = nonce
            offer = (segment.path, nonce)
        path, nonce = comm.bcast(offer)
        if segment is not None:
            comm.Barrier()
            return True, segment
        proven = False
        # a peer out of reach, or another file under the same name: not my machine
        with contextlib.suppress(OSError, ValueError):
            segment = attach(path, 4096)
            proven = segment.map[:16] == nonce
        comm.Barrier()
        return proven, segment

    def _odd_records(self, record: HostRecord, machine: list[int]) -> list[str]:
        """Warnings about gethostid, from one record per machine (thread 0 gets them)."""
        mine = record.pack() if machine[0] == self.me else None
        rows = self.network.comm.gather(mine)
        if rows is None:
            return []
        return diagnose([HostRecord.unpack(row) for row in rows if row is not None])

    def _find_tree(self) -> Tree:
        """The node tree: machines, split as ``nodes`` asks."""
        of = np.empty(self.threads, np.int32)
        self.network.comm.Allgather(np.array([self.machine[0]], np.int32), of)
        if self.settings.nodes:
            wish = parse_nodes(self.settings.nodes, self.threads)
            return Tree(of.astype(np.int64) * self.threads + wish)
        return Tree(of)

    def _agree_engine(self) -> bool:
        wish = core is not None and os.environ.get("XUPC_ENGINE", "native") != "python"
        return bool(self.network.comm.allreduce(int(wish), op=self.network.mpi.MIN))

    def _map_control(self) -> Control:
        """The machine's control segment: made by its lowest thread, mapped by all."""
        mates = len(self.machine)
        index = self.machine.index(self.me)
        comm = self.network.split(self.machine[0])
        cores = set().union(*comm.allgather(_affinity()))
        self.cores = min(len(cores), _cpu_limit() or len(cores))
        self.oversubscribed = mates > self.cores
        nodes = sorted({self.tree.node_of(t) for t in self.machine})
        sizes = [self._sync_bytes(self.tree.node_size(n)) for n in nodes]
        total = control_bytes(mates, sum(sizes))
        segment = self._shared_segment(comm, total, whole=True)
        control = Control(segment, index, mates)
        control.introduce(self.me, self.host)
        start = control.sync_start + sum(sizes[: nodes.index(self.node)])
        self.sync_address = segment.address + start
        comm.Barrier()
        comm.Free()
        return control

    def _sync_bytes(self, n: int) -> int:
        return int(core.sync_bytes(n)) if core is not None else 0

    def _shared_segment(self, comm: Any, nbytes: int, *, whole: bool = False) -> Segment:
        """Collective over `comm`: its first thread makes a segment, all map it.

        `whole`: take all its pages now. HeapError on every thread if it cannot be.
        """
        segment: Segment | None = None
        offer: tuple[str, str] = ("", "")
        if comm.Get_rank() == 0:
            try:
                if whole and nbytes > free_space():
                    raise HeapError(
                        f"init: {nbytes} bytes for the control segment do not fit: "
                        f"{free_space()} bytes are free in {shm_dir()}"
                    )
                segment = create(nbytes)
                if whole:
                    segment.reserve(0, nbytes)
                offer = (segment.path, "")
            except HeapError as e:
                offer = ("", str(e))
        path, why = comm.bcast(offer)
        self._agree_heap(why)
        if segment is None:
            segment = attach(path, nbytes)
        comm.Barrier()
        segment.settle()
        return segment

    def _agree_heap(self, why: str) -> None:
        """HeapError on every thread if any has a reason (start-up and growth only)."""
        mine = self.me if why else self.threads
        worst = self.network.comm.allreduce(mine, op=self.network.mpi.MIN)
        if worst < self.threads:
            why = self.network.comm.bcast(why if why else None, root=worst) or why
            raise HeapError(f"{why} (thread {worst})")

    def _make_heap(self) -> Heap:
        size = self.settings.heap_size
        mates = self.tree.node_size(self.node)
        why = ""
        if self.settings.explicit_heap and size * mates > free_space():
            why = (
                f"init: heap_size: {size} bytes for each of {mates} threads on this node do not "
                f"fit: {free_space()} bytes are free in {shm_dir()}"
            )
        self._agree_heap(why)
        zone = max(size // 4, 4 * TABLE_BYTES)
        heap = Heap(self.tree, self.me, self._make_heap_segment, size, zone, size)
        why = heap.room_for((heap.global_end - heap.individual_end) * mates, "init") or ""
        self._agree_heap(why)
        try:  # remote writes must never find the file system full
            heap.take(heap.individual_end, heap.global_end - heap.individual_end, "init")
        except HeapError as e:
            why = str(e)
        self._agree_heap(why)
        return heap

    def _make_heap_segment(self, size: int) -> tuple[Segment, RemoteMemory | None]:
        mates = self.tree.node_size(self.node)
        segment = self._shared_segment(self.node_comm, size * mates)
        if self.tree.node_count == 1:
            return segment, None
        window = self.network.window(segment.address, size * mates)
        return segment, RemoteMemory(self, window)

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
        ticket = self._fetch_add(start, 1)
        self.engine.wait_for(
            lambda: self._fetch_add(start + 8, 0) == ticket, "the global zone's lock"
        )
        try:
            yield
        finally:
            self._fetch_add(start + 8, 1)

    def _fetch_add(self, offset: int, value: int) -> int:
        """Atomically add to a word of thread 0's memory; the value before."""
        remote, displacement = self.heap.displacement(0, offset)
        request, old = remote.window.fetch_add(0, displacement, value)
        self.engine.wait_for(lambda: bool(request.Test()), "thread 0's memory")
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
        if os.getpid() != self.pid:
            raise NotInitializedError("a forked child cannot use its parent's xupc")
        if self.broken is not None:
            raise XupcError(f"the job is broken: {self.broken}") from self.broken

    def break_with(self, error: BaseException) -> None:
        """From now on nothing works; the program's end will not wait for anybody."""
        if self.broken is None:
            self.broken = error
        invalidate()

    def interrupted(self, instance: Any) -> None:
        """A KeyboardInterrupt inside a call: no half call is ever resumed."""
        what = instance.record.call if instance is not None else "a wait"
        self.break_with(
            XupcError(f"thread {self.me} was interrupted inside {what}; the team is unusable")
        )

    # -- watching ----------------------------------------------------------------------
    def watch(self, waiting: Waiting) -> None:
        """Called from every wait every 50 ms."""
        dead = self.control.dead()
        if dead:
            self._dead([self._describe(i) for i in dead])
        if self.tree.node_count > 1:
            self._read_notices()
        waited = (time.monotonic_ns() - waiting.since) * 1e-9
        if self.timeout is not None and waited > self.timeout:
            error = HangError(self._hang_text(waiting, waited))
            self.break_with(error)
            raise error
        if self.timeout is None and waited > WARN_AFTER and not getattr(waiting, "warned", False):
            waiting.warned = True  # type: ignore[attr-defined]
            warnings.warn(self._hang_text(waiting, waited), RuntimeWarning, stacklevel=2)

    def _describe(self, index: int) -> str:
        pid, thread, host = self.control.who(index)
        return f"thread {thread} (host {host}, pid {pid}) died {self.control.doing(index)}"

    def _dead(self, texts: list[str]) -> None:
        error = DeadThreadError("; ".join(texts))
        first = self.broken is None
        self.break_with(error)
        if first:
            self._send_notices(str(error))
        raise error

    def _send_notices(self, text: str) -> None:
        """Tell the other nodes' roots, and mine theirs; nobody waits for an answer."""
        data = text.encode()
        targets = [int(t) for t in self.tree.node_roots if t not in self.machine]
        with contextlib.suppress(Exception):
            self._notices = [self.network.send_bytes(t, NOTICE, data) for t in targets]
            self._notices += [
                self.network.send_bytes(int(t), NOTICE, data)
                for root in targets
                for t in self.tree.members(self.tree.node_of(root))
                if t != root
            ]
            self.network.progress()

    def _read_notices(self) -> None:
        notice = self.network.take_any(NOTICE)
        if notice is not None:
            error = DeadThreadError(f"{notice[1].decode()} (told by thread {notice[0]})")
            self.break_with(error)
            raise error

    def _hang_text(self, waiting: Waiting, waited: float) -> str:
        instance = waiting.instance
        what = instance.record.call if instance is not None else waiting.what
        lines = [f"thread {self.me} (host {self.host}) has waited {waited:.1f} s in {what}"]
        missing = self._missing(instance)
        if missing:
            lines.append("not there: " + "; ".join(missing))
        return "; ".join(lines)

    def _missing(self, instance: Any) -> list[str]:
        """Who has not come to this call, as far as it can be seen from here."""
        if instance is None:
            return []
        out = []
        for i in range(self.control.threads):
            if i == self.control.index or self.control.operation_of(i) >= instance.op:
                continue
            pid, thread, host = self.control.who(i)
            out.append(f"thread {thread} (host {host}, pid {pid}) is {self.control.doing(i)}")
        net = instance.net
        if net is not None and net.barrier is not None:
            for thread in net.barrier.missing:
                if thread not in self.machine:
                    node = self.tree.node_of(thread)
                    mates = ",".join(map(str, self.tree.members(node)))
                    out.append(f"no word from node {node} (threads {mates})")
        return out

    def _watch_always(self) -> None:
        """The daemon thread: deaths and a lost launcher while this thread computes."""
        launched = self.threads > 1
        while not self._stop.wait(1.0):
            if launched and os.getppid() != self.parent:
                self._end_now("the launcher of the job is gone")
            dead = self.control.dead()
            if dead and not self._stop.wait(GRACE):
                text = "; ".join(self._describe(i) for i in dead)
                self._end_now(f"DeadThreadError: {text}" if self.broken is None else "")

    def _end_now(self, why: str) -> None:
        """Print and end this process at once."""
        if why:
            sys.stderr.write(f"xupc: thread {self.me}: {why}\n")
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)

    # -- mismatch ----------------------------------------------------------------------
    def mismatch(self, instance: Any) -> None:
        """All threads come here together: exchange records, name the odd ones, go on.

        Raises CollectiveMismatchError, or what the odd thread itself did wrong.
        """
        team = instance.owner
        self.network.forget()
        team.give_up(instance)
        verdict = self._resync(team, instance)
        instance.end()
        error = verdict.error_for(team.rank, instance.record)
        raise error

    def _resync(self, team: Any, instance: Any) -> Any:
        """Everybody's record to the team's first thread, the verdict back to all."""
        core_team = instance.team
        record: Record = instance.record
        mine = json.dumps({"record": record.as_data(), "op": core_team.op}).encode()
        tag = team.tag(core_team.epoch, CONTROL) + RESYNC
        first = team.thread(0)
        if team.rank == 0:
            rows = {0: mine}
            self._collect(team, tag, rows)
            data = [json.loads(rows[r]) for r in range(team.size)]
            answer = json.dumps(
                {
                    "verdict": compare([Record.from_data(d["record"]) for d in data]),
                    "op": max(d["op"] for d in data),
                }
            ).encode()
            sends = [
                self.network.send_bytes(team.thread(r), tag, answer) for r in range(1, team.size)
            ]
            self.engine.wait_for(lambda: all(bool(s.Test()) for s in sends), "the team's resync")
        else:
            send = self.network.send_bytes(first, tag, mine)
            got: list[bytes] = []

            def arrived() -> bool:
                data = None if got else self.network.take(first, tag)
                if data is not None:
                    got.append(data)
                sent: bool = send.Test()
                return sent and bool(got)

            self.engine.wait_for(arrived, f"the verdict of thread {first} on {record.call}")
            answer = got[0]
        result = json.loads(answer)
        core_team.restart(result["op"], core_team.epoch)
        return Verdict(result["verdict"])

    def _collect(self, team: Any, tag: int, rows: dict[int, bytes]) -> None:
        def arrived() -> bool:
            for rank in range(1, team.size):
                if rank not in rows:
                    data = self.network.take(team.thread(rank), tag)
                    if data is not None:
                        rows[rank] = data
            return len(rows) == int(team.size)

        self.engine.wait_for(arrived, "the other threads' accounts of a mismatch")

    # -- agreement (rare calls) ---------------------------------------------------------
    def agree(self, values: list[int]) -> list[int]:
        """Element-wise maximum over all threads, as a barrier of its own."""
        mine = np.array(values, np.int64)
        out = np.empty_like(mine)
        request = self.network.comm.Iallreduce(mine, out, self.network.mpi.MAX)
        self.engine.wait_for(lambda: bool(request.Test()), "all threads' agreement")
        return [int(v) for v in out]

    # -- the end -----------------------------------------------------------------------
    def close(self) -> None:
        """After the last barrier: give everything back."""
        self._stop.set()
        self.heap.close()
        invalidate()
        for segment in self.heap.segments:
            if segment.remote is not None:
                segment.remote.window.free()
            segment.segment.close_fd()
        self.node_comm.Free()
        self.network.free()

    def end_job(self, status: int = 1) -> None:
        """Never waits for others: end the whole job."""
        self._stop.set()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        threading.Timer(2.0, os._exit, (status,)).start()
        with contextlib.suppress(Exception):
            self.network.abort(status)
        os._exit(status)


