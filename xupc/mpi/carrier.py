"""Open the team of xupc that carries the calls on a communicator of MPI, where one is possible.

All threads of the communicator come to the same decision, since each of them gathers the state of
all others. `decision.py` decides for a single call whether the team or MPI carries it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from mpi4py import MPI

from ..errors import NotInitializedError, said
from ..runtime import current
from . import constants, requests
from .method_locks import have_lock
from .record import Record
from .switch import FORCE, mode

__all__ = ["team_for"]

# The state of xupc on a thread, as seen from a communicator
_NONE = 0  # xupc does not run
_SAME = 1  # its job has all threads of the communicator
_OTHER = 2  # its job lacks some of them
_BESIDE = 3  # the call comes from a Python thread other than the main one
_FULL = 4  # as `_SAME`, but the process has `TEAMS` teams
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

_CROWDED = f"many communicators: {TEAMS} others have teams"
_teams: weakref.WeakSet[Any] = weakref.WeakSet()


def team_for(comm: Any, record: Record) -> Any:
    """Return the team that carries the calls on a communicator; None if MPI carries them.

    `record.refused` is then the reason. The call at which `record.due()` is true opens the team: it
    is the same collective call on all threads of the communicator.
    """
    if record.due():
        _open(comm, record)
    elif record.team is not None and not _usable(record.team):
        record.give_to_mpi("xupc was finalized")
    return record.team


def _usable(team: Any) -> bool:
    """Return True unless xupc was finalized or the team freed since.

    A team of a broken job is usable: its calls raise the error of the job.
    """
    world = current.team
    return world is not None and team.state.job is world.job and not team.state.freed


def _open(comm: Any, record: Record) -> None:
    """Open a team, or note in the record why there is none: the same on all threads."""
    plain = MPI.Intracomm(comm)
    have_lock(plain, "allgather")
    why = _unfit(plain)
    if why in (_NOT_STARTED, _CROWDED):
        record.try_later(why)
    elif why:
        record.give_to_mpi(why)
    else:
        _try(plain, record)


def _try(plain: MPI.Intracomm, record: Record) -> None:
    try:
        team, why = _new_team(plain), ""
    except Exception as error:
        team, why = None, f"no team: {said(error)}"
    lacks = _NO_TEAM if team is None else _no_requests(team)
    lacks = max(plain.allgather(lacks))  # mpi4py's allreduce would duplicate the communicator
    if lacks == _NO_TEAM:
        record.give_to_mpi(why or "no team: an error on another thread")
        return
    record.give_to_team(team, _NO_REQUESTS[lacks])
    if mode() != FORCE:
        record.carriers = team.state.table.carriers_at(team.state.place)


def _no_requests(team: Any) -> int:
    """Return why the team cannot carry nonblocking calls: an index of `_NO_REQUESTS`; 0: it can."""
    if team.state.spans_nodes:
        return 1
    if team.state.job.recorder is not None:
        return 2
    return 0 if team.state.native and requests.usable() else 3


def _unfit(plain: MPI.Intracomm) -> str:
    """Return why a communicator cannot have a team, the same on all its threads; "": it can."""
    if plain.Get_size() == 1:
        return "one thread"
    jobs = set(plain.allgather(_job(plain)))
    if _BESIDE in jobs:
        return "not called by the main Python thread"
    if _FULL in jobs:
        return _CROWDED
    if jobs == {_NONE}:
        of_all = (MPI.IDENT, MPI.CONGRUENT, MPI.SIMILAR)
        return "" if plain.Compare(constants.plain()) in of_all else _NOT_STARTED
    return "" if jobs == {_SAME} else "xupc runs with other threads"


def _job(plain: MPI.Intracomm) -> int:
    """Return the state of xupc on this thread: one of the constants from `_NONE` to `_FULL`."""
    if mode() != FORCE and threading.current_thread() is not threading.main_thread():
        return _BESIDE
    try:
        current.world()
    except NotInitializedError:
        return _NONE
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
    team = held(current.world().new_team(_threads(plain)))
    _teams.add(team)
    return team
