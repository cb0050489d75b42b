"""Price each variant of a collective on a machine, and find the one of the selection table.

Up to 512 threads (`scaling.EXACT`) the plans of all threads run on the clock. For more, plans of
smaller shapes do, and `scaling.predict` follows the price on the shape asked for from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from ..algorithms import registry
from ..algorithms.conditions import CallFacts
from ..algorithms.registry import Entry, Variant
from ..backends.simulator.timeline import Prepared
from ..bench.results import Cell
from ..records import record, replace
from ..report.plans import Unplanned, call_of
from ..topology.node_spec import node_tree
from ..topology.tree import Tree
from ..tuning.selection import Place, Rule, Table, registered_name
from .machine_file import Machine
from .price import Price, gains, price, price_of, programs_of, steps_of
from .scaling import EXACT, Measured, Shape, TooLarge, predict

__all__ = [
    "Candidate", "Known", "Question", "candidates", "choice_of", "chosen", "priced", "variants_of",
]  # fmt: skip


@record
class Question:
    """A call whose price is asked.

    Attributes
    ----------
    nbytes
        Bytes of a block.
    nodes
        As ``XUPC_NODES``: "64x16" (nodes x threads) or "3,1,4" (threads of each); None: one node.
    family, transport
        The MPI and the network that the selection table asks for.
    """

    collective: str
    nbytes: int
    nodes: str | None
    threads: int
    family: str
    transport: str

    @cached_property
    def tree(self) -> Tree:
        """The node tree of the threads."""
        return node_tree(np.zeros(self.threads, np.int32), self.nodes)


@record
class Candidate:
    """One variant: its price on the shape asked for, or why there is none.

    Attributes
    ----------
    price
        The price on the largest shape whose plans ran.
    shape
        That shape: (nodes, threads of the largest node).
    time, low, high
        The time on the shape asked for and its range, in ns.
    how
        How these follow from smaller shapes; "" if the plans of all threads ran.
    missing
        Why the variant has no price; "" if it has one.
    gains
        For each cost of `price.COSTS` the share by which the time falls if it is halved. Only the
        cheapest variant has them.
    """

    name: str
    price: Price | None = None
    shape: Shape = (0, 0)
    time: float = float("inf")
    low: float = 0.0
    high: float = float("inf")
    how: str = ""
    missing: str = ""
    gains: Mapping[str, float] | None = None


Known = dict[tuple[object, ...], Measured | Price]
"""Prices by the call, the variant and the shape."""


class _Shapes:
    """The call of a question on its own shape, and on smaller ones with blocks of the same size."""

    def __init__(self, question: Question, table: Table) -> None:
        self.question = question
        tree = question.tree
        sizes = {tree.node_size(k) for k in range(tree.node_count)}
        self.even = len(sizes) == 1
        self.shape: Shape = tree.node_count, max(sizes)
        self.place = Place.of(
            tree.node_sizes, question.family, question.transport, oversubscribed=False
        )
        self.tuning = table.tuning(self.place)
        self.call = self._call(tree)

    def _call(self, tree: Tree) -> CallFacts:
        q = self.question
        return call_of(Cell(q.collective, q.nbytes, q.nbytes, sync="allsync"), tree, self.tuning)

    def at(self, shape: Shape) -> CallFacts:
        """Return the call on a smaller shape."""
        if shape == self.shape:
            return self.call
        nodes, threads = shape
        labels = np.repeat(np.arange(nodes, dtype=np.int32), threads)
        return self._call(Tree(labels))


def candidates(
    question: Question, machine: Machine, table: Table,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> list[Candidate]:  # fmt: skip
    """Return all variants that can carry out a call, cheapest first.

    Parameters
    ----------
    progress
        It gets the share that is done, and the variant that is next.

    Raises
    ------
    Unplanned
        The collective has arguments that the question does not have, such as lists.
    """
    shapes = _Shapes(question, table)
    variants = {variant.name: variant for variant, _ in _possible(shapes)}
    found: list[Candidate] = []
    for name, variant in variants.items():
        progress(len(found) / len(variants), name)
        found.append(_candidate(variant, shapes, machine))
    found.sort(key=lambda each: (each.time, each.name))
    best = found[0] if found else None
    if best is not None and best.price is not None:
        call = Prepared(programs_of(variants[best.name], shapes.at(best.shape)))
        found[0] = replace(best, gains=gains(call, machine.rates(), best.price.time))
    return found


def _possible(shapes: _Shapes) -> Iterator[tuple[Variant, CallFacts]]:
    for entry in registry.registered(registered_name(shapes.question.collective)):
        for variant in entry.variants:
            if variant.can_run(shapes.call):
                yield variant, shapes.call


def variants_of(question: Question, table: Table) -> Iterator[tuple[Variant, CallFacts]]:
    """Yield each variant that can carry out a call, and the call."""
    yield from _possible(_Shapes(question, table))


def priced(
    question: Question, name: str, machine: Machine, table: Table, known: Known | None = None
) -> Candidate:
    """Return one variant of a call by its name.

    Parameters
    ----------
    known
        Prices on the same machine that were found before; new ones are added.

    Raises
    ------
    Unplanned
        As for `candidates`; or no variant has the name, or it cannot carry out the call.
    """
    shapes = _Shapes(question, table)
    for variant, _ in _possible(shapes):
        if variant.name == name:
            return _candidate(variant, shapes, machine, {} if known is None else known)
    raise Unplanned(f"{name} cannot carry out {question.collective} on these threads")


def _candidate(
    variant: Variant, shapes: _Shapes, machine: Machine, known: Known | None = None
) -> Candidate:
    known = {} if known is None else known
    key = variant.collective, variant.name, shapes.question.nbytes, *sorted(shapes.tuning.items())

    if shapes.call.size <= EXACT:
        exact = known.get((key, shapes.shape, "price")) if shapes.even else None
        if not isinstance(exact, Price):
            exact = price(variant, shapes.call, machine)
            if shapes.even:
                known[key, shapes.shape, "price"] = exact
        return Candidate(variant.name, exact, shapes.shape, exact.time, exact.low, exact.high)
    if not shapes.even:
        return Candidate(variant.name, missing=f"uneven nodes: at most {EXACT} threads")
    rates = machine.rates()
    kept: dict[Shape, Prepared] = {}  # of the shape with the most threads so far

    def prepared(shape: Shape) -> Prepared:
        if shape in kept:
            return kept[shape]
        call = shapes.at(shape)
        if not variant.can_run(call):
            raise TooLarge(f"cannot run on {shape[0]} nodes of {shape[1]} threads")
        made = Prepared(programs_of(variant, call))
        if all(math.prod(shape) >= math.prod(other) for other in kept):
            kept.clear()
            kept[shape] = made
        return made

    def measure(shape: Shape) -> Measured:
        found = known.get((key, shape))
        if not isinstance(found, Measured):
            call = prepared(shape)
            found = known[key, shape] = Measured(call.end(rates), steps_of(call.programs))
        return found

    try:
        found = predict(shapes.shape, measure)
    except (TooLarge, Unplanned) as reason:
        return Candidate(variant.name, missing=str(reason))
    largest = known.get((key, found.largest, "price"))
    if not isinstance(largest, Price):
        time = measure(found.largest).time
        largest = price_of(variant.name, prepared(found.largest), machine, time)
        known[key, found.largest, "price"] = largest
    low, high = largest.low / largest.time, largest.high / largest.time
    return Candidate(
        variant.name, largest, found.largest, found.time,
        found.time * low / (1 + found.error), found.time * high * (1 + found.error), found.how,
    )  # fmt: skip


def chosen(question: Question, table: Table) -> str:
    """Return the name of the variant that a selection table gives the call."""
    return choice_of(question, table)[0]


def choice_of(question: Question, table: Table) -> tuple[str, Rule]:
    """Return the name of the variant that a selection table gives the call, and the rule."""
    shapes = _Shapes(question, table)
    entries = registry.registered(registered_name(question.collective))
    by_flag = {entry.flag: entry for entry in entries}

    def possible(rule: Rule) -> bool:
        return by_flag[rule.algorithm].can_run(rule.variant, shapes.call)

    rule = table.at(shapes.place).rule(entries[0].collective, question.nbytes, possible)
    return next(_names(entries, rule, shapes.call), rule.name), rule


def _names(entries: Sequence[Entry], rule: Rule, call: CallFacts) -> Iterator[str]:
    for entry in entries:
        if entry.flag == rule.algorithm:
            yield entry.choose(rule.variant, call).name
