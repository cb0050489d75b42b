"""Collectives on private arrays whose blocks differ in size: signatures and checked arguments."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Hashable
from typing import Any, ClassVar

from ..errors import FlagError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import ALGORITHM_MASK, IN_PLACE, VARIANT_SHIFT, check_flags
from ..health.call_record import CallRecord
from ..pgas.integer_arguments import as_integer
from ..pgas.private_memory import array_of
from ..records import mutable_record
from ..reduction.structured_dtypes import name as name_of
from ..runtime.team_state import TeamState
from ..specs import SPECS, call_name
from .argument_checks import flags_text, named_flags
from .array_arguments import Array, overlap
from .array_signatures import FLAGS_AND_TEAM, RETURNED
from .call_cache import CachedArrays, NamedCall
from .team import resolve
from .uneven_arguments import UnevenArguments, UnevenBlocks, VectorSide, sizes_of

__all__ = ["Blocks", "UnevenBound", "UnevenForm"]

Blocks = tuple[UnevenBlocks | None, UnevenBlocks | None]
"""dst and src of a thread; None where it has none."""


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

    @property
    def in_place(self) -> bool:
        """True if this thread's block is in dst."""
        return self.dst is self.src

    @property
    def key(self) -> Hashable:
        """Return the sizes and places, as far as this thread has them."""
        sides = [None if x is None else (*x.places, *x.counts) for x in (self.dst, self.src)]
        return self.signature, self.in_place, *sides

    def bind(self, instance: Any) -> None:
        """Bind an instance to the memory of the blocks."""
        dst, src = (0 if x is None else x.memory.ctypes.data for x in (self.dst, self.src))
        instance.rebind(dst, src)

    def fill(self) -> None:
        """Copy the program's values to copies of its arrays."""
        if self.src is not None:
            self.src.fill()
        if self.dst is not None and not self.in_place:
            self.dst.fill()

    def finish(self) -> None:
        """Copy received blocks to the program's array, if they are in a copy."""
        if self.dst is not None:
            self.dst.finish()


class UnevenForm(NamedCall, CachedArrays):  # type: ignore[misc]
    """A collective on private arrays whose blocks differ in size, T threads: ``{signature}``.

    Counts and displacements are in elements. Without displacements the blocks are one after the
    other; between and behind blocks an array may have more elements, which stay as they are.
    Arrays may have any shape and strides, and any dtype but objects, the same on all threads.

    Parameters
    ----------
    {parameters}
    {flags_and_team}
    {displacements}
    algorithm : str, optional
        A variant of {base} by name (`xupc algorithms {base}` lists them).

    Returns
    -------
    {returned}

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
        text = str(UnevenForm.__doc__).format(
            signature=f"{self.__name__}{shown}",
            parameters="\n    ".join(f"{x} : {text}" for x, text in self.about.items()),
            displacements="\n    ".join(
                f"{x} : sequence of T ints, optional\n        The first element of each block."
                for x in self.displacements
            ),
            base=call_name(spec, "allav"),
            mismatch=self.mismatch,
            flags_and_team=FLAGS_AND_TEAM,
            returned=RETURNED,
        )
        self.__doc__ = f"{spec.summary['allav_v']}\n\n{text}"

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
