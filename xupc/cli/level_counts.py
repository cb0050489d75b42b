"""The table of `xupc algorithms --count`: what variants move across the borders of levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Entry, Variant
from xupc.backends.simulator.level_counts import SOURCES, Counted, count
from xupc.bench.columns import aligned
from xupc.predict.price import programs_of
from xupc.report.plans import MOST_THREADS
from xupc.topology.levels import node_levels
from xupc.topology.machine import Machine
from xupc.topology.tree import Tree

__all__ = ["counts_of", "lines_of", "with_machine"]

_HEAD = ["variant", "level", "domains", "bytes", "lines", "signals", "chain", "modelled us"]


def with_machine(tree: Tree, machine: Machine) -> Tree:
    """Return a tree with the levels of its nodes, each of which is such a machine."""
    sizes = range(tree.node_count)
    return tree.with_levels(
        {k: node_levels(machine, machine.masks(tree.node_size(k))) for k in sizes}
    )


def counts_of(
    variant: Variant, call: CallFacts, *, by_levels: bool | None = None, chains: bool = True
) -> Counted:
    """Return the counts of a call by a variant; `by_levels`: as for `count`."""
    return count(programs_of(variant, call), barrier_by_levels=by_levels, chains=chains)


def lines_of(entries: Sequence[Entry], call: CallFacts | None) -> Iterator[str]:
    """Yield the table, with a row for each variant that can run and each level."""
    if call is None:
        raise click.UsageError("--count: the plans of this collective depend on lists")
    if call.size > MOST_THREADS:
        raise click.UsageError(f"--count: expected at most {MOST_THREADS} threads, got {call.size}")
    yield f"counted and modelled, not measured: {call}"
    rows = [_HEAD]
    for entry in entries:
        for variant in entry.variants:
            if variant.can_run(call):
                rows += _rows(variant.name, counts_of(variant, call))
    yield from aligned(rows)
    yield ""
    yield from SOURCES


def _rows(name: str, counted: Counted) -> Iterator[list[str]]:
    """Yield a row for each level that has several domains."""
    time = f"{counted.time_ns / 1e3:.2f}"
    for level in counted.levels:
        if level.domains > 1:
            numbers = level.domains, level.nbytes, level.lines, level.signals, level.chain
            yield [name, level.level, *map(str, numbers), time]
            name = time = ""
