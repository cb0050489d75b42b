"""How xupc takes a method over: bring the messages into form, decide, and make the call.

A thread whose arguments are wrong calls mpi4py with the same arguments, which raises its own error;
such a call meets no other thread and does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from ..errors import CollectiveMismatchError, XupcError
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from .carrier import team_for
from .descriptions import as_rank
from .failures import of_program
from .mismatch import carry
from .pickles import PICKLING
from .repeated import form_of

__all__ = [
    "BY_TABLE", "Method", "Ready", "apart", "check_blocks", "in_place", "learn_given",
    "may_overlap", "root_of", "taken_over", "why_not",
]  # fmt: skip

Run = Callable[..., Any]
Method = Callable[[str, Run], Run]
"""``(name, mpi4py's method) -> the method that takes its place``."""

BY_TABLE = "table: MPI is faster here"
_OF_ALL_BLOCKS = frozenset(
    (
        "Allgather", "Allgatherv", "Alltoall", "Reduce_scatter", "Reduce_scatter_block",
        "Iallgather", "Ialltoall", "Ireduce_scatter", "Ireduce_scatter_block",
    )
)  # fmt: skip


class Result(Protocol):
    """The data that a call brings to this thread."""

    def unpack(self) -> Any:
        """Copy it to where the program wants it; return what the method returns."""


class Ready(NamedTuple):
    """A call whose messages are in form.

    Attributes
    ----------
    nbytes
        Bytes of the message that decide; None for a call without data, or if only its senders have
        the sizes.
    call
        The function of xupc; None if `why` is given.
    arguments
        Those before the team.
    result
        The object to unpack afterwards, if this thread gets data.
    why
        A reason for MPI that all threads have, or "".
    scratch
        Describes an array of the call that is not the program's memory, but can be used again by
        the same call: ("result", 0), or ("operands", bytes before their copy in the result).
    """

    nbytes: int | None
    call: Run | None
    arguments: tuple[Any, ...] = ()
    result: Result | None = None
    why: str = ""
    scratch: tuple[str, int] | None = None


def taken_over(form: Callable[..., Ready]) -> Method:
    """Make a method of what brings its messages into form; `form` takes mpi4py's arguments."""

    def add(name: str, run: Run) -> Run:
        shape = form_of(name)

        @functools.wraps(run)
        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            try:
                found = form(self, *arguments, **keywords)
            except Exception as error:
                if of_program(error, PICKLING):
                    self._counts().failed_alone(name, error)
                    raise
                found = None
            if found is None:  # not inside `except`: mpi4py's error has no context
                return run(self, *arguments, **keywords)
            nbytes, call, ready, result, why, scratch = found
            team, why = _team_of(self, name, nbytes, why)
            if why or call is None:
                if team is not None and shape is not None:
                    learn_given(self, shape, arguments, keywords, nbytes, why)
                return run(self, *arguments, **keywords)
            state = team.state
            record = self._counts()
            record.begin_by_xupc(shape or name)
            state.methods.begin(state.core.op, name)
            try:
                if nbytes == 0:
                    carry(_without_data, name, team)
                else:
                    carry(call, *ready, team)
            except XupcError as error:
                differ = isinstance(error, CollectiveMismatchError)
                record.failed_by_xupc(differ, state.core.since)
                raise
            finally:
                state.methods.begin(state.core.op, "")
            state.job.network.catch_up()  # as MPI's call does: see mpi_progress.h
            if shape is not None and not shape.moves_object:
                _learn(self, shape, arguments, keywords, nbytes or 0, call, (*ready, team), scratch)
            return None if result is None else result.unpack()

        return method

    return add


def _without_data(name: str, team: Any) -> None:
    """Make a call whose blocks are empty on this thread: a later call finds if all threads did."""
    state = team.state
    state.enter(name)
    state.note(fingerprint(name), CallRecord(name, [("message", "none")]))


def _team_of(comm: Any, method: str, nbytes: int | None, why: str) -> tuple[Any, str]:
    """Count a call, and return the communicator's team and why MPI carries the call, or ""."""
    record = comm._counts()
    team = team_for(comm, record, method)
    if team is None:
        why = record.refused
    elif not why:
        why = why_not(record.carriers, method, nbytes, comm.size)
    record.note(method, nbytes, "MPI" if why else "xupc", why)
    return team, why


def why_not(carriers: Any, method: str, nbytes: int | None, size: int) -> str:
    """Return why MPI carries a call that xupc can carry, or ""."""
    if carriers is None:
        return ""
    block = nbytes // size if nbytes is not None and method in _OF_ALL_BLOCKS else nbytes
    return BY_TABLE if carriers.by_mpi(method, block) else ""


def learn_given(
    comm: Any, shape: Any, arguments: Any, keywords: Any, nbytes: int | None, why: str
) -> None:
    """Keep a call that goes to MPI: all calls of its method if no size decides."""
    record = comm._counts()
    if why == BY_TABLE and (nbytes is None or record.carriers.all_by_mpi(shape.name)):
        record.give_all(shape, why)
    else:
        record.learn_given(shape, arguments, keywords, comm.rank, nbytes or 0, why)


def _learn(
    comm: Any, shape: Any, arguments: Any, keywords: Any, nbytes: int, call: Run,
    given: tuple[Any, ...], scratch: tuple[str, int] | None,
) -> None:  # fmt: skip
    """Keep a call that xupc has carried, for those that repeat it."""
    state = given[-1].state
    if not shape.messages:
        call = state.plain_barrier
    record = state.core.record_of(state.core.op)
    if record is not None:
        state.methods.repeats(shape.name, record)
    comm._counts().learn(shape, arguments, keywords, comm.rank, nbytes, call, given, scratch)


# --- arguments ----------------------------------------------------------------------------------


def root_of(comm: Any, root: Any) -> int:
    """Return a root as an int; ValueError if there is no such thread."""
    rank = as_rank(root)
    if not 0 <= rank < comm.size:
        raise ValueError(f"root: expected 0 <= root < {comm.size}, got {rank}")
    return rank


def check_blocks(whole: int, block: int, blocks: int) -> None:
    """Raise ValueError if `whole` is not so many blocks of so many bytes or elements."""
    if whole != block * blocks:
        raise ValueError(f"expected {blocks} blocks of {block}, got {whole}")


def in_place(described: Any) -> bool:
    """Return whether this is ``MPI.IN_PLACE``, which mpi4py also writes as None."""
    return described is None or described is MPI.IN_PLACE


def apart(src: Any, dst: Any) -> Any:
    """Return `src`, or a copy if it shares memory with `dst`."""
    return src.copy() if src is not None and may_overlap(src, dst) else src


def may_overlap(src: Any, dst: Any) -> bool:
    """Return False if two arrays share no memory.

    Two arrays that own their memory do not overlap: this is faster to see than the addresses.
    """
    first, second = _owner(src), _owner(dst)
    if first is not second and _owns(first) and _owns(second):
        return False
    return bool(np.may_share_memory(src, dst))


def _owner(array: Any) -> Any:
    base = array.base
    return array if base is None else base


def _owns(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.owndata
