"""The common path of calls on shared memory, and the plans that users run.

A collective is an object of a :class:`SharedCall`. Calling the object runs the collective; its
``plan`` method returns a bound plan that can be run many times. If a call repeats the arguments of
an earlier one, by identity, it runs the bound plan of that call directly (`CachedCall`) and skips
this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from ..backends.interpreter import interpreter as python_engine
from ..backends.native.native_core import core
from ..errors import XupcError
from ..fingerprint import fingerprint
from ..flags import ASYNC, IN_ALLSYNC, OUT_ALLSYNC, check_flags, sync_modes
from ..health.call_record import CallRecord
from ..pgas.allocation import Allocation
from ..pgas.integer_arguments import as_integer
from ..pgas.shared_pointer import SharedPointer
from ..pgas.shared_reference import as_address
from ..records import mutable_record, public_names
from ..runtime.async_queue import AsyncCall
from ..runtime.team_state import TeamState
from .argument_checks import named_flags
from .call_family import CallFamily
from .family_table import FamilyTable
from .handles import Handle, post
from .team import resolve

__all__ = [
    "BoundCall", "BoundPlan", "CachedArrays", "CachedCall", "NamedCall", "ResolvedCall",
    "SharedCall", "SharedPlan",
]  # fmt: skip

CachedArrays: Any = python_engine.CachedArrays if core is None else core.CachedArrays
CachedCall: Any = python_engine.CachedCall if core is None else core.CachedCall
CachedPlan: Any = python_engine.CachedPlan if core is None else core.CachedPlan
if core is not None:
    core.set_pointer_type(SharedPointer)


@mutable_record
class ResolvedCall:
    """A call with known team and flags; `full` holds the flags with all defaults filled in."""

    team: TeamState
    full: int
    record: CallRecord

    @property
    def posted(self) -> bool:
        """True if the call is asynchronous."""
        return bool(self.full & ASYNC)

    @property
    def synchronising(self) -> bool:
        """True if the call synchronises all threads of the team."""
        return bool(self.full & (IN_ALLSYNC | OUT_ALLSYNC))

    @property
    def sync(self) -> tuple[str, str]:
        """The modes ``(in, out)`` in the form that plans use."""
        return sync_modes(self.full)

    def fail(self, error: Exception) -> NoReturn:
        """Raise the error of an argument, and let no other thread hang."""
        self.team.fail(error, self.record, self.synchronising, posted=self.posted)
        raise error


@mutable_record
class BoundCall:
    """A call ready to be run; `instance` does the work.

    `family` returns the family of the call, if it has pointers that may have other offsets.
    """

    opened: ResolvedCall
    allocations: Sequence[Allocation]
    instance: Any = None
    family: Callable[[], CallFamily] | None = None

    @property
    def instances(self) -> Iterator[Any]:
        """The instances in order; run each one before the request for the next one."""
        yield self.instance

    def run(self) -> Handle | None:
        """Run it, or post it."""
        call = self.opened
        if call.posted:
            return post(AsyncCall(call.team, self.instances, call.record, self.allocations))
        self.last().execute()
        return None

    def last(self) -> Any:
        """Run all that comes before the work, and return the instance that does it."""
        return self.instance


class NamedCall:
    """A collective as an object that users see; the name is that of the function."""

    __name__: str

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    def __dir__(self) -> list[str]:
        return public_names(self, only=frozenset(("plan",)))

    def __reduce__(self) -> str:
        return self.__name__


class SharedCall(NamedCall, CachedCall):  # type: ignore[misc]
    """A collective on shared memory; `_prepare` checks the arguments it is called with."""

    def _prepare(self, *args: Any, **kwargs: Any) -> BoundCall:
        """Check everything and bind a plan."""
        raise NotImplementedError

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """Run a call that is not in the cache."""
        found = self._families.find(args, kwargs)
        if found is not None:
            known, places = found
            known.instance.owner.enter(self.__name__)
            known.bind(places).execute()
            return None
        call: BoundCall = self._checked_names(self._prepare, args, kwargs)
        if not call.opened.posted:
            self._keep(args, kwargs, call)
        return call.run()

    def _keep(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: BoundCall) -> None:
        """Keep a call for later ones with the same arguments, or with other offsets."""
        family = None if call.family is None else call.family()
        if call.opened.team.native:
            self.remember(args, call.instance, kwargs)
            if family is not None:
                self.remember_family(args, call.instance, family, kwargs)
        elif family is not None:
            self._families.add(args, kwargs, family, call.instance)

    @cached_property
    def _families(self) -> FamilyTable:
        """The families that the core does not have."""
        return FamilyTable(phased=self.phased)

    def _checked_names(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return `takes(*args, **kwargs)`; report a missing or unknown argument to all threads."""
        args, kwargs = self._without_algorithm(takes, args, kwargs)
        try:
            return takes(*args, **kwargs)
        except TypeError:
            wrong = self._wrong_names(takes, args, kwargs)
            if wrong is None:  # an error of `takes` itself, which it has reported
                raise
        team, _ = resolve(kwargs.get("team"), self.__name__)
        team.enter(self.__name__)
        return team.fail(wrong, CallRecord(self.__name__))

    def _without_algorithm(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with `algorithm`, if it is given, as a part of `flags`."""
        if "algorithm" not in kwargs:
            return args, kwargs
        call, kwargs = self.__name__, dict(kwargs)
        algorithm = kwargs.pop("algorithm")
        at = list(inspect.signature(takes).parameters).index("flags")
        if at < len(args):
            flags = named_flags(call, args[at], algorithm)
            return (*args[:at], flags, *args[at + 1 :]), kwargs
        kwargs["flags"] = named_flags(call, kwargs.get("flags", 0), algorithm)
        return args, kwargs

    def _wrong_names(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError | None:
        try:
            inspect.signature(takes).bind(*args, **kwargs)
        except TypeError as e:
            return TypeError(f"{self.__name__}: {e}")
        return None

    def _open(self, team: Any, flags: Any, record: CallRecord) -> ResolvedCall:
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
        return ResolvedCall(on, full, record)

    def _check_flags(self, flags: Any) -> int:
        call = self.__name__
        return check_flags(as_integer(flags, call, "flags"), call)

    def _plan(self, call: BoundCall, **operands: Any) -> SharedPlan:
        """Agree with all threads on the instance, and give it to the user."""
        operands = {name: x for name, x in operands.items() if x is not None}
        team = call.opened.team
        team.enter(f"{self.__name__}.plan")  # all meet, also if it is to be run by ASYNC
        instance = call.last()
        record = CallRecord(f"{self.__name__}.plan", instance.record.arguments)
        team.meet(fingerprint("plan", instance.hash), record)
        return SharedPlan(self.__name__, call, instance, operands)


class BoundPlan(CachedPlan):  # type: ignore[misc]
    """A collective bound to its data: call it to run it, print it to see its steps.

    It keeps its team and its data; it takes nothing else, and ends with the last reference to it.

    Attributes
    ----------
    algorithm : str
        Begins ``pull``, ``push`` or ``multicore``; empty where nothing moves.
    """

    def __init__(self, name: str, team: TeamState, instance: Any, *, posted: bool) -> None:
        self.name = name
        self.team = team
        self._hold = team.hold  # a plan keeps the team that it is on
        self.instance = instance
        self.algorithm: str = "" if instance is None else instance.plan.algorithm
        self._posted = posted
        self._started: AsyncCall | None = None

    def slow(self) -> Handle | None:
        """Make a call that the core does not make by itself."""
        if self._posted:
            return self.start()
        self._enter(posted=False)
        self._run()
        return None

    def start(self) -> Handle:
        """Post the call; collective, under the plan's flags, one at a time."""
        started = self._started
        if started in self.team.job.unfinished and not started.abandoned:
            raise XupcError(f"{self.name}.start: the call is started already: wait for its handle")
        self._enter(posted=True)
        self._started = self._pending()
        return post(self._started)

    def __await__(self) -> Generator[Any, Any, None]:
        """Start the call, and wait in a coroutine."""
        return self.start().__await__()

    def _enter(self, *, posted: bool) -> None:
        """Check before a run that everything the plan uses still exists."""
        self.team.enter(f"{self.name}.plan", posted=posted)

    def _run(self) -> None:
        """Run the plan."""
        raise NotImplementedError

    def _pending(self) -> AsyncCall:
        """Return the plan's call in a form that can be posted."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        return public_names(self, only=frozenset(("algorithm", "start")))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a plan cannot be pickled or copied: it is bound to memory of this thread")

    def __str__(self) -> str:
        return "nothing to move" if self.instance is None else str(self.instance.plan)

    def __repr__(self) -> str:
        return f"<xupc plan of {self.name} by {self.algorithm}>"


class SharedPlan(BoundPlan):
    """A plan on shared memory."""

    def __init__(
        self, name: str, call: BoundCall, instance: Any, operands: Mapping[str, Any]
    ) -> None:
        super().__init__(name, call.opened.team, instance, posted=call.opened.posted)
        self.operands = operands
        self.allocations = call.allocations
        self._bind()

    def _bind(self) -> None:
        if self.team.native and not self._posted:
            self.bind(self.instance)

    def _enter(self, *, posted: bool) -> None:
        super()._enter(posted=posted)
        call = f"{self.name}.plan"
        for argument, x in self.operands.items():
            try:
                as_address(x)[0].check_live(call, argument)
            except ValueError as e:
                record = CallRecord(call, self.instance.record.arguments)
                self.team.fail(e, record, posted=posted)

    def _run(self) -> None:
        self._bind()
        self.instance.execute()

    def _pending(self) -> AsyncCall:
        instance = self.instance
        return AsyncCall(self.team, [instance], instance.record, self.allocations)
