"""Several roots per node: how a call is cut into stripes, and which variants can be.

``multicore:chain/2`` is the chain with two roots per node: two stripes (`plan.stripes`), each half
of every block. A stripe has the arguments of a shorter call. A part of a block begins at a cache
line. A block of fewer lines than roots has fewer stripes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..plan.recorder import Recorder
from ..plan.stripes import LINE, MOST_ROOTS, Part, Stripe, share_of, woven
from ..records import replace
from .conditions import CallFacts
from .reduce_spec import Reduction
from .values_reduce_spec import ReduceSpec

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = ["can_have_stripes", "facts_of", "label_of", "parted_label", "striped", "stripes_of"]

Cut = Callable[[Sequence[Any], int], list[Stripe]]


def parted_label(label: str) -> tuple[str, int]:
    """Return the label of a variant and its roots per node: ``chain/2`` -> ``chain``, 2.

    Raises
    ------
    ValueError
        There are more roots than a call can have, or no number of them.
    """
    base, slash, number = label.partition("/")
    if not slash:
        return base, 1
    if not number.isdecimal() or not 1 <= int(number) <= MOST_ROOTS:
        raise ValueError(f"expected 1 to {MOST_ROOTS} roots behind the slash")
    return base, int(number)


def label_of(base: str, roots: int) -> str:
    """Return the label of a variant with so many roots per node."""
    return base if roots == 1 else f"{base}/{roots}"


def _ranges(count: int, grain: int, roots: int) -> list[tuple[int, int]]:
    """Return where up to `roots` parts of so many bytes or elements begin and end."""
    grains = -(-count // grain)
    ends = [min(count, grains * i // roots * grain) for i in range(roots + 1)]
    return [(a, b) for a, b in pairwise(ends) if a < b]


def _bytes_of(arguments: Sequence[Any]) -> tuple[int, int]:
    """Return the number of bytes among the arguments, and its index: it is the last int."""
    at = max(i for i, value in enumerate(arguments) if type(value) is int)
    return arguments[at], at


def _blocks(arguments: Sequence[Any], roots: int, several: tuple[int, ...]) -> list[Stripe]:
    """Cut blocks; the operands `several` have one for each thread, the others a single one."""
    nbytes, at = _bytes_of(arguments)
    found = []
    for begin, end in _ranges(nbytes, LINE, roots):
        inner = end - begin
        own = [inner if i == at else value for i, value in enumerate(arguments)]
        parts = {i: Part(begin, inner, nbytes) if i in several else Part(begin) for i in (0, 1)}
        found.append(Stripe(tuple(own), parts))
    return found


def _one_block(arguments: Sequence[Any], roots: int) -> list[Stripe]:
    return _blocks(arguments, roots, ())


def _gathered(arguments: Sequence[Any], roots: int) -> list[Stripe]:
    return _blocks(arguments, roots, (0,))


def _exchanged(arguments: Sequence[Any], roots: int) -> list[Stripe]:
    return _blocks(arguments, roots, (0, 1))


def _reduced(arguments: Sequence[Any], roots: int) -> list[Stripe]:
    """Cut the results of a reduction of shared blocks: some columns of each block."""
    (r,) = arguments
    assert isinstance(r, Reduction)
    found = []
    for begin, end in _ranges(r.each, max(1, LINE // r.itemsize), roots):
        part = Part(begin * r.itemsize)
        own = replace(r, each=end - begin, column=r.column + begin)
        found.append(Stripe((own,), {0: part, 1: part}))
    return found


def _reduced_values(arguments: Sequence[Any], roots: int) -> list[Stripe]:
    """Cut the elements of a reduction of private arrays."""
    (r,) = arguments
    assert isinstance(r, ReduceSpec)
    found = []
    for begin, end in _ranges(r.nelems, max(1, LINE // r.itemsize), roots):
        part = Part(begin * r.itemsize)
        found.append(Stripe((replace(r, nelems=end - begin),), {0: part, 1: part}))
    return found


_TREES = "star binomial chain binary knomial4 knomial8 bine circulant"
_AROUND = "linear doubling rounds ring circulant"
_STRIPED: dict[str, tuple[Cut, str]] = {
    "broadcast": (_one_block, _TREES),
    "broadcast_in_place": (_one_block, _TREES),
    "gather_all": (_gathered, _AROUND),
    "gather_all_in_place": (_gathered, _AROUND),
    "exchange": (_exchanged, "rounds"),
    "reduce_mpi_all": (_reduced, "parts circulant multiplying"),
    "allav_broadcast": (_one_block, _TREES.removesuffix(" circulant")),
    "allav_gather_all": (_gathered, "rounds circulant"),
    "allav_exchange": (_exchanged, "rounds"),
    "allav_reduce_all": (_reduced_values, "nodes parts"),
}
"""How the calls of a collective are cut, and by which variants stripes can be carried out."""


def can_have_stripes(collective: str, label: str) -> bool:
    """Return whether a variant can have several roots per node."""
    _, labels = _STRIPED.get(collective, (None, ""))
    return label in labels.split()


_OWN_ROOTS = ("allav_broadcast",)
"""Collectives whose receives are open ahead of their turns: a thread has one stripe's messages."""


def stripes_of(
    collective: str, tree: Tree, arguments: Sequence[Any], roots: int
) -> list[Stripe]:
    """Return the stripes of a call: as many as roots, or fewer of a short block."""
    cut, _ = _STRIPED[collective]
    if collective in _OWN_ROOTS:
        roots = min(roots, int(tree.node_sizes.min()))
    return cut(arguments, roots)


def facts_of(collective: str, call: CallFacts, roots: int) -> list[CallFacts]:
    """Return each stripe as a call of its own, with its part of the scratch."""
    stripes = stripes_of(collective, call.tree, call.arguments, roots)
    tuning = share_of(call.tuning, len(stripes))
    return [
        CallFacts(call.tree, tuning, call.sync, stripe.arguments, call.kernel)
        for stripe in stripes
    ]


def striped(function: Callable[..., None], collective: str, roots: int) -> Callable[..., None]:
    """Return a variant's function with several roots per node."""

    def record(t: Recorder, *arguments: Any) -> None:
        woven(t, function, stripes_of(collective, t.tree, arguments, roots))

    record.__doc__ = function.__doc__
    return record
