"""Collectives on private arrays whose blocks differ in size: the `_v` calls.

A call with new sizes has three parts:

1. a barrier compares what must be equal on all threads: the call, the root, the flags (`_meeting`);
2. the threads compare the sizes that each of them expects (`_agree`), so that each finds a
   difference before data moves;
3. calls that move blocks of one size move the data (`_moves`, `uneven_blocks`).

A call that repeats the sizes of an earlier one runs a plan for just these (`uneven_plans`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ..algorithms.transfer_lists import Transfers
from ..errors import CollectiveMismatchError
from ..fingerprint import fingerprint
from ..flags import ALGORITHM_MASK, VARIANT_SHIFT
from ..health.call_record import CallRecord
from ..ops import Op
from ..reduction import kernels
from ..runtime.async_queue import AsyncCall
from ..specs import SPECS, CollectiveSpec
from .array_arguments import Kind, RawArguments, plain
from .array_call import ArrayCall
from .array_permute import Permute
from .call_cache import BoundPlan
from .handles import Handle, post
from .uneven_blocks import Move, Moves
from .uneven_checks import UnevenBound, UnevenForm
from .uneven_plans import (
    KnownCall,
    KnownSizes,
    Vote,
    between_all,
    instance_of,
    known_sizes,
    needs_places_of_all,
)

__all__ = ["UnevenCall", "UnevenPlan"]

_LONGEST = 1 << 20  # integers of a list whose contents are compared
_LISTS = 256  # different lists of integers that a collective keeps
# the collectives that move blocks of one size for a call
_INNER = ("broadcast", "exchange", "gather", "gather_all", "permute", "reduce_all", "scatter")


class UnevenCall(UnevenForm):
    """A collective on private arrays whose blocks differ in size."""

    def __init__(self) -> None:
        super().__init__()
        self._inner = {name: self._named(SPECS[name]) for name in _INNER}
        self._inner["counts"] = self._named(SPECS["exchange"])
        self._lists = {x for x in self.about if x.endswith("counts")} | {*self.displacements}
        self._at = [i for i, x in enumerate(self.about) if x in self._lists]
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def _named(self, spec: CollectiveSpec) -> ArrayCall:
        """Return a call that moves equal blocks and has the name of this one."""
        call = (Permute if spec.permutes else ArrayCall)(spec)
        call.__name__ = self.__name__
        return call

    # -- calling -------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Handle | None:
        same = self._same_lists(args, kwargs)
        if same is None:
            return self.slow(args, kwargs, lasting=False)
        known: KnownCall | None = self.note_of(same, kwargs)
        if known is None:
            return self.slow(same, kwargs)
        if known.vote is None:
            if not known.sizes.kept:
                return self.slow(args, kwargs)
        elif not known.vote.agrees(known.sizes):
            self._compare_and_move(self._checked(same, kwargs))
            return None
        if known.in_place:  # both operands of the plan are dst
            address = (same[0] if same else kwargs["dst"]).ctypes.data
            known.instance.rebind(address, address)
        known.instance.execute()
        return None

    def plan(self, *args: Any, **kwargs: Any) -> UnevenPlan:
        """Return a plan bound to these arrays; collective, like the call.

        The plan keeps counts and displacements, so its runs do not compare them.
        """
        call = self._checked(args, kwargs, plan=True)
        self._meeting(call).execute()
        number = call.team.core.op  # the number of the barrier just left: equal on all threads
        self._carry_out(call, self._agree(call))
        shown = call.record.arguments
        call.record = CallRecord(self.__name__, [*shown, ("plan", f"number {number}")])
        call.signature = fingerprint("run", call.signature, number)
        if not self._has_plans(call):
            return UnevenPlan(self, call, None)
        instance = self._instance(call, self._blocks_of_all(call), number)
        return UnevenPlan(self, call, instance)

    def run(self, call: UnevenBound) -> None:
        """Make a call without a plan; compare the sizes unless `UnevenCall.plan` has done so."""
        self._meeting(call).execute()
        if not call.agreed:
            self._carry_out(call, self._agree(call))
        self._carry_out(call, self._moves(call))

    def slow(self, args: Any, kwargs: Any, *, lasting: bool = True) -> Handle | None:
        """Make a call that is not in the cache of calls; put it there if it is `lasting`."""
        call = self._checked(args, kwargs)
        if call.given.posted:
            return post(AsyncCall(call.team, self.steps(call), call.record))
        if not self._has_plans(call):
            self.run(call)
            return None
        known = self._repeated(call)
        if known is not None:
            if lasting:
                self._remember(args, kwargs, call, known)
            call.bind(known.instance)
            known.instance.execute()
            call.finish()
        return None

    # -- calls that repeat an earlier one ------------------------------------------------
    def _same_lists(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """Return `args` with the same tuple for equal lists of integers; replace those in `kwargs`.

        The cache finds a call by the identity of such a tuple. Return None if there are lists of
        another kind, whose contents it cannot compare, or an item raises an error: the checks of
        the call find it then, and report it to all threads.
        """
        given = list(args)
        try:
            for i in self._at:
                if i < len(given):
                    given[i] = self._same_list(given[i])
            for name in kwargs:
                if name in self._lists:
                    kwargs[name] = self._same_list(kwargs[name])
        except Exception:
            return None
        return tuple(given)

    def _same_list(self, given: Any) -> Any:
        if given is None:
            return None
        if type(given) is np.ndarray:
            if given.size > _LONGEST:  # it may be of a broadcast array, without memory of its own
                raise TypeError
            given = given.tolist()
        elif type(given) is not list and type(given) is not tuple:
            raise TypeError
        found = tuple(map(operator.index, given))
        same = self._known.get(found)
        if same is None:
            if len(self._known) == _LISTS:
                self._known.clear()
            same = self._known[found] = found
        return same

    def _has_plans(self, call: UnevenBound) -> bool:
        """Return True if a call can have a plan; the same on all threads."""
        threads = call.team.size
        blocks = threads if self.spec.root else threads * threads
        return blocks <= KnownSizes.most and not call.flags >> VARIANT_SHIFT

    def _repeated(self, call: UnevenBound) -> KnownCall | None:
        """Return the plan of a call that repeats an earlier one; None: the call is made here."""
        kept, team = known_sizes(call.team), call.team
        if self.equal and not needs_places_of_all(team, call.flags, self._sizes(call)):
            sizes = kept.equal(call.signature)
            if sizes is not None:
                return KnownCall(self._own_instance(call), sizes, None, call.in_place)
            self._meeting(call).execute()
            kept.keep_equal(call.signature)
            self._carry_out(call, self._agree(call))
            self._carry_out(call, self._moves(call))
            return None
        vote, sizes = self._vote(call), kept.agreed(call.key)
        if not vote.agrees(sizes):
            self._compare_and_move(call)
            return None
        if sizes.moves is None:
            sizes.moves = self._blocks_of_all(call)
        moves, number = sizes.moves, sizes.number
        instance = team.instances.get(
            (self.__name__, number), lambda: self._instance(call, moves, number)
        )
        return KnownCall(instance, sizes, vote, call.in_place)

    def _compare_and_move(self, call: UnevenBound) -> None:
        """Make a call that not all threads repeat, and keep its sizes for the next one."""
        self._carry_out(call, self._agree(call))
        known_sizes(call.team).keep_agreed(call.key, call.team.core.op)
        self._carry_out(call, self._moves(call))

    def _vote(self, call: UnevenBound) -> Vote:
        """Return the vote of a call on whether all threads repeat an earlier one.

        Its reduction has the signature of the call, so it also compares what must be equal.
        """

        def made() -> Any:
            kernel = kernels.find(np.int64, Op.MIN, None, self.__name__)
            kind = Kind(16, f"vote {call.signature}", 0, int(Op.MIN), None, 0, False)
            return inner._new_instance(call.team, kind, 0, kernel, call.record)

        inner = self._inner["reduce_all"]
        return Vote(call.team.instances.get((self.__name__, "vote", call.signature), made))

    def _own_instance(self, call: UnevenBound) -> Any:
        """Return the instance of a call whose sizes are equal on all threads."""

        def made() -> Any:
            assert call.dst is not None
            me, at = call.team.rank, call.dst.offsets
            moves = between_all(me, self._sizes(call), at, at[me] if call.in_place else None)
            signature = fingerprint("known", call.signature)
            return instance_of(
                call.team, moves, call.flags, call.key, meet=True, signature=signature,
                record=call.record,
            )  # fmt: skip

        return call.team.instances.get((self.__name__, call.key), made)

    def _instance(self, call: UnevenBound, moves: Transfers, number: int) -> Any:
        """Return a new instance of a call whose blocks all threads have compared."""
        key, signature = (self.__name__, number), fingerprint("known", call.signature, number)
        return instance_of(
            call.team, moves, call.flags, key, meet=False, signature=signature, record=call.record
        )

    def _blocks_of_all(self, call: UnevenBound) -> Transfers:
        """Gather the blocks of all threads, and return them; collective."""
        threads = call.team.size
        every = np.empty((threads, 3, threads), np.int64)
        self._carry_out(call, iter([("gather_all", (every, self._ends(call)))]))
        to, of = np.divmod(np.arange(threads * threads), threads)
        return Transfers.of(to, every[to, 0, of], of, every[of, 1, to], every[of, 2, to])

    def _remember(self, args: Any, kwargs: Any, call: UnevenBound, known: KnownCall) -> None:
        """Cache a call whose plan moves the program's own arrays, no copies of them.

        A call with the same array as dst and src is cached only in place.
        """
        if not call.team.native:
            return
        dst, src = (None if x is None else x.array for x in (call.dst, call.src))
        given = call.given["dst"], call.given["src"]
        if call.in_place:
            src = given[1]
        elif given[0] is given[1]:
            return
        if all(
            x is None or (x is y and plain(x)) for x, y in zip((dst, src), given, strict=True)
        ):
            self.remember(args, kwargs, known.instance, dst, src, call.in_place, known)

    def _sizes(self, call: UnevenBound) -> list[int]:
        """Return the bytes of each thread's block, of a form whose sizes are equal on all."""
        raise NotImplementedError

    def _ends(self, call: UnevenBound) -> Any:
        """Return the blocks of this thread: three rows of T numbers, in bytes.

        Row 0: where the block from each thread begins in dst. Row 1: where the block for each
        thread begins in src. Row 2: the length of that block.
        """
        raise NotImplementedError

    def _carry_out(self, call: UnevenBound, moves: Moves) -> None:
        """Make the calls that move equal blocks, one after the other."""
        team = call.given["team"]
        for name, arguments in moves:
            self._inner[name](*arguments, self._flags_of(name, call), team)

    def steps(self, call: UnevenBound) -> Iterator[Any]:
        """Yield the instances of a posted call."""
        yield call.team.meeting(call.signature, call.record)
        if not call.agreed:
            yield from self._instances(call, self._agree(call))
        yield from self._instances(call, self._moves(call))

    def _instances(self, call: UnevenBound, moves: Moves) -> Iterator[Any]:
        for move in moves:
            yield from self._posted(call, move)

    def _posted(self, call: UnevenBound, move: Move) -> Iterator[Any]:
        name, arguments = move
        inner = self._inner[name]
        given = self._raw(name, arguments, call)
        if isinstance(inner, Permute):
            first = inner._first(call.team, given, own=True)
            yield from inner._steps(first, given)
        else:
            yield from inner._prepare(call.team, given, own=True).steps()

    def _flags_of(self, name: str, call: UnevenBound) -> int:
        """Return the flags of a call that moves equal blocks.

        A variant that the program names is one of this collective, so no other call gets it.
        """
        if name in ("counts", "reduce_all"):
            return 0
        return call.flags if name == self.name else call.flags & ALGORITHM_MASK

    def _meeting(self, call: UnevenBound) -> Any:
        """Return the barrier that compares what must be equal; the team caches it."""
        key = ("meeting", call.record.name, call.signature)
        return call.team.instances.get(
            key, lambda: call.team.meeting(call.signature, call.record)
        )

    def first(self, call: UnevenBound) -> Any:
        """Return an instance of the first call that moves data; None if none does. Collective."""
        move = next(self._data(call), None)
        if move is None:
            return None
        name, arguments = move
        given = self._raw(name, arguments, call)
        return self._inner[name]._prepare(call.team, given, own=True).instance

    def _raw(self, name: str, arguments: tuple[Any, ...], call: UnevenBound) -> RawArguments:
        names = dict(zip(self._inner[name].names, arguments, strict=False))
        return RawArguments.of({**names, "flags": self._flags_of(name, call)})

    # -- what a form does ----------------------------------------------------------------
    def _agree(self, call: UnevenBound) -> Moves:
        """Yield the calls that compare the sizes; all threads raise an error if they differ."""
        raise NotImplementedError

    def _data(self, call: UnevenBound) -> Moves:
        """Yield the calls that move the data.

        Nothing is written to the program's memory before the first one.
        """
        raise NotImplementedError

    def _moves(self, call: UnevenBound) -> Moves:
        """Yield the calls that move the data, and copy from and to arrays that need a copy."""
        call.fill()
        yield from self._data(call)
        call.finish()

    def _differ(self, call: UnevenBound, text: str) -> NoReturn:
        """Raise the error that all threads raise."""
        record = call.record.with_more([])  # a copy: later calls must not have the error
        call.team.fail(CollectiveMismatchError(f"{self.__name__}: {text}"), record)


class UnevenPlan(BoundPlan):
    """A plan on private arrays whose blocks differ in size."""

    def __init__(self, call: UnevenCall, bound: UnevenBound, instance: Any) -> None:
        super().__init__(call.__name__, bound.team, instance, posted=bound.given.posted)
        self._call = call
        self._bound = bound
        self._first = None
        if instance is not None:
            bound.bind(instance)
            sides = (x for x in (bound.dst, bound.src) if x is not None)
            if self.team.native and not self._posted and not any(x.copied for x in sides):
                self.bind(instance)
        elif (first := call.first(bound)) is not None:
            self._first = first.plan
            self.algorithm = first.plan.algorithm

    def _steps(self) -> Iterator[Any]:
        if self.instance is None:
            yield from self._call.steps(self._bound)
            return
        self._bound.fill()
        yield self.instance
        self._bound.finish()

    def _run(self) -> None:
        if self.instance is None:
            self._call.run(self._bound)
            return
        for instance in self._steps():
            instance.execute()

    def _pending(self) -> AsyncCall:
        return AsyncCall(self.team, self._steps(), self._bound.record)

    def __str__(self) -> str:
        return super().__str__() if self._first is None else str(self._first)
