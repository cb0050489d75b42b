"""Where the variants of algorithms are registered: collective, flag and name -> function.

A collective has one or more *variants* under each of PULL, PUSH and MULTICORE. A variant has a name
of its own, such as ``multicore:ring``; where a flag has one way only, that is just ``pull``. The
first variant that a call prefers is the default of its flag. The order is that of `HOMES`, then
that in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Any

from ..flags import ALGORITHM_NAMES, algorithm_name
from ..records import record, replace
from .conditions import CallFacts, Condition, text_of
from .several_roots import (
    can_have_stripes,
    facts_of,
    label_of,
    parted_label,
    striped,
)

__all__ = [
    "HOMES", "Entry", "Variant", "algorithm", "collectives", "derive", "find", "is_name",
    "names_of", "names_variant", "parse_name", "register", "registered", "unregister", "with_roots",
]  # fmt: skip

HOMES = {
    "broadcast": "broadcast",
    "broadcast_levels": "broadcast",
    "broadcast_circulant": "broadcast",
    "broadcast_in_place": "broadcast_in_place",
    "exchange": "exchange",
    "exchange_in_place": "exchange_in_place",
    "gather": "gather gather_in_place",
    "gather_all": "gather_all gather_all_in_place",
    "gather_all_circulant": "gather_all gather_all_in_place",
    "gather_all_levels": "gather_all gather_all_in_place",
    "permute": "permute",
    "permute_in_place": "permute_in_place",
    "prefix_reduce": "prefix_reduce suffix_reduce exclusive_prefix_reduce exclusive_suffix_reduce",
    "prefix_reduce_levels": "prefix_reduce suffix_reduce exclusive_prefix_reduce "
                            "exclusive_suffix_reduce",
    "reduce": "reduce reduce_all reduce_mpi reduce_mpi_all",
    "reduce_circulant": "reduce_mpi",
    "reduce_all_circulant": "reduce_mpi_all",
    "reduce_multiplying": "reduce_mpi_all",
    "scatter": "scatter scatter_in_place",
    "block_transfers": "broadcast_v broadcast_x exchange_v exchange_x gather_v gather_x "
                       "gather_all_v gather_all_x neighbour_exchange permute_v permute_x scatter_v "
                       "scatter_x",
    "transfer_levels": "broadcast_v broadcast_x gather_all_v gather_all_x",
    "values": "allav_broadcast allav_exchange allav_gather allav_gather_all allav_permute "
              "allav_scatter",
    "values_levels": "allav_broadcast allav_gather_all",
    "values_neighbours": "allav_neighbour_exchange",
    "reduce_scatter": "reduce_scatter",
    "values_reduce_scatter": "allav_reduce_scatter",
    "reduce_scatter_circulant": "reduce_scatter allav_reduce_scatter",
    "values_reduce": "allav_reduce allav_reduce_all",
    "values_scan": "allav_prefix_reduce allav_suffix_reduce allav_exclusive_prefix_reduce "
                   "allav_exclusive_suffix_reduce",
    "reduce_levels": "reduce reduce_all reduce_mpi reduce_mpi_all",
    "values_reduce_levels": "allav_reduce allav_reduce_all",
    "reduce_scatter_levels": "reduce_scatter allav_reduce_scatter",
    "values_scan_levels": "allav_prefix_reduce allav_suffix_reduce allav_exclusive_prefix_reduce "
                          "allav_exclusive_suffix_reduce",
}  # fmt: skip
"""Which files register the algorithms of which collectives, in this order."""

_RANKS = {name: number for number, name in enumerate(HOMES)}
_HOMES: dict[str, list[str]] = {}
for _module, _names in HOMES.items():
    for _name in _names.split():
        _HOMES.setdefault(_name, []).append(_module)
_FLAGS = {name: flag for flag, name in ALGORITHM_NAMES.items()}

Function = Callable[..., None]


@record
class Variant:
    """One way to carry out a collective under a flag.

    Attributes
    ----------
    label
        Its name after the colon; empty where the flag has one way only.
    summary
        Its idea in one sentence.
    function
        Records it: ``f(t, ...)``.
    applies
        Where it can run; None: everywhere.
    preferred
        Where it is the default, if no variant before it is; None: wherever it applies.
    own
        True if the user's program registered it. Then a call uses it only if asked by name.
    rank
        The place in `HOMES` of the file that registers it; behind all others: not one of these.
    """

    collective: str
    flag: int
    label: str
    summary: str
    function: Function
    applies: Condition | None = None
    preferred: Condition | None = None
    own: bool = False
    rank: int = len(HOMES)

    @property
    def name(self) -> str:
        """``multicore:ring``, or ``pull`` where there is one way only."""
        return algorithm_name(self.flag, self.label)

    def can_run(self, call: CallFacts) -> bool:
        """Return whether a call can be carried out in this way.

        Raises
        ------
        ValueError
            The condition of a program's variant raised anything.
        """
        try:
            return self.applies is None or bool(self.applies(call))
        except Exception as e:
            if not self.own:
                raise
            text = f"{self.name}: its condition `applies` raised {type(e).__name__}: {e}"
            raise ValueError(text) from e

    def is_preferred(self, call: CallFacts) -> bool:
        """Return whether a call uses it by default, if it uses none of those before it."""
        if self.own or not self.can_run(call):
            return False
        return self.preferred is None or bool(self.preferred(call))


@record
class Entry:
    """The variants of a collective under one flag, in the order in which they are tried."""

    collective: str
    flag: int
    variants: tuple[Variant, ...]

    @property
    def name(self) -> str:
        """``pull``, ``push`` or ``multicore``."""
        return ALGORITHM_NAMES[self.flag]

    def default(self, call: CallFacts) -> Variant:
        """Return the variant of a call that names none."""
        for variant in self.variants:
            if variant.is_preferred(call):
                return variant
        raise LookupError(f"{self.collective}: no variant of {self.name} for {call}")

    def choose(self, label: str, call: CallFacts) -> Variant:
        """Return the variant with a label, or the default for ""; ValueError if it cannot run."""
        base, roots = parted_label(label)
        if not label:
            return self.default(call)
        if roots > 1:
            return self._with_roots(base, roots, call)
        for variant in self.variants:
            if variant.label == label:
                break
        else:
            expected = ", ".join(v.name for v in self.variants)
            raise ValueError(f"there is no {self.name}:{label}, expected one of {expected}")
        if not variant.can_run(call):
            raise ValueError(
                f"{variant.name} cannot run here: expected {_lowered(text_of(variant.applies))}, "
                f"got {call}"
            )
        return variant

    def _with_roots(self, base: str, roots: int, call: CallFacts) -> Variant:
        """Return a variant with several roots per node; ValueError if it cannot run.

        Without a name it is the first one that a call of the length of a stripe prefers.
        """
        several = [v for v in self.variants if can_have_stripes(self.collective, v.label)]
        named = [v for v in several if base in ("", v.label)]
        if not named:
            known = ", ".join(v.name for v in several) or "none of this collective's variants"
            raise ValueError(
                f"{algorithm_name(self.flag, label_of(base, roots))}: "
                f"expected a variant that can have several roots per node: {known}"
            )
        stripes = facts_of(self.collective, call, roots)
        for variant in named:
            if base or variant.is_preferred(stripes[0]):
                break
        else:
            raise ValueError(
                f"{algorithm_name(self.flag, label_of(base, roots))}: no variant that can have "
                f"several roots per node is the default for {call}"
            )
        if not all(variant.can_run(stripe) for stripe in stripes):
            raise ValueError(
                f"{variant.name} cannot run here with {roots} roots per node: expected "
                f"{_lowered(text_of(variant.applies))}, got {call}"
            )
        return with_roots(variant, roots)

    def can_run(self, label: str, call: CallFacts) -> bool:
        """Return whether there is a variant with a label, or "", and a call can be carried out."""
        if not label:
            return True
        try:
            self.choose(label, call)
        except ValueError:
            return False
        return True

    def function(self, t: Any, *arguments: Any) -> None:
        """Record a call by its default variant."""
        call = CallFacts(t.tree, t.tuning, t.sync, arguments, t.kernel)
        self.default(call).function(t, *arguments)


def with_roots(variant: Variant, roots: int) -> Variant:
    """Return a variant with so many roots per node."""

    def applies(call: CallFacts) -> bool:
        stripes = facts_of(variant.collective, call, roots)
        return all(variant.can_run(stripe) for stripe in stripes)

    applies.__doc__ = text_of(variant.applies)
    return replace(
        variant,
        label=label_of(variant.label, roots),
        summary=f"{variant.summary.rstrip('.')}; {roots} roots per node share each block.",
        function=striped(variant.function, variant.collective, roots),
        applies=applies,
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


_REGISTRY: dict[tuple[str, int], Entry] = {}


def register(variant: Variant) -> None:
    """Add a variant to those of its flag, in the order of `HOMES`; ValueError if the name is taken.

    The order is the same whatever a program calls, hence loads, first: some files have variants of
    several collectives.
    """
    key = variant.collective, variant.flag
    entry = _REGISTRY.get(key, Entry(*key, ()))
    if variant.label in {v.label for v in entry.variants}:
        raise ValueError(f"{variant.collective} has a variant {variant.name} already")
    _REGISTRY[key] = Entry(*key, tuple(sorted((*entry.variants, variant), key=lambda v: v.rank)))


def unregister(variant: Variant) -> None:
    """Remove a variant."""
    key = variant.collective, variant.flag
    kept = tuple(v for v in _REGISTRY[key].variants if v is not variant)
    _REGISTRY[key] = Entry(*key, kept)


def algorithm(
    collective: str,
    flag: int,
    label: str = "",
    summary: str = "",
    *,
    applies: Condition | None = None,
    preferred: Condition | None = None,
) -> Callable[[Function], Function]:
    """Register the decorated function as a variant of `collective` under `flag`.

    Without a summary it is the first sentence of the function's docstring.
    """

    rank = _rank_of(sys._getframe(1))

    def add(function: Function) -> Function:
        text = summary or (function.__doc__ or "").splitlines()[0]
        register(
            Variant(collective, flag, label, text, function, applies, preferred, rank=rank)
        )
        return function

    return add


def derive(collective: str, base: str, adapt: Callable[[Function], Function]) -> None:
    """Register all variants of `base` for `collective` too, each with its function adapted."""
    rank = _rank_of(sys._getframe(1))
    for entry in [entry for (name, _), entry in _REGISTRY.items() if name == base]:
        for v in entry.variants:
            register(
                Variant(
                    collective, v.flag, v.label, v.summary, adapt(v.function), v.applies,
                    v.preferred, rank=rank,
                )
            )  # fmt: skip


def _rank_of(frame: FrameType) -> int:
    """Return the place in `HOMES` of the file that a frame is in."""
    file: str = frame.f_globals["__name__"].rpartition(".")[2]
    return _RANKS.get(file, len(HOMES))


def collectives() -> list[str]:
    """Return the names of all collectives, without importing their algorithms."""
    return sorted({*_HOMES, *(collective for collective, _ in _REGISTRY)})


def find(collective: str, flag: int) -> Entry:
    """Return the variants of `collective` under an algorithm flag."""
    _load(collective)
    return _REGISTRY[collective, flag]


def registered(collective: str | None = None) -> list[Entry]:
    """Return all entries, or those of one collective, in the order PULL, PUSH, MULTICORE."""
    for name in collectives() if collective is None else [collective]:
        _load(name)
    entries = [e for e in _REGISTRY.values() if collective in (None, e.collective)]
    return sorted(entries, key=lambda e: (e.collective, e.flag))


def names_of(entries: Sequence[Entry]) -> list[str]:
    """Return the names of all variants."""
    return [variant.name for entry in entries for variant in entry.variants]


def is_name(text: object) -> bool:
    """Return whether a text has the form of a variant's name."""
    try:
        parse_name(text)
    except ValueError:
        return False
    return True


def names_variant(name: str) -> bool:
    """Return whether a name says more than the flag: ``multicore:ring``, ``multicore/2``."""
    return ":" in name or "/" in name


def parse_name(text: object) -> tuple[int, str]:
    """Return the flag and the label of a name: ``multicore:ring``, ``pull``, ``multicore:chain/2``.

    Raises
    ------
    ValueError
        It has not the form of a name.
    """
    word, colon, label = text.partition(":") if isinstance(text, str) else ("", "", "")
    base, roots = parted_label(label if colon else word)
    if not colon:
        word, base = base, ""
    if word not in _FLAGS or not (base.isidentifier() or not colon):
        raise ValueError("expected one of pull, push, multicore, or a variant like multicore:ring")
    return _FLAGS[word], label_of(base, roots)


@cache
def _load(collective: str) -> None:
    """Import the files of a collective."""
    for module in _HOMES.get(collective, ()):
        import_module(f".{module}", __package__)
