"""The team of xupc that carries the calls on a communicator, where there is one.

Only what MPI makes equal on all threads decides where a call goes: the method, the communicator,
sizes, root, operation and basic type. How a thread describes its own message does not.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ..errors import NotInitializedError, said
from ..runtime import current
from . import constants
from .record import Record

__all__ = ["team_for"]

_NONE, _SAME, _OTHER = 0, 1, 2  # jobs of xupc: there is none; of the same threads; of others


def team_for(comm: Any, record: Record) -> Any:
    """Return the team that carries the calls on a communicator.

    The first call opens it; all threads of the communicator make that call together. None if MPI
    carries the calls: `record.refused` is then the reason.
    """
    if record.team is None and not record.refused:
        _open(comm, record)
    elif record.team is not None and not _usable(record.team):
        record.team, record.refused = None, "xupc was finalized"
    return record.team


def _usable(team: Any) -> bool:
    """Return True unless xupc was finalized since; a call on a broken job raises its own error."""
    world = current.team
    return world is not None and team.state.job is world.job and not team.state.freed


def _open(comm: Any, record: Record) -> None:
    """Open a team, with the same outcome on all threads."""
    plain = MPI.Intracomm(comm)
    record.refused = _unfit(plain)
    if record.refused:
        return
    try:
        team, why = _new_team(plain), ""
    except Exception as error:
        team, why = None, f"no team: {said(error)}"
    if plain.allreduce(int(team is None), MPI.MAX):
        record.refused = why or "no team: an error on another thread"
    else:
        record.team = team


def _unfit(plain: MPI.Intracomm) -> str:
    """Return why a communicator cannot have a team, in the same words on all its threads."""
    if plain.Get_size() == 1:
        return "one thread"
    if plain.Compare(constants.plain()) not in (MPI.IDENT, MPI.CONGRUENT):
        return "not the threads of COMM_WORLD in their order"
    jobs = set(plain.allgather(_job(plain)))
    return "" if jobs in ({_NONE}, {_SAME}) else "xupc runs with other threads"


def _job(plain: MPI.Intracomm) -> int:
    try:
        job = current.world().job
    except NotInitializedError:
        return _NONE
    alike = plain.Compare(job.network.link.comm) == MPI.CONGRUENT
    return _SAME if alike else _OTHER


def _new_team(plain: MPI.Intracomm) -> Any:
    """Return a new team of all threads, after the start of xupc if it does not run yet."""
    from .. import init  # loads all that calls need

    return init().split(0, plain.Get_rank())
