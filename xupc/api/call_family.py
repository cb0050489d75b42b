"""Families of calls: calls that differ from an earlier one only in the offsets of their pointers.

In a loop over ``f(dst, src + i * k, nbytes)`` only the first call is checked in full and looks for
its plan. It leaves a `CallFamily` with the core (`_call_families.pxi`), or with `family_table` in
jobs of the Python engine. For later calls these check what depends on an offset: whether each
thread's part holds the bytes, and whether dst and src overlap. A call that fails there is checked
in full, which finds the error. Each call has the fingerprint and the record that a check in full
would give it.

A pointer whose allocation or thread differs belongs to another family. So does one whose phase
differs, in collectives that are `phased`, and in reductions one with another blocksize or dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backends.operand_binding import BoundOperand
from ..fingerprint import hashed
from ..health.call_record import Arguments, CallRecord
from ..pgas.shared_pointer import SharedPointer
from ..plan.plan import Plan
from ..records import record, replace
from ..runtime.executor import RunningCall
from ..runtime.team_state import TeamState
from .argument_checks import PlaceText

__all__ = ["CallFamily", "CallTexts", "FamilyOperand", "may_move"]


@record
class CallTexts:
    """The arguments of a call as text, made when it is read; it keeps no shared memory.

    Attributes
    ----------
    name, title
        As in `CallRecord`.
    operands
        Name of each operand, and the function that makes its text.
    more
        Returns the other arguments.
    """

    name: str
    title: str
    operands: Sequence[tuple[str, Callable[[], str]]]
    more: Callable[[], Arguments]

    def record(self) -> CallRecord:
        """Return the record of the call."""
        return CallRecord(self.name, self._arguments, title=self.title)

    def record_at(self, *places: tuple[int, int]) -> CallRecord:
        """Return the record of the call whose operands have these offsets and phases."""
        moved = [
            (name, text.at(*place) if isinstance(text, PlaceText) else text)
            for (name, text), place in zip(self.operands, places, strict=False)
        ]
        return replace(self, operands=moved).record()

    def _arguments(self) -> Arguments:
        return [*((name, text()) for name, text in self.operands), *self.more()]


@record
class FamilyOperand:
    """An operand of the first call of a family, and where it may lie in the others.

    Attributes
    ----------
    given
        The argument; None: src is not given, and lies where dst does.
    heap
        The heap that it is in.
    offset
        Its offset in the first call, in bytes.
    low, high
        The lowest and the highest offset at which each thread's part holds its bytes.
    begin, end
        The bytes that it takes, counted from its offset.
    place
        Index of the offset in `CallFamily.values`; -1 if it is not there.
    dealt
        True if blocksize and dtype of a pointer are the same in all calls.
    """

    given: Any
    heap: Any
    offset: int
    low: int
    high: int
    begin: int
    end: int
    place: int
    dealt: bool


@record
class CallFamily:
    """Calls that differ only in the offsets of pointers.

    Attributes
    ----------
    operands
        dst and src.
    apart
        Bytes from dst's offset to src's in all calls, which then may overlap; None: they must not.
    values
        The numbers of the first call's fingerprint.
    texts
        The first call as text.
    make
        Returns an instance of the first call, which the core then binds to other addresses. It
        keeps no argument, since the core keeps it.
    """

    operands: tuple[FamilyOperand, FamilyOperand]
    apart: int | None
    values: tuple[int, ...]
    texts: CallTexts
    make: Callable[[], RunningCall]

    @classmethod
    def of(
        cls,
        team: TeamState,
        plan: Plan,
        operands: tuple[FamilyOperand, FamilyOperand],
        apart: int | None,
        values: tuple[int, ...],
        texts: CallTexts,
        first: CallRecord,
    ) -> CallFamily:
        """Return the family of a call; `first` is the record of that call."""
        places = [(x.heap, x.offset) for x in operands]

        def make() -> RunningCall:
            bounds = [BoundOperand(heap, offset) for heap, offset in places]
            return team.make(plan, bounds, hashed(values), first)

        return cls(operands, apart, values, texts, make)


def may_move(*arguments: Any) -> bool:
    """Return whether a call with these operands is one of a family: one of them is a pointer."""
    return any(type(x) is SharedPointer for x in arguments)
