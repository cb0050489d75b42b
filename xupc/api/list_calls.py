"""Collectives with lists among their arguments: what a list holds is data, and may be shared.

As in `xupc.api.call_cache` an object per collective. A call goes through these phases:

1. what is known at once is checked: flags, team, the lists' kinds and lengths;
2. if a list is shared, all meet where the IN flag says that it may be read;
3. the lists are read, and what they hold is checked as a whole;
4. the plan for just that is found, bound and run.

A call with the same arguments as an earlier one, and lists that still hold the same, goes from 1 or
from the reading straight to the bound plan (`CachedListCall`); if its lists are tuples, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.native.native_core import caches, invalidations
from ..backends.wait import Waitable
from ..comm.remote_completion import RemoteCompletion, incomplete
from ..pgas.allocation import Allocation
from ..pgas.slices import extent
from ..records import mutable_record
from ..runtime import current
from .call_cache import BoundCall, ResolvedCall, SharedCall
from .handles import Handle
from .list_allgather import ListAllgather
from .list_arguments import List, contents, lasting

__all__ = ["ListCall", "ListArgumentCall", "after_reading"]

_COPIED = (list, np.ndarray)
CALLS = 64
"""How many calls are remembered."""
TEAM_CALLS = 4
"""How many of them on memory of teams: while one is remembered, its team is not given back."""


@mutable_record
class ListArgumentCall(ResolvedCall):
    """A call with valid arguments, except for the contents of its lists."""

    @property
    def lists(self) -> Sequence[List]:
        """All lists of the call."""
        raise NotImplementedError

    @property
    def memory(self) -> list[Allocation]:
        """The allocations of the other arguments."""
        raise NotImplementedError

    @property
    def shared_lists(self) -> list[List]:
        """The shared lists, which the call reads when the IN flag permits it."""
        return [listed for listed in self.lists if listed.shared is not None]

    @property
    def allocations(self) -> list[Allocation]:
        """The allocations that the call is known to use."""
        lists = [x.shared.allocation for x in self.lists if x.shared is not None]
        return [*self.memory, *lists]

    @property
    def where(self) -> list[int]:
        """The addresses of its shared lists, each with its number of integers in front."""
        return [v for listed in self.lists for v in (len(listed.where), *listed.where)]

    @property
    def keeps_team(self) -> bool:
        """True if it uses memory of a team, which exists while there is a reference to it."""
        return any(not allocation.of_world for allocation in self.allocations)


@mutable_record
class DeferredListCall(BoundCall):
    """A call that can be bound when its shared lists have been read.

    Attributes
    ----------
    lists
        The shared lists.
    meeting
        The instances to run before a thread may read the lists.
    bringing
        The gathering of the lists on all threads; None if each thread reads them itself.
    read
        Reads the lists and returns the instance; None if the caller needs only the lists.
    """

    lists: Sequence[List] = ()
    meeting: Sequence[Any] = ()
    bringing: ListAllgather | None = None
    read: Callable[[], Any] | None = None

    @property
    def instances(self) -> Iterator[Any]:
        yield from self._before()
        if self.bringing is None:
            yield self._readable()
        assert self.read is not None
        yield self.read()

    def last(self) -> Any:
        self.meet()
        assert self.read is not None
        return self.read()

    def meet(self) -> None:
        """Run all instances that must complete before this thread may read the lists."""
        for instance in self._before():
            instance.execute()

    def _before(self) -> Iterator[Any]:
        yield from self.meeting
        if self.bringing is not None:
            yield self.bringing.instance(self.opened.record)
            self.bringing.finish()

    def _readable(self) -> Waitable:
        """Return a condition: earlier calls have completed their writes to remote lists."""
        job = self.opened.team.job
        info = job.info
        where = [(listed.shared, listed.count) for listed in self.lists]
        owners = {run[0] for p, n in where if p is not None for run in extent(p, n)}
        owners = {t for t in owners if info.tree.node_of(t) != info.node}
        left: list[RemoteCompletion] = []

        def settled() -> bool:
            left[:] = incomplete(left)
            if not left:  # others may have come since
                left[:] = [found for t in owners for found in job.completions.pending(t)]
            return not left

        return Waitable(settled, "shared lists", sorted(owners))


@mutable_record
class CachedListCall:
    """An earlier call with the same argument objects, and the contents of its lists.

    Attributes
    ----------
    arguments
        The objects themselves, so that no other object can have the same identity.
    copies
        (list, copy) for each private list that may have changed since.
    shared
        The bytes of each shared list.
    reading
        The call that reads the shared lists again; None before its first use.
    """

    arguments: tuple[Any, ...]
    call: ListArgumentCall
    instance: Any
    copies: list[tuple[Any, Any]]
    shared: list[bytes]
    reading: DeferredListCall | None = None

    @property
    def usable(self) -> bool:
        """True if the team and all allocations still exist."""
        call = self.call
        return current.usable(call.team) and all(allocation.live for allocation in call.allocations)

    def same_arguments(self) -> bool:
        """Return True if private lists are unchanged and all memory still exists."""
        return self.usable and all(contents(given) == copy for given, copy in self.copies)

    def same_lists(self, elements: Sequence[NDArray[Any]]) -> bool:
        """Return True if shared lists have the same contents as in the earlier call."""
        return [x.tobytes() for x in elements] == self.shared


class ListCall(SharedCall):
    """A collective with lists among its arguments."""

    def __init__(self) -> None:
        self._known: dict[Any, CachedListCall] = {}
        self._looked_at = 0
        caches.append(self._known.clear)

    def forget(self) -> None:
        """Drop the records of all earlier calls, since the job has ended."""
        super().forget()
        self._known.clear()

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ListArgumentCall:
        """Check what is known before any list is read."""
        raise NotImplementedError

    def _lists_signature(self, call: Any) -> int:
        """Return the fingerprint of the meeting before the call reads shared lists."""
        raise NotImplementedError

    def _read(self, call: Any, sync: tuple[str, str]) -> Any:
        """Read the lists, and bind the plan for their contents."""
        raise NotImplementedError

    # -- calling ---------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """Make a call, but one that is remembered with nothing to look at again."""
        key = _identity(args, kwargs)
        known = self._known.get(key)
        elements: list[NDArray[Any]] = []
        if known is not None and known.same_arguments():
            known.call.team.enter(self.__name__)
            elements = self._again(known)
            if known.same_lists(elements):
                known.instance.execute()
                return None
            call = known.call
        else:
            call = self._check_call(args, kwargs)
        prepared = self._prepared(call, elements)
        if call.posted:
            return prepared.run()
        last = prepared.last()
        self._remember(key, (args, kwargs), call, last)
        last.execute()
        return None

    def _remember(
        self, key: Any, arguments: tuple[Any, ...], call: ListArgumentCall, instance: Any
    ) -> None:
        """Keep a call whose lists can be compared."""
        copies, shared = [], []
        for listed in call.lists:
            if listed.shared is not None:
                shared.append(listed.data)
            elif isinstance(listed.original, _COPIED):
                copies.append((listed.original, contents(listed.original)))
            elif not lasting(listed.original):
                return
        if not (copies or shared) and call.team.native:  # nothing can change
            args, kwargs = arguments
            self.remember(args, instance, kwargs)
            return
        gone: list[Any] = []
        if self._looked_at != invalidations():  # what was freed is not to be kept alive
            gone = [k for k, known in self._known.items() if not known.usable]
            self._looked_at = invalidations()
        if call.keeps_team:
            of_teams = [k for k, known in self._known.items() if known.call.keeps_team]
            gone += of_teams[: max(0, len(of_teams) + 1 - TEAM_CALLS)]
        gone += list(self._known)[: max(0, len(self._known) + 1 - CALLS)]
        for k in gone:
            self._known.pop(k, None)
        self._known[key] = CachedListCall(arguments, call, instance, copies, shared)

    def _frozen(self, call: ListArgumentCall) -> BoundCall:
        """Return the call for a plan, bound to the present contents of the lists."""
        call.team.enter(f"{self.__name__}.plan")
        last = self._prepared(call, frozen=True).last()
        return BoundCall(call, call.allocations, last)

    # -- reading ---------------------------------------------------------------------------
    def _prepared(
        self, call: ListArgumentCall, elements: Sequence[NDArray[Any]] = (), *, frozen: bool = False
    ) -> BoundCall:
        """Return the call, ready to run; it reads private lists now.

        `elements`: of the shared ones, if those have been read. `frozen`: for a plan, which will
        not look at them again.
        """
        lists = call.shared_lists
        if not lists:
            return BoundCall(call, call.allocations, self._bound_to_lists(call, call.sync))
        sync = call.sync if frozen else after_reading(call.sync)
        if elements:
            for listed, read in zip(lists, elements, strict=True):
                listed.brought = read
            return BoundCall(call, call.allocations, self._bound_to_lists(call, sync))
        reading = self._reading(call)
        reading.read = lambda: self._read_when_met(call, sync)
        return reading

    def _read_when_met(self, call: ListArgumentCall, sync: tuple[str, str]) -> Any:
        if any(listed.brought is None for listed in call.shared_lists):
            call.team.job.engine.expect_reads(call.team)
        return self._bound_to_lists(call, sync)

    def _bound_to_lists(self, call: ListArgumentCall, sync: tuple[str, str]) -> Any:
        instance = self._read(call, sync)
        if call.keeps_team:
            call.record.settle()
        return instance

    def _again(self, known: CachedListCall) -> list[NDArray[Any]]:
        """Return the current contents of the shared lists of an earlier call."""
        call = known.call
        lists = call.shared_lists
        if not lists:
            return []
        if known.reading is None:
            known.reading = self._reading(call)
        elif known.reading.bringing is None:
            call.team.job.engine.expect_reads(call.team)
        known.reading.meet()
        return [listed.fetch() for listed in lists]

    def _reading(self, call: ListArgumentCall) -> DeferredListCall:
        """Return the call to run before a thread may read shared lists.

        If the lists are not gathered, every thread reads them itself. So all threads must first
        arrive where the IN flag permits the read. The owners may change the lists only after all
        threads have read them (`after_reading`).
        """
        team, lists = call.team, call.shared_lists
        bringing = ListAllgather.of(team, lists)
        if bringing is None:
            team.job.engine.expect_reads(team)
        meeting = []
        if call.sync[0] == "all":
            meeting = [team.meeting(self._lists_signature(call), call.record)]
        return DeferredListCall(
            call, call.allocations, lists=lists, meeting=meeting, bringing=bringing
        )


def after_reading(sync: tuple[str, str]) -> tuple[str, str]:
    """Return the modes for the rest of a call after it has read a shared list."""
    into, out = sync
    if out == "my":
        return "all", out  # an owner may change its part only after all have read it
    return ("no" if into == "all" else into), out


def _identity(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a call: identities of arguments, values of ints, names of keywords."""
    values = (*args, *kwargs, *kwargs.values())
    return (len(args), *(v if type(v) in (int, str) else (id(v),) for v in values))
