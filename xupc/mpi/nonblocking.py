"""Nonblocking collectives that xupc takes over.

Such a call waits for no thread. So it opens no team: MPI carries it until a blocking collective of
the communicator has opened one. Blocking and nonblocking calls decide by the same rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..api.array_call import ArrayCall
from ..backends.native.native_core import core
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from .carrier import team_for
from .decision import Method, Ready, learn_given, why_not
from .failures import of_program
from .messages import Message
from .method_calls import call_of
from .repeated import form_of
from .requests import awaited

__all__ = ["BLOCKING", "posted"]

BLOCKING = {
    "Ibarrier": "Barrier", "Ibcast": "Bcast", "Igather": "Gather", "Iscatter": "Scatter",
    "Iallgather": "Allgather", "Ialltoall": "Alltoall", "Ireduce": "Reduce",
    "Iallreduce": "Allreduce", "Ireduce_scatter": "Reduce_scatter",
    "Ireduce_scatter_block": "Reduce_scatter_block", "Iscan": "Scan", "Iexscan": "Exscan",
}  # fmt: skip
"""The blocking method of each nonblocking one that xupc can carry."""

_NO_TEAM = "no team yet: a blocking collective opens it"
_UNEVEN = "blocks of different sizes"


def posted(form: Callable[..., Ready]) -> Method:
    """Make a nonblocking method of what brings the messages of the blocking one into form."""

    def add(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        shape = form_of(name)

        @functools.wraps(run)
        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            try:
                ready: Ready | None = form(self, *arguments, **keywords)
            except Exception as error:
                if of_program(error):
                    raise
                ready = None
            if ready is None:  # not inside `except`: mpi4py's error has no context
                return awaited(run(self, *arguments, **keywords))
            record = self._counts()
            team, why = _team_of(self, record, name, ready)
            record.note(name, ready.nbytes, "MPI" if why else "xupc", why)
            if why:
                if team is not None and shape is not None:
                    learn_given(self, shape, arguments, keywords, ready.nbytes, why)
                return awaited(run(self, *arguments, **keywords))
            record.begin_by_xupc(shape or name)
            learnt: tuple[Any, Any] | None = None, None
            if not ready.nbytes:
                call = _meeting(team.state, name)
            else:
                call, learnt = _bound(name, ready, team)
            request = call.request.start((arguments, keywords, ready.arguments), call.finish)
            if learnt is not None:  # afterwards: a call that a finalizer makes must not take it
                record.learn_posted(
                    shape, arguments, keywords, self.rank, ready.nbytes or 0, call.request, *learnt
                )
            return request

        return method

    return add


def _team_of(comm: Any, record: Any, method: str, ready: Ready) -> tuple[Any, str]:
    """Return the communicator's team and why MPI carries the call, or ""."""
    team = None if record.due() else team_for(comm, record, method)
    if team is None:
        return None, record.refused or _NO_TEAM
    if record.no_requests:
        return team, record.no_requests
    if ready.why:
        return team, ready.why
    if ready.nbytes is not None and not isinstance(ready.call, ArrayCall):
        return team, _UNEVEN
    return team, why_not(record.carriers, method, ready.nbytes, comm.size)


class _Call:
    """A call to start, and what brings its result to its place."""

    __slots__ = ("finish", "request")

    def __init__(self, request: Any, finish: Callable[[], object] | None) -> None:
        self.request, self.finish = request, finish


def _meeting(state: Any, name: str) -> _Call:
    """Return a call that moves no data: a barrier, or another one whose blocks are empty."""
    state.enter(name, posted=True)
    instance = state.meeting(fingerprint(name), CallRecord(name))
    return _Call(core.RequestCall(instance, True), None)


def _bound(name: str, ready: Ready, team: Any) -> tuple[_Call, tuple[Any, Any] | None]:
    """Return the call, and its arrays if another call with the same arguments can use it."""
    assert isinstance(ready.call, ArrayCall)
    bound, copies = call_of(name, ready.call.name).bound(*ready.arguments, team)
    unpack = isinstance(ready.result, Message) and ready.result.described is not None
    finish: Callable[[], object] | None = None
    if unpack or bound.into is not None:
        if isinstance(ready.result, Message):
            ready.result.keep_datatype()

        def finish() -> None:
            bound.finish()
            if ready.result is not None:
                ready.result.unpack()

    call = _Call(core.RequestCall(bound.instance, False), finish)
    again = finish is None and not copies and ready.scratch is None
    return call, (bound.dst, bound.src) if again else None
