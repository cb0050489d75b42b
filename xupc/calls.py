"""What all calls of collectives on shared memory have in common, and plans that users run.

A collective is an object of a :class:`SharedCall`: calling it runs it, its ``plan`` gives a bound
plan to run again and again. A call that repeats the arguments of an earlier one, by identity, goes
straight to its bound plan (`HotCall`); nothing below happens for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from .arguments import as_integer
from .engine import python as python_engine
from .engine.job import Settling
from .engine.native_core import core
from .engine.pending import Pending
from .engine.reports import Record
from .engine.resync import Condition
from .errors import XupcError
from .fingerprint import fingerprint
from .flags import ASYNC, IN_ALLSYNC, OUT_ALLSYNC, check_flags, sync_modes
from .handles import Handle, post
from .lists import List
from .shared import Allocation, as_address, extent
from .shared_lists import Bringing
from .team import Team, resolve

__all__ = [
    "BoundPlan", "HotCall", "Opened", "Prepared", "SharedCall", "SharedPlan", "after_reading",
]  # fmt: skip

HotCall: Any = python_engine.HotCall if core is None else core.HotCall
HotPlan: Any = python_engine.HotPlan if core is None else core.HotPlan


@dataclass(slots=True)
class Opened:
    """A call of which team and flags are known; `full` has all of them filled in."""

    team: Team
    full: int
    record: Record

    @property
    def posted(self) -> bool:
        """Whether it is only begun."""
        return bool(self.full & ASYNC)

    @property
    def synchronising(self) -> bool:
        """Whether all threads meet in it."""
        return bool(self.full & (IN_ALLSYNC | OUT_ALLSYNC))

    @property
    def sync(self) -> tuple[str, str]:
        """``(in, out)`` as plans have it."""
        return sync_modes(self.full)

    def fail(self, error: Exception) -> NoReturn:
        """Raise the error of an argument, and let no other thread hang."""
        self.team.fail(error, self.record, self.synchronising, posted=self.posted)
        raise error


@dataclass(slots=True)
class Prepared:
    """A call ready to be run.

    Attributes
    ----------
    instance
        What does the work; None if it depends on what shared lists hold.
    meeting
        What has to be run before those may be read.
    read
        Reads them and returns the instance.
    lists
        They, unless they have been read.
    bringing
        What brings them to all threads; None: each thread reads them by itself.
    """

    opened: Opened
    allocations: Sequence[Allocation]
    instance: Any = None
    meeting: Sequence[Any] = ()
    read: Callable[[], Any] | None = None
    lists: Sequence[List] = ()
    bringing: Bringing | None = None

    @property
    def instances(self) -> Iterator[Any]:
        """One after the other; each has to be run before the next one is asked for."""
        yield from self.meeting
        yield from self._brought()
        if self.read is None:
            yield self.instance
            return
        if self.bringing is None:
            yield self._readable()
        yield self.read()

    def _brought(self) -> Iterator[Any]:
        """What brings the lists to all threads, where that can be done at once."""
        if self.bringing is not None:
            yield self.bringing.instance(self.opened.record)
            self.bringing.finish()

    def _readable(self) -> Condition:
        """Lists that lie on other nodes are as the calls before left them."""
        job = self.opened.team.job
        where = [(listed.shared, listed.count) for listed in self.lists]
        owners = {run[0] for p, n in where if p is not None for run in extent(p, n)}
        owners = {t for t in owners if job.tree.node_of(t) != job.node}
        left: list[Settling] = []

        def settled() -> bool:
            left[:] = [settling for settling in left if not settling.poll()]
            if not left:  # others may have come since
                left[:] = [settling for t in owners for settling in job.unsettled(t)]
            return not left

        return Condition(settled, "shared lists", sorted(owners))

    def run(self) -> Handle | None:
        """Run it, or post it."""
        call = self.opened
        if call.posted:
            return post(Pending(call.team, self.instances, call.record, self.allocations))
        self.last().execute()
        return None

    def last(self) -> Any:
        """Run all that comes before the work, and return the instance that does it."""
        self.meet()
        return self.instance if self.read is None else self.read()

    def meet(self) -> None:
        """Come to where shared lists may be read."""
        for instance in chain(self.meeting, self._brought()):
            instance.execute()


def after_reading(sync: tuple[str, str]) -> tuple[str, str]:
    """The modes of what is left of a call when a shared list has been read."""
    into, out = sync
    if out == "my":
        return "all", out  # nobody may change his part of the list before all have read it
    return ("no" if into == "all" else into), out


class SharedCall(HotCall):  # type: ignore[misc]
    """A collective on shared memory; `_prepare` checks the arguments it is called with."""

    __name__: str

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__

    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        """Check everything and bind a plan."""
        raise NotImplementedError

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """A call that is not in the cache."""
        call: Prepared = self._told(self._prepare, args, kwargs)
        if call.opened.team.job.native and not call.opened.posted:
            self.remember(args, call.instance, kwargs)
        return call.run()

    def _told(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`takes(*args, **kwargs)`; others are told if an argument is missing or unknown."""
        try:
            return takes(*args, **kwargs)
        except TypeError:
            wrong = self._wrong_names(takes, args, kwargs)
            if wrong is None:  # its own, which it has told
                raise
        team, _ = resolve(kwargs.get("team"), self.__name__)
        team.enter(self.__name__)
        return team.fail(wrong, Record(self.__name__))

    def _wrong_names(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError | None:
        try:
            inspect.signature(takes).bind(*args, **kwargs)
        except TypeError as e:
            return TypeError(f"{self.__name__}: {e}")
        return None

    def _open(self, team: Any, flags: Any, record: Record) -> Opened:
        """Check team and flags; from here on the call is one that the other threads make, too."""
        call = self.__name__
        on, wrong = resolve(team, call)
        full = 0
        try:
            full = self._check_flags(flags)
        except Exception as e:
            wrong = wrong or e
        on.enter(call, posted=bool(full & ASYNC))
        if wrong is not None:
            on.fail(wrong, record, not full or bool(full & (IN_ALLSYNC | OUT_ALLSYNC)))
        return Opened(on, full, record)

    def _check_flags(self, flags: Any) -> int:
        call = self.__name__
        return check_flags(as_integer(flags, call, "flags"), call)

    def _meeting(self, call: Opened, signature: int, bringing: Bringing | None) -> list[Any]:
        """What all have to come to before shared lists may be read.

        Unless they are brought every thread reads them, so those must have come to where they may
        be read, and all have read them before their owners may go on to change them
        (`after_reading`).
        """
        team = call.team
        if bringing is None:
            team.job.engine.expect_reads(team)
        if call.sync[0] != "all":
            return []
        return [team.meeting(signature, call.record)]

    def _plan(self, call: Prepared, **operands: Any) -> SharedPlan:
        """Agree with all threads on the instance, and give it to the user."""
        operands = {name: x for name, x in operands.items() if x is not None}
        team = call.opened.team
        team.enter(f"{self.__name__}.plan")  # all meet, also if it is to be run by ASYNC
        instance = call.last()
        record = Record(f"{self.__name__}.plan", instance.record.arguments)
        team.meet(fingerprint("plan", instance.hash), record)
        return SharedPlan(self.__name__, call, instance, operands)


class BoundPlan(HotPlan):  # type: ignore[misc]
    """A collective bound to its data: call it to run it, print it to see its steps.

    Attributes
    ----------
    algorithm : str
        Begins ``pull``, ``push`` or ``multicore``; empty where nothing moves.
    """

    def __init__(self, name: str, team: Team, instance: Any, *, posted: bool) -> None:
        self.name = name
        self.team = team
        self.instance = instance
        self.algorithm: str = "" if instance is None else instance.plan.algorithm
        self._posted = posted
        self._started: Pending | None = None

    def slow(self) -> Handle | None:
        """A call that the core does not make by itself."""
        if self._posted:
            return self.start()
        self._enter(posted=False)
        self._run()
        return None

    def start(self) -> Handle:
        """Post the call; collective, under the plan's flags, one at a time."""
        started = self._started
        if started in self.team.job.unfinished and not started.abandoned:
            raise XupcError(f"{self.name}.start: it has been started: wait for that")
        self._enter(posted=True)
        self._started = self._pending()
        return post(self._started)

    def _enter(self, *, posted: bool) -> None:
        """Before a run: that all is still there."""
        self.team.enter(f"{self.name}.plan", posted=posted)

    def _run(self) -> None:
        """Do it."""
        raise NotImplementedError

    def _pending(self) -> Pending:
        """It as a call to be posted."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError("a plan cannot be pickled or copied: it is bound to memory of this thread")

    def __str__(self) -> str:
        return "nothing to move" if self.instance is None else str(self.instance.plan)

    def __repr__(self) -> str:
        return f"<xupc plan of {self.name} by {self.algorithm}>"


class SharedPlan(BoundPlan):
    """A plan on shared memory."""

    def __init__(
        self, name: str, call: Prepared, instance: Any, operands: Mapping[str, Any]
    ) -> None:
        super().__init__(name, call.opened.team, instance, posted=call.opened.posted)
        self.operands = operands
        self.allocations = call.allocations
        self._bind()

    def _bind(self) -> None:
        if self.team.job.native and not self._posted:
            self.bind(self.instance)

    def _enter(self, *, posted: bool) -> None:
        super()._enter(posted=posted)
        call = f"{self.name}.plan"
        for argument, x in self.operands.items():
            try:
                as_address(x)[0].check_live(call, argument)
            except ValueError as e:
                record = Record(call, self.instance.record.arguments)
                self.team.fail(e, record, posted=posted)

    def _run(self) -> None:
        self._bind()
        self.instance.execute()

    def _pending(self) -> Pending:
        instance = self.instance
        return Pending(self.team, [instance], instance.record, self.allocations)
