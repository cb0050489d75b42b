"""The end of xupc: `finalize`, and the end of a program that has not called it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections import Counter
from types import TracebackType

from ..backends.native.native_core import core, invalidate
from ..comm.mpi import end_mpi
from ..comm.place import place_in_mpi
from ..errors import CollectiveMismatchError, XupcError, show, warn
from ..health.call_record import CallRecord
from ..pgas.allocation import set_memory
from ..runtime import current
from ..runtime.job import Job
from .tracebacks import report_error

__all__ = [
    "at_exit", "before_mpi_ends", "finalize", "has_started", "install_hooks", "leave", "note_exit",
]  # fmt: skip

_hooked = False


def finalize() -> None:
    """End xupc on all threads; collective. Views of shared memory stay readable.

    After it only `init` starts xupc again: MPI carries the calls of a program on `xupc.Comm`. There
    it may be called where xupc does not run, since MPI may have carried all calls.

    Raises
    ------
    NotInitializedError
        If xupc does not run, in any other program.
    CollectiveMismatchError
        If calls that do not synchronise differed since the last one that does, on any team.
    XupcError
        If another Python thread of this process is inside a call.
    """
    if current.team is None and "xupc.mpi.record" in sys.modules:
        current.finalized = True
        return
    _finalize(CallRecord("finalize"))


def _finalize(record: CallRecord, *, ends: bool = False) -> None:
    """End xupc by the call of the record; `ends`: with a part of the program, or all of it."""
    team = current.world()
    if any(each.notified is not None for each in (team, *team.job.teams)):
        raise XupcError("finalize: not allowed between notify and wait: call wait() first")
    team.enter("finalize")
    for other in team.job.teams:
        other.end_posted()
    try:
        _name_requests_left()
        _check_handles(team.job, ends=ends)
    except Exception as e:
        team.fail(e, record)
    team.end_together(team.job.teams, record)
    current.team = None
    current.finalized = True
    current.halfway = team.job
    set_memory(None)
    try:
        team.job.close()
    except SystemExit as e:
        current.failed = e
        raise
    current.halfway = None
    if core is not None:
        core.set_drive(None, None, None)  # they keep the job alive


def _name_requests_left() -> None:
    """Warn of requests of `xupc.Comm` without a wait, where the program ends.

    MPI frees a request in the wait, whichever object the program waits by. So none is reported that
    the program has copied and waited for. MPI allows no end without these waits.
    """
    left = Counter(() if core is None else core.requests_left())
    if left:
        calls = ", ".join(f"{number} {name}" for name, number in sorted(left.items()))
        warn(f"finalize: requests without a wait: {calls}: call Wait() of each")


def _check_handles(job: Job, *, ends: bool) -> None:
    """Raise or warn of handles without a wait: their calls are complete.

    A program that ends has its results; so only an error of such a call is an error then.
    """
    if error := next((p.error for p in job.unfinished if p.error is not None), None):
        raise error
    if not (calls := "; ".join(sorted(p.call for p in job.unfinished))):
        return
    text = f"finalize: handles without a wait: {calls}"
    if not ends:
        raise XupcError(text)
    for pending in list(job.unfinished):
        pending.abandon()
    warn(f"{text}: call wait() of each")


def leave(
    kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
) -> None:
    """End xupc after ``with xupc.init() as team``; of nested ones, the first to end does it."""
    if kind is None or (issubclass(kind, SystemExit) and not _status_of(value)):
        if current.team is not None:
            by = "" if value is None else f", by {show(value)}"
            _finalize(CallRecord.of_end(f"the end of `with`{by}", 0), ends=True)
        return
    _report(value)
    if current.team is not None:
        _end_job(current.team.job, value)


def _report(error: BaseException | None, *, at_end: bool = False) -> None:
    """Print the traceback of an error of this thread."""
    rank, size = place_in_mpi() if current.team is None else (current.team.rank, current.team.size)
    report_error(error, rank, size, at_end=at_end)


def _end_job(job: Job, error: BaseException | None, status: int = 0) -> None:
    """End the job without waiting for others, with a status, else that of the error."""
    job.end_job(status or _status_of(error), error)


def _status_of(value: BaseException | None) -> int:
    """Return the exit status that stands for what ends a program, in 8 bits."""
    if isinstance(value, SystemExit):
        code = value.code
        if not isinstance(code, int):
            return int(code is not None)
        return code & 0xFF or int(code != 0)
    if isinstance(value, CollectiveMismatchError) and value._exit_status:
        return value._exit_status
    return 130 if isinstance(value, KeyboardInterrupt) else 1


def has_started() -> bool:
    """Return whether a start of xupc has begun in this process."""
    return _hooked


def install_hooks() -> None:
    """Have xupc end with the program, and note errors that the program does not catch."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    previous = sys.excepthook

    def uncaught(
        kind: type[BaseException], value: BaseException, tb: TracebackType | None
    ) -> None:
        current.failed = value
        if previous is sys.__excepthook__:
            _report(value)
        else:
            previous(kind, value, tb)

    sys.excepthook = uncaught
    if core is not None:
        core.note_exits()
    if "xupc.mpi.ending" not in sys.modules:  # it has registered a handler before the program's
        atexit.register(at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    invalidate()
    if core is not None:
        core.note_fork()


def note_exit(error: SystemExit) -> None:
    """Have the end of the program wait for no other thread, if its exit status is not 0."""
    if _status_of(error):
        current.failed = error


def at_exit() -> None:
    """End xupc at the end of the program, and MPI if xupc has started it."""
    if current.team is not None:
        _end("the end of the program")
    elif current.halfway is not None and current.failed is not None:
        if isinstance(current.failed, SystemExit):
            _report(current.failed)
        _end_job(current.halfway, current.failed)
    end_mpi()


def before_mpi_ends() -> None:
    """End xupc inside the program's own MPI.Finalize()."""
    _end("MPI.Finalize()")


def _exit() -> SystemExit:
    """Return what the program ends by; without the core an exit status is not known here, and 0."""
    code = None if core is None else core.exit_code()
    return SystemExit(*(code or ()))


def _end(words: str) -> None:
    """End xupc where the program has not; without waiting for others if anything is wrong."""
    team = current.team
    if team is None or os.getpid() != team.job.pid:
        return
    left = _exit()
    status = _status_of(left)
    if current.failed is not None or team.job.broken is not None:
        if current.failed is None and status:
            _report(left)
        _end_job(team.job, current.failed, status)
    if status:
        words = f"{words}, by SystemExit({show(left.code)})"
        team.job.control.leave_with(status)
    try:
        _finalize(CallRecord.of_end(words, status), ends=True)
    except BaseException as e:
        _report(e, at_end=True)
        with contextlib.suppress(Exception):
            _end_job(team.job, e, status)
