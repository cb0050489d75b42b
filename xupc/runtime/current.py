"""The job that this process is part of: a leaf that holds the current world.

Attributes
----------
team
    The team of all threads; None before `init` and after `finalize`.
halfway
    The job whose start or end has begun and is not complete; None otherwise.
finalized
    Whether the program has called `finalize`: after that only `init` starts xupc.
failed
    The exception that the program has not caught; None if there is none.
"""

from __future__ import annotations

from ..errors import NotInitializedError
from .job import Job
from .team_state import TeamState

__all__ = ["threads", "usable", "world"]

team: TeamState | None = None
halfway: Job | None = None
finalized = False
failed: BaseException | None = None


def world() -> TeamState:
    """Return the team of all threads.

    Raises
    ------
    NotInitializedError
        Before `init` and after `finalize`, and in a forked child.
    XupcError
        If the job is broken.
    """
    found = threads()
    found.job.check()
    return found


def threads() -> TeamState:
    """Return the team of all threads, also of a broken job, for their number and this thread's.

    Raises
    ------
    NotInitializedError
        As `world`.
    """
    if team is None:
        raise NotInitializedError("call xupc.init() first")
    team.job.check_there()
    return team


def usable(state: TeamState) -> bool:
    """Return True if a team can be used in calls."""
    return not state.freed and state.job is world().job
