"""Checks of the operands of calls on shared memory: blocks of equal size at an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import AffinityError, OverlapError
from ..pgas.allocation import Allocation
from ..pgas.integer_arguments import as_integer
from ..pgas.shared_array import SharedArray
from ..pgas.shared_reference import as_address
from ..records import mutable_record, replace
from ..runtime.team_state import TeamState
from ..specs import OperandSpec
from .argument_checks import describe
from .call_family import FamilyOperand

__all__ = ["CheckedBlocks", "RawOperand", "Target", "check_blocks", "smallest_parts"]


@mutable_record
class Target:
    """An operand of a call, checked; `last` is the highest offset at which its bytes fit."""

    allocation: Allocation
    rank: int
    offset: int
    nbytes: int
    last: int

    def in_family(self, given: Any, place: int, dealt: bool) -> FamilyOperand:
        """Return the operand for `CallFamily`."""
        a = self.allocation
        return FamilyOperand(
            given, a.memory, self.offset, a.offset, self.last, 0, self.nbytes, place, dealt
        )


class CheckedBlocks(NamedTuple):
    """The operands of a call, checked.

    Attributes
    ----------
    nbytes, root
        Bytes per block; rank of the root, 0 if there is none.
    apart
        Bytes from dst's offset to src's if their bytes may overlap; else None.
    """

    targets: list[Target]
    nbytes: int
    root: int
    apart: int | None

    @property
    def where(self) -> list[int]:
        """Where the operands lie, as numbers for a fingerprint."""
        return [v for t in self.targets for v in (t.allocation.serial, t.rank, t.offset)]

    def in_family(
        self, dst: Any, src: Any, *, dealt: bool = False
    ) -> tuple[FamilyOperand, FamilyOperand]:
        """Return the operands for `CallFamily`, whose `values` have `where` from index 1 on."""
        first = self.targets[0].in_family(dst, 3, dealt)
        if len(self.targets) == 1:
            return first, replace(first, given=src, place=-1)
        return first, self.targets[1].in_family(src, 6, dealt)


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
) -> CheckedBlocks:
    """Check all operands of a call, and its nbytes.

    Parameters
    ----------
    in_place : bool
        The root's own block in dst may be that in src.
    """
    n = as_integer(nbytes, call, "nbytes")
    if n < 1:
        raise ValueError(f"{call}: nbytes: expected at least 1, got {n}")
    targets = [_target(call, *operand, n, team) for operand in operands]
    shapes = [shape for _, _, shape in operands]
    root = next((t.rank for t, s in zip(targets, shapes, strict=True) if s.names_root), 0)
    if len(targets) == 1 or (in_place and _own_is_shared(targets, shapes, n, root)):
        apart = targets[-1].offset - targets[0].offset
        return CheckedBlocks(targets, n, root, apart)
    (target, source), ((_, dst, _), (_, src, _)) = targets, operands
    if (
        target.offset < source.offset + source.nbytes
        and source.offset < target.offset + target.nbytes
    ):
        raise OverlapError(
            f"{call}: dst and src overlap: dst is {describe(dst)} and {target.nbytes} "
            f"bytes, src is {describe(src)} and {source.nbytes} bytes"
        )
    return CheckedBlocks(targets, n, root, None)


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
    ends = []
    for where in smallest_parts(allocation, thread, team, call, argument, shape.everywhere):
        if not allocation.holds(where, offset, total):
            text = allocation.beyond(where, offset, total)
            raise ValueError(f"{call}: {argument}: {text} (nbytes={n})")
        ends.append(sum(allocation.part(where)))
    return Target(allocation, rank, offset, total, min(ends) - total)
