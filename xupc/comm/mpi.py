"""MPI in this process: its start, its progress and its end. The only module that imports mpi4py.

All operations are non-blocking, and `MpiContext.progress` tests them; the executor waits. The
exceptions are communicators and windows, which MPI creates only in blocking calls. Messages,
datatypes, requests and tags are in the modules beside this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..backends.native.native_core import core
from ..backends.protocol import Instance
from ..errors import XupcError, show
from .datatypes import Datatypes, Grid
from .held_by_mpi import HeldByMPI
from .mpi_settings import prepare_start
from .requests import Requests
from .tags import (
    LOW_BITS,
)
from .team_comm import TeamComm

if TYPE_CHECKING:
    from mpi4py import MPI

    from .mpi_types import BufferSpec

__all__ = [
    "ABORT",
    "STEP_NS",
    "MpiContext",
    "abort_all",
    "drop_files",
    "end_in",
    "end_mpi",
    "start_mpi",
]

NEVER = 2  # a tag that no message of a thread to itself has
CATCH_UP = 16  # steps of MPI's progress in Python: each takes one message
STEP_NS = 30_000  # ns of processor time: a longer step of MPI's progress has done something
STATUS = 64  # bytes that the core has for an MPI_Status: XM_STATUS
FUNCTIONS = ("MPI_Isend", "MPI_Irecv", "MPI_Testall", "MPI_Testsome", "MPI_Cancel")
ABORT = 4  # whole seconds for MPI to end the job
SHARED = "/dev/shm/"
FILES = ("mpich_shm_", "sm_segment.", "vader_segment.")  # MPICH's and Open MPI's in there


class MpiContext:
    """The MPI of this process: requests in flight, datatypes, and the communicator of all threads.

    Attributes
    ----------
    link
        The communicator of all threads.
    meeting
        Another communicator of all threads, for opening teams.
    family
        ``"mpich"``, ``"openmpi"`` or ``"other"``.
    worked
        Whether the last `progress` found that MPI had something to do, also for the program.
    """

    def __init__(self, comm: MPI.Intracomm | None, wait: Callable[[MPI.Request], None]) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        source = MPI.COMM_WORLD if comm is None else comm
        self._check(source)
        self.version = MPI.Get_library_version().strip("\0\n ")
        self.family = _family(self.version)
        self.threads_multiple = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        wide = int(source.Get_attr(MPI.TAG_UB) or 32767)
        self.tag_bits = max(0, min(12, (wide + 1).bit_length() - 1 - LOW_BITS))
        self._requests = Requests(MPI)
        self._datatypes = Datatypes(MPI)
        self.worked = False
        self._before_end: Callable[[], None] | None = None
        self._end_key = MPI.KEYVAL_INVALID
        self.link, self.meeting = (self._duplicate(source, wait) for _ in range(2))
        self._never = self._receive_nothing()
        self._in_core = False  # whether the core makes progress with `_never`

    def _check(self, comm: object) -> None:
        if not issubclass(type(comm), self.mpi.Intracomm):  # isinstance may ask a dead proxy
            raise TypeError(f"init: comm: expected an mpi4py intracommunicator, got {show(comm)}")
        if comm == self.mpi.COMM_NULL:
            raise ValueError("init: comm: expected a communicator, got MPI.COMM_NULL")

    def _duplicate(
        self, comm: MPI.Intracomm, wait: Callable[[MPI.Request], None]
    ) -> TeamComm:
        copy, request = self.mpi.Intracomm(comm).Idup()  # not of the program's class
        wait(request)
        return TeamComm(self, copy)

    @cached_property
    def functions(self) -> tuple[int, ...] | None:
        """Return what the core needs to send messages itself, or None if it cannot be found.

        These are the addresses of the `FUNCTIONS` in the library that mpi4py has loaded, the
        handle of the byte type, and the bytes of a handle.
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

    def handle_of(self, thing: MPI.Comm | MPI.Datatype | MPI.Request) -> int:
        """Return the C handle of a communicator or a datatype."""
        return int(self.mpi._handleof(thing))

    def before_end(self, act: Callable[[], None]) -> None:
        """Call `act` when the program calls MPI_Finalize, before MPI ends.

        MPI_Finalize deletes the attributes of COMM_SELF first, while MPI still works.
        """
        self._before_end = act
        self._end_key = self.mpi.Comm.Create_keyval()
        self.mpi.COMM_SELF.Set_attr(self._end_key, HeldByMPI(self, MpiContext._ends))

    def _ends(self) -> None:
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
        owner: object,
        request: MPI.Request,
        finished: Callable[[], None],
        receives: bool = False,
    ) -> None:
        """Call `finished` when a request of the owner's is complete.

        `receives`: it receives a message. The caller holds the engine's lock, because the progress
        thread tests requests, too.
        """
        self._requests.track(owner, request, finished, receives)

    def _receive_nothing(self) -> MPI.Request:
        """Start a receive that no message matches; a test of it makes MPI's progress.

        A probe would search all messages that the program has not received yet, each time.
        """
        comm, room = self.meeting.comm, bytearray(1)
        return comm.Irecv([room, 1, self.mpi.BYTE], comm.Get_rank(), NEVER)  # it keeps the buffer

    def wait_with_progress(self, threads_per_core: float) -> None:
        """Make the core's waits call MPI's progress, at intervals that suit the machine.

        With a processor core for each thread, an interval is an eighth of the wait so far, from
        20 us to 1 ms. With fewer cores each step takes time from a thread that computes:
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
        """Make one step of MPI's progress; return whether MPI had something to do.

        Any thread can call it at any time if MPI allows several threads.
        """
        if self._in_core:
            return bool(core.step_of_progress())
        began = time.thread_time_ns()
        self._never.Test()
        return time.thread_time_ns() - began > STEP_NS

    def catch_up(self) -> None:
        """Make MPI's progress until MPI has nothing to do, as far as known."""
        if self._in_core:
            core.catch_up_with_mpi()
        elif self.threads_multiple or threading.current_thread() is threading.main_thread():
            for _ in range(CATCH_UP):
                self._never.Test()

    def progress(self) -> bool:
        """Test all requests in flight once; return whether one is complete now.

        Without requests it still makes MPI's progress, for the one-sided accesses of other
        threads and for the program's own messages.
        """
        self._requests.poll_abandoned()
        if not self._requests:
            self.worked = self.enter()
            return False
        began = time.thread_time_ns()
        finished = self._requests.test()
        self.worked = time.thread_time_ns() - began > STEP_NS
        for call in finished:
            call()
        return bool(finished)

    def all_done(self, requests: list[MPI.Request]) -> bool:
        """Return whether all these requests, which are not tracked, are complete."""
        return bool(self.mpi.Request.Testall(requests))

    def forget(self, owner: object, instance: Instance) -> None:
        """Give up a call and all requests of a communicator: see `Requests.forget`."""
        self._requests.forget(owner, instance)

    def quiet(self, owner: object) -> bool:
        """Return whether a communicator has nothing in flight."""
        return self._requests.quiet(owner)

    # -- datatypes -----------------------------------------------------------------
    @property
    def types_freed(self) -> int:
        """Return how many datatypes have been freed that a `spec` may name."""
        return self._datatypes.freed

    def spec(self, grids: Sequence[Grid], shift: int = 0) -> BufferSpec:
        """Return a buffer description of all blocks of the grids, moved by `shift` bytes."""
        return self._datatypes.spec(grids, shift)

    def shape(self, grids: Sequence[Grid]) -> tuple[int, int, int, MPI.Datatype]:
        """Return the address, span, count and datatype of all blocks of the grids."""
        return self._datatypes.shape(grids)

    def free(self) -> None:
        """Free datatypes and communicators; blocking."""
        if self._in_core:
            core.no_progress()
        if core is not None:
            core.no_requests()
        self._in_core = False
        self._never.Cancel()
        self._never.Wait()
        self._forget_end()
        self._datatypes.free()
        self.link.free()
        self.meeting.free()


_started_in = 0  # the process in which MPI was started here, not by the program or mpi4py


def start_mpi() -> None:
    """Load mpi4py, which starts MPI. This blocks without a limit and holds the interpreter.

    If ``mpi4py.rc.initialize`` is false and the program has not started MPI, this function
    starts it with the other settings of ``mpi4py.rc``; then `end_mpi` finalizes it.
    """
    global _started_in
    prepare_start()
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
    """Finalize MPI at the end of the program if `start_mpi` started it; blocking."""
    if _started_in != os.getpid():
        return
    from mpi4py import MPI, rc

    if rc.finalize is not False and not MPI.Is_finalized():
        MPI.Finalize()


def abort_all(status: int) -> None:
    """End all of MPI's processes, if MPI runs and there are several.

    It aborts COMM_WORLD. On any other communicator, even a copy, the abort of MPICH 5.0.2 does
    not return and does not reach the launcher.
    """
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        end_in(ABORT)
        MPI.COMM_WORLD.Abort(status)


def end_in(seconds: int) -> None:
    """End this process after so many seconds, even if MPI's abort does not return."""
    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def drop_files() -> None:
    """Remove the files in shared memory that MPI removes only in MPI_Finalize.

    A job that ends without MPI_Finalize would leave them. Only files that this process has mapped
    are removed; they stay mapped.
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
