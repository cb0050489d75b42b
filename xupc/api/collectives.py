"""The relocalization collectives that users call: check the arguments, find the plan, run it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.operand_binding import BoundOperand
from ..errors import AffinityError, FlagError, HeapError, OverlapError, show
from ..fingerprint import digest, fingerprint
from ..flags import IN_PLACE
from ..health.call_record import CallRecord
from ..pgas.allocation import Allocation
from ..pgas.integer_arguments import as_integer
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from ..pgas.shared_reference import as_address
from ..plan.plan import Plan
from ..plan.recorder import Operand
from ..records import mutable_record
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, OperandSpec, call_name
from .argument_checks import (
    asks_in_place,
    describe,
    describing,
    flags_text,
    named_flags,
    signature_of,
)
from .call_cache import BoundCall, SharedCall, SharedPlan
from .list_arguments import List, permutation
from .list_calls import ListArgumentCall, ListCall
from .team import Team

__all__ = [
    "Collective",
    "all_broadcast",
    "all_broadcast_in_place",
    "all_exchange",
    "all_gather",
    "all_gather_all",
    "all_permute",
    "all_scatter",
    "check_blocks",
    "smallest_parts",
]


@mutable_record
class Target:
    """An operand of a call, checked."""

    allocation: Allocation
    rank: int
    offset: int
    nbytes: int


@mutable_record
class ValidatedCall(ListArgumentCall):
    """A call with valid arguments; its algorithms are registered under `name`."""

    name: str
    targets: list[Target]
    nbytes: int
    root: int
    flags: int
    perm: List | None = None

    @property
    def lists(self) -> list[List]:
        return [] if self.perm is None else [self.perm]

    @property
    def memory(self) -> list[Allocation]:
        return [t.allocation for t in self.targets]

    def fingerprint(self, *more: int, what: str = "") -> int:
        """Return the fingerprint of part `what` of the call and its single-valued arguments."""
        name = f"{self.name} {what}"
        where = (v for t in self.targets for v in (t.allocation.serial, t.rank, t.offset))
        return fingerprint(name, *where, self.nbytes, self.flags, *more)


def smallest_parts(
    allocation: Allocation,
    thread: int,
    team: TeamState,
    call: str,
    argument: str,
    every: bool = True,
) -> Sequence[int]:
    """Return threads such that what fits their parts fits those of all the team, and `thread`'s.

    AffinityError if it is not `every` thread's and has to be.
    """
    if not every:
        return (thread,)
    members, threads = allocation.members, team.threads
    if members is threads or members == threads:
        return thread, threads[-1]  # parts never grow from one to the next
    missing = [t for t in threads if allocation.rank_of(t) is None]
    if missing or (not allocation.blocksize and team.size > 1):
        raise AffinityError(
            f"{call}: {argument}: expected memory of which every thread of the team has a part, "
            f"thread {missing[0] if missing else threads[-1]} has none"
        )
    return thread, max(threads, key=members.index)


RawOperand = tuple[str, Any, OperandSpec]
"""An operand of a call as it was given: its name, what it is, what it has to be."""

def check_blocks(
    call: str,
    operands: Sequence[RawOperand],
    nbytes: Any,
    team: TeamState,
    *,
    in_place: bool = False,
) -> tuple[list[Target], int, int]:
    """Check all operands of a call, and its nbytes.

    Parameters
    ----------
    in_place : bool
        The root's own block in dst may be that in src.

    Returns
    -------
    targets, nbytes, root
        The operands checked, and the rank of the root, 0 if there is none.
    """
    n = as_integer(nbytes, call, "nbytes")
    if n < 1:
        raise ValueError(f"{call}: nbytes: expected at least 1, got {n}")
    targets = [_target(call, *operand, n, team) for operand in operands]
    shapes = [shape for _, _, shape in operands]
    root = next((t.rank for t, s in zip(targets, shapes, strict=True) if s.names_root), 0)
    if len(targets) == 2 and not (in_place and _own_is_shared(targets, shapes, n, root)):
        (target, source), ((_, dst, _), (_, src, _)) = targets, operands
        if (
            target.offset < source.offset + source.nbytes
            and source.offset < target.offset + target.nbytes
        ):
            raise OverlapError(
                f"{call}: dst and src overlap: dst is {describe(dst)} and {target.nbytes} "
                f"bytes, src is {describe(src)} and {source.nbytes} bytes"
            )
    return targets, n, root


def _own_is_shared(
    targets: Sequence[Target], shapes: Sequence[OperandSpec], n: int, root: int
) -> bool:
    """Return whether the root's own block is at one address in dst and in src."""
    places = (
        target.offset + (root * n if shape.blocks == "T" else 0)
        for target, shape in zip(targets, shapes, strict=True)
    )
    return len({*places}) == 1


def _target(
    call: str, argument: str, x: Any, shape: OperandSpec, n: int, team: TeamState
) -> Target:
    try:
        allocation, thread, offset = as_address(x)
    except TypeError as e:
        raise TypeError(f"{call}: {argument}: {e}") from None
    allocation.check_live(call, argument)
    total = n * (team.size if shape.blocks == "T" else 1)
    if isinstance(x, SharedArray):  # alone it stands for its start on the team's first thread
        thread = team.threads[0] if allocation.blocksize else thread
    rank = team.rank_of(thread)
    if rank is None or not (shape.names_root or rank == 0):
        wanted = "a thread of the team" if shape.names_root else f"thread {team.threads[0]}"
        raise AffinityError(
            f"{call}: {argument}: expected affinity to {wanted}, "
            f"got a pointer with affinity to thread {thread}"
        )
    for where in smallest_parts(allocation, thread, team, call, argument, shape.everywhere):
        if not allocation.holds(where, offset, total):
            text = allocation.beyond(where, offset, total)
            raise ValueError(f"{call}: {argument}: {text} (nbytes={n})")
    return Target(allocation, rank, offset, total)


_PARAMETERS = """
    nbytes : int
        Bytes per block, at least 1.
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library
        choose.
    team : Team, optional
        Whose threads call; default all.
    algorithm : str, optional
        A variant by name, such as ``"multicore:ring"`` (`xupc algorithms` lists them).

    Raises
    ------
    TypeError, ValueError, FlagError, AffinityError, OverlapError
        On every thread, before anything moves; the library stays usable.
    CollectiveMismatchError
        If the threads' calls differ.
    """


class Collective(SharedCall):
    """A relocalization collective: ``collective(dst, src, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Taken as addresses: block i is at the same address on thread i. With IN_PLACE the
        root's own block is neither read nor written, and may be src itself; where all
        threads have both, src is None or the same as dst, and dst is transformed."""

    def __init__(self, spec: CollectiveSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.__name__ = call_name(spec, "all")
        self.__doc__ = f"{spec.summary['all']}\n\n{type(self).__doc__}{_PARAMETERS}"
        self.__signature__ = signature_of(self.plan)

    # -- calling -------------------------------------------------------------------------
    def plan(
        self,
        dst: SharedArray | SharedPointer,
        src: SharedArray | SharedPointer,
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
        algorithm: str | None = None,
    ) -> SharedPlan:
        """Return a plan bound to these arguments; collective itself, like the call."""
        full = named_flags(self.__name__, flags, algorithm)
        return self._plan(self._prepare(dst, src, nbytes, full, team=team), dst=dst, src=src)

    def _prepare(
        self, dst: Any, src: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> BoundCall:
        """Check everything and bind a plan."""
        operands = ("dst", dst, self.spec.dst), ("src", src, self.spec.src)
        return self._instance(self._checked(operands, nbytes, flags, team))

    def _checked(
        self,
        operands: Sequence[RawOperand],
        nbytes: Any,
        flags: Any,
        team: Any,
        listed: List | None = None,
    ) -> ValidatedCall:
        """Check everything that all collectives have."""
        call, texts = self.__name__, [(name, describing(x)) for name, x, _ in operands]

        def arguments() -> list[tuple[str, str]]:
            return [
                *((name, text()) for name, text in texts),
                *([(listed.name, str(listed))] if listed is not None else []),
                ("nbytes", show(nbytes)),
                ("flags", flags_text(flags)),
            ]

        title = f"{call}(nbytes={show(nbytes)}, flags={show(flags)})"
        opened = self._open(team, flags, CallRecord(call, arguments, title=title))
        try:
            in_place = self._in_place(operands, opened.full, opened.team)
            if in_place and not self._rooted:
                operands = operands[:1]
            targets, n, root = check_blocks(call, operands, nbytes, opened.team, in_place=in_place)
        except Exception as e:
            opened.fail(e)
        name = f"{self.name}_in_place" if in_place else self.name
        bits = operator.index(flags) | IN_PLACE * in_place
        return ValidatedCall(
            opened.team, opened.full, opened.record, name, targets, n, root, bits, listed
        )

    @property
    def _rooted(self) -> bool:
        return bool(self.spec.root)

    def _in_place(self, operands: Sequence[RawOperand], full: int, team: TeamState) -> bool:
        """Return whether a call is one in place; FlagError if it cannot be."""
        (_, dst, _), (_, src, _) = operands
        first = team.threads[0]
        return asks_in_place(self.__name__, dst, src, full, first, rooted=self._rooted)

    # -- plans -------------------------------------------------------------------------
    def _instance(self, call: ValidatedCall) -> BoundCall:
        root = (call.root,) if self._rooted else ()
        plan = self._plan_for(call, call.sync, call.root, root)
        instance = self._bind(call, plan, call.fingerprint())
        return BoundCall(call, call.memory, instance)

    def _bind(self, call: ValidatedCall, plan: Plan, signature: int) -> Any:
        bounds = [BoundOperand(t.allocation.memory, t.offset) for t in call.targets]
        bounds += bounds[:1] * (2 - len(bounds))  # scratch comes third
        try:
            return call.team.make(plan, bounds, signature, call.record)
        except HeapError as e:
            call.fail(e)

    def _plan_for(
        self, call: ValidatedCall, sync: tuple[str, str], key: Any, arguments: Sequence[object]
    ) -> Plan:
        """Return the team's cached plan; `key` is what it also depends on, as `arguments` say."""
        n = call.nbytes
        # all_broadcast_in_place has one operand, an all_broadcast with IN_PLACE two
        try:
            return call.team.planned(
                call.name, call.full, n, sync, (len(call.targets), key, n),
                [*self._operands(call), *arguments, n],
            )  # fmt: skip
        except ValueError as e:
            call.fail(e)

    def _operands(self, call: ValidatedCall) -> list[Operand]:
        """Return the operands in the form that algorithms take."""
        return [Operand(i) for i in range(len(call.targets))]


class Permute(ListCall, Collective):
    """As the others, with a list: ``collective(dst, src, perm, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Taken as addresses: block i is at the same address on thread i.
    perm : SharedArray, SharedPointer, or sequence of int
        T integers, a permutation: the block of thread i goes to thread perm[i]. If shared,
        element i is at ``perm + i``, and it is read after the IN synchronisation; else
        it is copied at the call and must be equal on all threads."""

    def __init__(self, spec: CollectiveSpec) -> None:
        ListCall.__init__(self)
        Collective.__init__(self, spec)

    def plan(  # type: ignore[override]
        self,
        dst: SharedArray | SharedPointer,
        src: SharedArray | SharedPointer,
        perm: SharedArray | SharedPointer | Sequence[int],
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
        algorithm: str | None = None,
    ) -> SharedPlan:
        """Return a plan bound to these arguments and to what perm holds now; collective itself."""
        full = named_flags(self.__name__, flags, algorithm)
        call = self._check(dst, src, perm, nbytes, full, team=team)
        return self._plan(self._frozen(call), dst=dst, src=src)

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValidatedCall:
        checked: ValidatedCall = self._checked_names(self._check, args, kwargs)
        return checked

    def _check(
        self,
        dst: Any,
        src: Any,
        perm: Any,
        nbytes: Any,
        flags: Any = 0,
        *,
        team: Team | None = None,
    ) -> ValidatedCall:
        listed = List("perm", perm)
        operands = ("dst", dst, self.spec.dst), ("src", src, self.spec.src)
        call = self._checked(operands, nbytes, flags, team, listed)
        try:
            target = call.targets[0]
            listed.check(self.__name__, call.team, target.offset, target.nbytes)
        except Exception as e:
            call.fail(e)
        return call

    def _lists_signature(self, call: ValidatedCall) -> int:
        return call.fingerprint(*call.where, what="list")

    def _read(self, call: ValidatedCall, sync: tuple[str, str]) -> Any:
        listed = call.perm
        assert listed is not None
        try:
            values = permutation(self.__name__, listed.read())
        except ValueError as e:
            call.fail(e)
        call.record = call.record.with_more(listed.entries(values))
        array = np.array(values, np.int64)
        content = digest(array.tobytes(), 16)
        plan = self._plan_for(call, sync, content, (array,))
        number = int.from_bytes(content[:7], "little")
        return self._bind(call, plan, call.fingerprint(*call.where, number))


class InPlace(Collective):
    """One operand is source and target: ``collective(buf, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    buf : SharedArray or SharedPointer
        Taken as an address, an array for its element 0; its thread is the root."""

    def _in_place(self, operands: Sequence[RawOperand], full: int, team: TeamState) -> bool:
        if full & IN_PLACE:
            raise FlagError(
                f"{self.__name__}: flags: IN_PLACE: this call always works in place: leave it out"
            )
        return False

    def _operands(self, call: ValidatedCall) -> list[Operand]:
        return [Operand(0), Operand(0)]

    def _prepare(  # type: ignore[override]
        self, buf: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> BoundCall:
        return self._instance(self._checked((("buf", buf, self.spec.dst),), nbytes, flags, team))

    def plan(  # type: ignore[override]
        self,
        buf: SharedArray | SharedPointer,
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
        algorithm: str | None = None,
    ) -> SharedPlan:
        """Return a plan bound to these arguments; collective itself, like the call."""
        full = named_flags(self.__name__, flags, algorithm)
        return self._plan(self._prepare(buf, nbytes, full, team=team), buf=buf)


all_broadcast = Collective(SPECS["broadcast"])
all_scatter = Collective(SPECS["scatter"])
all_gather = Collective(SPECS["gather"])
all_gather_all = Collective(SPECS["gather_all"])
all_exchange = Collective(SPECS["exchange"])
all_broadcast_in_place = InPlace(SPECS["broadcast_in_place"])
all_permute = Permute(SPECS["permute"])
