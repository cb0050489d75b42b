"""End the whole job and this process after a failure, without waiting for other threads.

Other threads get a moment to print the same error. One thread of each machine then ends the
threads of the machine, and one calls MPI_Abort.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from ..comm.mpi import ABORT, abort_all, drop_files, end_in
from ..pgas.segment import lock_holder, try_lock
from ..topology.job_info import JobInfo
from .control_layout import CROSSED, DEAD, HUNG
from .control_segment import Control
from .error_report import print_error

if TYPE_CHECKING:
    from .failure_tree import FailureTree

__all__ = ["JobAbort"]

OTHERS_SPEAK = 2.0  # the most seconds that the end of a program waits for others' reports
FAR_SPEAK = 0.7  # the least, with several machines
ALIKE = 0.3  # the most after other errors of xupc, which are often raised on all threads
PASSED_ON = 0.5  # for the launcher to forward the last output: MPI's abort ends it, too
OTHERS_END = 1.0  # for other threads to end by themselves
ABORTED = OTHERS_END + PASSED_ON + 0.3  # until the thread that ends the job has called MPI_Abort
ABORT_BYTE = (1 << 40) + 1  # of the control segment; its lock: the thread that calls MPI_Abort


class JobAbort:
    """Ends the job from this thread."""

    def __init__(self, info: JobInfo, control: Control, lifeline: FailureTree | None) -> None:
        self.info = info
        self.control = control
        self.lifeline = lifeline

    def end_now(self, why: str, *, gone: bool = False) -> None:
        """Print the reason and end this process at once."""
        if why:
            print_error(self.info.me, self.info.threads, f" {why}\n")
        self.control.say(1)
        _flush()
        drop_files()
        if why and not gone:  # some launchers end all threads with the first
            self._let_others_speak()
        os._exit(1)

    def end_with_others(self, status: int) -> None:
        """End this process, after the thread that ends the job and whose status counts."""
        _flush()
        self.control.say(status)
        drop_files()
        fd = self.control.segment.fd
        if self.lifeline is not None and try_lock(fd, ABORT_BYTE):
            # no thread of this machine ends the job
            self._end_others(status)
            time.sleep(ABORTED)
        self._await_abort()
        os._exit(status)

    def _await_abort(self) -> None:
        """Wait until another thread of this machine has had time to call MPI_Abort.

        If this process exits earlier, MPICH's launcher misses the abort.
        """
        fd, deadline = self.control.segment.fd, time.monotonic() + ABORTED
        while lock_holder(fd, ABORT_BYTE) is not None and time.monotonic() < deadline:
            time.sleep(0.01)

    def end_job(self, status: int, why: str, *, ours: bool) -> None:
        """End the job and this process; `ours`: other threads may raise the same error."""
        _flush()
        self.control.explain_end(why)
        if self.lifeline is not None:
            self.lifeline.explain_end(why)
        self.control.say(status)
        end_in(int(OTHERS_SPEAK) + ABORT)
        drop_files()
        with contextlib.suppress(BaseException):
            _flush_files()
        with contextlib.suppress(BaseException):
            self._let_others_speak(ALIKE if ours else 0.0)
        with contextlib.suppress(BaseException):
            if try_lock(self.control.segment.fd, ABORT_BYTE):  # one thread of the machine does it
                status = (self.control.leaving() if ours else 0) or self._that_counts(status)
                self._end_others(status)
                time.sleep(PASSED_ON)
                abort_all(status)
            self._await_abort()
        ended = self.control.ended  # of the thread that ends the job: `xupc run` takes the first
        os._exit(status if ended is None else ended)

    def _that_counts(self, status: int) -> int:
        """Return `status`, or the status of an interrupted thread that caused this error."""
        deadline = time.monotonic() + ALIKE
        while True:
            elsewhere, theirs = self.control.interrupt_ends()
            if theirs is not None:
                return theirs
            if not elsewhere or time.monotonic() > deadline:
                return status
            time.sleep(0.01)

    def _end_others(self, status: int) -> None:
        """End the threads of all machines: not every launcher does so after an abort."""
        self.control.end_all(status)
        if self.lifeline is not None:
            self.lifeline.end_all(status)
        deadline = time.monotonic() + OTHERS_END
        while (silent := self.control.silent()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in silent.values():  # stopped, or in C code for long
            if pid:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _let_others_speak(self, most: float = 0.0) -> None:
        """Wait a moment for other threads to print the same error."""
        trouble = self.control.trouble()
        death = trouble is None or trouble[0] == DEAD
        least = 0.0
        if trouble is not None:
            most = OTHERS_SPEAK
            if self.info.machines > 1:
                least = OTHERS_SPEAK if death else FAR_SPEAK
        began = time.monotonic()
        while (waited := time.monotonic() - began) < most:
            silent = self.control.silent()
            if waited >= least and not any(death or self._speaks(i) for i in silent):
                return
            time.sleep(0.01)

    def _speaks(self, index: int) -> bool:
        """Return whether a thread is about to print the error of the job.

        After a hang or a difference of calls a thread that MPI holds prints it, too.
        """
        if self.control.waits(index):
            return True
        trouble = self.control.trouble()
        of_all = trouble is not None and trouble[0] in (CROSSED, HUNG)
        return of_all and self.control.note_of(index)[1] not in (b"", b"null")


def _flush() -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()


def _flush_files() -> None:
    """Write what the program's open files hold: Python's own end, which does so, does not come."""
    for found in gc.get_objects():
        if type(found) in _FILES:
            with contextlib.suppress(Exception):
                found.flush()


_FILES = frozenset((io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom))
