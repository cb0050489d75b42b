"""The relocalization collectives that users call: check the arguments, find the plan, run it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends.operand_binding import BoundOperand
from ..errors import FlagError, HeapError, show
from ..fingerprint import digest, hashed, numbers
from ..flags import IN_PLACE
from ..pgas.allocation import Allocation
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from ..plan.plan import Plan
from ..plan.recorder import Operand
from ..records import mutable_record
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import asks_in_place, describing, flags_text, named_flags, signature_of
from .call_cache import BoundCall, SharedCall, SharedPlan
from .call_family import CallFamily, CallTexts, may_move
from .list_arguments import List, permutation
from .list_calls import ListArgumentCall, ListCall
from .operand_checks import CheckedBlocks, RawOperand, Target, check_blocks
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
]


@mutable_record
class ValidatedCall(ListArgumentCall):
    """A call with valid arguments; its algorithms are registered under `name`."""

    name: str
    blocks: CheckedBlocks
    flags: int
    texts: CallTexts
    perm: List | None = None

    @property
    def targets(self) -> list[Target]:
        return self.blocks.targets

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes

    @property
    def root(self) -> int:
        return self.blocks.root

    @property
    def lists(self) -> list[List]:
        return [] if self.perm is None else [self.perm]

    @property
    def memory(self) -> list[Allocation]:
        return [t.allocation for t in self.targets]

    def numbers(self, *more: int, what: str = "") -> tuple[int, ...]:
        """Return what the fingerprint of part `what` of the call is made of."""
        where = self.blocks.where
        return numbers(f"{self.name} {what}", *where, self.nbytes, self.flags, *more)

    def fingerprint(self, *more: int, what: str = "") -> int:
        """Return the fingerprint of part `what` of the call and its single-valued arguments."""
        return hashed(self.numbers(*more, what=what))

    def family(self, plan: Plan, dst: Any, src: Any) -> CallFamily:
        """Return the family of the call with these operands as given."""
        operands, values = self.blocks.in_family(dst, src), self.numbers()
        return CallFamily.of(
            self.team, plan, operands, self.blocks.apart, values, self.texts, self.record
        )


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
        return self._instance(self._checked(operands, nbytes, flags, team), dst, src)

    def _checked(
        self,
        operands: Sequence[RawOperand],
        nbytes: Any,
        flags: Any,
        team: Any,
        listed: List | None = None,
    ) -> ValidatedCall:
        """Check everything that all collectives have."""
        call = self.__name__

        def more() -> list[tuple[str, str]]:
            return [
                *([(listed.name, str(listed))] if listed is not None else []),
                ("nbytes", show(nbytes)),
                ("flags", flags_text(flags)),
            ]

        title = f"{call}(nbytes={show(nbytes)}, flags={show(flags)})"
        texts = CallTexts(call, title, [(name, describing(x)) for name, x, _ in operands], more)
        opened = self._open(team, flags, texts.record())
        try:
            in_place = self._in_place(operands, opened.full, opened.team)
            if in_place and not self._rooted:
                operands = operands[:1]
            blocks = check_blocks(call, operands, nbytes, opened.team, in_place=in_place)
        except Exception as e:
            opened.fail(e)
        name = f"{self.name}_in_place" if in_place else self.name
        bits = operator.index(flags) | IN_PLACE * in_place
        return ValidatedCall(
            opened.team, opened.full, opened.record, name, blocks, bits, texts, listed
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
    def _instance(self, call: ValidatedCall, dst: Any, src: Any) -> BoundCall:
        root = (call.root,) if self._rooted else ()
        plan = self._plan_for(call, call.sync, call.root, root)
        instance = self._bind(call, plan, call.fingerprint())
        family = partial(call.family, plan, dst, src) if may_move(dst, src) else None
        return BoundCall(call, call.memory, instance, family)

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
        operands = (("buf", buf, self.spec.dst),)
        return self._instance(self._checked(operands, nbytes, flags, team), buf, None)

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
