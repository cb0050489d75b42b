"""Open the team of xupc that carries the calls on a communicator of MPI, where one is possible.

All threads of the communicator come to the same decision, since each of them gathers the state of
all others. `decision.py` decides for a single call whether the team or MPI carries it.

A mistake of the user, such as a wrong value of an ``XUPC_`` variable, is an error on all threads,
the one that `xupc.init` raises: MPI never carries calls in silence because of it. Where only
resources are missing, MPI carries the calls, and one thread warns.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from mpi4py import MPI

from ..api.lifecycle import settings_of
from ..errors import (
    CollectiveMismatchError,
    DeadThreadError,
    HangError,
    HeapError,
    NotInitializedError,
    said,
    warn_alone,
)
from ..health import crossed_calls
from ..health.note_comparison import WORLD, name_of
from ..runtime import current, recorder
from ..runtime.settings import Settings
from . import constants, explanation, requests
from .journal_notes import Notes
from .opening import WRONG, Meeting
from .record import Record, all_counts
from .switch import FORCE, mode

__all__ = ["team_for"]

# The state of xupc on a thread, as seen from a communicator
_NONE = 0  # xupc does not run
_SAME = 1  # its job has all threads of the communicator
_OTHER = 2  # its job lacks some of them
_BESIDE = 3  # the call comes from a Python thread other than the main one
_FULL = 4  # as `_SAME`, but the process has `TEAMS` teams
_ENDED = 5  # xupc does not run, and the program has called `finalize`
TEAMS = 128
"""The most communicators of a process that have teams at a time.

A team takes up to three of MPICH's 2,048 communicators, which the program may need itself.
"""
# Why MPI carries all nonblocking calls; "": it does not
_NO_REQUESTS = (
    "", "between nodes MPI carries nonblocking calls", "xupc records calls",
    "they need the native core and an MPI that makes their progress",
)  # fmt: skip
_NO_TEAM = len(_NO_REQUESTS)  # in place of an index of `_NO_REQUESTS`: this thread has no team
_NOT_STARTED = "xupc does not run yet: the first call on all threads of COMM_WORLD starts it"

_FINALIZED = "xupc was finalized"
_CROWDED = f"many communicators: {TEAMS} others have teams"
_MISTAKES = ValueError, TypeError, CollectiveMismatchError
"""Errors of a start that the user can mend; others show what the machine lacks."""
_teams: weakref.WeakSet[Any] = weakref.WeakSet()
_warned = False
_no_start = ""  # why a start failed on all threads: none tries again for another communicator


def team_for(comm: Any, record: Record, name: str) -> Any:
    """Return the team that carries the calls on a communicator; None if MPI carries them.

    `record.refused` is then the reason. The call at which `record.due()` is true opens the team: it
    is the same collective call on all threads of the communicator. `name`: the call's method.

    Raises
    ------
    ValueError, TypeError, CollectiveMismatchError, HeapError, HangError
        xupc cannot start, as from `xupc.init`; on all threads. The next call tries again.
    """
    if record.due():
        _open(MPI.Intracomm(comm), record, name)
    elif record.team is not None and not _usable(record.team):
        record.give_to_mpi(_FINALIZED)
    return record.team


def _usable(team: Any) -> bool:
    """Return True unless xupc was finalized or the team freed since.

    A team of a broken job is usable: its calls raise the error of the job.
    """
    world = current.team
    return world is not None and team.state.job is world.job and not team.state.freed


def _open(plain: MPI.Intracomm, record: Record, name: str) -> None:
    """Open a team, or note in the record why there is none: the same on all threads."""
    starts = current.team is None and not current.finalized
    settings, error = _settings() if starts else (None, None)
    meeting = Meeting(plain, record, name, None if settings is None else settings.timeout)
    jobs = meeting.gathered(_job(plain) if error is None else WRONG)
    meeting.raise_wrong(jobs, error)
    why = _unfit(plain, set(jobs))
    if why in (_NOT_STARTED, _CROWDED, _FINALIZED):
        record.try_later(why)
    elif why:
        record.give_to_mpi(why)
    else:
        _try(plain, record, meeting, settings)


def _settings() -> tuple[Settings | None, Exception | None]:
    """Return what `init` would start with, or the error that it would raise on this thread alone.

    This loads all that calls need, and runs the files of ``XUPC_ALGORITHMS``.
    """
    try:
        from .. import init

        assert init is not None
        return settings_of(), None
    except Exception as error:
        return None, error


def _try(
    plain: MPI.Intracomm, record: Record, meeting: Meeting, settings: Settings | None
) -> None:
    """Open a team; where that fails, raise on all threads, or have MPI carry the calls."""
    global _no_start
    team: Any = None
    error, lacks = None, _NO_TEAM
    try:
        team = _new_team(plain)
        lacks = _no_requests(team)
    except (HangError, DeadThreadError):
        raise
    except Exception as e:
        if current.team is not None and current.team.job.broken is not None:
            raise
        error = e
        explicit = settings is not None and settings.explicit_heap
        if isinstance(e, _MISTAKES) or (explicit and isinstance(e, HeapError)):
            lacks = WRONG
    all_lack = meeting.gathered(lacks)
    meeting.raise_wrong(all_lack, error)
    if _NO_TEAM in all_lack:
        why = f"no team: {said(error) if error else 'an error on another thread'}"
        error = None  # its traceback keeps the memory of the start
        gc.collect()
        record.give_to_mpi(why)
        _no_start = why if current.team is None else ""
        if all_lack.index(_NO_TEAM) == plain.Get_rank():
            _warn(record.refused, settings)
        return
    record.give_to_team(team, _NO_REQUESTS[max(all_lack)])
    team.state.call_it(_name(record))
    if mode() != FORCE:
        record.carriers = team.state.table.carriers_at(team.state.place)


def _name(record: Record) -> str:
    """Return the name of a communicator in messages, the same on all its threads; "": the world."""
    if record.label == WORLD:
        return ""
    return name_of(record.label) if record.label else f"a communicator of {record.place[1]} threads"


def _warn(why: str, settings: Settings | None) -> None:
    """Warn that MPI carries the calls of a communicator; once."""
    global _warned
    if _warned:
        return
    _warned = True
    limit = settings is not None and settings.timeout is not None
    more = "; the limit of waits (XUPC_TIMEOUT) does not hold" if limit else ""
    warn_alone(f"xupc.Comm: MPI carries the calls of a communicator: {why}{more}")


def _no_requests(team: Any) -> int:
    """Return why the team cannot carry nonblocking calls: an index of `_NO_REQUESTS`; 0: it can."""
    if team.state.spans_nodes:
        return 1
    if team.state.job.recorder is not None:
        return 2
    return 0 if team.state.native and requests.usable() else 3


def _unfit(plain: MPI.Intracomm, jobs: set[int]) -> str:
    """Return why a communicator cannot have a team; "": it can. `jobs`: of all its threads."""
    if _BESIDE in jobs:
        return "not called by the main Python thread"
    if _FULL in jobs:
        return _CROWDED
    if _ENDED in jobs:
        return _FINALIZED
    if jobs == {_NONE}:
        if _no_start:
            return _no_start
        of_all = (MPI.IDENT, MPI.CONGRUENT, MPI.SIMILAR)
        return "" if plain.Compare(constants.plain()) in of_all else _NOT_STARTED
    return "" if jobs == {_SAME} else "xupc runs with other threads"


def _job(plain: MPI.Intracomm) -> int:
    """Return the state of xupc on this thread: one of the constants from `_NONE` to `_ENDED`."""
    if mode() != FORCE and threading.current_thread() is not threading.main_thread():
        return _BESIDE
    try:
        current.world()
    except NotInitializedError:
        return _ENDED if current.finalized else _NONE
    if MPI.UNDEFINED in _threads(plain):
        return _OTHER
    return _FULL if sum(map(_usable, _teams)) >= TEAMS else _SAME


def _threads(plain: MPI.Intracomm) -> list[int]:
    """Return the threads of a communicator by number in xupc's world; UNDEFINED: not in it."""
    mine, whole = plain.Get_group(), current.world().job.network.link.comm.Get_group()
    try:
        return list(mine.Translate_ranks(None, whole))
    finally:
        mine.Free()
        whole.Free()


def _new_team(plain: MPI.Intracomm) -> Any:
    """Return a new team of these threads, after the start of xupc if it does not run yet."""
    from .. import init  # loads all that calls need
    from ..api.team import held

    if current.team is None:
        init()
    crossed_calls.read_from(Notes())
    team = held(current.world().new_team(_threads(plain)))
    _teams.add(team)
    return team


recorder.carried_elsewhere.append(lambda: explanation.by_mpi(all_counts()))
