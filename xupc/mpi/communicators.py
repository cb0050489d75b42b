"""The communicator classes: subclasses of mpi4py's with the same handle.

A class has two bases: `DropIn`, which has no fields, and a class of mpi4py. mpi4py makes copies by
``cls.__new__(cls)`` and fills in the handle afterwards, so no class has an ``__init__``, and what
xupc keeps for a communicator is an attribute of the handle (`record`).
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..errors import show
from . import constants, explanation, methods
from .entry import replaced
from .failures import met
from .journal import ORDERED, ORDERED_COPIES, WATCHED
from .message_size import bytes_of
from .record import Record, all_counts, drop_record, record_of, world_rank
from .repeated import by_mpi
from .requests import returning_request
from .switch import EXPLAIN, OFF, mode

__all__ = ["Cartcomm", "Comm", "Distgraphcomm", "Graphcomm", "wrap"]

if TYPE_CHECKING:
    _Base = MPI.Intracomm
else:
    _Base = object  # the class of mpi4py is the second base of each class below


class DropInType(type):
    """The type of the classes: each equals the class of mpi4py that it stands for.

    Programs compare ``type(a) == type(b)`` where one communicator is mpi4py's and one is ours.
    """

    def __eq__(cls, other: object) -> bool:
        return cls is other or (other is not None and cls.__dict__.get("stands_for") is other)

    def __hash__(cls) -> int:
        base = cls.__dict__.get("stands_for")
        return type.__hash__(cls) if base is None else hash(base)

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is Comm and DropIn in subclass.__mro__:  # a sibling
            return True
        return super().__subclasscheck__(subclass)


class DropIn(_Base):
    """Common part of the communicator classes.

    It has no fields, so that a class compiled in C can take its place.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        _record: Record | None  # each class has slots of these names
        _label: str  # of a copy that may not be complete yet

    def __new__(cls, comm: MPI.Comm | None = None) -> Any:
        kind = _class_for(cls, comm)
        if kind is not cls:
            return kind(comm)
        made = super().__new__(cls, comm)
        made._record, made._label = None, ""
        return made

    def __repr__(self) -> str:
        """Describe it by what is known without a call of MPI: the handle may be freed."""
        kind, record = type(self).__name__, self._record
        if record is None:
            return f"<{kind} of xupc at {id(self):#x}, no call yet>"
        way = f"calls by MPI ({record.refused})"
        if record.team is not None:
            ended = record.team.state.job.ended
            way = "calls by MPI (xupc was finalized)" if ended else "xupc has a team"
        return f"<{kind} of xupc, rank {record.place[0]} of {record.place[1]}, {way}>"

    def explain(self, as_dict: bool = False) -> str | dict[str, dict[str, Any]]:
        """Describe where the calls on this communicator went, and why.

        Parameters
        ----------
        as_dict : bool
            Return ``{method: {"calls", "bytes", "carried_by", "why"}}`` in place of text; the last
            two are calls by carrier ("xupc" or "MPI") and by reason. "bytes" is None, in text -,
            where this thread does not know the bytes of all these calls.
        """
        runs = MPI.Is_initialized() and not MPI.Is_finalized()
        record = self._counts() if runs else self._record
        counts = {} if record is None else record.counts
        if as_dict:
            return explanation.as_data(counts)
        of = "" if record is None else f" of {record.place[1]} threads"
        return explanation.as_text(counts, f"xupc.Comm{of}")

    def free(self) -> None:
        """Call `Free` if not null or predefined."""
        if not constants.is_replacement(self):
            self._forget()
            super().free()

    def Free(self) -> None:  # noqa: N802
        """Free a communicator."""
        self._forget()
        super().Free()

    def Disconnect(self) -> None:  # noqa: N802
        """Disconnect from a communicator."""
        self._forget()
        super().Disconnect()

    def _forget(self) -> None:
        """Drop what xupc keeps for this communicator, which is freed now."""
        self._record = None
        drop_record(self)

    def __reduce__(self) -> Any:
        return constants.reduced(self) or super().__reduce__()

    def _counts(self) -> Record:
        found: Record | None = self._record
        if found is None:
            found = self._record = record_of(self)
            found.label = found.label or self._label
        return found


def _class_for(cls: Any, comm: object) -> Any:
    """Return the class for a communicator: `Comm` makes one of its siblings for a topology."""
    if isinstance(comm, MPI.Intercomm) or not (comm is None or isinstance(comm, MPI.Comm)):
        raise TypeError(
            f"Comm: comm: expected an intracommunicator of mpi4py, got {show(comm)}: use mpi4py "
            "itself for other communicators"
        )
    return _sibling(comm) if cls is Comm else cls


def _sibling(comm: object) -> Any:
    return next((cls for cls in _TOPOLOGIES if isinstance(comm, cls.stands_for)), Comm)


def wrap(comm: Any) -> Any:
    """Return a communicator of mpi4py as one of ours; an intercommunicator as it is."""
    return Comm(comm) if isinstance(comm, MPI.Intracomm) else comm


# --- methods that the classes get from the table ------------------------------------------------

_CLASS_METHODS = {"Create_from_group", "f2py", "fromhandle", "fromint"}


def _completed(cls: Any) -> Any:
    """Add the methods that return communicators, and those that ``XUPC_COMM`` asks for."""
    base = cls.stands_for
    for name in {*methods.names(methods.WRAPPED), *ORDERED, *ORDERED_COPIES}:
        if hasattr(base, name):
            run = getattr(base, name)
            setattr(cls, name, _ordered(name, run) if name in ORDERED else _adding(name)(run))
    for name in WATCHED if mode() != OFF else ():
        if hasattr(base, name):
            setattr(cls, name, by_mpi(name, getattr(base, name), met))
    requests = methods.requesting()
    for name in requests:
        if hasattr(base, name):
            setattr(cls, name, returning_request(getattr(base, name)))
    taken = [] if mode() == OFF else methods.names(methods.TAKEN)
    for name in taken:
        if hasattr(base, name):  # some are of communicators with a topology only
            run = getattr(base, name)
            setattr(cls, name, replaced(name, run, returns_request=name in requests))
    if mode() == EXPLAIN:
        for name in methods.counted():
            if hasattr(base, name):
                count = _with_bytes if name in taken else _counted
                setattr(cls, name, count(name, getattr(cls, name)))
    return cls


def _adding(name: str) -> Callable[..., Any]:
    """Return what makes our method of mpi4py's method that returns a communicator."""
    if name in _CLASS_METHODS:
        return _class_method
    if name == "Create_group":
        return _by_group
    if name in ORDERED_COPIES:
        return _ordered_copy
    return _method


def _method(run: Callable[..., Any]) -> Any:
    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrap(run(self, *args, **kwargs))

    return method


def _ordered(name: str, run: Callable[..., Any]) -> Any:
    """Have a method note what it makes; all threads are in it, so it can open their team, too."""
    noted = by_mpi(name, run, met)

    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = noted(self, *args, **kwargs)
        if not isinstance(made, DropIn):  # a copy is of the same class
            made = wrap(made)
        record = self._counts()
        record.has_made(made, made._counts() if made else None)
        if record.due():
            from .carrier import team_for

            team_for(self, record, name)
        return made

    return method


def _ordered_copy(run: Callable[..., Any]) -> Any:
    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        made, request = run(self, *args, **kwargs)
        made._label = self._counts().will_copy(self)
        return made, request

    return method


def _by_group(run: Callable[..., Any]) -> Any:
    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = wrap(run(self, *args, **kwargs))
        if made:
            tag = args[1] if len(args) > 1 else kwargs.get("tag", 0)
            self._counts().has_made_for_group(tag, made, made._counts())
        return made

    return method


def _class_method(run: Callable[..., Any]) -> Any:
    @functools.wraps(run)
    def method(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return wrap(run(*args, **kwargs))

    return classmethod(method)


def _counted(name: str, run: Callable[..., Any]) -> Any:
    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._counts().note(name, bytes_of(args))
        return run(self, *args, **kwargs)

    return method


def _with_bytes(name: str, run: Callable[..., Any]) -> Any:
    """Add the bytes of calls that are counted without them, where the arguments have them."""

    @functools.wraps(run)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        record = self._counts()
        before = record.unsized(name)
        result = run(self, *args, **kwargs)
        if (nbytes := bytes_of(args)) is not None:
            record.add_bytes(name, before, nbytes)
        return result

    return method


# --- the classes --------------------------------------------------------------------------------


@_completed
class Comm(DropIn, MPI.Intracomm, metaclass=DropInType):
    """A communicator of mpi4py whose collectives can run on xupc.

    ``xupc.Comm(comm)`` has the handle of `comm`, not a duplicate: the two are equal, and tags,
    attributes, error handlers and messages are those of `comm`. The communicators that it makes are
    of xupc too. For a communicator with a topology the result is a subclass of `MPI.Cartcomm`,
    `MPI.Graphcomm` or `MPI.Distgraphcomm`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Default a null communicator, as in mpi4py.

    Raises
    ------
    TypeError
        If `comm` is an intercommunicator, or no communicator.
    """

    __slots__ = ("_label", "_record")
    stands_for = MPI.Intracomm


@_completed
class Cartcomm(DropIn, MPI.Cartcomm, metaclass=DropInType):
    """A Cartesian communicator whose collectives can run on xupc."""

    __slots__ = ("_label", "_record")
    stands_for = MPI.Cartcomm


@_completed
class Graphcomm(DropIn, MPI.Graphcomm, metaclass=DropInType):
    """A graph communicator whose collectives can run on xupc."""

    __slots__ = ("_label", "_record")
    stands_for = MPI.Graphcomm


@_completed
class Distgraphcomm(DropIn, MPI.Distgraphcomm, metaclass=DropInType):
    """A distributed graph communicator whose collectives can run on xupc."""

    __slots__ = ("_label", "_record")
    stands_for = MPI.Distgraphcomm


_TOPOLOGIES: tuple[Any, ...] = (Cartcomm, Graphcomm, Distgraphcomm)


def _report() -> None:
    """Print the counts of all communicators, on the first thread."""
    if world_rank() == 0:
        text = explanation.as_text(all_counts(), "xupc.Comm: all communicators of thread 0")
        print(text, file=sys.stderr, flush=True)


def _report_trace() -> None:
    """Report on the first thread that no trace was written, since xupc has not started."""
    started = sys.modules.get("xupc.api.job_end")
    if world_rank() == 0 and not (started is not None and started.has_started()):
        print(
            "xupc: XUPC_TRACE: no trace was written: xupc did not start, since MPI carried all "
            "calls (XUPC_COMM=force gives xupc all calls from the first one on)",
            file=sys.stderr, flush=True,
        )  # fmt: skip


if mode() == EXPLAIN:
    atexit.register(_report)
if mode() != OFF and os.environ.get("XUPC_TRACE", "").strip():
    atexit.register(_report_trace)
