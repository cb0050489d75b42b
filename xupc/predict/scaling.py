"""Prices of calls of more threads than a clock can carry, from those of smaller shapes.

The plans of a call on 10,000 nodes of 128 threads are not made. Smaller shapes, with the sizes that
the selection table has for the large one, are priced instead:

* a line of nodes: 2 threads on each of 2, 4, ... 256 nodes. A sum of terms out of ``a + b
  log2(nodes) + c nodes`` is fitted to it, and gives the price on all nodes;
* a line of threads: 4 nodes with 1, 2, 4, ... threads, up to all threads of a node;
* the two lines are put together by a sum of differences, or by a product of ratios. Three shapes
  in between say which of the two is right for a variant.

What the fit misses of the largest numbers of nodes, when these are left out, and what the sum or
product misses of the shapes in between, shows how good this is. The error of a prediction is
`CAUTION` times as large, since the shape asked for is further away than those that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import record

__all__ = ["EXACT", "Measured", "Prediction", "Shape", "TooLarge", "predict"]

EXACT: Final = 512
"""Threads up to which the plans of all of them run on the clock."""

Shape = tuple[int, int]
"""Nodes, and threads of each of them."""


class Measured(NamedTuple):
    """The price of a call on a shape in ns, and the steps of all plans."""

    time: float
    steps: int


Measure = Callable[[Shape], Measured]
"""Price a call on a shape."""

CAUTION: Final = 3
_MOST_STEPS: Final = 1 << 15  # of the shape before the last one of a line
_FEW_THREADS, _FEW_NODES = 2, 4
_LEAST_LINE = 5  # numbers of nodes
_BETWEEN: Final[tuple[Shape, ...]] = ((8, 32), (16, 16), (32, 8))
_TERMS: Final[dict[str, Callable[[float], float]]] = {
    "1": lambda n: 1.0,
    "log2(nodes)": lambda n: float(np.ceil(np.log2(n))),
    "nodes": lambda n: n,
}


class TooLarge(Exception):
    """Nothing can be said: a variant's plans get too long at the smallest shapes already."""


@record
class Prediction:
    """A price in ns, by which share it may be wrong, and how it was found.

    Attributes
    ----------
    error
        0 if the plans of all threads ran.
    largest
        The largest shape whose plans ran.
    """

    time: float
    error: float
    largest: Shape
    how: str = ""


def predict(shape: Shape, measure: Measure) -> Prediction:
    """Return the price of a call on a shape, from as few plans as needed.

    Raises
    ------
    TooLarge
        There are not enough shapes whose plans are short enough.
    """
    nodes, threads = shape
    if nodes * threads <= EXACT:
        return Prediction(measure(shape).time, 0.0, shape)
    prices = _Prices(measure)
    few, some_nodes = min(threads, _FEW_THREADS), min(nodes, _FEW_NODES)
    on_nodes, missed, terms = _along_nodes(nodes, few, prices)
    more = prices.at(some_nodes, threads)
    corner = prices.at(some_nodes, few)

    def joined(n_price: float, t_price: float, product: bool) -> float:
        return n_price * t_price / corner if product else max(n_price + t_price - corner, n_price)

    between = [(n, t) for n, t in _BETWEEN if n <= nodes and t <= threads and prices.can(n, t)]
    misses = [
        max(
            (
                abs(joined(prices.at(n, few), prices.at(some_nodes, t), way) / prices.at(n, t) - 1)
                for n, t in between
            ),
            default=0.0,
        )
        for way in (False, True)
    ]
    product = misses[True] < misses[False]
    how = f"{terms} at {few} threads a node, {'times' if product else 'plus'} what more threads add"
    return Prediction(
        joined(on_nodes, more, product), CAUTION * (missed + misses[product]), prices.largest(), how
    )


class _Prices:
    """Prices of shapes, each of which is found once."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.known: dict[Shape, Measured] = {}

    def at(self, nodes: int, threads: int) -> float:
        """Return the price on a shape."""
        shape = nodes, threads
        if shape not in self.known:
            if not self.can(nodes, threads):
                raise TooLarge(f"the plans on {nodes} nodes of {threads} threads are too long")
            self.known[shape] = self.measure(shape)
        return self.known[shape].time

    def can(self, nodes: int, threads: int) -> bool:
        """Return False if the plans on a smaller shape have so many steps that these do not run."""
        return all(
            of.steps <= _MOST_STEPS or n > nodes or t > threads or (n, t) == (nodes, threads)
            for (n, t), of in self.known.items()
        )

    def largest(self) -> Shape:
        """Return the shape with the most threads."""
        return max(self.known, key=lambda shape: (shape[0] * shape[1], shape[0]))


def _along_nodes(nodes: int, threads: int, prices: _Prices) -> tuple[float, float, str]:
    """Return the price on all nodes with few threads, the error of it, and the terms."""
    most = EXACT // threads
    line: list[int] = []
    found: list[float] = []
    for n in [*(1 << k for k in range(1, most.bit_length()) if 1 << k < nodes), nodes]:
        if n > most or not prices.can(n, threads):
            break
        line.append(n)
        found.append(prices.at(n, threads))
    if line and line[-1] == nodes:
        return found[-1], 0.0, "all nodes"
    if len(line) < _LEAST_LINE:
        raise TooLarge(f"the plans on more than {line[-1] if line else 1} nodes are too long")
    values = np.array(found)
    subsets = [some for size in (1, 2, 3) for some in combinations(_TERMS, size)]
    tried = [(_missed(some, line, values), some) for some in subsets]
    error, terms = min(tried, key=lambda pair: (round(pair[0], 3), len(pair[1])))
    factors = _solve(_columns(terms, line), values)
    text = " + ".join(
        f"{f / 1e3:.3g} us" + ("" if t == "1" else f" {t}")
        for f, t in zip(factors, terms, strict=True) if f
    )  # fmt: skip
    return float((_columns(terms, [nodes]) @ factors)[0]), error, text


def _missed(terms: Sequence[str], line: Sequence[int], prices: NDArray[np.float64]) -> float:
    """Return the largest share by which terms miss prices if the last two are left out."""
    columns = _columns(terms, line)
    found = columns @ _solve(columns[:-2], prices[:-2])
    return float(np.max(np.abs(found / prices - 1)[1:]))


def _columns(terms: Sequence[str], line: Sequence[int]) -> NDArray[np.float64]:
    return np.array([[_TERMS[term](n) for term in terms] for n in line])


def _solve(columns: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factors of the least relative error, none of them negative."""
    left = list(range(columns.shape[1]))
    found = np.zeros(columns.shape[1])
    while left:
        some = np.linalg.lstsq(columns[:, left] / values[:, None], np.ones(len(values)), None)[0]
        if (some >= 0).all():
            found[left] = some
            break
        left.pop(int(np.argmin(some)))
    return found
