"""The programs of all threads of a call that is described in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..algorithms import registry
from ..backends.simulator.sim_program import Program
from ..bench.results import Cell
from ..predict.candidates import Question, chosen
from ..predict.price import programs_of
from ..report.plans import Unplanned, call_of, check_block
from ..topology.tree import Tree
from ..tuning.selection import Place, Table, registered_name

__all__ = ["MOST_THREADS", "programs_of_call", "variants"]

MOST_THREADS: Final = 4096
"""Threads of a call whose plans are exported."""


def variants(collective: str) -> Mapping[str, registry.Variant]:
    """Return the variants of a collective by name."""
    return {
        variant.name: variant
        for entry in registry.registered(registered_name(collective))
        for variant in entry.variants
    }


def programs_of_call(
    question: Question, tree: Tree, table: Table, name: str | None = None, sync: str = "allsync"
) -> tuple[str, Sequence[Program], Mapping[str, int]]:
    """Return the variant, the programs by rank, and the table's sizes of a call.

    Parameters
    ----------
    tree
        The nodes of the call's team.
    name
        The variant; None: the one of the selection table.
    sync
        What the call waits for before and after, as in `xupc bench --sync`.

    Raises
    ------
    Unplanned
        The plans cannot be made from these words; says why.
    """
    if tree.size > MOST_THREADS:
        raise Unplanned(f"expected at most {MOST_THREADS} threads, got {tree.size}")
    check_block(question.nbytes)
    place = Place.of(tree.node_sizes, question.family, question.transport, oversubscribed=False)
    tuning = table.tuning(place)
    cell = Cell(question.collective, question.nbytes, question.nbytes, sync=sync)
    try:
        call = call_of(cell, tree, tuning)
    except Unplanned:
        raise Unplanned("the plans of this collective depend on lists") from None
    name = chosen(question, table) if name is None else name.lower()
    every = variants(question.collective)
    variant = every.get(name)
    if variant is None:
        raise Unplanned(f"variant: expected one of {', '.join(every)}, got {name}")
    if not variant.can_run(call):
        raise Unplanned(f"{name} cannot carry out this call on {tree.size} threads")
    return name, programs_of(variant, call), tuning
