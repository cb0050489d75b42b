"""The collectives whose blocks lie anywhere: the `_v` forms (displacements) and `_x` (pointers).

How a call goes through its phases: `xupc.api.list_calls`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from ..algorithms.transfer_lists import Entries, Transfers, entries
from ..errors import AffinityError, FlagError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import IN_PLACE, check_flags
from ..health.call_record import CallRecord
from ..pgas.allocation import Allocation
from ..pgas.shared import extent
from ..plan.recorder import Operand
from ..runtime.operand_binding import HeapOperand
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import as_integer, flags_text, signature_of
from .block_addresses import (
    FARTHEST,
    Displaced,
    Entered,
    Ints,
    Numbers,
    Places,
    Pointers,
    Side,
    Single,
)
from .call_cache import SharedPlan
from .list_arguments import permutation
from .list_calls import ListArgumentCall, ListCall

__all__ = [
    "Relocation",
    "all_broadcast_v",
    "all_broadcast_x",
    "all_exchange_v",
    "all_exchange_x",
    "all_gather_all_v",
    "all_gather_all_x",
    "all_gather_v",
    "all_gather_x",
    "all_permute_v",
    "all_permute_x",
    "all_scatter_v",
    "all_scatter_x",
]


@dataclass(slots=True)
class RawArguments:
    """A call's arguments.

    Attributes
    ----------
    sizes
        nelems or nbytes; broadcast's is one int.
    perm
        None except in permute.
    typesize
        As given; and whether dst and src must have one type, since it was not.
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
        """All lists."""
        own = [x for x in (self.sizes, self.perm) if isinstance(x, Entered)]
        return [*self.dst.lists, *self.src.lists, *own]


@dataclass(slots=True)
class Call(ListArgumentCall):
    """A call whose arguments are good as far as lists are not concerned."""

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


def _text(sizes: Any) -> str:
    return str(sizes) if isinstance(sizes, Numbers) else show(sizes)


_NOTES = """
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library choose.{}
    team : Team, optional
        Whose threads call; default all.

    Lists are SharedArrays, or sequences with equal values on all threads. What they hold is data:
    shared ones are read after the IN synchronisation. Sizes may be 0; the entries of such a block
    are not looked at and may be None. Source blocks may repeat, destination blocks may not overlap.

    Raises
    ------
    TypeError, ValueError, FlagError, AffinityError, OverlapError
        On every thread, before anything moves; the library stays usable.
    CollectiveMismatchError
        If the threads' calls differ.
    """
_IN_PLACE_NOTE = "\n        IN_PLACE: the root's own block is neither read nor written."
_ROOTED = tuple(name for name, spec in SPECS.items() if spec.root and "v" in spec.forms)


class Relocation(ListCall):
    """A `_v` or `_x` form."""

    def __init__(
        self,
        spec: CollectiveSpec,
        form: str,
        arguments: Callable[..., RawArguments],
        parameters: str,
    ) -> None:
        super().__init__()
        self.base = spec.name
        self.name = f"{spec.name}_{form}"
        self.__name__ = call_name(spec, form)
        self.size_name = "nelems" if form == "v" else "nbytes"
        self.arguments = arguments
        self.__signature__ = signature_of(arguments)
        notes = _NOTES.format(_IN_PLACE_NOTE if spec.root else "")
        self.__doc__ = (
            f"{spec.summary[form]}\n\n    Parameters\n    ----------\n{parameters}{notes}"
        )

    def plan(self, *args: Any, **kwargs: Any) -> SharedPlan:
        """A plan bound to these arguments and to what the lists hold now; collective itself."""
        call = self._check(self.arguments(*args, **kwargs))
        given, frozen = call.given, self._frozen(call)  # pointers in lists are known now
        return self._plan(frozen, **given.src.operands, **given.dst.operands)

    # -- what is known at once --------------------------------------------------------------
    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return self._check(self._told(self.arguments, args, kwargs))

    def _check(self, given: RawArguments) -> Call:
        """Check what is known before any list is read."""
        name, flags = self.__name__, given.flags

        def arguments() -> list[tuple[str, str]]:
            perm = given.perm
            return [
                *given.dst.arguments, *given.src.arguments,
                *([(perm.name, str(perm))] if perm is not None else []),
                (self.size_name, _text(given.sizes)),
                *([("typesize", show(given.typesize))] if given.typed else []),
                ("flags", flags_text(flags)),
            ]

        record = CallRecord(name, arguments, title=f"{name}(flags={show(flags)})")
        opened = self._open(given.team, flags, record)
        call = Call(opened.team, opened.full, record, given, operator.index(flags), 1)
        try:
            self._check_given(call)
        except Exception as e:
            call.fail(e)
        return call

    def _check_flags(self, flags: Any) -> int:
        name = self.__name__
        number = as_integer(flags, name, "flags")
        in_place = check_flags(number, name) & IN_PLACE
        if in_place and self.base not in _ROOTED:
            raise FlagError(f"{name}: flags: IN_PLACE is for {', '.join(_ROOTED)} only")
        return super()._check_flags(number & ~IN_PLACE) | in_place

    def _check_given(self, call: Call) -> None:
        name, given, team = self.__name__, call.given, call.team
        if given.src.given is None and self.base not in _ROOTED:
            raise FlagError(f"{name}: src: in place is for {', '.join(_ROOTED)} only, got None")
        one, threads = self._entries_of(call), team.size
        given.dst.prepare(name, team, _length(one.dst, threads))
        given.src.prepare(name, team, _length(one.src, threads))
        if given.typed:
            call.unit = self._unit(given)
        if given.perm is not None:
            given.perm.prepare_all(name, threads)
        if isinstance(given.sizes, Numbers):
            given.sizes.prepare_all(name, _length(one.nbytes, threads))
            return
        n = as_integer(given.sizes, name, self.size_name)
        if n < 1:
            raise ValueError(f"{name}: {self.size_name}: expected at least 1, got {n}")
        given.sizes = n

    def _unit(self, given: RawArguments) -> int:
        """Bytes per element."""
        (dst,), (src,) = given.dst.operands.values(), given.src.operands.values()
        if given.typesize is None and dst.dtype != src.dtype:
            raise TypeError(
                f"{self.__name__}: expected dst and src of one dtype, or a typesize: "
                f"got {dst.dtype} and {src.dtype}"
            )
        return dst.dtype.itemsize if given.typesize is None else int(given.typesize)

    def _entries_of(self, call: Call, perm: Ints | None = None) -> Entries:
        """Which entries belong together; of permute as if nothing moved unless `perm` is given."""
        threads = call.team.size
        if perm is None and self.base == "permute":
            perm = np.arange(threads)
        return entries(self.base, threads, perm)

    # -- what the lists hold ----------------------------------------------------------------
    def _lists_signature(self, call: Call) -> int:
        return fingerprint(f"{self.name} lists", call.flags, call.unit, *call.where)

    def _read(self, call: Call, sync: tuple[str, str]) -> Any:
        try:
            moves = self._moves(call)
        except Exception as e:
            call.fail(e)
        return self._bound(call, moves, sync)

    def _moves(self, call: Call) -> Transfers:
        """Read the lists; everything about them is checked."""
        name, given, team = self.__name__, call.given, call.team
        perm = None
        if given.perm is not None:
            perm = given.perm.values(name)
            permutation(name, perm.tolist())
        every = self._entries_of(call, perm)
        sizes = self._sizes(call)
        if int(sizes.max(initial=0)) * call.unit >= FARTHEST:
            raise ValueError(
                f"{name}: {self.size_name}: {sizes.max()} elements of {call.unit} bytes are more "
                "than any memory"
            )
        some = np.flatnonzero(sizes[every.nbytes] > 0)
        numbers = np.full(team.job.threads, -1)
        numbers[np.asarray(team.threads)] = np.arange(team.size)
        sides = Sides(self, call, every, sizes, numbers)
        if call.full & IN_PLACE:
            some = sides.without_own(some)
        to = sides.at(given.dst, every.dst, every.to, some)
        of = sides.at(given.src, every.src, every.of, some)
        nbytes = sizes[every.nbytes[some]] * call.unit
        sides.check_ranges(given.dst, every.dst[some], to, some)
        sides.check_ranges(given.src, every.src[some], of, some)
        sides.check_overlap(to, of, some)
        call.record = self._with_entries(call, sizes, perm)
        return Transfers.of(numbers[to.thread], to.addr, numbers[of.thread], of.addr, nbytes)

    def _sizes(self, call: Call) -> Ints:
        """Elements (`_v`) or bytes (`_x`) of each block."""
        if not isinstance(call.given.sizes, Numbers):
            return np.array([min(call.given.sizes, 1 << 44)], np.int64)
        sizes = call.given.sizes.values(self.__name__)
        bad = np.flatnonzero(sizes < 0)
        if bad.size:
            k = int(bad[0])
            raise ValueError(
                f"{self.__name__}: {self.size_name}[{k}]: expected at least 0, got {sizes[k]}"
            )
        return sizes

    def _with_entries(self, call: Call, sizes: Ints, perm: Ints | None) -> CallRecord:
        """The record with each entry by itself, so that a difference names the index."""
        given, record = call.given, call.record

        def arguments() -> list[tuple[str, str]]:
            out = list(record.arguments)
            for side in (given.dst, given.src):
                out += [(side.entry(k), text) for k, text in enumerate(side.texts(sizes.size))]
            if isinstance(given.sizes, Numbers):
                out += [(f"{self.size_name}[{k}]", str(n)) for k, n in enumerate(sizes.tolist())]
            if perm is not None:
                out += [(f"perm[{k}]", str(to)) for k, to in enumerate(perm.tolist())]
            return out

        return CallRecord(record.name, arguments, record.title)

    def _bound(self, call: Call, moves: Transfers, sync: tuple[str, str]) -> Any:
        """The instance of the plan for these transfers."""
        team = call.team
        content = blake2b(b"".join(c.tobytes() for c in moves), digest_size=16).digest()
        most = int(moves.nbytes.max(initial=0))
        arguments = [Operand(0), Operand(1), moves]
        plan = team.planned(self.name, call.full, most, sync, content, arguments)
        number = int.from_bytes(content[:7], "little")
        signature = fingerprint(self.name, call.flags, number, *call.where)
        heap = HeapOperand(team)
        return team.make(plan, [heap, heap], signature, call.record)


def _length(index: Ints, threads: int) -> int:
    """How long a list has to be that is indexed like this."""
    return int(index.max()) + 1 if index.size else threads


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides' entries while they are checked.

    Attributes
    ----------
    every
        Which entries belong together.
    sizes
        By entry of the list of sizes.
    numbers
        The team's rank of each thread, -1 of those that are not in it.
    """

    collective: Relocation
    call: Call
    every: Entries
    sizes: Ints
    numbers: Ints

    @property
    def name(self) -> str:
        """Of the call."""
        return self.collective.__name__

    def at(self, side: Side, index: Ints, ranks: Ints | None, some: Ints) -> Places:
        """The places of some entries, each on the thread where it has to be."""
        index = index[some]
        places = side.places(self.name, index)
        if not some.size:
            return places
        threads = np.asarray(self.call.team.threads)
        if ranks is not None:
            expected = threads[ranks[some]]
        else:
            expected = np.full(some.size, places.thread[0])
            if self.numbers[expected[0]] < 0:
                raise AffinityError(
                    f"{self.name}: {side.entry(int(index[0]))}: expected affinity to a thread of "
                    f"the team, got a pointer with affinity to thread {expected[0]}"
                )
        bad = np.flatnonzero(places.thread != expected)
        if bad.size:
            i = int(bad[0])
            raise AffinityError(
                f"{self.name}: {side.entry(int(index[i]))}: expected affinity to thread "
                f"{expected[i]}, got a pointer with affinity to thread {places.thread[i]}"
            )
        return places

    def without_own(self, some: Ints) -> Ints:
        """All but the root's own block, which IN_PLACE leaves alone."""
        given, every = self.call.given, self.every
        if every.to is None:
            side, index, ranks = given.dst, every.dst, every.of
        else:
            side, index, ranks = given.src, every.src, every.to
        assert ranks is not None
        if isinstance(side, Single):
            root = int(self.numbers[side.places(self.name, index[:1]).thread[0]])
            return self._except(some, ranks, root)
        # The root's own entry may be anything, so two entries are needed to tell who it is.
        told = [(int(ranks[k]), self._rank(side, int(index[k]))) for k in some[:2]]
        roots = [rank for _, rank in told if rank is not None] or [rank for rank, _ in told]
        fits = (r for r in roots if all(r in (own, rank) for own, rank in told))
        if not roots:
            return some
        return self._except(some, ranks, next(fits, roots[0]))

    def _except(self, some: Ints, ranks: Ints, root: int) -> Ints:
        others: Ints = some[ranks[some] != root]
        return others

    def _rank(self, side: Side, entry: int) -> int | None:
        """Whose memory an entry points to, None if nobody's."""
        try:
            return int(self.numbers[side.places(self.name, np.array([entry])).thread[0]])
        except (TypeError, ValueError):
            return None

    def check_ranges(self, side: Side, index: Ints, places: Places, some: Ints) -> None:
        """Each block lies in its allocation."""
        counts = self.sizes[self.every.nbytes[some]]
        nbytes = counts * self.call.unit
        bad = np.flatnonzero((places.addr < places.low) | (places.addr + nbytes > places.high))
        if not bad.size:
            return
        i = int(bad[0])
        of = self.collective.size_name
        if isinstance(self.call.given.sizes, Numbers):
            of += f"[{self.every.nbytes[some][i]}]"
        raise ValueError(
            f"{self.name}: {side.entry(int(index[i]))}: {nbytes[i]} bytes from offset "
            f"{places.addr[i]} are beyond the allocation, which has offsets {places.low[i]} to "
            f"{places.high[i]} on thread {places.thread[i]} ({of}={counts[i]})"
        )

    def check_overlap(self, to: Places, of: Places, some: Ints) -> None:
        """No destination block overlaps another one, a source block or a shared list."""
        nbytes = self.sizes[self.every.nbytes[some]] * self.call.unit
        given = self.call.given
        read: list[tuple[int, int, int, str]] = []
        for listed in given.lists:
            if listed.shared is not None:
                places = extent(listed.shared, listed.count)
                read += [(*place, listed.name) for place in places]
        lists = np.array([run[:3] for run in read], np.int64).reshape(-1, 3).T
        thread = np.concatenate([of.thread, lists[0]])
        start = np.concatenate([of.addr, lists[1]])
        end = start + np.concatenate([nbytes, lists[2]])
        # by thread and place, in numbers small enough to be put into one
        marks = np.unique(np.concatenate([to.addr, to.addr + nbytes, start, end]))

        def key(threads: Ints, addr: Ints) -> Ints:
            return threads * (marks.size + 1) + np.searchsorted(marks, addr)

        low, high = key(to.thread, to.addr), key(to.thread, to.addr + nbytes)
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
        names = self.every.dst[some][order]
        bad = np.flatnonzero(high[:-1] > low[1:])
        if bad.size:
            i = int(bad[0])
            first, second = sorted((int(names[i]), int(names[i + 1])))
            raise OverlapError(
                f"{self.name}: the blocks at {given.dst.entry(first)} and "
                f"{given.dst.entry(second)} overlap on thread {to.thread[order][i]}"
            )
        if not low.size:
            return
        before = np.searchsorted(low, key(thread, end), side="left") - 1
        bad = np.flatnonzero((before >= 0) & (high[before] > key(thread, start)))
        if bad.size:
            i = int(bad[0])
            target = given.dst.entry(int(names[before[i]]))
            if i < some.size:
                other = f"the source block at {given.src.entry(int(self.every.src[some][i]))}"
            else:
                other = f"the list {read[i - some.size][3]}"
            raise OverlapError(
                f"{self.name}: the block at {target} overlaps {other} on thread {thread[i]}"
            )


# --- the forms ----------------------------------------------------------------------------

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
        Displacements are counted from there, an array's from element 0; where the team's
        first thread has not that one, from the start of its part on that thread.
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


def _made(name: str, form: str) -> Relocation:
    """Return one of the twelve."""
    spec = SPECS[name]
    arguments = _ARGUMENTS.get((name, form), _ARGUMENTS["", form])
    return Relocation(spec, form, arguments, _parameters(spec, form))


def _parameters(spec: CollectiveSpec, form: str) -> str:
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


all_broadcast_v = _made("broadcast", "v")
all_broadcast_x = _made("broadcast", "x")
all_scatter_v = _made("scatter", "v")
all_scatter_x = _made("scatter", "x")
all_gather_v = _made("gather", "v")
all_gather_x = _made("gather", "x")
all_gather_all_v = _made("gather_all", "v")
all_gather_all_x = _made("gather_all", "x")
all_exchange_v = _made("exchange", "v")
all_exchange_x = _made("exchange", "x")
all_permute_v = _made("permute", "v")
all_permute_x = _made("permute", "x")
