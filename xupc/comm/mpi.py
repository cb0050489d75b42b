"""MPI, and nothing but MPI: the only module that imports mpi4py.

Everything here is non-blocking and tested from `progress`; a wait is the engine's
business (one wait function).  Exceptions: communicator and window creation, which
MPI offers only in blocking form.

Tags: ``operation % 2048 * 8 + kind`` in the low 14 bits; kind 0 is data, 1-5 the
empty messages of signal channels, 6 barriers, 7 control messages. Where MPI's tags are
wide enough, bits of the call's fingerprint lie above: messages of calls that differ
never meet, so a mismatch cannot truncate or corrupt anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.native.native_core import core
from ..errors import XupcError, show

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "ABORT",
    "AGAIN",
    "BARRIER",
    "CONTROL",
    "DATA",
    "KINDS",
    "LOW_BITS",
    "RESYNC",
    "SIGNAL",
    "STALL",
    "TURNS",
    "Grid",
    "TeamComm",
    "MpiContext",
    "Window",
    "abort_all",
    "drop_files",
    "end_in",
    "end_mpi",
    "place_in_mpi",
    "start_mpi",
    "tag_of",
]

DATA, SIGNAL, BARRIER, CONTROL = 0, 1, 6, 7
KINDS, TURNS = 8, 2048
AGAIN = CONTROL  # control messages lie higher, so the plain number is free
LOW_BITS = 15
RESYNC = TURNS * KINDS  # added to CONTROL: accounts of a mismatch, and the verdict
STALL = RESYNC + TURNS * KINDS - 2
TYPES = 256  # datatypes that are kept
NEVER = 2  # the tag of no message to oneself
STEP_NS = 30_000  # a longer look at MPI, of processor time, has found something to do
STATUS = 64  # bytes that the core has for one: XM_STATUS
FUNCTIONS = ("MPI_Isend", "MPI_Irecv", "MPI_Testall", "MPI_Testsome", "MPI_Cancel")
ABORT = 4  # whole seconds for MPI to end the job
SHARED = "/dev/shm/"
FILES = ("mpich_shm_", "sm_segment.", "vader_segment.")  # MPICH's and Open MPI's in there


def tag_of(operation: int, kind: int) -> int:
    """The low bits of the tag of one operation's messages of a kind."""
    return operation % TURNS * KINDS + kind


class Grid(NamedTuple):
    """`rows` rows, `row_stride` bytes apart, of `columns` blocks, `stride` bytes apart."""

    address: int
    nbytes: int
    columns: int = 1
    stride: int = 0
    rows: int = 1
    row_stride: int = 0

    @classmethod
    def of(
        cls, address: int, nbytes: int, columns: int, stride: int, rows: int, row_stride: int
    ) -> Grid:
        """The same bytes in the same order as few large blocks: what is adjacent is one."""
        if stride == nbytes or columns == 1:
            nbytes, columns, stride = nbytes * columns, rows, row_stride
            rows, row_stride = 1, 0
            if stride == nbytes or columns == 1:
                nbytes, columns, stride = nbytes * columns, 1, 0
        elif rows == 1:
            row_stride = 0
        return cls(address, nbytes, columns, stride, rows, row_stride)

    @property
    def span(self) -> int:
        """Bytes from its first to its last. Strides are never negative: runs ascend."""
        return (self.rows - 1) * self.row_stride + (self.columns - 1) * self.stride + self.nbytes

    def each(self) -> Iterator[tuple[int, int]]:
        """(address, bytes) of the blocks."""
        for k in range(self.rows):
            for i in range(self.columns):
                yield self.address + k * self.row_stride + i * self.stride, self.nbytes


class MpiContext:
    """MPI as a whole: requests in flight, datatypes, and the link of all threads.

    Attributes
    ----------
    link
        All threads; `meeting` is another one of them, on which teams are opened.
    family
        ``"mpich"``, ``"openmpi"`` or ``"other"``.
    types_freed
        How many times a datatype that a `spec` may name was given back.
    worked
        Whether the last `progress` found that MPI had something to do, also for the program.
    """

    def __init__(self, comm: Any, wait: Callable[[Any], None]) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        source = MPI.COMM_WORLD if comm is None else comm
        self._check(source)
        self.version = MPI.Get_library_version().strip("\0\n ")
        self.family = _family(self.version)
        self.threads_multiple = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        wide = int(source.Get_attr(MPI.TAG_UB) or 32767)
        self.tag_bits = max(0, min(12, (wide + 1).bit_length() - 1 - LOW_BITS))
        self._requests: list[MPI.Request] = []
        # of each request; None: it is done, and stays in its place for a while
        self._whose: list[tuple[TeamComm | Window, Callable[[], None], bool] | None] = []
        self._open = 0
        self._testing = False  # requests are being looked at
        self._adrift: list[tuple[TeamComm, Any]] = []  # calls given up, with the core's messages
        self._types: dict[tuple[Grid, ...], MPI.Datatype] = {}
        self.types_freed = 0
        self.worked = False
        self._before_end: Callable[[], None] | None = None
        self._end_key = MPI.KEYVAL_INVALID
        self.link, self.meeting = (self._duplicate(source, wait) for _ in range(2))
        self._never = self._receive_nothing()
        self._in_core = False  # whether the core makes progress with it

    def _check(self, comm: Any) -> None:
        if not isinstance(comm, self.mpi.Intracomm):
            raise TypeError(f"init: comm: expected an mpi4py intracommunicator, got {show(comm)}")
        if comm == self.mpi.COMM_NULL:
            raise ValueError("init: comm: it is MPI.COMM_NULL")

    def _duplicate(self, comm: Any, wait: Callable[[Any], None]) -> TeamComm:
        copy, request = comm.Idup()
        wait(request)
        return TeamComm(self, copy)

    @cached_property
    def functions(self) -> tuple[int, ...] | None:
        """What the core needs to send messages itself, if it can be found.

        The addresses of the `FUNCTIONS` of the library that mpi4py has loaded, the handle of the
        type of a byte, and the bytes of a handle.
        """
        mpi = self.mpi
        try:
            library = ctypes.CDLL(mpi.__file__)
            found = [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in FUNCTIONS]
            sizes = {mpi._sizeof(kind) for kind in (mpi.Comm, mpi.Request, mpi.Datatype)}
            if len(sizes) > 1 or mpi._sizeof(mpi.Status) > STATUS:
                return None
            return *found, self.handle_of(mpi.BYTE), sizes.pop()
        except (OSError, AttributeError):
            return None

    def handle_of(self, thing: Any) -> int:
        """What MPI's C functions call a communicator or a datatype."""
        return int(self.mpi._handleof(thing))

    def before_end(self, act: Callable[[], None]) -> None:
        """Have something done when the program calls MPI_Finalize, before MPI ends.

        MPI deletes the attributes of COMM_SELF first of all in there, while all else works.
        """
        self._before_end = act
        self._end_key = self.mpi.Comm.Create_keyval(delete_fn=self._ends)
        self.mpi.COMM_SELF.Set_attr(self._end_key, None)

    def _ends(self, *_: object) -> None:
        act, self._before_end = self._before_end, None
        if act is not None:
            self._end_key = self.mpi.KEYVAL_INVALID  # it is being deleted
            act()

    def _forget_end(self) -> None:
        self._before_end = None
        if self._end_key != self.mpi.KEYVAL_INVALID:
            self.mpi.COMM_SELF.Delete_attr(self._end_key)
            self._end_key = self.mpi.Comm.Free_keyval(self._end_key)

    # -- requests ------------------------------------------------------------------
    def track(
        self,
        link: TeamComm | Window,
        request: Any,
        finished: Callable[[], None],
        receives: bool = False,
    ) -> None:
        """Call `finished` when a request of the link's is done; whether it `receives` a message.

        Whoever calls it holds the engine's lock: the progress thread tests requests, too.
        """
        requests, whose = [request], [(link, finished, receives)]
        self._requests += requests  # no finalizer and no handler can come between these lines
        self._whose += whose
        self._open += 1

    def _receive_nothing(self) -> Any:
        """Start a receive that no message ever meets, to be tested for the sake of MPI's progress.

        A probe would search all messages that the program has not received yet, each time.
        """
        comm, room = self.meeting.comm, bytearray(1)
        return comm.Irecv([room, 1, self.mpi.BYTE], comm.Get_rank(), NEVER)  # keeps the room

    def wait_with_progress(self, threads_per_core: float) -> None:
        """Have waits in the core make MPI's progress, at intervals that suit the machine.

        With a core for each thread an interval is an eighth of the wait so far, from 20 us
        to 1 ms. With fewer cores a look takes time from a thread that computes:
        intervals double from 200 us on, up to 1 ms for each thread that shares a core.
        """
        self._in_core = core is not None and self.functions is not None
        if not self._in_core:
            return
        crowded = threads_per_core > 1
        policy = (20_000, 1_000_000, 8)
        if crowded:
            policy = (200_000, int(1_000_000 * threads_per_core), 1)
        any_thread = self.mpi.Query_thread() >= self.mpi.THREAD_SERIALIZED
        request = self.handle_of(self._never)
        core.make_progress(self.functions, request, any_thread, *policy, crowded)

    def enter(self) -> bool:
        """Make one step of MPI's progress; whether MPI had something to do.

        Any thread may at any time, if MPI allows several.
        """
        if self._in_core:
            return bool(core.step_of_progress())
        began = time.thread_time_ns()
        self._never.Test()
        return time.thread_time_ns() - began > STEP_NS

    def progress(self) -> bool:
        """Test everything in flight once; True if something finished.

        Without anything in flight it still makes MPI's progress, for the one-sided accesses of
        other threads and for the program's own messages.
        """
        for _, instance in self._adrift:
            instance.look()
        if not self._requests:
            self.worked = self.enter()
            return False
        began = time.thread_time_ns()
        finished = self._test()
        self.worked = time.thread_time_ns() - began > STEP_NS
        for call in finished:
            call()
        return bool(finished)

    def _test(self) -> list[Callable[[], None]]:
        """Test everything in flight; what to call, since it is done."""
        within, self._testing = self._testing, True
        try:
            return self._finished(within)
        finally:
            self._testing = within

    def _finished(self, within: bool) -> list[Callable[[], None]]:
        """What to call; `within` another such look, from a finalizer or a signal's handler."""
        whose, finished = self._whose, []
        for i in self.mpi.Request.Testsome(self._requests) or ():
            if (entry := whose[i]) is not None:
                finished.append(entry[1])
                whose[i] = None
        self._open -= len(finished)
        # rarely, so that each request is moved once or twice, and not while places are in use
        if finished and not within and 2 * self._open <= len(whose):
            open_ones = [i for i, entry in enumerate(whose) if entry is not None]
            self._requests = [self._requests[i] for i in open_ones]
            self._whose = [whose[i] for i in open_ones]
        return finished

    def all_done(self, requests: list[Any]) -> bool:
        """Test some requests of one's own together."""
        return bool(self.mpi.Request.Testall(requests))

    def forget(self, link: TeamComm, instance: Any) -> None:
        """Wait for nothing of a link's that is in flight any more (after a mismatch).

        `instance`: the call, which may have messages of its own.

        Memory is written and read until `quiet` all the same: only messages that have not met
        their receiver yet can be called off there. Whoever sent them has them taken by `discard`.
        """
        if instance.open:
            instance.call_off()
            self._adrift.append((link, instance))
        for i, entry in enumerate(self._whose):
            if entry is not None and entry[0] is link:
                receives = entry[2]
                self._whose[i] = link, partial(_nothing, entry[1]), receives
                if receives:
                    self._requests[i].Cancel()

    def quiet(self, link: TeamComm) -> bool:
        """Whether nothing of a link's is in flight."""
        self._adrift = [(of, instance) for of, instance in self._adrift if instance.open]
        here = [of for of, _ in self._adrift] + [entry[0] for entry in self._whose if entry]
        return all(of is not link for of in here)

    # -- datatypes -----------------------------------------------------------------
    def spec(self, grids: Sequence[Grid], shift: int = 0) -> list[Any]:
        """A buffer description: all blocks of the grids, `shift` bytes further on."""
        address, span, n, datatype = self.shape(grids)
        return [self.mpi.buffer.fromaddress(address + shift, span), n, datatype]

    def shape(self, grids: Sequence[Grid]) -> tuple[int, int, int, MPI.Datatype]:
        """(address, bytes from the first to the last, how many, of what type) of all blocks."""
        first = grids[0]
        if len(grids) == 1 and first.columns == 1:
            return first.address, first.nbytes, first.nbytes, self.mpi.BYTE
        low = min(grid.address for grid in grids)
        key = tuple([grid._replace(address=grid.address - low) for grid in grids])
        datatype = self._types.pop(key, None)
        if datatype is None:
            if len(self._types) >= TYPES:
                self._types.pop(next(iter(self._types))).Free()
                self.types_freed += 1
                if core is not None:
                    core.type_freed()
            datatype = self._datatype(key)
        self._types[key] = datatype  # the last of them: the first is the next to go
        return low, max(grid.address + grid.span for grid in key), 1, datatype

    def _datatype(self, grids: Sequence[Grid]) -> MPI.Datatype:
        """The blocks of the grids, whose addresses are counted from the buffer's."""
        byte = self.mpi.BYTE
        if all(grid.columns == 1 for grid in grids):
            sizes, places = [g.nbytes for g in grids], [g.address for g in grids]
            return byte.Create_hindexed(sizes, places).Commit()
        parts = []
        for grid in grids:
            part = byte.Create_hvector(grid.columns, grid.nbytes, grid.stride)
            if grid.rows > 1:
                row, part = part, part.Create_hvector(grid.rows, 1, grid.row_stride)
                row.Free()
            parts.append(part)
        if len(grids) == 1:
            return parts[0].Commit()
        places = [grid.address for grid in grids]
        whole = self.mpi.Datatype.Create_struct([1] * len(parts), places, parts).Commit()
        for part in parts:
            part.Free()
        return whole

    def free(self) -> None:
        """Blocking: give types and communicators back."""
        if self._in_core:
            core.no_progress()
        self._in_core = False
        self._never.Cancel()
        self._never.Wait()
        self._forget_end()
        for datatype in self._types.values():
            datatype.Free()
        self._types.clear()
        self.link.free()
        self.meeting.free()


def _nothing(_keeps: object) -> None:
    """What is to be done when a request is done that nobody waits for: let its memory go."""


class TeamComm:
    """A communicator of our own for the threads of a team: messages among them, by rank.

    Attributes
    ----------
    rank, size
        Mine, and how many.
    early
        Messages that were looked at before somebody expects them, by sender and tag.
    """

    def __init__(self, network: MpiContext, comm: MPI.Intracomm) -> None:
        self.network = network
        self.mpi = network.mpi
        self.comm = comm
        self.wire: Any = None  # the core's, of the team that has this link
        comm.Set_errhandler(self.mpi.ERRORS_RETURN)
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.early: dict[tuple[int, int], bytes] = {}
        self._rooms: dict[int, bytearray] = {}

    def among(self, ranks: Sequence[int]) -> TeamComm:
        """Blocking, for these ranks alone: a link of their own."""
        everybody = self.comm.Get_group()
        group = everybody.Incl(list(ranks))
        link = TeamComm(self.network, self.comm.Create_group(group))
        group.Free()
        everybody.Free()
        return link

    def track(
        self, request: Any, finished: Callable[[], None], *, receives: bool = False
    ) -> None:
        """Call `finished` when a request is done; whether it `receives` a message."""
        self.network.track(self, request, finished, receives)

    # -- messages ----------------------------------------------------------------------
    def discard(self) -> None:
        """Take every message but accounts of a mismatch, and forget it.

        For the time in which all threads have given up one call and none has begun
        another. Tags come again after 2048 operations; a message that stayed would be
        taken for one of a later call then.
        """
        status = self.mpi.Status()
        while self.comm.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
            low = status.Get_tag() & ((1 << LOW_BITS) - 1)
            if low >= RESYNC and low != STALL:
                return
            message = self.comm.Mprobe(status.Get_source(), status.Get_tag(), status)
            room = bytearray(status.Get_count(self.mpi.BYTE))
            request = message.Irecv([room, len(room), self.mpi.BYTE])  # which keeps the room
            self.track(request, lambda: None)
        self.early.clear()

    def call_tag(self, operation: int, kind: int, fingerprint: int) -> int:
        """The tag of a call's own messages."""
        high = fingerprint & ((1 << self.network.tag_bits) - 1)
        return high << LOW_BITS | tag_of(operation, kind)

    def peek(self, of: int, tag: int) -> bytes | None:
        """A small message that somebody will `expect` later, if it is there already."""
        key = (of, tag)
        if key not in self.early:
            data = self.take(of, tag)
            if data is None:
                return None
            self.early[key] = data
            if self.wire is not None:
                self.wire.look_out()
        return self.early[key]

    def send(self, to: int, tag: int, memory: list[Any]) -> Any:
        """Start a message of the memory that a `MpiContext.spec` describes."""
        return self.comm.Isend(memory, to, tag)

    def recv(self, of: int, tag: int, memory: list[Any]) -> Any:
        """Start taking a message into the memory that a `MpiContext.spec` describes."""
        return self.comm.Irecv(memory, of, tag)

    def send_bytes(self, to: int, tag: int, data: bytes) -> Any:
        """Start a small message; the request keeps the bytes."""
        return self.comm.Isend([data, len(data), self.mpi.BYTE], to, tag)

    def recv_into(self, of: int, tag: int, buffer: bytearray) -> Any:
        """Start taking a small message of at most the buffer's size."""
        return self.comm.Irecv([buffer, len(buffer), self.mpi.BYTE], of, tag)

    def room(self, of: int, nbytes: int) -> bytearray:
        """A buffer for the messages of one thread that come one after the other."""
        buffer = self._rooms.get(of)
        if buffer is None or len(buffer) < nbytes:
            buffer = self._rooms[of] = bytearray(nbytes)
        return buffer

    def take(self, of: int, tag: int) -> bytes | None:
        """A small message of unknown size if one is there."""
        status = self.mpi.Status()
        message = self.comm.Improbe(of, tag, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(self.mpi.BYTE))
        message.Recv([data, len(data), self.mpi.BYTE])
        return bytes(data)

    def take_any(self, tag: int) -> tuple[int, bytes] | None:
        """A small message from anybody: (sender, bytes)."""
        status = self.mpi.Status()
        message = self.comm.Improbe(self.mpi.ANY_SOURCE, tag, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(self.mpi.BYTE))
        message.Recv([data, len(data), self.mpi.BYTE])
        return status.Get_source(), bytes(data)

    # -- rare calls ------------------------------------------------------------------
    def split(self, color: int) -> Any:
        """Blocking split: a communicator for rare calls."""
        return self.comm.Split(color, self.rank)

    def window(self, address: int, nbytes: int) -> Window:
        """Blocking: expose my node's mapping of a segment to the others."""
        memory = self.mpi.buffer.fromaddress(address, nbytes)
        win = self.mpi.Win.Create(memory, 1, self.mpi.INFO_NULL, self.comm)
        win.Set_errhandler(self.mpi.ERRORS_RETURN)
        win.Lock_all(self.mpi.MODE_NOCHECK)
        return Window(self, win)

    def free(self) -> None:
        """Blocking: all its threads together."""
        self.comm.Free()


class Window:
    """One-sided access to a segment on every thread of a link."""

    def __init__(self, link: TeamComm, win: Any) -> None:
        self.link = link
        self.network = link.network
        self.win = win

    def get(
        self, target: int, displacement: int, address: int, nbytes: int, count: int = 1,
        stride: int = 0, far_stride: int = 0,
    ) -> Any:
        """Start reading `count` blocks, so many bytes apart here and there."""
        here = self.network.spec([Grid.of(address, nbytes, count, stride, 1, 0)])
        _, n, datatype = self.network.spec([Grid.of(address, nbytes, count, far_stride, 1, 0)])
        return self.win.Rget(here, target, [displacement, n, datatype])

    def put(self, target: int, displacement: int, address: int, nbytes: int) -> tuple[Any, Any]:
        """Start writing; the request is done when the bytes are there.

        As a get-accumulate that replaces: its answer comes after the write at the
        target, so no blocking flush is needed.
        """
        mpi = self.network.mpi
        old = bytearray(nbytes)
        spec = [mpi.buffer.fromaddress(address, nbytes), nbytes, mpi.BYTE]
        where = [displacement, nbytes, mpi.BYTE]
        request = self.win.Rget_accumulate(
            spec, [old, nbytes, mpi.BYTE], target, where, op=mpi.REPLACE
        )
        return request, old

    def fetch_add(self, target: int, displacement: int, value: int) -> tuple[Any, bytearray]:
        """Start adding to an int64 atomically; the old value arrives in the buffer."""
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

    def track(self, request: Any, finished: Callable[[], None]) -> None:
        """Call `finished` when an access is done, whatever becomes of the link's calls."""
        self.network.track(self, request, finished)

    def sync(self) -> None:
        """Order my loads and stores with one-sided accesses to my memory."""
        self.win.Sync()

    def free(self) -> None:
        """Blocking: all threads together."""
        self.win.Unlock_all()
        self.win.Free()


_started_in = 0  # the process in which MPI was started here, not by the program or mpi4py


def start_mpi() -> None:
    """Load mpi4py, which starts MPI; blocking, without a limit, and it keeps the interpreter.

    Where ``mpi4py.rc.initialize`` keeps it from that, and the program has not done so, it is
    started here, as ``mpi4py.rc`` says otherwise; `end_mpi` is for this case.
    """
    global _started_in
    if "mpi4py.MPI" not in sys.modules and not os.path.isdir("/sys/class/infiniband"):
        # Open MPI's UCX windows complain on stdout where there is no such device
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    from mpi4py import MPI, rc

    if MPI.Is_finalized():
        raise XupcError(
            "init: MPI has been finalized in this process and cannot be started again: call "
            "MPI.Finalize() after the last use of xupc, or leave it to the end of the program"
        )
    if not MPI.Is_initialized():
        level = f"THREAD_{rc.thread_level.upper()}" if rc.threads else "THREAD_SINGLE"
        MPI.Init_thread(getattr(MPI, level))
        _started_in = os.getpid()


def end_mpi() -> None:
    """Finalize MPI at the end of the program if it was started here; blocking."""
    if _started_in != os.getpid():
        return
    from mpi4py import MPI, rc

    if rc.finalize is not False and not MPI.Is_finalized():
        MPI.Finalize()


def place_in_mpi() -> tuple[int, int]:
    """(rank, size) among all of MPI's processes; (0, 1) where MPI has not begun or is over."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return 0, 1
    return module.COMM_WORLD.Get_rank(), module.COMM_WORLD.Get_size()


def abort_all(status: int) -> None:
    """End all of MPI's processes, if MPI runs and I am not the only one.

    On the world: on another communicator, a copy of it too, MPICH 5.0.2's abort does not come back
    and its launcher hears nothing of it.
    """
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        end_in(ABORT)
        MPI.COMM_WORLD.Abort(status)


def end_in(seconds: int) -> None:
    """This process ends by then, whatever becomes of MPI's abort."""
    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def drop_files() -> None:
    """Remove the files in shared memory that MPI itself would only remove in MPI_Finalize.

    For a job that ends otherwise; what this process has mapped of them is its own to remove, and
    stays mapped.
    """
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        found = {line[line.index(SHARED) :].rstrip() for line in maps if SHARED in line}
        for file in found:
            if file.removeprefix(SHARED).startswith(FILES):
                with contextlib.suppress(OSError):
                    os.unlink(file)


def _family(version: str) -> str:
    text = version.lower()
    if "mpich" in text:
        return "mpich"
    return "openmpi" if "open mpi" in text else "other"
