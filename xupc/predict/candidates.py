"""Price each variant of a collective on a machine, and find the one of the selection table.

Up to 512 threads (`scaling.EXACT`) the plans of all threads run on the clock. For more, or for very
long plans, those of smaller shapes do; from these `scaling.predict` follows the price on the shape
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from ..algorithms import registry
from ..algorithms.conditions import CallFacts
from ..algorithms.registry import Entry, Variant
from ..backends.simulator.timeline import Prepared
from ..bench.results import Cell
from ..records import record, replace
from ..report.plans import Unplanned, call_of, check_block
from ..topology.node_spec import node_tree
from ..topology.tree import Tree
from ..tuning.selection import Place, Rule, Table, registered_name
from .machine_file import Machine
from .price import (
    Price,
    Traffic,
    gains,
    price,
    price_of,
    programs_of,
    traffic,
    work_of,
)
from .scaling import EXACT, LONGEST, Measured, Shape, TooLarge, predict

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
        The price on a shape whose plans ran: that asked for, or the largest one with short plans.
    shape
        That shape: (nodes, threads of the largest node).
    time, low, high
        The time on the shape asked for and its range, in ns.
    traffic
        What the call sends between nodes on the shape asked for.
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
    traffic: Traffic = Traffic(0, 0)
    how: str = ""
    missing: str = ""
    gains: Mapping[str, float] | None = None


Known = dict[tuple[object, ...], int | Measured | Price]
"""Prices, and the work of finding them, by the call, the variant and the shape."""
_Known = TypeVar("_Known", int, Measured, Price)


class _Shapes:
    """The call of a question on its own shape, and on smaller ones with blocks of the same size."""

    def __init__(self, question: Question, table: Table) -> None:
        check_block(question.nbytes)
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
        self._smaller: dict[Shape, CallFacts] = {}

    def _call(self, tree: Tree) -> CallFacts:
        q = self.question
        return call_of(Cell(q.collective, q.nbytes, q.nbytes, sync="allsync"), tree, self.tuning)

    def at(self, shape: Shape) -> CallFacts:
        """Return the call on a smaller shape."""
        if shape == self.shape:
            return self.call
        if shape not in self._smaller:
            nodes, threads = shape
            labels = np.repeat(np.arange(nodes, dtype=np.int32), threads)
            self._smaller[shape] = self._call(Tree(labels))
        return self._smaller[shape]


def candidates(
    question: Question, machine: Machine, table: Table,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> list[Candidate]:  # fmt: skip
    """Return all variants that can carry out a call, cheapest first.

    Parameters
    ----------
    progress
        It gets the share that is done, and the variant that is next, with each smaller shape
        whose plans run.

    Raises
    ------
    Unplanned
        The collective has arguments that the question does not have, such as lists.
    """
    shapes = _Shapes(question, table)
    variants = {variant.name: variant for variant, _ in _possible(shapes)}
    found: list[Candidate] = []
    for name, variant in variants.items():
        progress(done := len(found) / len(variants), name)

        def show(shape: Shape, done: float = done, name: str = name) -> None:
            if shape != shapes.shape:
                progress(done, f"{name} on {shape[0]}x{shape[1]}")

        found.append(_candidate(variant, shapes, machine, progress=show))
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
    variant: Variant, shapes: _Shapes, machine: Machine, known: Known | None = None,
    progress: Callable[[Shape], None] = lambda shape: None,
) -> Candidate:  # fmt: skip
    """Return a variant with its price; `progress` gets each shape whose plans are about to run."""
    if not shapes.even:
        if shapes.call.size > EXACT:
            return Candidate(variant.name, missing=f"uneven nodes: at most {EXACT} threads")
        exact = price(variant, shapes.call, machine)
        return Candidate(
            variant.name, exact, shapes.shape, exact.time, exact.low, exact.high, exact.traffic
        )
    pricing = _Pricing(variant, shapes, machine, {} if known is None else known, progress)
    try:
        found = predict(shapes.shape, pricing.measure, pricing.work)
    except (TooLarge, Unplanned) as reason:
        return Candidate(variant.name, missing=str(reason))
    sample = pricing.price(found.sample)
    low, high = sample.low, sample.high
    if found.how:
        factor = found.time / sample.time if sample.time else 1.0
        low *= factor / (1 + found.error)
        high *= factor * (1 + found.error)
    return Candidate(
        variant.name, sample, found.sample, found.time, low, high,
        Traffic(found.messages, found.busiest), found.how,
    )  # fmt: skip


class _Pricing:
    """The prices of a variant on the shapes of a call, each of which is found once."""

    def __init__(
        self, variant: Variant, shapes: _Shapes, machine: Machine, known: Known,
        progress: Callable[[Shape], None],
    ) -> None:  # fmt: skip
        self.variant = variant
        self.shapes = shapes
        self.machine = machine
        self.known = known
        self.progress = progress
        sizes = sorted(shapes.tuning.items())
        self.key = variant.collective, variant.name, shapes.question.nbytes, *sizes
        self._made: tuple[Shape, Prepared] | None = None  # the last one

    def _find(self, what: str, shape: Shape, find: Callable[[], _Known]) -> _Known:
        key = (self.key, shape, what)
        if key not in self.known:
            self.known[key] = find()
        return cast("_Known", self.known[key])

    def work(self, shape: Shape) -> int:
        """Estimate the work on a shape; TooLarge if the variant cannot run there."""
        call = self.shapes.at(shape)
        if not self.variant.can_run(call):
            raise TooLarge("cannot run on {} nodes of {} threads".format(*shape))
        return self._find("work", shape, lambda: work_of(self.variant, call, LONGEST))

    def measure(self, shape: Shape) -> Measured:
        """Return the time and the traffic on a shape."""

        def found() -> Measured:
            self.progress(shape)
            call = self._prepared(shape)
            sent = traffic(call.programs)
            return Measured(call.end(self.machine.rates()), sent.messages, sent.busiest)

        return self._find("time", shape, found)

    def price(self, shape: Shape) -> Price:
        """Return the price on a shape."""
        time = self.measure(shape).time
        return self._find(
            "price", shape,
            lambda: price_of(self.variant.name, self._prepared(shape), self.machine, time),
        )  # fmt: skip

    def _prepared(self, shape: Shape) -> Prepared:
        if self._made is None or self._made[0] != shape:
            self._made = shape, Prepared(programs_of(self.variant, self.shapes.at(shape)))
        return self._made[1]


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
