"""The start of xupc: `init` and its settings. `xupc.api.job_end` has the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ..backends.native.native_core import core
from ..byte_sizes import size_of
from ..comm.team_comm import TeamComm
from ..errors import show
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..pgas.allocation import set_memory
from ..pgas.integer_arguments import as_integer
from ..runtime import current
from ..runtime.dropped_teams import Hold
from ..runtime.job import Job
from ..runtime.log import INFO, note
from ..runtime.settings import Settings
from ..runtime.team_state import TeamState
from ..topology.machine import Machine
from ..topology.sysfs import machine_of
from ..tuning.selection import Table
from ..tuning.selection_file import find, load
from .job_end import before_mpi_ends, install_hooks
from .team import Team

if TYPE_CHECKING:
    from ..runtime.recorder import Recorder

__all__ = ["described_machine", "init", "settings_of"]

_HEAP = 1 << 46  # bytes; no heap is larger


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
        Bytes per thread, or text like ``"64MiB"`` or ``"64M"`` (environment
        ``XUPC_HEAP_SIZE``); units are powers of 1024.
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
    settings = settings_of(heap_size, nodes, timeout)
    if current.team is not None:
        current.team.job.check()
        explicit = (heap_size, nodes, timeout) != (None, None, None) or comm is not None
        if explicit and (other := current.team.job.differs(settings, comm)):
            raise ValueError(f"init: xupc is initialized already, with another {other}")
        return _handle(current.team)
    return _handle(_start(settings, comm))


def _start(settings: Settings, comm: Any) -> TeamState:
    """Start the job and return the team of all threads."""
    install_hooks()
    job = current.halfway = Job(settings)
    try:
        job.start(comm, _agree_files)
    except BaseException as e:
        if isinstance(e, SystemExit):  # from a signal handler; no hook gets it
            current.failed = e
        if job.recorder is not None:
            job.recorder.close()
        if job.given_back:
            current.halfway = Job(settings)  # it ends the job if the program does not catch this
        raise
    current.halfway = None
    world = current.team = TeamState.world(job, job.prepared)
    job.heap.world = Team(world, Hold())
    job.heap.alive = job.check
    job.heap.find = job.heap_at
    set_memory(job.heap)
    if core is not None:
        core.set_drive(
            job.engine.drive, job.engine.interrupted, lambda instance: instance.owner.catch_up()
        )
    job.engine.apart = (
        job.info.native and not job.info.spans_nodes and job.recorder is None
        and job.network.threads_multiple
    )  # fmt: skip
    job.callers.let_threads(job.engine.apart)
    job.network.before_end(before_mpi_ends)
    world.meet(fingerprint("init"), CallRecord("init"))
    if job.info.me == 0:
        _note_start(job, world)
    return world


def _note_start(job: Job, world: TeamState) -> None:
    """Log what was found out and chosen for the job."""
    info = job.info
    note(INFO, "%d threads on %d nodes of %d machines", info.threads, info.tree.node_count,
         info.machines)  # fmt: skip
    note(INFO, "engine: %s; transport: %s; more threads than cores: %s; direct access: %s",
         "native" if info.native else "python", info.transport, info.crowded,
         info.pids is not None)  # fmt: skip
    note(INFO, "selection table: %s, for %s", world.table.name, world.place)
    if job.recorder is not None:
        note(INFO, "calls are recorded for %s", job.recorder.target)


def _handle(world: TeamState) -> Team:
    team: Team = world.job.heap.world
    return team


def _agree_files(link: TeamComm) -> tuple[Table, Machine | None, Recorder | None]:
    """Return what thread 0 finds in the environment.

    It is the selection table, the machine of ``XUPC_TOPOLOGY`` and the recorder of ``XUPC_TRACE``.
    """
    found, machine, target = link.comm.bcast(_find_files() if link.rank == 0 else None)
    try:
        if isinstance(machine, str):
            raise ValueError(machine)
        table = load(found)
    except ValueError as e:
        raise ValueError(f"init: {e}") from None
    if not target:
        return table, machine, None
    from ..runtime.recorder import Recorder  # few programs are traced

    return table, machine, Recorder.open(link, target)


def _find_files() -> tuple[Any, Machine | str | None, str]:
    """Return the table's text, the machine or what is wrong with it, and the file of a trace."""
    target = os.environ.get("XUPC_TRACE", "").strip()
    try:
        return find(), described_machine(), target
    except ValueError as e:
        return find(), str(e), target


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
    """Return what `init` is to do: its arguments, and the environment where there are none.

    Raises
    ------
    TypeError, ValueError
        One of them cannot be.
    """
    env = os.environ
    size = heap_size if heap_size is not None else env.get("XUPC_HEAP_SIZE")
    spec = nodes if nodes is not None else env.get("XUPC_NODES")
    limit: float | str | None = timeout if timeout is not None else env.get("XUPC_TIMEOUT")
    if not _is_text(spec) and spec is not None:
        raise TypeError(f"init: nodes: expected text like '4x2', got {show(spec)}")
    if env.get("XUPC_ENGINE", "") not in ("", "native", "python"):
        engine = show(env["XUPC_ENGINE"])
        raise ValueError(f"init: XUPC_ENGINE: expected native or python, got {engine}")
    if (where := env.get("XUPC_SHM_DIR")) and not os.path.isdir(where):
        raise ValueError(f"init: XUPC_SHM_DIR: expected a directory, got {show(where)}")
    return Settings(_bytes(size), spec or None, _seconds(limit))


def _is_text(value: object) -> TypeGuard[str]:
    return issubclass(type(value), str)  # isinstance may ask the object, such as a dead proxy


def _bytes(value: int | str | None) -> int | None:
    if value is None or (_is_text(value) and not value):
        return None
    if not _is_text(value):
        value = as_integer(value, "init", "heap_size")
    else:
        try:
            value = size_of(value)
        except ValueError:
            words = f"init: heap_size: expected text like '64MiB', got {show(value)}"
            raise ValueError(words) from None
    if not 0 < value < _HEAP:
        raise ValueError(f"init: heap_size: expected 1 byte to 64 TiB, got {show(value)}")
    return value


def _seconds(value: float | str | None) -> float | None:
    if value is None or (_is_text(value) and not value):
        return None
    try:
        if issubclass(type(value), bool | np.complexfloating):  # float drops the imaginary part
            raise TypeError
        seconds = float(value)
    except (TypeError, ValueError, OverflowError, ReferenceError):
        raise ValueError(f"init: timeout: expected seconds, got {show(value)}") from None
    if not seconds > 0:
        raise ValueError(f"init: timeout: expected a positive number of seconds, got {show(value)}")
    return seconds
