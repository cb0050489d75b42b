"""Collectives on private arrays whose blocks differ in size: the `_v` calls.

A call begins with a barrier that compares what must be equal on all threads. Then the threads
compare the sizes that each of them expects (`_agree`). So every thread finds a difference before
data moves. Then calls that move blocks of one size carry the data (`uneven_blocks`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

from ..errors import CollectiveMismatchError, FlagError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import ALGORITHM_MASK, IN_PLACE, VARIANT_SHIFT, check_flags
from ..health.call_record import CallRecord
from ..pgas.integer_arguments import as_integer
from ..pgas.private_memory import array_of
from ..records import mutable_record, public_names
from ..reduction.structured_dtypes import name as name_of
from ..runtime.async_queue import AsyncCall
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import flags_text, named_flags
from .array_arguments import Array, RawArguments, overlap
from .array_call import ArrayCall
from .array_permute import Permute
from .call_cache import BoundPlan
from .handles import Handle, post
from .team import resolve
from .uneven_arguments import UnevenArguments, UnevenBlocks, VectorSide, sizes_of
from .uneven_blocks import Move, Moves

__all__ = ["Blocks", "UnevenBound", "UnevenCall", "UnevenPlan"]

Blocks = tuple[UnevenBlocks | None, UnevenBlocks | None]
"""dst and src of a thread; None where it has none."""
_INNER = ("broadcast", "exchange", "gather", "gather_all", "permute", "reduce_all", "scatter")


@mutable_record
class UnevenBound:
    """A call with checked arguments.

    Attributes
    ----------
    dst, src
        The blocks of this thread; None where it has none. In place both are dst's.
    flags
        Those of the calls that move the data.
    agreed
        The longest block by distance between its threads, of exchange; the sizes of all blocks,
        of the others. Empty before the threads have compared them.
    """

    team: TeamState
    given: UnevenArguments
    record: CallRecord
    signature: int
    dst: UnevenBlocks | None
    src: UnevenBlocks | None
    root: int
    flags: int
    agreed: list[int]


class UnevenCall:
    """A collective on private arrays whose blocks differ in size, T threads: ``{signature}``.

    Counts and displacements are in elements. Without displacements the blocks are one after the
    other; between and behind blocks an array may have more elements, which stay as they are.
    Arrays may have any shape and strides, and any dtype but objects, the same on all threads.

    Parameters
    ----------
    {parameters}
    flags : int
        `xupc.Flags`; sync flags are accepted and change nothing, no algorithm flag lets the
        library choose. With ASYNC the call is only started.
    team : Team, optional
        Threads that call; default all.
    {displacements}
    algorithm : str, optional
        A variant of {base} by name (`xupc algorithms {base}` lists them).

    Returns
    -------
    None or Handle
        A handle with ASYNC; do not use the arrays until it is complete.

    Raises
    ------
    TypeError, ValueError, FlagError, OverlapError, HeapError
        On a thread whose arguments are wrong; CollectiveMismatchError on the others.
    CollectiveMismatchError
        On all threads, before data moves: {mismatch}
    """

    name: str
    about: ClassVar[dict[str, str]]
    displacements: tuple[str, ...] = ("displs",)
    equal: tuple[str, ...] = ()
    """Arguments that must be equal on all threads, besides root and flags."""
    mismatch: str
    transforms = False
    """There is a form in place."""
    _dst = VectorSide("dst", "counts", "displs", True)
    _src = VectorSide("src", "counts", "displs", False)

    def __init__(self) -> None:
        spec = self.spec = SPECS[self.name]
        self.__name__ = call_name(spec, "allav_v")
        self.__module__ = "xupc.api.private_arrays"  # for pickles
        self.names = (*self.about, "flags", "team", *self.displacements)
        self.__signature__ = self._signature()
        shown = str(self.__signature__)
        text = str(UnevenCall.__doc__).format(
            signature=f"{self.__name__}{shown}",
            parameters="\n    ".join(f"{x} : {text}" for x, text in self.about.items()),
            displacements="\n    ".join(
                f"{x} : sequence of T ints, optional\n        The first element of each block."
                for x in self.displacements
            ),
            base=call_name(spec, "allav"),
            mismatch=self.mismatch,
        )
        self.__doc__ = f"{spec.summary['allav_v']}\n\n{text}"
        self._inner = {name: self._named(SPECS[name]) for name in _INNER}
        self._inner["counts"] = self._named(SPECS["exchange"])

    def _named(self, spec: CollectiveSpec) -> ArrayCall:
        """Return a call that moves equal blocks and has the name of this one."""
        call = (Permute if spec.permutes else ArrayCall)(spec)
        call.__name__ = self.__name__
        return call

    def _signature(self) -> inspect.Signature:
        empty, either = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
        keyword = inspect.Parameter.KEYWORD_ONLY
        optional = {"flags": 0, "team": None}
        plain = [
            inspect.Parameter(x, either, default=optional.get(x, empty))
            for x in (*self.about, *optional)
        ]
        named = (*self.displacements, "algorithm")
        return inspect.Signature(
            [*plain, *(inspect.Parameter(x, keyword, default=None) for x in named)]
        )

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    def __dir__(self) -> list[str]:
        return public_names(self, only=frozenset(("plan",)))

    def __reduce__(self) -> str:
        return self.__name__

    # -- calling -------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Handle | None:
        call = self._checked(args, kwargs)
        if call.given.posted:
            return post(AsyncCall(call.team, self.steps(call), call.record))
        self.run(call)
        return None

    def plan(self, *args: Any, **kwargs: Any) -> UnevenPlan:
        """Return a plan bound to these arrays; collective itself, like the call.

        It keeps counts and displacements, so a run does not compare them again.
        """
        call = self._checked(args, kwargs, plan=True)
        self._meeting(call).execute()
        number = call.team.core.op  # the same on all threads: they have just met
        self._carry_out(call, self._agree(call))
        shown = call.record.arguments
        call.record = CallRecord(self.__name__, [*shown, ("plan", f"number {number}")])
        call.signature = fingerprint("run", call.signature, number)
        return UnevenPlan(self, call)

    def run(self, call: UnevenBound) -> None:
        """Make a call; the sizes of a plan are compared already."""
        self._meeting(call).execute()
        if not call.agreed:
            self._carry_out(call, self._agree(call))
        self._carry_out(call, self._moves(call))

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
        """Return the flags of a call: a variant by name is one of the same collective only."""
        if name in ("counts", "reduce_all"):
            return 0
        return call.flags if name == self.name else call.flags & ALGORITHM_MASK

    def _meeting(self, call: UnevenBound) -> Any:
        """Return the barrier that compares the calls, cached by the team."""
        key = ("meeting", call.record.name, call.signature)
        return call.team.instances.get(
            key, lambda: call.team.meeting(call.signature, call.record)
        )

    def first(self, call: UnevenBound) -> Any:
        """Return an instance of the first call that moves data, collectively; None if none does."""
        move = next(self._data(call), None)
        if move is None:
            return None
        name, arguments = move
        given = self._raw(name, arguments, call)
        return self._inner[name]._prepare(call.team, given, own=True).instance

    def _raw(self, name: str, arguments: tuple[Any, ...], call: UnevenBound) -> RawArguments:
        names = dict(zip(self._inner[name].names, arguments, strict=False))
        return RawArguments.of({**names, "flags": self._flags_of(name, call)})

    # -- arguments -----------------------------------------------------------------------
    def _checked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, plan: bool = False
    ) -> UnevenBound:
        name = f"{self.__name__}.plan" if plan else self.__name__
        given, wrong = self._by_name(args, kwargs)
        team, foreign = resolve(given["team"], self.__name__)
        posted = given.posted and not plan
        team.enter(name, posted=posted)
        record = self._record(name, given, "")
        try:
            if (error := foreign or wrong) is not None:
                raise error
            return self._bound(name, team, given)
        except Exception as e:
            team.fail(e, record, posted=posted)

    def _by_name(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[UnevenArguments, TypeError | None]:
        try:
            values = self.__signature__.bind(*args, **kwargs).arguments
        except TypeError as e:
            values = dict(zip(self.names, args, strict=False)) | kwargs
            return UnevenArguments(values), TypeError(f"{self.__name__}: {e}")
        if values.get("algorithm") is not None:
            flags = values.get("flags", 0)
            values["flags"] = named_flags(self.__name__, flags, values["algorithm"])
        return UnevenArguments(values), None

    def _record(self, name: str, given: UnevenArguments, elements: str) -> CallRecord:
        """Return what must be equal on all threads; it keeps no array of the program."""
        equal = {x: given[x] for x in self.equal}
        if elements:  # checked: sequences of integers
            equal = {x: tuple(value) for x, value in equal.items()}
        if self.spec.root:
            equal["root"] = given["root"]
        flags = given["flags"]

        def arguments() -> list[tuple[str, str]]:
            first = [("elements", elements)] if elements else []
            shown = [(x, show(value)) for x, value in equal.items()]
            return [*first, *shown, ("flags", flags_text(flags))]

        return CallRecord(name, arguments, title=f"{name}({elements})")

    def _bound(self, name: str, team: TeamState, given: UnevenArguments) -> UnevenBound:
        flags = self._check_flags(given)
        root = self._root(given, team) if self.spec.root else -1
        dst, src = self._sides(team, given, root)
        self._compare(dst, src)
        either = dst if dst is not None else src
        assert either is not None
        dtype = either.array.dtype
        counts = either.counts if self.equal else ()
        signature = fingerprint(name, name_of(dtype), root, operator.index(given["flags"]), *counts)
        bits = flags & ALGORITHM_MASK | flags >> VARIANT_SHIFT << VARIANT_SHIFT
        record = self._record(name, given, str(dtype))
        return UnevenBound(team, given, record, signature, dst, src, root, bits, [])

    def _check_flags(self, given: UnevenArguments) -> int:
        call = self.__name__
        full = check_flags(as_integer(given["flags"], call, "flags"), call)
        if full & IN_PLACE and not self.transforms:
            raise FlagError(
                f"{call}: flags: IN_PLACE: this call has no form in place: leave the flag out"
            )
        if full & IN_PLACE and not self._in_place(given):
            raise FlagError(
                f"{call}: flags: IN_PLACE: src: expected None or the array dst, got another"
            )
        return full

    def _in_place(self, given: UnevenArguments) -> bool:
        """Return True if dst has this thread's block already."""
        return False

    def _root(self, given: UnevenArguments, team: TeamState) -> int:
        root = as_integer(given["root"], self.__name__, "root")
        if not 0 <= root < team.size:
            raise ValueError(
                f"{self.__name__}: root: expected 0 <= root < {team.size}, got {root}"
            )
        return root

    def _array(self, given: UnevenArguments, name: str, *, receives: bool) -> Array:
        found = array_of(given[name], f"{self.__name__}: {name}", receives=receives)
        if receives and not found.flags.writeable:
            raise ValueError(f"{self.__name__}: {name}: the array is read-only")
        return found

    def _row(self, team: TeamState, given: UnevenArguments, side: VectorSide) -> UnevenBlocks:
        """Return an operand with a block for each thread."""
        array = self._array(given, side.array, receives=side.receives)
        return sizes_of(side, array, given, team.size, self.__name__)

    def _block(self, given: UnevenArguments, name: str, *, receives: bool) -> UnevenBlocks:
        """Return an operand that is one block."""
        return UnevenBlocks.whole(self._array(given, name, receives=receives))

    def _compare(self, dst: UnevenBlocks | None, src: UnevenBlocks | None) -> None:
        if dst is None or src is None or dst is src:
            return
        if dst.array.dtype != src.array.dtype:
            raise TypeError(
                f"{self.__name__}: dst: expected {src.array.dtype} as in src, got {dst.array.dtype}"
            )
        if overlap(dst.array, src.array):
            raise OverlapError(f"{self.__name__}: dst and src overlap")

    def _sides(self, team: TeamState, given: UnevenArguments, root: int) -> Blocks:
        """Return dst and src of this thread, checked."""
        raise NotImplementedError

    def _agree(self, call: UnevenBound) -> Moves:
        """Compare the sizes of all threads; each raises an error if they differ."""
        raise NotImplementedError

    def _data(self, call: UnevenBound) -> Moves:
        """Move the data; nothing is written to the program's memory before the first call."""
        raise NotImplementedError

    def _moves(self, call: UnevenBound) -> Moves:
        """Move the data, after the sizes are compared."""
        if call.src is not None:
            call.src.fill()
        if call.dst is not None and call.dst is not call.src:
            call.dst.fill()
        yield from self._data(call)
        if call.dst is not None:
            call.dst.finish()

    def _differ(self, call: UnevenBound, text: str) -> NoReturn:
        """Raise the error that all threads raise."""
        record = call.record.with_more([])  # it must not appear in later calls
        call.team.fail(CollectiveMismatchError(f"{self.__name__}: {text}"), record)


class UnevenPlan(BoundPlan):
    """A plan on private arrays whose blocks differ in size."""

    def __init__(self, call: UnevenCall, bound: UnevenBound) -> None:
        super().__init__(call.__name__, bound.team, None, posted=bound.given.posted)
        self._call = call
        self._bound = bound
        first = call.first(bound)
        self._first = None if first is None else first.plan
        self.algorithm = "" if first is None else first.plan.algorithm

    def _run(self) -> None:
        self._call.run(self._bound)

    def _pending(self) -> AsyncCall:
        return AsyncCall(self.team, self._call.steps(self._bound), self._bound.record)

    def __str__(self) -> str:
        return "nothing to move" if self._first is None else str(self._first)
