"""The collectives whose blocks lie anywhere: the `_v` forms (displacements) and `_x` (pointers).

`xupc.api.list_calls` describes the phases of a call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..algorithms.transfer_lists import Entries, Transfers, entries
from ..backends.operand_binding import HeapOperand
from ..errors import FlagError, show
from ..fingerprint import digest, fingerprint
from ..flags import IN_PLACE, check_flags
from ..health.call_record import CallRecord
from ..pgas.integer_arguments import as_integer
from ..plan.recorder import Operand
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import flags_text, signature_of
from .block_addresses import (
    FARTHEST,
    Ints,
    Numbers,
)
from .block_checks import Sides
from .call_cache import SharedPlan
from .list_arguments import permutation
from .list_calls import ListCall
from .vector_arguments import Call, RawArguments, arguments_of, parameters_text

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


def _text(sizes: Any) -> str:
    return str(sizes) if isinstance(sizes, Numbers) else show(sizes)


_NOTES = """
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library choose.{}
    team : Team, optional
        Threads that call; default all.

    Lists are SharedArrays, or sequences with equal values on all threads. Their content is data:
    shared lists are read after the IN synchronisation. Sizes may be 0; the entries of such a block
    are ignored and may be None. Source blocks may repeat, destination blocks may not overlap.

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
        """Return a plan bound to these arguments and the present content of lists; collective."""
        args, kwargs = self._without_algorithm(self.arguments, args, kwargs)
        call = self._check(self.arguments(*args, **kwargs))
        given, frozen = call.given, self._frozen(call)  # pointers in lists are read by now
        return self._plan(frozen, **given.src.operands, **given.dst.operands)

    # -- before lists are read --------------------------------------------------------------
    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return self._check(self._checked_names(self.arguments, args, kwargs))

    def _check(self, given: RawArguments) -> Call:
        """Check the arguments that are known before any list is read."""
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
        """Return the bytes per element."""
        (dst,), (src,) = given.dst.operands.values(), given.src.operands.values()
        if given.typesize is None and dst.dtype != src.dtype:
            raise TypeError(
                f"{self.__name__}: expected dst and src of one dtype, or a typesize: "
                f"got {dst.dtype} and {src.dtype}"
            )
        return dst.dtype.itemsize if given.typesize is None else int(given.typesize)

    def _entries_of(self, call: Call, perm: Ints | None = None) -> Entries:
        """Return the pairs of entries; for permute without `perm`, those of the identity."""
        threads = call.team.size
        if perm is None and self.base == "permute":
            perm = np.arange(threads)
        return entries(self.base, threads, perm)

    # -- after lists are read -----------------------------------------------------------------
    def _lists_signature(self, call: Call) -> int:
        return fingerprint(f"{self.name} lists", call.flags, call.unit, *call.where)

    def _read(self, call: Call, sync: tuple[str, str]) -> Any:
        try:
            moves = self._moves(call)
        except Exception as e:
            call.fail(e)
        return self._bound(call, moves, sync)

    def _moves(self, call: Call) -> Transfers:
        """Read and check the lists; return the transfers."""
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
        numbers = np.full(team.job.info.threads, -1)
        numbers[np.asarray(team.threads)] = np.arange(team.size)
        sides = Sides(name, self.size_name, call, every, sizes, numbers)
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
        """Return the elements (`_v`) or bytes (`_x`) of each block."""
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
        """Return a record with one argument per entry, so that a difference names the index."""
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
        """Return the instance of the plan for these transfers."""
        team = call.team
        content = digest(b"".join(c.tobytes() for c in moves), 16)
        most = int(moves.nbytes.max(initial=0))
        arguments = [Operand(0), Operand(1), moves]
        try:
            plan = team.planned(self.name, call.full, most, sync, content, arguments)
        except ValueError as e:
            call.fail(e)
        number = int.from_bytes(content[:7], "little")
        signature = fingerprint(self.name, call.flags, number, *call.where)
        heap = HeapOperand(team)
        return team.make(plan, [heap, heap], signature, call.record)


def _length(index: Ints, threads: int) -> int:
    """Return the length of a list that is indexed by `index`."""
    return int(index.max()) + 1 if index.size else threads


def _made(name: str, form: str) -> Relocation:
    """Return one of the twelve."""
    spec = SPECS[name]
    return Relocation(spec, form, arguments_of(spec, form), parameters_text(spec, form))


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
