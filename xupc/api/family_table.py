"""The families of a collective in jobs of the Python engine; the core has its own table.

`_call_families.pxi` does the same for the core. Here a family has the instance of its first call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends.native.native_core import caches
from ..fingerprint import hashed
from ..pgas.shared_pointer import SharedPointer
from ..records import mutable_record, replace
from .call_family import CallFamily, FamilyOperand

__all__ = ["FamilyTable"]

FAMILIES = 64
"""How many families of a collective are kept."""
_BY_VALUE = int, str
"""The types of arguments of which equal ones mean the same."""
Place = tuple[int, int]
"""Offset and phase of an operand."""


@mutable_record
class KnownFamily:
    """A family that had a call.

    Attributes
    ----------
    references
        For each argument but ints and strings a function that returns it, None once it is gone; of
        a pointer, its allocation.
    order
        For each pointer among the arguments the number of its operand.
    layouts
        dtype and blocksize of each operand that is a pointer.
    follows
        True if src is not given, and lies where dst does.
    """

    references: Sequence[Callable[[], Any]]
    order: Sequence[int]
    layouts: Mapping[int, tuple[Any, int]]
    follows: bool
    family: CallFamily
    instance: Any

    @classmethod
    def of(
        cls, values: Sequence[Any], family: CallFamily, instance: Any, drop: Callable[..., object]
    ) -> KnownFamily | None:
        """Return the family of a call with these arguments; None if an argument may change.

        `drop` is called when an argument is gone.
        """
        operands = list(family.operands)
        order: list[int] = []
        for x in values:
            if type(x) is SharedPointer:
                order.append(next(k for k in (0, 1) if k not in order and operands[k].given is x))
            elif hasattr(type(x), "__index__") and not isinstance(x, int | np.generic):
                return None
        layouts = {k: (operands[k].given._dtype, operands[k].given._blocksize) for k in order}
        references = [_reference(x, drop) for x in _anchors(values)]
        to, of = (replace(x, given=None) for x in operands)
        follows, kept = operands[1].given is None, replace(family, operands=(to, of))
        return cls(references, order, layouts, follows, kept, instance)

    def places(self, values: Sequence[Any]) -> tuple[Place, Place] | None:
        """Return where the operands of a call are; None if it has to be checked in full."""
        same = zip(self.references, _anchors(values), strict=True)
        if any(get() is not x for get, x in same):
            return None
        operands, apart = self.family.operands, self.family.apart
        to = [(x.offset, 0) for x in operands]
        pointers = (x for x in values if type(x) is SharedPointer)
        for k, p in zip(self.order, pointers, strict=True):
            if not p._allocation.live:
                return None
            if operands[k].dealt and (p._dtype, p._blocksize) != self.layouts[k]:
                return None
            to[k] = p._addr, p._phase
        if self.follows:
            to[1] = to[0][0] + (apart or 0), 0
        (dst, _), (src, _) = to
        fits = all(x.low <= offset <= x.high for x, (offset, _) in zip(operands, to, strict=True))
        legal = src - dst == apart if apart is not None else _disjoint(operands, dst, src)
        return (to[0], to[1]) if fits and legal else None

    def bind(self, to: tuple[Place, Place]) -> Any:
        """Return the instance, bound to these places."""
        values, instance = list(self.family.values), self.instance
        for x, (offset, _), bound in zip(self.family.operands, to, instance.bounds, strict=False):
            if x.place >= 0:
                values[x.place] = offset
            bound.address += offset - bound.offset
            bound.offset = offset
        instance.hash = hashed(tuple(values))
        instance.record = self.family.texts.record_at(*to)
        return instance


class FamilyTable:
    """The families of a collective; `phased` is that of `CachedCall`."""

    def __init__(self, *, phased: bool) -> None:
        self._phased = phased
        self._known: dict[tuple[Any, ...], KnownFamily] = {}
        caches.append(self._known.clear)

    def find(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[KnownFamily, tuple[Place, Place]] | None:
        """Return the family of a call, and where its operands are; None: it is of no known one."""
        if not self._known:
            return None
        known = self._known.get(self._key(args, kwargs))
        places = None if known is None else known.places([*args, *kwargs.values()])
        return None if known is None or places is None else (known, places)

    def add(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], family: CallFamily, instance: Any
    ) -> None:
        """Keep a family, whose first call has these arguments and this instance."""
        key, every = self._key(args, kwargs), self._known
        known = KnownFamily.of(
            [*args, *kwargs.values()], family, instance, lambda _: every.pop(key, None)
        )
        if known is None:
            return
        if len(every) == FAMILIES:
            every.pop(next(iter(every)))
        every[key] = known

    def _key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what calls of a family have in common, but for blocksizes and dtypes."""
        key: list[Any] = [len(args), *kwargs]
        for x in (*args, *kwargs.values()):
            if type(x) is SharedPointer:
                key.append((id(x._allocation), x._rank, x._phase if self._phased else 0))
            else:
                key.append(x if type(x) in _BY_VALUE else (id(x),))
        return tuple(key)


def _anchors(values: Sequence[Any]) -> Iterator[Any]:
    """Yield what stays the same of the arguments in all calls of a family, but for values."""
    for x in values:
        if type(x) not in _BY_VALUE:
            yield x._allocation if type(x) is SharedPointer else x


def _reference(x: Any, drop: Callable[..., object]) -> Callable[[], Any]:
    try:
        return weakref.ref(x, drop)
    except TypeError:  # of an object without weak references
        return lambda: x


def _disjoint(operands: Sequence[FamilyOperand], dst: int, src: int) -> bool:
    to, of = operands
    return dst + to.end <= src + of.begin or src + of.end <= dst + to.begin
