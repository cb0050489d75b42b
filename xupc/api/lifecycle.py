"""Start and end: `init`, `finalize`, and the one job that a process can be part of."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any

from ..backends.native.native_core import core, invalidate
from ..comm.mpi import TeamComm, end_mpi, place_in_mpi
from ..errors import CollectiveMismatchError, NotInitializedError, XupcError, show
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..pgas.allocation import set_memory
from ..runtime.dropped_teams import Hold
from ..runtime.job import Job
from ..runtime.settings import Settings
from ..runtime.team_state import TeamState
from ..topology.machine import Machine
from ..topology.sysfs import machine_of
from ..tuning.selection import Table
from ..tuning.selection_file import find, load
from .argument_checks import as_integer
from .team import Team

__all__ = ["finalize", "init", "settings_of", "world"]

_UNITS = {"": 1}
_UNITS |= {c: 1000**i for i, c in enumerate("kmgt", 1)}
_UNITS |= {f"{c}i": 1024**i for i, c in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)

_HEAP = 1 << 46  # bytes; no heap is larger

_world: TeamState | None = None
_halfway: Job | None = None  # whose start, or end, has begun and not come to its own end
_failed: BaseException | None = None  # what the program has not caught
_hooked = False


def world() -> TeamState:
    """The team of all threads.

    Raises
    ------
    NotInitializedError
        Before `init` and after `finalize`, and in a forked child.
    XupcError
        If the job is broken.
    """
    team = threads()
    team.job.check()
    return team


def threads() -> TeamState:
    """The team of all threads, to ask for their number and mine: of a broken job, too.

    Raises
    ------
    NotInitializedError
        As `world`.
    """
    if _world is None:
        raise NotInitializedError("call xupc.init() first")
    _world.job.check_there()
    return _world


def init(
    comm: Any = None,
    *,
    heap_size: int | str | None = None,
    nodes: str | None = None,
    timeout: float | None = None,
) -> Team:
    """Start xupc on all threads; collective, once per thread.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Whose processes become the threads; duplicated, never used itself. Default
        COMM_WORLD.
    heap_size : int or str, optional
        Bytes per thread, or text like ``"64MiB"`` (environment ``XUPC_HEAP_SIZE``).
        The heap grows when a collective allocation does not fit.
    nodes : str, optional
        Split machines further: ``"4x2"``, ``"3,1,4"``, ``"cyclic:3"`` (``XUPC_NODES``).
    timeout : float, optional
        Seconds before a wait raises HangError (``XUPC_TIMEOUT``), which shows where all
        threads are. Default none, with a warning that names the missing threads after 60 s.
        MPI's start, if it is here that mpi4py is loaded, has at least 10 s.

    Returns
    -------
    Team
        All threads. A second call returns the same; in a ``with``, the first to end ends xupc.

    Raises
    ------
    ValueError
        An argument is wrong, or differs from the first call's; or the tuning table in use
        (``XUPC_TUNING``, or ``xupc/tuning.toml`` in the user's config directory) is a bad one,
        or ``XUPC_TOPOLOGY`` describes no machine; on every thread.
    HeapError
        The shared memory directory cannot hold the heap; on every thread.

    Notes
    -----
    Until `finalize`, SIGUSR2 to any thread prints where all threads are, unless the program
    has a handler of its own.

    Importing mpi4py starts MPI, and mpi4py ends it. With ``mpi4py.rc.initialize = False`` init
    starts MPI if the program has not, with the ``thread_level`` of ``mpi4py.rc``, and MPI is
    finalized at the end of the program. ``MPI.Finalize()`` finalizes xupc first.
    """
    global _world, _halfway, _failed
    settings = settings_of(heap_size, nodes, timeout)
    if _world is not None:
        _world.job.check()
        explicit = (heap_size, nodes, timeout) != (None, None, None) or comm is not None
        if explicit and (other := _world.job.differs(settings, comm)):
            raise ValueError(f"init: xupc is initialized already, with another {other}")
        return _handle(_world)
    _install_hooks()
    job = _halfway = Job(settings)
    try:
        job.start(comm, _agree_files)
    except SystemExit as e:  # from a signal's handler; no hook hears of it
        _failed = e
        raise
    _halfway = None
    _world = TeamState.world(job, job.prepared)
    job.heap.world = Team(_world, Hold())
    job.heap.alive = job.check
    job.heap.find = job.heap_at
    set_memory(job.heap)
    if core is not None:
        core.set_drive(
            job.engine.drive, job.engine.interrupted, lambda instance: instance.owner.catch_up()
        )
    job.network.before_end(_before_mpi_ends)
    _world.meet(fingerprint("init"), CallRecord("init"))
    return _handle(_world)


def _handle(world: TeamState) -> Team:
    team: Team = world.job.heap.world
    return team


def _agree_files(link: TeamComm) -> tuple[Table, Machine | None]:
    """Return the selection table and the machine of ``XUPC_TOPOLOGY``, as thread 0 finds them."""
    found, machine = link.comm.bcast(_find_files() if link.rank == 0 else None)
    try:
        if isinstance(machine, str):
            raise ValueError(machine)
        return load(found), machine
    except ValueError as e:
        raise ValueError(f"init: {e}") from None


def _find_files() -> tuple[Any, Machine | str | None]:
    """Return the table's text, and the machine or what is wrong with its description."""
    try:
        return find(), described_machine()
    except ValueError as e:
        return find(), str(e)


def described_machine() -> Machine | None:
    """Return the machine of ``XUPC_TOPOLOGY``, None without it.

    Raises
    ------
    ValueError
        The variable describes no machine.
    """
    text = os.environ.get("XUPC_TOPOLOGY", "")
    return machine_of(text) if text.strip() else None


def settings_of(
    heap_size: int | str | None = None, nodes: str | None = None, timeout: float | None = None
) -> Settings:
    """What `init` is to do: its arguments, and the environment where there are none.

    Raises
    ------
    TypeError, ValueError
        One of them cannot be.
    """
    env = os.environ
    size = heap_size if heap_size is not None else env.get("XUPC_HEAP_SIZE")
    spec = nodes if nodes is not None else env.get("XUPC_NODES")
    limit: float | str | None = timeout if timeout is not None else env.get("XUPC_TIMEOUT")
    if not isinstance(spec, str | None):
        raise TypeError(f"init: nodes: expected text like '4x2', got {show(spec)}")
    if env.get("XUPC_ENGINE", "") not in ("", "native", "python"):
        engine = show(env["XUPC_ENGINE"])
        raise ValueError(f"init: XUPC_ENGINE: expected native or python, got {engine}")
    if (where := env.get("XUPC_SHM_DIR")) and not os.path.isdir(where):
        raise ValueError(f"init: XUPC_SHM_DIR: expected a directory, got {show(where)}")
    return Settings(_bytes(size), spec or None, _seconds(limit))


def _bytes(value: int | str | None) -> int | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        value = as_integer(value, "init", "heap_size")
    else:
        match = _SIZE.fullmatch(value)
        if not match:
            raise ValueError(f"init: heap_size: expected text like '64MiB', got {show(value)}")
        number = min(float(match[1]), float(_HEAP))  # which may be infinity
        value = int(number * _UNITS[(match[2] or "").lower()])
    if not 0 < value < _HEAP:
        raise ValueError(f"init: heap_size: expected 1 byte to 64 TiB, got {show(value)}")
    return value


def _seconds(value: float | str | None) -> float | None:
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"init: timeout: expected seconds, got {show(value)}") from None
    if not seconds > 0:
        raise ValueError(f"init: timeout: expected a positive number of seconds, got {show(value)}")
    return seconds


def finalize() -> None:
    """End xupc on all threads; collective. Views of shared memory stay readable.

    Raises
    ------
    CollectiveMismatchError
        If calls that do not synchronise differed since the last one that does, on any team.
    XupcError
        If another Python thread of this process is inside a call.
    """
    _finalize(CallRecord("finalize"))


def _finalize(record: CallRecord) -> None:
    """The same, as the call of the record."""
    global _world, _halfway, _failed
    team = world()
    if any(each.notified is not None for each in (team, *team.job.teams)):
        raise XupcError("finalize: not allowed between notify and wait")
    team.enter("finalize")
    for other in team.job.teams:
        other.drain()
    if calls := "; ".join(sorted(p.call for p in team.job.unfinished)):
        text = f"finalize: handles that nobody has waited for: {calls}"
        team.fail(XupcError(text), record)
    team.end_together(team.job.teams, record)
    _world = None
    _halfway = team.job
    set_memory(None)
    try:
        team.job.close()
    except SystemExit as e:
        _failed = e
        raise
    _halfway = None
    if core is not None:
        core.set_drive(None, None, None)  # they keep the job alive


def leave(
    kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
) -> None:
    """The end of ``with xupc.init() as team``; of a nested one, the first ends xupc."""
    if kind is None or (issubclass(kind, SystemExit) and not _status_of(value)):
        if _world is not None:
            finalize()
        return
    _report(value)
    if _world is not None:
        _end_job(_world.job, value)


def _report(error: BaseException | None) -> None:
    """Print the traceback of an error in one piece.

    Launchers merge what threads write, each piece as it comes, and Python would write a
    traceback word by word.
    """
    rank, size = place_in_mpi() if _world is None else (_world.rank, _world.size)
    here = f"xupc: thread {rank} of {size}:\n" if size > 1 else ""
    if isinstance(error, SystemExit):
        words = f"{error.code}\n"
        if error.code is None or isinstance(error.code, int):  # Python prints neither
            words = f"SystemExit: {error.code}\n" if size > 1 and error.code else ""
    else:
        words = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception):  # stderr may have no reader
        sys.stderr.write(here + words if words else "")
        sys.stderr.flush()


def _end_job(job: Job, error: BaseException | None, status: int = 0) -> None:
    """End the job without waiting for others, with a status, else that of the error."""
    job.end_job(status or _status_of(error), error)


def _status_of(value: BaseException | None) -> int:
    """The exit status that stands for what ends a program, in 8 bits."""
    if isinstance(value, SystemExit):
        code = value.code
        if not isinstance(code, int):
            return int(code is not None)
        return code & 0xFF or int(code != 0)
    if isinstance(value, CollectiveMismatchError) and value._exit_status:
        return value._exit_status
    return 130 if isinstance(value, KeyboardInterrupt) else 1


def _install_hooks() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    previous = sys.excepthook

    def uncaught(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        global _failed
        _failed = value
        if previous is sys.__excepthook__:
            _report(value)
        else:
            previous(kind, value, tb)

    sys.excepthook = uncaught
    if core is not None:
        core.note_exits()
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    invalidate()


def _at_exit() -> None:
    if _world is not None:
        _end("the end of the program")
    elif _halfway is not None and _failed is not None:
        if isinstance(_failed, SystemExit):
            _report(_failed)
        _end_job(_halfway, _failed)
    end_mpi()


def _before_mpi_ends() -> None:
    """End xupc inside the program's own MPI.Finalize()."""
    _end("MPI.Finalize()")


def _exit() -> SystemExit:
    """What the program ends by; without the core an exit status is not known here, and 0."""
    code = None if core is None else core.exit_code()
    return SystemExit(*(code or ()))


def _end(words: str) -> None:
    """End xupc where the program has not; without waiting for others if anything is wrong."""
    team = _world
    if team is None or os.getpid() != team.job.pid:
        return
    left = _exit()
    status = _status_of(left)
    if _failed is not None or team.job.broken is not None:
        if _failed is None and status:
            _report(left)
        _end_job(team.job, _failed, status)
    if status:
        words = f"{words}, by SystemExit({show(left.code)})"
        team.job.control.leave_with(status)
    try:
        _finalize(CallRecord.of_end(words, status))
    except BaseException as e:
        _report(e)
        with contextlib.suppress(Exception):
            _end_job(team.job, e, status)
