"""The team of xupc that carries the calls on a communicator, where there is one.

Only what MPI makes equal on all threads decides where a call goes: the method, the communicator,
sizes, root, operation and basic type. How a thread describes its own message does not.
"""

from __future__ import annotations

import threading
from typing import Any

from mpi4py import MPI

from ..errors import NotInitializedError, said
from ..runtime import current
from . import constants, requests
from .record import Record
from .switch import FORCE, mode

__all__ = ["team_for"]

# Jobs of xupc: there is none; one of all these threads; others; a Python thread beside the main one
_NONE, _SAME, _OTHER, _BESIDE = 0, 1, 2, 3
# Why MPI carries nonblocking calls.
_NO_REQUESTS = (
    "", "between nodes MPI carries nonblocking calls", "xupc records calls",
    "they need the native core and an MPI that makes their progress",
)  # fmt: skip
_NO_TEAM = len(_NO_REQUESTS)
_NOT_STARTED = "xupc does not run yet: the first call on all threads of COMM_WORLD starts it"


def team_for(comm: Any, record: Record) -> Any:
    """Return the team that carries the calls on a communicator.

    The first call opens it; all threads of the communicator make that call together, and no others.
    None if MPI carries the calls: `record.refused` is then the reason.
    """
    if record.due():
        _open(comm, record)
    elif record.team is not None and not _usable(record.team):
        record.give_to_mpi("xupc was finalized")
    return record.team


def _usable(team: Any) -> bool:
    """Return True unless xupc was finalized since; a call on a broken job raises its own error."""
    world = current.team
    return world is not None and team.state.job is world.job and not team.state.freed


def _open(comm: Any, record: Record) -> None:
    """Open a team, with the same outcome on all threads."""
    plain = MPI.Intracomm(comm)
    why = _unfit(plain)
    if why == _NOT_STARTED:
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
    lacks = plain.allreduce(lacks, MPI.MAX)
    if lacks == _NO_TEAM:
        record.give_to_mpi(why or "no team: an error on another thread")
        return
    record.give_to_team(team, _NO_REQUESTS[lacks])
    if mode() != FORCE:
        record.carriers = team.state.table.carriers_at(team.state.place)


def _no_requests(team: Any) -> int:
    """Return why the team cannot carry nonblocking calls: an index of `_NO_REQUESTS`."""
    if team.state.spans_nodes:
        return 1
    if team.state.job.recorder is not None:
        return 2
    return 0 if team.state.native and requests.usable() else 3


def _unfit(plain: MPI.Intracomm) -> str:
    """Return why a communicator cannot have a team, in the same words on all its threads."""
    if plain.Get_size() == 1:
        return "one thread"
    jobs = set(plain.allgather(_job(plain)))
    if _BESIDE in jobs:
        return "not called by the main Python thread"
    if jobs == {_NONE}:
        of_all = (MPI.IDENT, MPI.CONGRUENT, MPI.SIMILAR)
        return "" if plain.Compare(constants.plain()) in of_all else _NOT_STARTED
    return "" if jobs == {_SAME} else "xupc runs with other threads"


def _job(plain: MPI.Intracomm) -> int:
    if mode() != FORCE and threading.current_thread() is not threading.main_thread():
        return _BESIDE
    try:
        current.world()
    except NotInitializedError:
        return _NONE
    return _OTHER if MPI.UNDEFINED in _threads(plain) else _SAME


def _threads(plain: MPI.Intracomm) -> list[int]:
    """Return the numbers of a communicator's threads in xupc's world, in their order."""
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
    return held(current.world().new_team(_threads(plain)))
