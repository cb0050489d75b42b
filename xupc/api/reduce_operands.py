"""Operands of reductions on shared arrays: checked, as byte ranges, and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import AffinityError, show
from ..pgas.allocation import Allocation
from ..pgas.layout import Layout
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from ..records import record, replace
from ..runtime.team_state import TeamState
from .argument_checks import PlaceText, describing
from .call_family import FamilyOperand

__all__ = [
    "ReduceOperand",
    "Spans",
    "check_shared",
    "dealt_alike",
    "describe_operand",
    "describing_operand",
    "may_meet",
    "spans_of",
]


_MANY = 4096  # threads: in a larger layout only those at its ends are checked


Spans = list[tuple[int, int, int]]
"""(rank, first byte, end)"""


@record
class ReduceOperand:
    """An operand dst or src, as given, in a team with these `threads`.

    `length` is not None for an array that is dealt over the team.
    """

    name: str
    threads: Sequence[int]
    allocation: Allocation
    rank: int
    offset: int
    phase: int
    blocksize: int
    dtype: np.dtype[Any]
    length: int | None

    @property
    def where(self) -> tuple[int, int, int, int]:
        """Return the operand as numbers, for fingerprints."""
        return self.allocation.serial, self.rank, self.offset, self.phase

    def in_family(self, given: Any, spans: Spans, place: int) -> FamilyOperand:
        """Return the operand for `CallFamily`; `spans` are its bytes."""
        a, offset = self.allocation, self.offset
        parts = [a.part(self.threads[rank]) for rank, _, _ in spans]
        room = [
            (start - begin, start + nbytes - end)
            for (start, nbytes), (_, begin, end) in zip(parts, spans, strict=True)
        ]
        low, high = max(low for low, _ in room), min(high for _, high in room)
        begin, end = hull(spans)
        return FamilyOperand(
            given, a.memory, offset, offset + low, offset + high, begin - offset, end - offset,
            place, dealt=True,
        )  # fmt: skip

    @classmethod
    def of(cls, x: Any, name: str, call: str, team: TeamState) -> ReduceOperand:
        """Return `x` as an operand, checked to be shared data on a thread of the team."""
        check_shared(x, name, call)
        length = None
        thread = x.thread if isinstance(x, SharedPointer) else 0
        if isinstance(x, SharedArray):
            over = x.allocation.members
            if over is team.threads or over == team.threads:
                length = x.nelems
            dealt = bool(x.blocksize)
            x = x.ptr(0)
            thread = team.threads[0] if dealt else x.thread
        x.allocation.check_live(call, name)
        rank = team.rank_of(thread)
        if rank is None:
            raise AffinityError(
                f"{call}: {name}: expected affinity to a thread of the team, got a pointer with "
                f"affinity to thread {thread}"
            )
        return cls(
            name, team.threads, x.allocation, rank, x.addr, x.phase, x.blocksize, x.dtype, length
        )


def check_shared(x: Any, name: str, call: str) -> None:
    """Raise TypeError unless an operand is a SharedArray or a SharedPointer."""
    if not isinstance(x, SharedArray | SharedPointer):
        raise TypeError(f"{call}: {name}: {show(x)}: expected a SharedArray or a SharedPointer")


def spans_of(layout: Layout, offset: int, size: int, *, all_: bool = False) -> Spans:
    """Return the byte ranges of a layout's threads; of many threads only the furthest."""
    if all_ or layout.positions <= _MANY:
        runs = [(layout.thread(p), layout.run(p)) for p in range(layout.positions)]
        ends = [(t, r.place, r.place + r.nelems) for t, r in runs]
    else:
        ends = [(t, *ends) for t, ends in layout.furthest().items()]
    return [(t, offset + a * size, offset + b * size) for t, a, b in ends]


def may_meet(a: Spans, b: Spans) -> bool:
    """Return True if an offset may be in both; different allocations share no offset."""
    (a_lo, a_hi), (b_lo, b_hi) = hull(a), hull(b)
    return a_lo < b_hi and b_lo < a_hi


def hull(spans: Spans) -> tuple[int, int]:
    """Return the lowest and the highest end of byte ranges."""
    return min(begin for _, begin, _ in spans), max(end for _, _, end in spans)


def dealt_alike(dst: Any, src: Any, blk_size: Any) -> bool:
    """Return True if operands with the same address stand for the same elements."""
    kinds = SharedArray, SharedPointer
    if not (isinstance(dst, kinds) and isinstance(src, kinds)):
        return False
    phases = {getattr(x, "phase", 0) for x in (dst, src)}
    same = blk_size is not None or dst.blocksize == src.blocksize
    return same and len(phases) == 1


def describe_operand(x: Any) -> str:
    """Return an operand as text: everything that must be the same on all threads."""
    return describing_operand(x)()


def describing_operand(x: Any) -> Callable[[], str]:
    """Return a function that makes the text later and keeps no shared memory alive."""
    text = describing(x)
    if not isinstance(text, PlaceText):
        return text
    return replace(text, dealt=(getattr(x, "phase", 0), x.blocksize, x.dtype))
