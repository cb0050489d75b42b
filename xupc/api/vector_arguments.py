"""Arguments of the `_v` and `_x` forms: their signatures, docstrings and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..pgas.allocation import Allocation
from ..records import mutable_record
from ..specs import CollectiveSpec
from .block_addresses import (
    Displaced,
    Entered,
    Numbers,
    Pointers,
    Side,
    Single,
)
from .list_calls import ListArgumentCall

__all__ = [
    "Call",
    "RawArguments",
    "arguments_of",
    "parameters_text",
]


@mutable_record
class RawArguments:
    """The arguments of a call, as given.

    Attributes
    ----------
    sizes
        nelems or nbytes; one int in broadcast.
    perm
        None except in permute.
    typesize
        As given; `typed` is True in the `_v` forms, which need it or one dtype.
    """

    dst: Side
    src: Side
    sizes: Any
    flags: Any
    team: Any
    perm: Numbers | None = None
    typesize: Any = None
    typed: bool = False

    @property
    def lists(self) -> list[Entered]:
        """Return all lists."""
        own = [x for x in (self.sizes, self.perm) if isinstance(x, Entered)]
        return [*self.dst.lists, *self.src.lists, *own]


@mutable_record
class Call(ListArgumentCall):
    """A call whose arguments are checked, except for the content of lists."""

    given: RawArguments
    flags: int
    unit: int

    @property
    def lists(self) -> list[Entered]:
        return self.given.lists

    @property
    def memory(self) -> list[Allocation]:
        given = self.given
        pointers = [*given.dst.operands.values(), *given.src.operands.values()]
        return [p.allocation for p in pointers]


def _v(
    dst: Any, src: Any, ddisp: Any, sdisp: Any, nelems: Any, flags: Any = 0, *,
    dst_blk: Any = None, src_blk: Any = None, typesize: Any = None, team: Any = None,
) -> RawArguments:  # fmt: skip
    return RawArguments(
        Displaced("dst", dst, Numbers("ddisp", ddisp), dst_blk, typesize),
        Displaced("src", src, Numbers("sdisp", sdisp), src_blk, typesize),
        Numbers("nelems", nelems), flags, team, typesize=typesize, typed=True,
    )  # fmt: skip


def _permute_v(
    dst: Any, src: Any, perm: Any, ddisp: Any, sdisp: Any, nelems: Any, flags: Any = 0, *,
    dst_blk: Any = None, src_blk: Any = None, typesize: Any = None, team: Any = None,
) -> RawArguments:  # fmt: skip
    given = _v(
        dst, src, ddisp, sdisp, nelems, flags,
        dst_blk=dst_blk, src_blk=src_blk, typesize=typesize, team=team,
    )  # fmt: skip
    given.perm = Numbers("perm", perm)
    return given


def _broadcast_v(
    dst: Any, src: Any, ddisp: Any, nelems: Any, flags: Any = 0, *,
    dst_blk: Any = None, typesize: Any = None, team: Any = None,
) -> RawArguments:  # fmt: skip
    side = Displaced("dst", dst, Numbers("ddisp", ddisp), dst_blk, typesize)
    return RawArguments(
        side, Single("src", src), nelems, flags, team, typesize=typesize, typed=True
    )


def _x(dst: Any, src: Any, nbytes: Any, flags: Any = 0, team: Any = None) -> RawArguments:
    return RawArguments(
        Pointers("dst", dst), Pointers("src", src), Numbers("nbytes", nbytes), flags, team
    )


def _permute_x(
    dst: Any, src: Any, perm: Any, nbytes: Any, flags: Any = 0, team: Any = None
) -> RawArguments:
    given = _x(dst, src, nbytes, flags, team)
    given.perm = Numbers("perm", perm)
    return given


def _broadcast_x(dst: Any, src: Any, nbytes: Any, flags: Any = 0, team: Any = None) -> RawArguments:
    return RawArguments(Pointers("dst", dst), Single("src", src), nbytes, flags, team)


_BLOCKS = """\
    dst{s} : SharedArray or SharedPointer
        Displacements are counted from there, in an array from element 0. If the team's first
        thread does not have element 0, they are counted from its part on that thread.
"""
_SIZES = """\
    dst_blk{s}, typesize : int, optional
        Blocksize and bytes of an element in that arithmetic. Default: the arrays' own; without
        typesize they must have one dtype.
"""
_ARGUMENTS: dict[tuple[str, str], Callable[..., RawArguments]] = {
    ("", "v"): _v, ("broadcast", "v"): _broadcast_v, ("permute", "v"): _permute_v,
    ("", "x"): _x, ("broadcast", "x"): _broadcast_x, ("permute", "x"): _permute_x,
}  # fmt: skip


def parameters_text(spec: CollectiveSpec, form: str) -> str:
    """Return the part of the docstring about places, permutation and sizes."""
    lists = spec.lists
    assert lists is not None
    single = not lists.src
    text = _BLOCKS.format(s="" if single else ", src") if form == "v" else ""
    kind = f"list of {'int' if form == 'v' else 'pointers'}"
    dst, src = ("ddisp", "sdisp") if form == "v" else ("dst", "src")
    described = [(dst, kind, lists.dst), (src, kind, lists.src)]
    if spec.permutes:
        described.append(("perm", "list of int", "T ints, a permutation"))
    for argument, kind_of_list, what in described:
        if what:
            text += f"    {argument} : {kind_of_list}\n        {what}.\n"
    if single:
        text += "    src : SharedArray or SharedPointer\n"
        text += "        The block; its thread is the root.\n"
    count = "nelems" if form == "v" else "nbytes"
    text += f"    {count} : {'int' if single else 'list of int'}\n        {lists.sizes}.\n"
    if form == "v":
        text += _SIZES.format(s="" if single else ", src_blk")
    return text.rstrip()


def arguments_of(spec: CollectiveSpec, form: str) -> Callable[..., RawArguments]:
    """Return the function that takes the arguments of a form."""
    return _ARGUMENTS.get((spec.name, form), _ARGUMENTS["", form])
