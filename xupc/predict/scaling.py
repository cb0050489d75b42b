"""Prices of calls of more threads than a clock can carry, from those of smaller shapes.

The plans of a call on 10,000 nodes of 128 threads are not made. Smaller shapes, with the sizes that
the selection table has for the large one, are priced instead, while their plans are short:

* a line of nodes: 2 threads on each of 2, 4, ... 256 nodes;
* a line of threads: 4 nodes with all threads of a node. If those plans are too long, with 2, 4, ...
  threads; and if these are, too, all of it on 2 nodes;
* the two lines are put together by a sum of differences, or by a product of ratios. Three shapes
  in between say which of the two is right for a variant.

A sum of terms such as ``a + b log2(nodes) + c (nodes - 1)`` is fitted to a line that does not reach
the number asked for. The number of messages and the bytes of the busiest node follow in the same
way, each from its own terms.

What the fit misses of the largest numbers of a line, when these are left out, and what the sum or
product misses of the shapes in between, shows how good this is. The error of a prediction is
`CAUTION` times as large, since the shape asked for is further away than those that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import record

__all__ = ["EXACT", "LONGEST", "Measured", "Prediction", "Shape", "TooLarge", "predict"]

EXACT: Final = 512
"""Threads up to which the plans of all of them run on the clock, unless these are too long."""

Shape = tuple[int, int]
"""Nodes, and threads of each of them."""


class Measured(NamedTuple):
    """The price of a call on a shape in ns, its messages, and the bytes of its busiest node."""

    time: float
    messages: int = 0
    busiest: int = 0


Measure = Callable[[Shape], Measured]
"""Price a call on a shape."""
Work = Callable[[Shape], int]
"""Estimate the work of pricing a call on a shape, in steps; TooLarge if it cannot run there."""

LONGEST: Final = 1 << 16
"""The most work of pricing a call on the shape asked for; more need not be known."""

CAUTION: Final = 3
_LONG: Final = 1 << 15  # work on a smaller shape, if the line has enough numbers without it
_SHORT: Final = 1 << 12  # work on the shape of further runs, such as those for the range
_FEW_THREADS, _FEW_NODES, _LEAST_NODES = 2, 4, 2
_LEAST_LINE = 5  # numbers of a line that does not reach the one asked for
_NEAR: Final = 32  # a line of fewer numbers does not end before its plans get long
_GOOD: Final = 0.005  # a line ends where its last two numbers follow from the others so well
_BETWEEN: Final[tuple[Shape, ...]] = ((8, 32), (16, 16), (32, 8))
# if the plans on all others are long
_LEAST_BETWEEN: Final[tuple[Shape, ...]] = ((6, 4), (6, 3), (3, 4), (3, 3))

Terms = Mapping[str, Callable[[float], float]]


def _log2(n: float) -> float:
    return float(np.ceil(np.log2(n)))


_OF_THREADS: Final[Terms] = {
    "1": lambda n: 1.0, "log2({})": _log2, "{}": lambda n: n, "{}^2": lambda n: n * n,
}  # fmt: skip
_OF_NODES: Final[Terms] = {
    "1": lambda n: 1.0, "log2({})": _log2, "{}": lambda n: n, "({} - 1)": lambda n: n - 1,
}  # fmt: skip
_COUNTS_OF_NODES: Final[Terms] = {
    "1": lambda n: 1.0,
    "log2({})": _log2,
    "({} - 1)": lambda n: n - 1,
    "({} - 1) log2({})": lambda n: (n - 1) * _log2(n),
    "{} ({} - 1)": lambda n: n * (n - 1),
}


class TooLarge(Exception):
    """Nothing can be said: a variant's plans get too long at the smallest shapes already."""


@record
class Prediction:
    """A price in ns, by which share it may be wrong, and how it was found.

    Attributes
    ----------
    messages, busiest
        The messages between nodes, and the bytes that the busiest node sends or receives.
    error
        0 if the plans of all threads ran.
    sample
        The largest shape whose plans ran and are short enough for further runs; the shape asked
        for if its plans ran.
    how
        How the price follows from smaller shapes; "" if the plans of all threads ran.
    """

    time: float
    messages: int
    busiest: int
    error: float
    sample: Shape
    how: str = ""


def predict(shape: Shape, measure: Measure, work: Work) -> Prediction:
    """Return the price of a call on a shape, from as few plans as needed.

    Raises
    ------
    TooLarge
        There are not enough shapes whose plans are short enough.
    """
    nodes, threads = shape
    if nodes * threads <= EXACT and work(shape) <= LONGEST:
        return Prediction(*measure(shape), 0.0, shape)
    prices = _Prices(measure, work)
    few = min(threads, _FEW_THREADS)
    by_nodes = _Line("nodes", nodes, lambda n: (n, few), prices)
    some, by_threads = _line_of_threads(shape, prices)
    between = list(_between(shape, some, prices)) if nodes > some and threads > few else []
    quantities = [
        _Quantity(k, by_nodes, by_threads, between, prices.at((some, few)), prices)
        for k in range(len(Measured._fields))
    ]
    time, messages, busiest = (each.value for each in quantities)
    found = quantities[0]
    how = f"{found.terms} at {few} threads a node, {found.joint} what more threads add"
    return Prediction(
        time, round(messages), round(busiest), CAUTION * found.error, prices.sample(), how
    )


class _Prices:
    """Prices of shapes, each of which is found once."""

    def __init__(self, measure: Measure, work: Work) -> None:
        self._measure = measure
        self._work = work
        self._works: dict[Shape, float] = {}
        self._known: dict[Shape, Measured] = {}

    def at(self, shape: Shape) -> Measured:
        """Return the price on a shape."""
        if shape not in self._known:
            if not self.can(shape, LONGEST):
                raise TooLarge("the plans on {} nodes of {} threads are too long".format(*shape))
            self._known[shape] = self._measure(shape)
        return self._known[shape]

    def can(self, shape: Shape, most: int = _LONG) -> bool:
        """Return False if the plans on a shape are too long, or the variant cannot run there."""
        return self._work_of(shape) <= most

    def too_long(self, shape: Shape) -> bool:
        """Return True if the variant can run on a shape, but its plans are too long."""
        return _LONG < self._work_of(shape) < float("inf")

    def _work_of(self, shape: Shape) -> float:
        if shape[0] * shape[1] > EXACT:
            return float("inf")
        if shape not in self._works:
            try:
                self._works[shape] = self._work(shape)
            except TooLarge:
                self._works[shape] = float("inf")
        return self._works[shape]

    def sample(self) -> Shape:
        """Return the shape with the most threads whose plans are short, else that of the least."""
        short = [shape for shape in self._known if self._work_of(shape) <= _SHORT]
        if not short:
            return min(self._known, key=self._work_of)
        return max(short, key=lambda shape: (shape[0] * shape[1], shape[0]))


class _Line:
    """Numbers of nodes, or of threads of a node, whose prices say what a larger number costs.

    Attributes
    ----------
    numbers
        The one asked for alone, if it can be priced.
    """

    def __init__(self, of: str, last: int, shape: Callable[[int], Shape], prices: _Prices) -> None:
        self.of = of
        self.last = last
        self.shape = shape
        self.prices = prices
        self.numbers = [last] if prices.can(shape(last)) else self._smaller()

    @property
    def whole(self) -> bool:
        """Return whether the number asked for is priced itself."""
        return self.numbers[-1] == self.last

    def _smaller(self) -> list[int]:
        """Return numbers below the last one: powers of two, and if these are few, some between.

        Then the plans may be longer, too.
        """
        found: list[int] = []
        power = 2
        while power < self.last and power <= EXACT:
            if self.prices.can(self.shape(power)):
                found.append(power)
                if power >= _NEAR and self._is_good(found):
                    return found
            elif found or self.prices.too_long(self.shape(power)):
                break
            power *= 2
        if len(found) < _LEAST_LINE:
            others = sorted(n << k for n in (2, 3) for k in range(_LEAST_LINE))
            below = (n for n in others if n < min(4 * power, self.last))
            found = [n for n in below if self.prices.can(self.shape(n), LONGEST)]
            while len(found) > _LEAST_LINE and not self.prices.can(self.shape(found[-1])):
                found.pop()
        if len(found) < _LEAST_LINE:
            most = found[-1] if found else 1
            raise TooLarge(f"the plans on more than {most} {self.of} are too long")
        return found

    def _is_good(self, numbers: Sequence[int]) -> bool:
        if len(numbers) < _LEAST_LINE:
            return False
        times = np.array([self.prices.at(self.shape(n)).time for n in numbers])
        return _Fit(numbers, times, self.terms(0)).error <= _GOOD

    def terms(self, quantity: int) -> Terms:
        """Return the terms of the time (0), or of a count."""
        if self.of == "threads":
            return _OF_THREADS
        return _COUNTS_OF_NODES if quantity else _OF_NODES

    def follow(self, quantity: int) -> tuple[float, float, str]:
        """Return a quantity at the number asked for, its error, and the terms."""
        values = np.array([self.prices.at(self.shape(n))[quantity] for n in self.numbers], float)
        if self.whole:
            return float(values[-1]), 0.0, f"all {self.of}"
        fit = _Fit(self.numbers, values, self.terms(quantity))
        text = " + ".join(
            f"{factor / 1e3:.3g} us" + ("" if term == "1" else f" {term}".replace("{}", self.of))
            for term, factor in fit.factors.items() if factor
        )  # fmt: skip
        return fit.at(self.last), fit.error, text


def _line_of_threads(shape: Shape, prices: _Prices) -> tuple[int, _Line]:
    """Return on how many nodes more threads are priced, and their line."""
    nodes, threads = shape
    some = min(nodes, _FEW_NODES)
    try:
        return some, _Line("threads", threads, lambda t: (some, t), prices)
    except TooLarge:
        if nodes <= _LEAST_NODES:
            raise
    return _LEAST_NODES, _Line("threads", threads, lambda t: (_LEAST_NODES, t), prices)


class _Quantity:
    """The time (0) or a count of a call on a shape, from both lines.

    Attributes
    ----------
    value, error
        What it is, and by which share the lines and the shapes in between are missed.
    terms, joint
        The terms of the nodes, and how the threads come to them.
    """

    def __init__(
        self, number: int, by_nodes: _Line, by_threads: _Line, between: Sequence[Shape],
        corner: Measured, prices: _Prices,
    ) -> None:  # fmt: skip
        self._corner = corner[number]
        of_nodes, node_error, self.terms = by_nodes.follow(number)
        of_threads, thread_error, threads = by_threads.follow(number)

        def missed(product: bool) -> float:
            return max(
                (
                    abs(self._joined(
                        prices.at(by_nodes.shape(n))[number],
                        prices.at(by_threads.shape(t))[number], product,
                    ) / whole - 1)
                    for n, t in between if (whole := prices.at((n, t))[number])
                ),
                default=0.0,
            )  # fmt: skip

        misses = [missed(product) for product in (False, True)]
        way = misses[True] < misses[False]
        both = [self._joined(of_nodes, of_threads, product) for product in (False, True)]
        self.value = both[way]
        unknown = not between and self.value > 0
        between_error = abs(both[not way] / self.value - 1) if unknown else misses[way]
        self.error = node_error + thread_error + between_error
        self.joint = "times" if way else "plus"
        if not by_threads.whole:
            self.joint += f" ({threads})"

    def _joined(self, of_nodes: float, of_threads: float, product: bool) -> float:
        """Return a quantity on more nodes of more threads, from those of one and of neither."""
        if product and self._corner:
            return of_nodes * of_threads / self._corner
        return max(of_nodes + of_threads - self._corner, of_nodes)


def _between(shape: Shape, some: int, prices: _Prices) -> Iterator[Shape]:
    """Yield shapes of more nodes and of more threads than the two lines, with short plans.

    `some`: the nodes of the line of threads.
    """

    def can(n: int, t: int, most: int) -> bool:
        return all(prices.can(s, most) for s in ((n, t), (n, _FEW_THREADS), (some, t)))

    nodes, threads = shape
    found = set()
    for most_nodes, most_threads in _BETWEEN:
        n, t = min(nodes, most_nodes), min(threads, most_threads)
        while t > _FEW_THREADS and not can(n, t, _LONG):
            t //= 2
        if t > _FEW_THREADS and (n, t) not in found:
            found.add((n, t))
            yield n, t
    for n, t in _LEAST_BETWEEN if not found else ():
        if some < n <= nodes and t <= threads and can(n, t, LONGEST):
            yield n, t
            return


class _Fit:
    """The sum of terms that fits the values at some numbers best.

    Where there are many numbers the first ones may be left out, since few nodes can have a schedule
    of their own: two nodes have no tree.

    Attributes
    ----------
    error
        By which share the terms miss values if the last two are left out.
    """

    def __init__(self, numbers: Sequence[int], values: NDArray[np.float64], terms: Terms) -> None:
        self._terms = terms
        tried = [
            (_missed(self._columns(some, numbers[first:]), values[first:]), some, first)
            for first in range(len(numbers) - _LEAST_LINE + 1)
            for size in (1, 2, 3) for some in combinations(terms, size)
        ]  # fmt: skip
        best = min(tried, key=lambda each: (round(each[0], 3), len(each[1]), each[2]))
        self.error, some, first = best
        factors = _solve(self._columns(some, numbers[first:]), values[first:])
        self.factors = dict(zip(some, factors.tolist(), strict=True))

    def at(self, number: int) -> float:
        """Return the value at another number."""
        (row,) = self._columns(tuple(self.factors), [number])
        return float(row @ list(self.factors.values()))

    def _columns(self, some: Sequence[str], numbers: Sequence[int]) -> NDArray[np.float64]:
        return np.array([[self._terms[term](n) for term in some] for n in numbers])


def _missed(columns: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return the largest share by which terms miss values if the last two are left out."""
    found = columns @ _solve(columns[:-2], values[:-2])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(found == values, 0.0, np.abs(found / values - 1))
    return float(np.max(shares[1:]))


def _solve(columns: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factors of the least relative error, none of them negative."""
    scale = np.where(values == 0, 1.0, values)
    left = list(range(columns.shape[1]))
    found = np.zeros(columns.shape[1])
    while left:
        some = np.linalg.lstsq(columns[:, left] / scale[:, None], values / scale, None)[0]
        if (some >= 0).all():
            found[left] = some
            break
        left.pop(int(np.argmin(some)))
    return found
