"""Permute on private arrays, whose targets are gathered from all threads first."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import HeapError
from ..flags import ASYNC
from ..health.call_record import CallRecord
from ..records import mutable_record, replace
from ..reduction.structured_dtypes import name as name_of
from ..runtime.async_queue import AsyncCall
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec
from .array_arguments import Array, Kind, RawArguments, Ready
from .array_call import ArrayCall
from .handles import Handle, post

__all__ = [
    "Permute",
    "PermuteTargets",
]


@mutable_record
class PermuteTargets:
    """The first phase of a permute: gather `to` of all threads on all threads.

    Attributes
    ----------
    instance
        Gathers `mine` of all threads into `every`.
    kind, full, record
        The permute itself, before its permutation is known.
    work, last
        Its instance for the permutation `last`.
    """

    team: TeamState
    instance: Any
    mine: Array
    every: Array
    kind: Kind
    full: int
    record: CallRecord
    work: Any = None
    last: bytes = b""

    def bound(self) -> Any:
        """Return the instance, bound again: other calls may have used it."""
        self.instance.rebind(self.every.ctypes.data, self.mine.ctypes.data)
        return self.instance


class Permute(ArrayCall):
    """A permute: `to` differs among threads, so all of it is gathered first."""

    def __init__(self, spec: CollectiveSpec, form: str = "allav", kind: str = "") -> None:
        super().__init__(spec, form, kind)
        self._gather = ArrayCall(SPECS["gather_all"], form)
        self._gather.__name__ = self.__name__
        self._gather.kind = kind

    def __call__(self, *args: Any, **kwargs: Any) -> Handle | None:
        targets: PermuteTargets | None = self.note_of(args, kwargs)
        if targets is None:
            return self.slow(args, kwargs)
        targets.bound().execute()
        if targets.every.tobytes() == targets.last:
            targets.work.execute()
        else:
            given = RawArguments.of(self._by_name(args, kwargs)[0])
            self._run(targets, given, args, kwargs)
        return None

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """Make a call of a kind that is not in the cache."""
        team, given = self._given(args, kwargs)
        targets = self._first(team, given, own=given.posted)
        if given.posted:
            return post(AsyncCall(team, self._steps(targets, given), targets.record))
        targets.bound().execute()
        self._run(targets, given, args, kwargs)
        return None

    def _prepare(self, team: TeamState, given: RawArguments, *, own: bool = False) -> Ready:
        """Check everything, gather `to` and bind an instance."""
        targets = self._first(team, given, own=own)
        targets.bound().execute()
        return self._work(targets, given, own=own)

    def _steps(self, targets: PermuteTargets, given: RawArguments) -> Iterator[Any]:
        """Yield the instances of a posted call."""
        yield targets.bound()
        yield from self._work(targets, given, own=True).steps()

    def _first(self, team: TeamState, given: RawArguments, *, own: bool) -> PermuteTargets:
        """Check the arguments of this thread and prepare to gather `to`."""
        record = self._record(given, None)
        try:
            full = self._check_flags(given)
            found = self._arrays(team, given)
            to = self._rank(given.root, team, "to")
        except Exception as e:
            team.fail(e, record, posted=given.posted)
            raise
        record = self._record(given, found)
        flags = operator.index(given.flags)
        kind = Kind(found.nbytes, name_of(found.dtype), 0, -1, None, flags, found.in_place)
        # the fingerprint of the gather holds the other arguments that must be equal
        gathered = Kind(8, f"{kind.nbytes} {kind.dtype}", 0, -1, None, kind.flags, False)
        make = self._gather._new_instance if own else self._gather._instance
        instance = make(team, gathered, full & ~ASYNC, None, record)
        mine, every = np.array([to], np.int64), np.empty(team.size, np.int64)
        return PermuteTargets(team, instance, mine, every, kind, full, record)

    def _work(self, targets: PermuteTargets, given: RawArguments, *, own: bool = False) -> Ready:
        """Bind the permute to these arrays, after `to` is gathered."""
        team, full = targets.team, targets.full
        record = targets.record.with_more(
            []
        )  # an error from here on must not appear in later calls
        senders: dict[int, int] = {}
        for rank, target in enumerate(targets.every.tolist()):
            if target in senders:
                text = f"threads {senders[target]} and {rank} both give to {target}"
                error = ValueError(f"{self.__name__}: to: {text}: expected a permutation")
                team.fail(error, record)
            senders[target] = rank
        kind = replace(targets.kind, perm=targets.every.tobytes())
        if not kind.nbytes:
            return Ready(None)
        try:
            kind = self._in_place_or_not(team, kind, full)
            src = None if targets.kind.in_place else given.src
            return self._bind(team, kind, full, None, given.dst, src, record, own=own)
        except HeapError as e:
            team.fail(e, record)

    def _run(
        self,
        targets: PermuteTargets,
        given: RawArguments,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Run the permute and cache the call."""
        ready = self._work(targets, given)
        if ready.instance is not None:
            note = replace(targets, work=ready.instance, last=targets.every.tobytes())
            self._remember(args, kwargs, ready, given, note)
            ready.instance.execute()
            ready.finish()
